"""The figures of a run's updates off a terminal: blocks with pytorch-es's labels, and lines."""

from collections.abc import Callable
from functools import partial

from es.reports.record import Record


class UpdateLog:
    """Turn updates into text: the first and the last into blocks, others into lines.

    seconds: between lines, of the run's own time. If they are 0, each update is a block.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._printed = seconds, 0.0
        self._first: dict[str, float] = {}  # what the first block said of values that may change
        self._unprinted: Callable[[], str] | None = None

    def add(self, record: Record, *, n: int, cap: int, use_adam: bool) -> str:
        """Return what to print after an update, if anything. cap: of a training episode's steps."""
        now = {"cap": cap, "sigma": record.sigma, "lr": record.lr}
        block = partial(_block, record, n, cap, use_adam)
        if not (self._first and self._seconds):
            self._first, self._printed = now, record.wall_seconds
            return block()
        self._unprinted = block
        if record.wall_seconds - self._printed < self._seconds:
            return ""
        self._printed = record.wall_seconds
        return _line(record, n, {name: now[name] for name in now if now[name] != self._first[name]})

    def end(self) -> str:
        """Return the last update's block, unless it was printed."""
        block, self._unprinted = self._unprinted, None
        return block() if block else ""


def _line(record: Record, n: int, changed: dict[str, float]) -> str:
    words = [
        f"update {record.update}",
        f"episodes {record.episodes}",
        f"frames {record.frames}",
        f"return mean {record.return_mean:.6g} std {record.return_std:.6g} "
        f"max {record.return_max:.6g} min {record.return_min:.6g}",
        f"unperturbed {record.unperturbed_return:.6g} rank {record.unperturbed_rank} of {n + 1}",
        *(f"{name} {value:.6g}" for name, value in changed.items()),
        *([f"not finite {record.non_finite}"] if record.non_finite else []),
        f"{record.steps_per_second:.0f} steps/s",
        f"{record.wall_seconds:.1f} s",
    ]
    return "  ".join(words)


def _block(record: Record, n: int, cap: int, use_adam: bool) -> str:
    rank = f"{record.unperturbed_rank} out of {n + 1} (1 means gradient is uninformative)"
    block = (
        f"Episode num: {record.episodes}\n"
        f"Average reward: {record.return_mean:.6f}\n"
        f"Variance in rewards: {record.return_std**2:.6f}\n"
        f"Max reward: {record.return_max:.6f}\n"
        f"Min reward: {record.return_min:.6f}\n"
        f"Batch size: {n}\n"
        f"Max episode length: {cap}\n"
        f"Sigma: {record.sigma:.6f}\n"
        f"Learning rate: {record.lr:.6f}\n"
        f"Total num frames seen: {record.frames}\n"
        f"Unperturbed reward: {record.unperturbed_return:.6f}\n"
        f"Unperturbed rank: {rank}\n"
        f"Using Adam: {use_adam}\n"
        f"Wall-clock: {record.wall_seconds:.1f} s\n"
        f"Steps per second: {record.steps_per_second:.0f}\n"
    )
    if record.non_finite:
        block += f"Returns not finite: {record.non_finite} (ranked last)\n"
    return block
