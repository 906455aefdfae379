"""Play checkpoints and score them: in a window, as videos, or without pictures."""

import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import gymnasium
from rich.console import Console as RichConsole

from es.algorithm.noise import Stream, derive_seeds
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
from es.policy import Policy, make_policy
from es.reports.video import (
    WITHOUT_PICTURES,
    ShowFrames,
    Video,
    Window,
    WindowClosed,
    frames_per_second,
    make_drawn,
)
from es.rollouts.episode import Actor, Episode, close, rollout

EPISODES, RECORDED_EPISODES = 10, 1  # where --episodes is not given
MOST_EPISODES = 10_000  # in a window: more than anybody watches


def test(
    loaders: Sequence[Callable[[], tuple[Config, Checkpoint | None]]],
    interrupts: Interrupts,
    *,
    several: bool,
) -> int:
    """Load and play checkpoints, one after the other; return the exit status.

    loaders: each returns the settings and the checkpoint to play. several: whether they are those
    of a directory. Each is then named, also in its video's name, and those that cannot be played
    are reported as errors and skipped.
    """
    interrupts.defer()
    status = 0
    for load in loaders:
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
    config: Config, checkpoint: Checkpoint | None, interrupts: Interrupts, several: bool
) -> None:
    """Play a checkpoint's episodes; print their rewards and a summary.

    Raise WindowClosed or Interrupted, after the summary, if the user ended the last episode.
    """
    policy = make_policy(config, checkpoint)
    actor, cap = policy.actor(), policy.recipe.cap(config.max_episode_length)
    update = checkpoint.counters.update if checkpoint and checkpoint.config else None
    quiet = config.json or config.silent
    say: Callable[[str], None] = (lambda line: None) if quiet else partial(print, flush=True)
    if several:
        say(f"{config.restore}, update {update}:")
    # The scores are those of the run's own evaluation, which has the same seeds.
    count = _count(config, several)
    seeds = derive_seeds(config.seed or 0, policy.update, Stream.EVALUATION, count)
    episodes: list[Episode] = []
    ended: WindowClosed | Interrupted | None = None
    with ExitStack() as stack:
        env, video = _make(policy, update, several)
        if video:
            stack.callback(video.discard)  # unless it is saved
        try:
            with RichConsole(quiet=quiet).status("") as status:  # on a terminal alone
                for seed in seeds:
                    status.update(f"Playing episode {len(episodes) + 1} ...")
                    with interrupts.allowed():
                        episodes.append(_play(env, actor, seed, cap, config.env_name))
                    reward, steps = episodes[-1]
                    say(f"Episode {len(episodes)}: reward {reward:.2f}, {steps} steps")
        except (WindowClosed, Interrupted) as early:
            ended = early
        finally:
            close(env)
        if episodes:
            returns = [episode.episode_return for episode in episodes]
            mean, std = mean_and_std(returns)
            figures = {"mean": mean, "std": std, "min": min(returns), "max": max(returns)}
            line = (
                f"{counted(len(episodes), 'episode')}: mean {mean:.2f}, standard deviation "
                f"{std:.2f}, min {min(returns):.2f}, max {max(returns):.2f}"
            )
            if config.json:  # which has no word for numbers that are not finite
                line = json.dumps({
                    "checkpoint": config.restore,
                    "env_name": config.env_name,
                    "update": update,
                    "seed": config.seed,
                    "stochastic_start": config.stochastic_start or 0,
                    "episodes": len(episodes),
                    **{name: _finite(figure) for name, figure in figures.items()},
                    "returns": [_finite(each) for each in returns],
                    "lengths": [episode.steps for episode in episodes],
                    "seeds": seeds[: len(episodes)],
                })  # fmt: skip
            print(line, flush=True)
        if video and video.frames:
            path = video.path
            if several and episodes:
                path = path.with_stem(f"{path.stem}-return-{mean:.2f}")
            video.save(path)
            stack.pop_all()
            say(f"Recorded {path}: {video.frames} frames, {video.seconds:.1f} s")
    if ended:
        raise ended


def _play(env: gymnasium.Env, actor: Actor, seed: int, cap: int, name: str) -> Episode:
    try:
        return rollout(env, actor, seed, cap)
    except BaseException as error:
        if isinstance(error, UsageError | WindowClosed) or is_interrupt(error):
            raise
        line = f"--env-name {name}: the episode of seed {seed} failed: {summary_of(error)}"
        raise RunError(line, episode_trace(error)) from error


def _make(policy: Policy, update: int | None, several: bool) -> tuple[gymnasium.Env, Video | None]:
    """Return the environment that shows its frames, if any, and the video that they go to."""
    config, environment = policy.config, policy.environment
    if config.stochastic_start:
        environment = environment | {"noop_max": config.stochastic_start}
    if config.video is None and (config.no_render or config.json):
        return make_env(environment), None
    drawn = make_drawn(environment, WITHOUT_PICTURES)
    speed = frames_per_second(drawn, environment["frame_skip"])
    if config.video is None:
        return ShowFrames(drawn, Window(config.env_name, speed), "--test"), None
    path = Path(config.video)
    if several:
        path = path.with_stem(f"{path.stem}-{Path(config.restore).stem}")
    name = config.env_name.rpartition(":")[2]
    title = name if update is None else f"{name}   update {update}"
    video = Video(path, speed, title)
    return ShowFrames(drawn, video, "--video"), video


def _count(config: Config, several: bool) -> int:
    """Return how many episodes to play at most; a window can be closed before.

    several: of each of several checkpoints.
    """
    if config.episodes is not None or config.video is not None:
        return config.episodes or RECORDED_EPISODES
    if config.no_render or config.json:
        return EPISODES
    return 1 if several else MOST_EPISODES


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
