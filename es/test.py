"""Play checkpoints and score them: in a window, as videos, or unseen."""

from __future__ import annotations

import itertools
import json
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from rich.console import Console as RichConsole

from es.algorithm.population import mean_and_std
from es.config import Config
from es.envs import make_env
from es.errors import RunError, UsageError
from es.interrupts import Interrupted, Interrupts
from es.policy import describe
from es.rendering.show_frames import ShowFrames, frames_per_second, make_drawn
from es.rendering.video import Video
from es.rendering.window import Window, WindowClosed
from es.rollouts.interface import counted
from es.rollouts.rollout import Actor, Episode, evaluation_seed, rollout
from es.runs.checkpoint import Checkpoint
from es.runs.restored import Restored, restored_normalizer
from es.runs.versions import notice

UNSEEN_EPISODES, RECORDED_EPISODES = 10, 1  # where --episodes says nothing


def test(
    checkpoints: Sequence[Callable[[], tuple[Config, Restored]]],
    interrupts: Interrupts,
    *,
    several: bool,
) -> int:
    """Plays checkpoints, loaded one after the other; the result is the exit status.

    several: they are a directory's: each is named, and so is its video; what cannot be played is
    told, and left out.
    """
    interrupts.defer()
    status = 0
    for load in checkpoints:
        try:
            _test(*load(), interrupts, several)
        except UsageError as error:
            if not several:
                raise
            print(f"error: {error}", file=sys.stderr, flush=True)
            status = error.status
        except WindowClosed:
            break
        except Interrupted as interrupted:
            return interrupted.status
    return status


def _test(config: Config, restored: Restored, interrupts: Interrupts, several: bool) -> None:
    """Plays a checkpoint's episodes; prints their rewards and a summary, of those there were.

    Raises WindowClosed or Interrupted, where the user ends it.
    """
    setup, theta = describe(config, restored)
    recipe = setup.recipe
    actor, cap = recipe.make_actor(), recipe.cap(config.max_episode_length)
    ours = restored if isinstance(restored, Checkpoint) else None
    update = ours.counters.update if ours else None
    normalizer = restored_normalizer(config, setup.normalized_inputs, ours)
    actor.bind(theta, normalizer.statistics() if normalizer else None)
    quiet = config.json or config.silent
    say: Callable[[str], None] = (lambda line: None) if quiet else partial(print, flush=True)
    if several:
        say(f"{config.restore}, update {update}:")
    if ours and (told := notice(ours.versions, config.restore)):
        say(told)
    environment = setup.environment
    if config.stochastic_start:
        environment = environment | {"noop_max": config.stochastic_start}
    env, video = _make(config, environment, update, several)
    episodes: list[Episode] = []
    ended: WindowClosed | Interrupted | None = None
    try:
        with closing(env), RichConsole(quiet=config.silent).status("") as status:
            for index in itertools.islice(itertools.count(), _count(config)):
                status.update(f"Playing episode {index + 1} ...")
                with interrupts.allowed():
                    # As the run's own evaluation of these parameters: its score comes again.
                    seed = evaluation_seed(config.seed or 0, update or 0, index)
                    episodes.append(_play(env, actor, seed, cap, config.env_name))
                episode_return, steps = episodes[-1]
                say(f"Episode {index + 1}: reward {episode_return:.2f}, {steps} steps")
    except (WindowClosed, Interrupted) as early:
        ended = early
    except BaseException:
        if video:
            video.discard()
        raise
    if episodes:
        print(_as_json(config, update, episodes) if config.json else _in_words(episodes))
    if video:
        path = video.path
        if several and episodes:
            mean, _ = mean_and_std([episode.episode_return for episode in episodes])
            path = path.with_stem(f"{path.stem}-return-{mean:.2f}")
        ended = _save(video, path, interrupts, say) or ended
    if ended:
        raise ended


def _play(env: gymnasium.Env, actor: Actor, seed: int, cap: int, name: str) -> Episode:
    try:
        return rollout(env, actor, seed, cap)
    except (RunError, WindowClosed):
        raise
    except Exception as error:  # with its traceback, as in training
        raise RunError(
            f"--env-name {name}: the episode of seed {seed} failed; it raised:\n"
            f"{traceback.format_exc().rstrip()}"
        ) from error


def _save(
    video: Video, path: Path, interrupts: Interrupts, say: Callable[[str], None]
) -> Interrupted | None:
    """Makes the file of a video: beside it, as an MP4, if the user does not wait for a GIF."""
    interrupted = None
    if not video.frames:
        video.discard()
        return None
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
    """The environment as it is to be watched, and the video that it is recorded in, if it is."""
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
    """How many episodes; None: until the window is closed."""
    if config.episodes is not None:
        return config.episodes
    if config.video is not None:
        return RECORDED_EPISODES
    return UNSEEN_EPISODES if config.no_render or config.json else None


def _in_words(episodes: Sequence[Episode]) -> str:
    returns = [episode.episode_return for episode in episodes]
    mean, std = mean_and_std(returns)
    return (
        f"{counted(len(returns), 'episode')}: mean {mean:.2f}, standard deviation {std:.2f}, "
        f"min {min(returns):.2f}, max {max(returns):.2f}"
    )


def _as_json(config: Config, update: int | None, episodes: Sequence[Episode]) -> str:
    """One line; a number that is not finite, which JSON does not know, becomes null."""
    returns = [episode.episode_return for episode in episodes]
    mean, std = mean_and_std(returns)
    figures = {"mean": mean, "std": std, "min": min(returns), "max": max(returns)}
    return json.dumps(
        {
            "checkpoint": config.restore,
            "env_name": config.env_name,
            "update": update,
            "seed": config.seed,
            "stochastic_start": config.stochastic_start or 0,
            "episodes": len(episodes),
            **{name: _finite(figure) for name, figure in figures.items()},
            "returns": [_finite(episode_return) for episode_return in returns],
            "lengths": [episode.steps for episode in episodes],
        }
    )


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
