"""Atari games at the speed of their emulator: palette screens, resets without loading."""

import re
import struct
from collections.abc import Callable
from typing import Any, cast

import ale_py
import gymnasium
import numpy as np

from es.algorithm.noise import FloatArray
from es.environments.images import OBSERVATIONS, PLAY_FIELD, PreprocessImage
from es.environments.screens import FieldView, image_view

GENERATOR = re.compile(rb"(?:\d+ ){624}\d+")  # a Mersenne Twister, as C++ writes it
NUMBER = struct.Struct("<I")  # as a saved state holds one


def is_bare(env: gymnasium.Env) -> bool:
    """Return whether this is an emulator without wrappers that takes single actions."""
    return type(env) is ale_py.AtariEnv and isinstance(env.action_space, gymnasium.spaces.Discrete)


def as_images(env: gymnasium.Env) -> gymnasium.Env:
    """Return an image environment with the images that the network sees: (1, 42, 42) float32."""
    if is_bare(env):
        return AtariImages(cast(ale_py.AtariEnv, env))
    return PreprocessImage(env, image_view(env))


class Opening:
    """Begin each life of a game with FIRE and the action after it, whatever is chosen.

    Some games wait for FIRE. Raise ValueError if the game has no such action.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        emulator: Any = env.unwrapped
        names = emulator.get_action_meanings()
        if "FIRE" not in names or not isinstance(env.action_space, gymnasium.spaces.Discrete):
            raise ValueError("has no action FIRE")
        self._fire = names.index("FIRE")
        self.reset()

    def reset(self) -> None:
        """Start an episode."""
        self._lives, self._left = 0, 2

    def __call__(self, action: Any, lives: int) -> Any:
        """Return what is played instead of an action, or the action itself.

        lives: how many were left before it; 0 if unknown.
        """
        if lives < self._lives:
            self._left = 2
        self._lives = lives
        if not self._left:
            return action
        self._left -= 1
        return self._fire + 1 - self._left


class FireReset(gymnasium.Wrapper):
    """Press FIRE for a policy that need not know of it, as `Opening` does."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._opening, base = Opening(env), cast(ale_py.AtariEnv, env.unwrapped)
        self._lives = base.ale.lives

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._opening.reset()
        return super().reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play FIRE, the action after it, or this action."""
        return self.env.step(self._opening(action, self._lives()))


class AtariImages(gymnasium.Wrapper):
    """Step an emulator and read its palette screen, not the full colours that Gymnasium reads."""

    def __init__(self, env: ale_py.AtariEnv) -> None:
        super().__init__(env)
        self.observation_space = OBSERVATIONS
        self._emulator = env
        self._ale, self._act = env.ale, env.ale.act
        self._frameskip = env._frameskip
        self._actions = list(env._action_set)
        self._screen = env.ale.getScreen()
        self._field = self._screen[PLAY_FIELD]
        self._view = FieldView(len(self._field))
        self._restart = _quick_restart(env)
        self._ale.getScreen(self._screen)
        self._learn_colours()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start an episode; return the first observation, and no information."""
        if seed is None or self._restart is None:
            self._emulator.reset(seed=seed, options=options)
            self._ale.getScreen(self._screen)
        else:
            np.copyto(self._screen, self._restart(seed))
        self._view.reset()
        self._view.expect_change(self._field)
        return self._look(), {}

    def step(self, action: Any) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Play an action for as many frames as are skipped; return no information."""
        code, reward, skip = self._actions[action], 0.0, self._frameskip
        for _ in range(skip if isinstance(skip, int) else self._emulator.np_random.integers(*skip)):
            reward += self._act(code)
        ale = self._ale
        ale.getScreen(self._screen)
        over = ale.game_over(with_truncation=False)
        return self._look(), reward, over, ale.game_truncated(), {}

    def _look(self) -> FloatArray:
        while not self._view.shrink(self._field):
            self._learn_colours()
        return self._view.normalized()

    def _learn_colours(self) -> None:
        """Put the brightness of all colours on the emulator's screen into the table."""
        colours = self._emulator._get_obs()[PLAY_FIELD]
        bright = colours.reshape(*self._field.shape, -1).mean(axis=2, dtype=np.float64) / 255
        self._view.brightness[self._field] = bright
        self._view.expect_change(self._field)


def _quick_restart(env: ale_py.AtariEnv) -> Callable[[int], np.ndarray] | None:
    """Return a function that starts an episode by a seed in 3 ms and returns the first screen.

    env: its game is loaded and not played yet.

    The emulator takes a seed only while it loads a game, which takes 65 ms. The seed decides the
    state of its generator alone; so the function restores the state right after loading, with
    another generator in it. Return None if the saved state does not look as expected.
    """
    ale = env.ale
    ale.reset_game()
    screen = ale.getScreen()
    state = ale.cloneState(include_rng=True).serialize()
    generators = list(GENERATOR.finditer(state))
    lengths = [at for at in range(64) if NUMBER.unpack_from(state, at)[0] == len(state) - at - 12]
    loaded_with = _generator(ale.getInt("random_seed") % 2**32)
    if not generators or len(lengths) != 1 or generators[-1][0] != loaded_with:
        return None
    length, (start, stop) = lengths[0], generators[-1].span()

    def restart(seed: int) -> np.ndarray:
        _, emulator_seed = env.seed_game(seed)
        ale.reset_game()  # since a state does not hold the last action, which may be repeated
        generator = _generator(int(emulator_seed))
        size = NUMBER.pack(len(generator))
        patched = bytearray(state[: start - 4] + size + generator + state[stop:])
        NUMBER.pack_into(patched, length, len(patched) - length - 12)
        ale.restoreState(ale_py.ALEState(bytes(patched)))
        return screen

    return restart


def _generator(seed: int) -> bytes:
    """Return a new Mersenne Twister's state as text: its 624 numbers and its position."""
    state: Any = np.random.RandomState(seed).get_state(legacy=False)["state"]
    return " ".join(map(str, [*state["key"].tolist(), state["pos"]])).encode()
