"""Play checkpoints and score them: in a window, as videos, or unseen."""

import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from rich.console import Console as RichConsole

from es.algorithm.shaping import mean_and_std
from es.checkpoint import Checkpoint
from es.config import Config
from es.envs import make_env
from es.errors import (
    Interrupted,
    Interrupts,
    RunError,
    UsageError,
    counted,
    episode_trace,
    is_interrupt,
    summary_of,
)
from es.policy import describe, restored_normalizer
from es.rendering.playing import Playing
from es.rendering.show_frames import ShowFrames, frames_per_second, make_drawn
from es.rendering.video import Video
from es.rendering.window import Window, WindowClosed
from es.rollouts.episode import Actor, Episode, close, rollout
from es.rollouts.tasks import evaluation_seeds

UNSEEN_EPISODES, RECORDED_EPISODES = 10, 1  # where --episodes says nothing


def test(
    checkpoints: Sequence[Callable[[], tuple[Config, Checkpoint | None]]],
    interrupts: Interrupts,
    *,
    several: bool,
) -> int:
    """Load and play checkpoints, one after the other; return the exit status.

    several: the checkpoints of a directory. Name each of them, also in its video's name, and report
    those that cannot be played as errors, but go on.
    """
    interrupts.defer()
    status = 0
    for load in checkpoints:
        try:
            _test(*load(), interrupts, several)
        except RunError as error:
            if not several:
                raise
            print(f"error: {error}", file=sys.stderr, flush=True)
            status = error.status
        except WindowClosed:
            break
        except Interrupted as interrupted:
            return interrupted.status
    return status


def _test(
    config: Config, restored: Checkpoint | None, interrupts: Interrupts, several: bool
) -> None:
    """Play a checkpoint's episodes; print their rewards and a summary.

    Raise WindowClosed or Interrupted, after the summary, if the user ended the last episode.
    """
    setup, theta = describe(config, restored)
    actor, cap = setup.recipe.make_actor(), setup.recipe.cap(config.max_episode_length)
    update = restored.counters.update if restored and restored.config else None
    normalizer = restored_normalizer(config, setup.normalized_inputs, restored)
    actor.bind(theta, normalizer.statistics() if normalizer else None)
    quiet = config.json or config.silent
    say: Callable[[str], None] = (lambda line: None) if quiet else partial(print, flush=True)
    if several:
        say(f"{config.restore}, update {update}:")
    environment = setup.environment
    if config.stochastic_start:
        environment = environment | {"noop_max": config.stochastic_start}
    env, video = _make(config, environment, update, several)
    episodes: list[Episode] = []
    ended: WindowClosed | Interrupted | None = None
    try:
        playing = Playing(RichConsole(quiet=quiet), video, _count(config) or 0, cap)
        with _closing(env, config.env_name), playing:
            seeds = itertools.islice(_seeds(config, update), _count(config))
            for index, seed in enumerate(seeds):
                playing.begin(index)
                with interrupts.allowed():
                    episodes.append(_play(env, actor, seed, cap, config.env_name))
                episode_return, steps = episodes[-1]
                say(f"Episode {index + 1}: reward {episode_return:.2f}, {steps} steps")
    except (WindowClosed, Interrupted) as early:
        ended = early
    except BaseException:
        if video:
            video.discard()
        raise
    path = video.path if video else None
    if episodes:
        figures = _summarise(episodes)
        print(
            _as_json(config, update, episodes, figures)
            if config.json
            else f"{counted(len(episodes), 'episode')}: mean {figures['mean']:.2f}, standard "
            f"deviation {figures['std']:.2f}, min {figures['min']:.2f}, max {figures['max']:.2f}"
        )
        if path and several:
            path = path.with_stem(f"{path.stem}-return-{figures['mean']:.2f}")
    if video and path:
        ended = _save(video, path, interrupts, say) or ended
    if ended:
        raise ended


@contextmanager
def _closing(env: gymnasium.Env, name: str) -> Iterator[None]:
    """Close the environment after this context; warn the user if that fails."""
    try:
        yield
    finally:
        if complaint := close(env):
            print(f"warning: --env-name {name}: {complaint}", file=sys.stderr, flush=True)


def _seeds(config: Config, update: int | None) -> Iterator[int]:
    """Yield the episodes' seeds: their scores are those of the run's own evaluation."""
    return evaluation_seeds(config.seed or 0, update or 0)


def _play(env: gymnasium.Env, actor: Actor, seed: int, cap: int, name: str) -> Episode:
    try:
        return rollout(env, actor, seed, cap)
    except BaseException as error:
        if isinstance(error, UsageError | WindowClosed) or is_interrupt(error):
            raise
        line = f"--env-name {name}: the episode of seed {seed} failed: {summary_of(error)}"
        raise RunError(line, episode_trace(error)) from error


def _save(
    video: Video, path: Path, interrupts: Interrupts, say: Callable[[str], None]
) -> Interrupted | None:
    """Save a video; if the user interrupts the making of a GIF, save it as an MP4 beside it."""
    if not video.frames:
        video.discard()
        return None
    interrupted = None
    try:
        with interrupts.allowed():
            video.save(path)
    except Interrupted as early:
        interrupted = early
        path = path if path.suffix.lower() == ".mp4" else path.with_name(f"{path.name}.mp4")
        video.save(path)
    say(f"Recorded {path}: {video.frames} frames, {video.seconds:.1f} s")
    return interrupted


def _make(
    config: Config, environment: dict[str, Any], update: int | None, several: bool
) -> tuple[gymnasium.Env, Video | None]:
    """Return the environment that shows its frames, if any, and the video that they go to."""
    if config.video is None and (config.no_render or config.json):
        return make_env(environment), None
    drawn = make_drawn(
        partial(make_env, environment, "rgb_array"),
        environment["kwargs"],
        "to play it unseen give --no-render",
    )
    speed = frames_per_second(drawn, environment["frame_skip"])
    if config.video is None:
        return ShowFrames(drawn, Window(config.env_name, speed), "--test"), None
    path = Path(config.video)
    if several:
        path = path.with_stem(f"{path.stem}-{Path(config.restore).stem}")
    title = config.env_name if update is None else f"{config.env_name}   update {update}"
    video = Video(path, speed, title)
    return ShowFrames(drawn, video, "--video"), video


def _count(config: Config) -> int | None:
    """Return how many episodes to play; None: until the window is closed."""
    if config.episodes is not None:
        return config.episodes
    if config.video is not None:
        return RECORDED_EPISODES
    return UNSEEN_EPISODES if config.no_render or config.json else None


def _summarise(episodes: Sequence[Episode]) -> dict[str, float]:
    mean, std = mean_and_std(returns := [episode.episode_return for episode in episodes])
    return {"mean": mean, "std": std, "min": min(returns), "max": max(returns)}


def _as_json(
    config: Config, update: int | None, episodes: Sequence[Episode], figures: dict[str, float]
) -> str:
    """Return one line; null stands for numbers that are not finite, which JSON does not have."""
    return json.dumps(
        {
            "checkpoint": config.restore,
            "env_name": config.env_name,
            "update": update,
            "seed": config.seed,
            "stochastic_start": config.stochastic_start or 0,
            "episodes": len(episodes),
            **{name: _finite(figure) for name, figure in figures.items()},
            "returns": [_finite(episode.episode_return) for episode in episodes],
            "lengths": [episode.steps for episode in episodes],
            "seeds": [*itertools.islice(_seeds(config, update), len(episodes))],
        }
    )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
