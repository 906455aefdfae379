"""Atari games at the speed of their emulator, and FIRE at the start of each life."""

from typing import Any, cast

import ale_py
import gymnasium
import numpy as np

from es.algorithm.noise import FloatArray
from es.environments.images import (
    OBSERVATIONS,
    PLAY_FIELD,
    SIZE,
    ImageNormalizer,
    resampling,
    shrink_screen,
)
from es.errors import UsageError

UNKNOWN = -1e6  # the brightness of a colour not seen so far
NOOP = ale_py.Action.NOOP


class AtariImages(gymnasium.Wrapper):
    """Show an emulator's screens as the network sees them: (1, 42, 42) float32.

    Except for rounding, it shows what `ImageObservation` shows. It reads the palette screen instead
    of the full colours, and only rows that have changed. Sticky actions (Machado et al., 2018) are
    drawn from the environment's own generator. The emulator's own takes a seed only when it
    loads the game, which every episode would then have to do.
    """

    def __init__(self, env: ale_py.AtariEnv) -> None:
        super().__init__(env)
        self.observation_space = OBSERVATIONS
        self._emulator, self._ale, self._act = env, env.ale, env.ale.act
        self._frameskip, self._actions = env._frameskip, list(env._action_set)
        self._stickiness = self._ale.getFloat("repeat_action_probability")
        if self._stickiness:
            self._ale.setFloat("repeat_action_probability", 0.0)
            env.load_game()
        self._ale.reset_game()
        self._first_state = self._ale.cloneState(include_rng=True)
        self._screen = self._ale.getScreen()
        self._first_screen = self._screen.copy()
        self._field = self._screen[PLAY_FIELD]
        matrix = resampling(len(self._field))
        self._first = (matrix > 0).argmax(axis=1)  # each row has at most 4 numbers, side by side
        taps = np.take_along_axis(matrix, self._first[:, np.newaxis] + np.arange(4), axis=1)
        self._taps = taps.reshape(-1)
        self._brightness = np.full(256, UNKNOWN, np.float32)  # of the colours, from 0 to 1
        self._seen = np.invert(self._field)  # so that every row is new
        self._rows = np.empty(len(self._field) * SIZE, np.float32)
        self.image = np.empty(SIZE * SIZE, np.float32)
        self._normalizer = ImageNormalizer()
        self._learn_colours()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start an episode; return the first observation, and no information."""
        if seed is not None:
            self._emulator.seed_game(seed)
        # For a few games, neither a reset nor a restored state is enough alone.
        self._ale.reset_game()
        self._ale.restoreState(self._first_state)
        np.copyto(self._screen, self._first_screen)
        self._played = NOOP
        self._draw = self._emulator.np_random.random
        self._normalizer.reset()
        return self._look(), {}

    def step(self, action: Any) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Play an action for as many frames as are skipped; return no information."""
        code, reward, skip = self._actions[action], 0.0, self._frameskip
        for _ in range(skip if isinstance(skip, int) else self._emulator.np_random.integers(*skip)):
            if not self._stickiness or self._draw() >= self._stickiness:
                self._played = code
            reward += self._act(self._played)
        ale = self._ale
        ale.getScreen(self._screen)
        over = ale.game_over(with_truncation=False)
        return self._look(), reward, over, ale.game_truncated(), {}

    def _look(self) -> FloatArray:
        while not shrink_screen(
            self._field, self._seen, self._brightness, self._first, self._taps, self._rows,
            self.image,
        ):  # fmt: skip
            self._learn_colours()
        return self._normalizer(self.image)

    def _learn_colours(self) -> None:
        """Put the brightness of all colours on the emulator's screen into the table."""
        colours = self._emulator._get_obs()[PLAY_FIELD]
        bright = colours.reshape(*self._field.shape, -1).mean(axis=2, dtype=np.float64) / 255
        self._brightness[self._field] = bright
        np.invert(self._field, out=self._seen)


class FireOnNewLife(gymnasium.Wrapper):
    """Begin each life of a game with FIRE and the action after it, whatever the policy chooses.

    Some games wait for FIRE. Raise UsageError if the game has no such action.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._emulator = cast(ale_py.AtariEnv, env.unwrapped)
        names = self._emulator.get_action_meanings()
        if "FIRE" not in names or not isinstance(env.action_space, gymnasium.spaces.Discrete):
            name = env.spec.id if env.spec else ""
            raise UsageError(f"--fire-reset: {name} has no action FIRE. Remove the flag")
        self._fire = names.index("FIRE")
        self.start_episode()

    def start_episode(self) -> None:
        """Begin the first life."""
        self._lives, self._left = 0, 2

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self.start_episode()
        return super().reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play FIRE, the action after it, or this action."""
        return self.env.step(self.replace(action, self._emulator.ale.lives()))

    def replace(self, action: Any, lives: int) -> Any:
        """Return the action to play: FIRE, the one after it, or `action` itself.

        lives: how many are left before it is played; 0 if unknown.
        """
        if lives < self._lives:
            self._left = 2
        self._lives = lives
        if not self._left:
            return action
        self._left -= 1
        return self._fire + 1 - self._left
