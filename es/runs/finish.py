"""When a run ends, and how: the ending conditions, the last line and the exit status."""

import math
import signal
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from es.checkpoint import LATEST, Checkpoint, Counters
from es.config import FIELDS, Config, flag
from es.errors import Interrupted, Interrupts, RunError, command, counted
from es.rendering.window import watching
from es.reports.advice import after_missing_the_target
from es.reports.films import VideoRecorder, waiting
from es.reports.live_view import RunLimits
from es.reports.reporter import Reporter
from es.reports.tables import read_progress
from es.reports.terminal import Terminal
from es.rollouts.tasks import Pool
from es.runs.directory import PROGRESS, open_existing
from es.settings import scored_alike

MISSED = 1  # exit status of a run that did not reach its target
AGAIN = 10  # updates after an evaluation that missed the target until the next one at the latest
LIMITS = ("max_frames", "max_minutes", "max_gradient_updates")


class Outcome(NamedTuple):
    """How a run ended: exit status, directory, whether it reached its target, its last state."""

    status: int
    path: Path
    solved: bool
    checkpoint: Checkpoint


def evaluation_due(config: Config, counters: Counters) -> bool:
    """Return whether --eval-every wants these parameters evaluated."""
    every, update = config.eval_every, counters.update
    return every is not None and update % every == 0 and update > counters.evaluated


def target_due(config: Config, counters: Counters) -> bool:
    """Return whether these parameters are to be evaluated for --target-return.

    The mean of the recent unperturbed returns has to reach the target. After an evaluation that
    missed it, this mean has to rise, or AGAIN updates have to pass.
    """
    mean, missed = counters.recent_mean, counters.missed_return
    if config.target_return is None or not config.target_return <= mean < math.inf:
        return False
    return missed is None or mean > missed or counters.update >= counters.missed_update + AGAIN


def ending(config: Config, counters: Counters) -> str | None:
    """Return the ending condition that a run has met, in words."""
    if counters.update >= config.max_gradient_updates:
        return f"{counters.update} updates (--max-gradient-updates)"
    if config.max_frames is not None and counters.frames >= config.max_frames:
        return f"{counters.frames} frames (--max-frames)"
    if config.max_minutes is not None and counters.wall_seconds >= 60 * config.max_minutes:
        return f"{counters.wall_seconds / 60:.1f} minutes (--max-minutes)"
    return None


def run_limits(config: Config, run_dir: Path, counters: Counters) -> RunLimits:
    """Return where the run ends, for the live view."""
    caps = {
        "update": config.max_gradient_updates,
        "frames": config.max_frames,
        "minutes": config.max_minutes,
    }
    given = {name: cap for name, cap in caps.items() if cap is not None}
    if given == {"update": FIELDS["max_gradient_updates"].default}:
        given = {}  # so far away that nobody means it
    return RunLimits(config.env_name, run_dir, config.target_return, given, counters)


def met_before(config: Config, restored: Checkpoint | None) -> str | None:
    """Return the ending condition that the checkpoint's run has met already, in words."""
    if not restored or not restored.config or evaluation_due(config, restored.counters):
        return None
    if solved := solved_before(config, restored):
        return f"a mean return of {solved['mean']:.2f} (--target-return)"
    if target_due(config, restored.counters):
        return None
    return ending(config, restored.counters)


def solved_before(config: Config, restored: Checkpoint | None) -> dict[str, float] | None:
    """Return the evaluation in which the checkpoint's policy reached the target, if it did."""
    target = config.target_return
    if not restored or not restored.config or target is None or not restored.solved:
        return None
    reached = min(restored.solved["mean"], restored.solved["second_mean"]) >= target
    return restored.solved if reached and scored_alike(config, restored.config) else None


def pausing(config: Config, counters: Counters) -> bool:
    """Return whether no update follows at once."""
    return bool(
        evaluation_due(config, counters) or target_due(config, counters) or ending(config, counters)
    )


def finished_already(
    config: Config, restored: Checkpoint | None, met: str, console: Terminal, interrupts: Interrupts
) -> Outcome:
    """Record the videos that the run has left undone; return how it ended.

    met: the ending condition. Raise UsageError if another process works on the run.
    """
    checkpoint = Path(config.restore)
    if checkpoint.name == LATEST and waiting(checkpoint.parent):
        with closing(open_existing(checkpoint.parent, "--restore")) as directory:
            interrupts.defer()
            recorder = VideoRecorder(directory, config.flags_to_restore, console)
            recorder.close(lambda: interrupts.received is not None)
    console.close(
        f"Finished already: the run of {config.restore} has reached {met}: raise that to carry on."
    )
    assert restored is not None
    solved = solved_before(config, restored) is not None
    return Outcome(0, checkpoint.parent, solved, restored)


