"""The files of a run: progress.csv, evaluations.csv, TensorBoard, W&B and checkpoints.

One background thread writes them, so that a slow disk does not delay the training.
"""

import contextlib
import io
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from es.algorithm.noise import DoubleArray
from es.algorithm.shaping import Population, mean_and_std
from es.checkpoint import LATEST, Checkpoint, Counters, replace, save
from es.errors import UsageError, command, how_to_install, in_one_line
from es.reports import CURVE, EVALUATIONS, PROGRESS
from es.reports.plot import Curve
from es.reports.video import Recorder

EVENTS = "events.out.tfevents"
EVALUATION_COLUMNS = (
    "update", "frames", "wall_seconds", "episodes", "mean", "std", "min", "max", "returns"
)  # fmt: skip
COMPARED_BY = ("returns/unperturbed_return", "evaluation/return_mean")  # in TensorBoard's HParams
BUCKETS = 20  # of a histogram
MOST_BATCHES = 2  # that wait to be written; then the training waits, too
WANDB_PROJECT = "evolution-strategies"
WANDB_ID = "wandb/id.txt"  # in the run's directory, so that a resumed run continues there

Figures = Mapping[str, float]
Settings = Mapping[str, bool | float | str | None]


class Record(NamedTuple):
    """One update, as the columns of progress.csv.

    Returns are those of the perturbations. Lengths (in steps) are those of all their episodes.
    elite_count: perturbations above the mean. non_finite: perturbations whose return was NaN or
    infinite; the figures of returns leave them out. lr, sigma: as used for this update. grad_norm:
    of the gradient estimate, before the learning rate. steps_per_second: of everything played since
    the previous row. total_frames: the steps of all episodes so far. update_ratio: the norm of the
    step over that of the parameters after it.
    """

    update: int
    episodes: int
    frames: int
    wall_seconds: float
    return_mean: float
    return_std: float
    return_max: float
    return_min: float
    unperturbed_return: float
    unperturbed_rank: int
    elite_count: int
    non_finite: int
    episode_length_mean: float
    lr: float
    sigma: float
    grad_norm: float
    steps_per_second: float
    total_frames: int
    update_ratio: float


COLUMNS = Record._fields


def describe_population(population: Population) -> dict[str, Any]:
    """Return a population's part of a `Record`, by column."""
    returns = population.returns[np.isfinite(population.returns)]
    mean, std = mean_and_std(returns)
    return {
        "return_mean": mean,
        "return_std": std,
        "return_max": float(returns.max()),
        "return_min": float(returns.min()),
        "unperturbed_return": population.unperturbed,
        "unperturbed_rank": population.unperturbed_rank,
        "elite_count": int((returns > mean).sum()),
        "non_finite": population.returns.size - returns.size,
        "episode_length_mean": float(np.mean(population.lengths)),
    }


def describe_evaluation(counters: Counters, returns: Sequence[float]) -> dict[str, Any]:
    """Return an evaluation's row of evaluations.csv, by column.

    counters: of the evaluated policy. returns: of the evaluation's episodes.
    """
    mean, std = mean_and_std(returns)
    row = (
        counters.update, counters.frames, counters.wall_seconds, len(returns),
        mean, std, float(np.min(returns)), float(np.max(returns)), " ".join(map(str, returns)),
    )  # fmt: skip
    return dict(zip(EVALUATION_COLUMNS, row, strict=True))


