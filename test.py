"""Play a checkpoint and score it: in a window, or without one."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np

from envs import make_env
from es.batch import mean_and_std
from es.checkpoint import Checkpoint
from es.config import Config
from es.errors import UsageError
from es.interrupts import Interrupted, Interrupts
from es.rollout import evaluation_seed, rollout
from es.versions import notice
from game import Game, Restored, describe, restored_normalizer

UNSEEN_EPISODES = 10
SMALLEST_WINDOW = 400  # pixels: smaller pictures, such as Atari's, are enlarged


class WindowClosed(Exception):  # noqa: N818 (no error)
    """The user closed the window."""


class Window(gymnasium.Wrapper):
    """Shows every frame of an environment that renders to arrays, at its own speed."""

    def __init__(self, env: gymnasium.Env, pygame: Any, title: str, frame_skip: int = 1) -> None:
        super().__init__(env)
        self._pygame, self._title = pygame, title
        self._screen: Any = None
        self._clock = self._pygame.time.Clock()
        self._frames_per_second = _frames_per_second(env) / frame_skip

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and shows its first frame."""
        outcome = super().reset(**kwargs)
        self._show()
        return outcome

    def step(self, action: Any) -> Any:
        """Plays a step and shows it; raises WindowClosed."""
        outcome = super().step(action)
        self._show()
        return outcome

    def close(self) -> None:
        """Closes the window and the environment."""
        self._pygame.display.quit()
        super().close()

    def _show(self) -> None:
        pygame = self._pygame
        try:
            frame: Any = self.env.render()
            surface = pygame.surfarray.make_surface(np.transpose(frame, (1, 0, 2)))
        except Exception as error:  # no graphics for the simulator, or no pictures at all
            words = " ".join(str(error).split())
            raise UsageError(
                f"--test: {self._title} cannot be shown ({words}); give --no-render"
            ) from error
        if self._screen is None:
            factor = -(-SMALLEST_WINDOW // min(surface.get_size()))
            size = tuple(factor * side for side in surface.get_size())
            self._screen = pygame.display.set_mode(size)
            pygame.display.set_caption(self._title)
        pygame.transform.scale(surface, self._screen.get_size(), self._screen)
        pygame.display.flip()
        self._clock.tick(self._frames_per_second)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise WindowClosed


def open_display() -> Any:
    """The module pygame with its display opened; raises UsageError where there is none."""
    chosen = os.environ.get("SDL_VIDEODRIVER")
    none = UsageError("--test: there is no display to open a window on; give --no-render")
    if sys.platform == "linux" and not (
        chosen or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        raise none  # SDL would complain on its own before it falls back
    if sys.platform == "linux" and "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")  # which needs none
    # SDL asks Wayland first, whose library prints an error of its own without this folder.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    import pygame

    try:
        pygame.display.init()
    except pygame.error:
        raise none from None
    if not chosen and pygame.display.get_driver() in ("offscreen", "dummy"):
        raise none  # SDL's last resorts, which show nothing
    return pygame


def test(config: Config, restored: Restored, interrupts: Interrupts) -> int:
    """Plays episodes and prints their rewards and a summary; the result is the exit status."""
    game, theta = describe(config, restored)
    recipe = game.recipe()
    actor, cap = recipe.make_actor(), recipe.cap(config.max_episode_length)
    ours = restored if isinstance(restored, Checkpoint) else None
    normalizer = restored_normalizer(config, game, ours)
    actor.bind(theta, normalizer.statistics() if normalizer else None)
    if ours and not config.silent and (told := notice(ours.versions, config.restore)):
        print(told)
    env = make_env(game.environment) if config.no_render else _in_a_window(config, game)
    returns: list[float] = []
    status = 0
    interrupts.defer()
    with closing(env):
        try:
            for index in itertools.islice(itertools.count(), _episodes(config)):
                seed = _episode_seed(config, restored, index)
                with interrupts.allowed():
                    episode = rollout(env, actor, seed, cap)
                returns.append(episode.episode_return)
                print(f"Episode {index + 1}: reward {episode.episode_return:.2f}, "
                      f"{episode.steps} steps", flush=True)  # fmt: skip
        except WindowClosed:
            pass
        except Interrupted as interrupted:
            status = interrupted.status
    if returns:
        mean, std = mean_and_std(returns)
        print(
            f"{len(returns)} episodes: mean {mean:.2f}, standard deviation {std:.2f}, "
            f"min {min(returns):.2f}, max {max(returns):.2f}"
        )
    return status


def _in_a_window(config: Config, game: Game) -> Window:
    pygame = open_display()
    try:
        shown = make_env(game.environment, "rgb_array")
    except UsageError as error:  # some environments have no pictures
        raise UsageError(f"{error}; to play it unseen give --no-render") from error
    return Window(shown, pygame, config.env_name, game.environment["frame_skip"])


def _episodes(config: Config) -> int | None:
    if config.episodes is None and config.no_render:
        return UNSEEN_EPISODES
    return config.episodes


def _episode_seed(config: Config, restored: Restored, index: int) -> int:
    """By default that of the run's own evaluation of these parameters: its score comes again."""
    update = restored.counters.update if isinstance(restored, Checkpoint) else 0
    return evaluation_seed(config.seed or 0, update, index)


def _frames_per_second(env: gymnasium.Env) -> float:
    """An environment's own speed; Atari's 60 frames are counted before some are skipped."""
    skipped = getattr(env.unwrapped, "_frameskip", None)
    if isinstance(skipped, int):
        return 60 / skipped
    return env.metadata.get("render_fps") or 30