def continue_command(config: Config, checkpoint: Path, *flags: str) -> str:
    """Return the command that continues or plays a checkpoint of this run."""
    return command("main", *flags, "--restore", checkpoint, *config.flags_to_restore)


def carry_on_command(config: Config, checkpoint: Path, *flags: str) -> str:
    """Return the command that continues this run, on the same cluster.

    That is no setting of the run, but the user will probably want it again.
    """
    where = ("--ray", config.ray) if config.ray else ()
    return continue_command(config, checkpoint, *where, *flags)


def play_out(
    loop: Callable[[], None], pool: Pool, monitor: Reporter, interrupts: Interrupts
) -> tuple[Interrupted | None, Mapping[str, str]]:
    """Run the master loop to its end, then end workers and reports, after an error as well.

    Return the interrupt that ended the loop, if one did, and why files could not be written, by
    file name.
    """
    interrupted = None
    try:
        loop()
    except Interrupted as error:
        interrupted = error
    except BrokenPipeError:  # nobody reads the output any more, as after `| head`
        interrupted = Interrupted(signal.SIGPIPE)
    finally:
        monitor.console.stop()
        try:
            pool.close()  # first: its processes take the cores that the last picture needs
        finally:
            unwritten = monitor.close(
                hurried=lambda: interrupted is not None or interrupts.received is not None
            )
    return interrupted, unwritten


def conclude(
    config: Config,
    counters: Counters,
    solved: dict[str, float] | None,
    run_dir: Path,
    interrupted: Interrupted | None,
    unwritten: Mapping[str, str],
) -> tuple[int, str]:
    """Return the exit status and the last line of a run.

    unwritten: why files could not be written, by file name; raise RunError if there are any.
    """
    latest = run_dir / LATEST
    carry_on = carry_on_command(config, latest)
    done = (
        f"{counted(counters.update, 'update')}, {counted(counters.episodes, 'episode')}, "
        f"{counted(counters.frames, 'frame')}, {counters.wall_seconds:.1f} s"
    )
    saved = f", saved as {latest}"
    if unwritten:
        reasons, names = ", ".join(sorted({*unwritten.values()})), ", ".join(unwritten)
        saved_before = latest.exists()
        error = RunError(
            f"--run-dir {run_dir}: after {done}, {names} could not be written ({reasons}): what is "
            f"there is older, or cut off{'. Carry on from there:' if saved_before else ''}",
            command=carry_on if saved_before else "",
        )
        if interrupted:
            error.status = interrupted.status
        raise error
    if interrupted:
        return interrupted.status, f"Interrupted after {done}. Carry on:\n  {carry_on}"
    if solved:
        return 0, (
            f"Solved: mean {solved['mean']:.2f}, standard deviation {solved['std']:.2f} over "
            f"{counted(config.eval_episodes, 'episode')}, mean {solved['second_mean']:.2f} over as "
            f"many others (target {solved['target']:g}) after {done}{saved}"
        )
    if config.target_return is not None:
        target = config.target_return
        return MISSED, f"Target not reached: no mean return of {target:g} in {done}{saved}"
    return 0, f"Finished: {done}{saved}"


def how_to_watch(config: Config, checkpoint: Path, *, drawable: bool) -> str:
    """Return the command that shows a policy or, if its environment has no pictures, plays it."""
    what = "Watch it:" if drawable else "Play it (its environment has no render mode rgb_array):"
    play = continue_command(config, checkpoint, *watching(drawable=drawable))
    return f"{what}\n  {play}"


def say_last(
    config: Config, run: Path, console: Terminal, status: int, last_line: str, *, drawable: bool
) -> None:
    """Say what to try after a run that missed its target, how to watch it, and the last line.

    run: its directory. drawable: whether its environment can be drawn.
    """
    if status == MISSED:
        console.say(_advice(config, run))
    console.say(how_to_watch(config, run / LATEST, drawable=drawable))
    console.close(last_line)


def _advice(config: Config, run_dir: Path) -> str:
    """Return what to try after a run that did not reach its target, if its figures can be read."""
    with suppress(OSError, ValueError):
        progress = read_progress(run_dir / PROGRESS)
        higher: list[str] = []
        for name in LIMITS:
            if getattr(config, name) != FIELDS[name].default:
                higher += flag(name), str(2 * getattr(config, name))
        if config.lr_schedule != "constant":  # which then takes another course
            higher.append("--override")
        carry_on = carry_on_command(config, run_dir / LATEST, *higher)
        return after_missing_the_target(progress, carry_on)
    return ""