class Log:
    """Write the files of the run in the directory `path`.

    If the system refuses a file (OSError: a full disk, a quota, a read-only directory), warn once,
    and try again with each later update: rows and events in order, the newest checkpoint of a name.

    counters: of the checkpoint that the run is resumed from. Rows and events of later updates are
    dropped, since these updates are played again. settings: the run is compared with others by them
    in TensorBoard. wandb: from `start_wandb`. say, warn: print a line for the user.
    """

    def __init__(
        self,
        path: Path,
        counters: Counters,
        *,
        settings: Settings,
        say: Callable[[str], None],
        warn: Callable[[str], None],
        curve: Curve | None = None,
        recorder: Recorder | None = None,
        wandb: Any = None,
    ) -> None:
        self._path, self._say, self._warn = path, say, warn
        self._curve, self._recorder, self._wandb = curve, recorder, wandb
        self._progress = Table(path / PROGRESS, COLUMNS, counters.update)
        self._evaluations = Table(path / EVALUATIONS, EVALUATION_COLUMNS, counters.update)
        self._events = Events(path)
        self._checkpoints: dict[str, Checkpoint] = {}  # those to be written, by file name
        self._refused: dict[str, str] = {}  # why files could not be written, by name
        self._pending: deque[Future[None]] = deque()
        self._thread = ThreadPoolExecutor(1, "log")
        self._pending.append(self._thread.submit(self._events.begin, counters.frames + 1, settings))

    def commit(
        self,
        checkpoints: Mapping[str, Checkpoint],
        *,
        played: tuple[Record, DoubleArray] | None = None,
        evaluation: Mapping[str, Any] | None = None,
        film: Checkpoint | None = None,
    ) -> None:
        """Write figures, then checkpoints by file name, latest.safetensors last.

        In this order, a resumed run lacks nothing from before its latest checkpoint, except what
        the disk has refused. played: an update and its perturbations' returns. evaluation: from
        `describe_evaluation`. film: a checkpoint to record an episode of.
        """
        batch = self._thread.submit(self._add, checkpoints, played, evaluation, film)
        self._pending.append(batch)
        while len(self._pending) > MOST_BATCHES:
            self._pending.popleft().result()

    def close(self, hurried: Callable[[], bool]) -> dict[str, str]:
        """Finish writing. Wait for the last picture and the last video.

        hurried: returns whether the user does not want to wait. Return why files could not be
        written, by name.
        """
        try:
            while self._pending:
                self._pending.popleft().result()
            self._thread.submit(self._write).result()
        finally:
            self._thread.shutdown()
            if self._curve and (failure := self._curve.close(hurried)):
                tell = self._say if hurried() else self._warn
                tell(
                    f"{self._path / CURVE}: does not show the last updates ({failure}). To draw "
                    f"the run: {command('compare', self._path)}"
                )
            if self._wandb:
                self._report(lambda run: run.finish())
            if self._recorder:
                self._recorder.close(hurried)
        return self._refused

    def _add(
        self,
        checkpoints: Mapping[str, Checkpoint],
        played: tuple[Record, DoubleArray] | None,
        evaluation: Mapping[str, Any] | None,
        film: Checkpoint | None,
    ) -> None:
        # A run that ended between a row and its checkpoint evaluates again.
        if evaluation is not None and evaluation["update"] > self._evaluations.last:
            self._evaluations.add([*evaluation.values()])
            tags = {f"evaluation/return_{name}": name for name in ("mean", "std", "min", "max")}
            figures = {tag: evaluation[name] for tag, name in tags.items()}
            self._add_figures(evaluation["frames"], figures)
        if played:
            record, returns = played
            self._progress.add(record)
            figures = {_tag(name): value for name, value in record._asdict().items()}
            self._add_figures(record.frames, figures, returns[np.isfinite(returns)])
        self._checkpoints |= checkpoints
        self._write()
        if played and self._curve:
            self._curve.request()
        if film and self._recorder:
            self._recorder.record(film)

    def _add_figures(self, step: int, figures: Figures, returns: DoubleArray | None = None) -> None:
        """Add figures by tag. returns: of a population."""
        self._events.add(step, figures, returns)
        if self._wandb:
            from wandb import Histogram

            values: dict[str, Any] = dict(figures)
            if returns is not None:
                with contextlib.suppress(ValueError):  # as in `Events.add`
                    values["returns/population"] = Histogram(returns.tolist(), num_bins=BUCKETS)
            self._report(lambda run: run.log(values, step=step))

    def _write(self) -> None:
        """Write what waits to be written."""
        writes: dict[str, Callable[[], None]] = {
            PROGRESS: self._progress.flush,
            EVALUATIONS: self._evaluations.flush,
            EVENTS: self._events.flush,
        }
        for name in sorted(self._checkpoints, key=lambda name: name == LATEST):
            writes[name] = partial(save, self._checkpoints[name], self._path / name)
        refused: dict[str, str] = {}
        for name, write in writes.items():
            try:
                write()
            except OSError as error:
                refused[name] = error.strerror or str(error)
            else:
                self._checkpoints.pop(name, None)
        if refused and not self._refused:
            name, reason = next(iter(refused.items()))
            self._warn(
                f"{self._path}: {name} cannot be written ({reason}). The run goes on and tries "
                "again after each update."
            )
        elif self._refused and not refused:
            self._warn(f"{self._path}: all pending files have been written.")
        self._refused = refused

    def _report(self, send: Callable[[Any], object]) -> None:
        """Send something to W&B. If that fails, go on without W&B."""
        try:
            send(self._wandb)
        except Exception as error:
            self._wandb = None
            self._warn(in_one_line(f"--wandb: {error}. The run goes on without W&B."))


class GrowingFile:
    """Append bytes to a file. Bytes that the disk refuses wait for the next `flush`."""

    def __init__(self, path: Path) -> None:
        self._path, self._waiting = path, bytearray()

    def flush(self) -> None:
        """Write all bytes that wait. Raise OSError if the disk refuses some of them."""
        if not self._waiting:
            return
        with self._path.open("ab", buffering=0) as file:
            while self._waiting:
                del self._waiting[: file.write(self._waiting)]


class Table(GrowingFile):
    """A CSV file of a run.

    update: rows of later updates are dropped from an existing file. last: the update of the last
    row, -1 without rows.
    """

    def __init__(self, path: Path, columns: Sequence[str], update: int) -> None:
        super().__init__(path)
        self._header, self.last = ",".join(columns).encode() + b"\n", -1
        kept = []
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            cells = line.split(b",")  # a full disk may have torn the line
            whole = len(cells) == len(columns) and line.endswith(b"\n") and cells[0].isdigit()
            if whole and self.last < int(cells[0]) <= update:
                kept.append(line)
                self.last = int(cells[0])
        if kept:
            replace(path, self._header + b"".join(kept))
        else:
            path.unlink(missing_ok=True)

    def add(self, row: Sequence[Any]) -> None:
        """Keep a row for the next `flush`. Its first cell is the update."""
        if self.last < 0:
            self._waiting += self._header
        self.last = row[0]
        self._waiting += ",".join(map(str, row)).encode() + b"\n"


class Events(GrowingFile):
    """A new file of events for TensorBoard. Steps are frames.

    TensorBoard's own SummaryWriter loses events, and its thread dies, when the disk is full.
    TensorBoard is imported by the first method that is called.
    """

    def __init__(self, path: Path) -> None:
        # TensorBoard reads the files of a directory in the order of their names.
        super().__init__(path / f"{EVENTS}.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}")

    def begin(self, purge_step: int, settings: Settings) -> None:
        """Keep the first events for the next `flush`.

        purge_step: TensorBoard forgets the events of older files in the directory from this step
        on. settings: the run's row in TensorBoard's HParams.
        """
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from torch.utils.tensorboard.summary import hparams

        self._add(0, file_version="brain.Event:2")
        self._add(purge_step, session_log=SessionLog(status=SessionLog.START))
        given = {name: value for name, value in settings.items() if value is not None}
        for summary in hparams(given, dict.fromkeys(COMPARED_BY, 0.0)):
            self._add(0, summary=summary)

    def add(self, step: int, figures: Figures, returns: DoubleArray | None = None) -> None:
        """Keep figures by tag, and a population's returns, for the next `flush`."""
        from torch.utils.tensorboard.summary import histogram, scalar

        for tag, value in figures.items():
            self._add(step, summary=scalar(tag, value))
        if returns is not None and returns.size:
            # NumPy makes no bins of numbers that are huge or almost equal.
            with np.errstate(over="ignore"), contextlib.suppress(ValueError):
                self._add(step, summary=histogram("returns/population", returns, BUCKETS))

    def _add(self, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        record = io.BytesIO()
        event = Event(wall_time=time.time(), step=step, **content)
        RecordWriter(record).write(event.SerializeToString())
        self._waiting += record.getvalue()


def _tag(column: str) -> str:
    if "return" in column or column in ("unperturbed_rank", "elite_count", "non_finite"):
        return f"returns/{column}"
    if column in ("lr", "sigma", "grad_norm", "update_ratio"):
        return f"optimisation/{column}"
    return f"progress/{column}"


def require_wandb() -> None:
    """Raise UsageError unless wandb is installed and the user is logged in."""
    try:
        import wandb
    except ImportError as error:
        remedy = how_to_install("wandb", "requirements-extra.txt")
        raise UsageError(f"--wandb: wandb is not installed: {remedy}") from error
    if os.environ.get("WANDB_MODE", "online") == "online":
        with contextlib.redirect_stderr(io.StringIO()):
            logged_in = wandb.login(prompt=False, verify=False)
        if not logged_in:
            raise UsageError(
                "--wandb: not logged in. Run `wandb login`, or set WANDB_MODE=offline."
            )


def start_wandb(directory: Path, settings: Mapping[str, Any], say: Callable[[str], None]) -> Any:
    """Start the W&B run of a directory, or continue it; return it.

    The calling program may have a W&B run of its own. Raise UsageError if W&B cannot start one.
    """
    import wandb

    identity = directory / WANDB_ID
    try:
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", WANDB_PROJECT),
            id=identity.read_text().strip() if identity.exists() else None,
            resume="allow",
            reinit="create_new",
            name=os.environ.get("WANDB_NAME", directory.name),
            dir=os.environ.get("WANDB_DIR", str(directory)),
            config=dict(settings),
            allow_val_change=True,
            settings=wandb.Settings(silent=True, console="off"),
        )
        identity.parent.mkdir(exist_ok=True)
        replace(identity, run.id.encode())
    except Exception as error:
        raise UsageError(
            f"--wandb: W&B cannot start a run ({error}). Set WANDB_MODE=offline to send it later."
        ) from error
    place = f"offline; send it later: wandb sync {Path(run.dir).parent}"
    say(f"Weights & Biases: {place if run.offline else run.url}")
    return run
