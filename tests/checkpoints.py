"""What runs leave in their folders, read and compared."""

import csv
from pathlib import Path
from typing import Any

import torch

from es.checkpoint import Checkpoint, load
from es.config import Config

RUN = Path("checkpoints/CartPole-v1")


def has_rows(directory: Path, count: int) -> bool:
    """Whether a run has reported more updates than so many."""
    path = directory / "progress.csv"
    return path.exists() and len(path.read_text().splitlines()) > count


def read(path: str | Path) -> Checkpoint:
    """A checkpoint of ours."""
    checkpoint = load(str(path))
    assert checkpoint.config is not None
    return checkpoint


def settings(path: str | Path) -> Config:
    """The settings in a checkpoint of ours."""
    config = read(path).config
    assert config is not None
    return config


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal, to the bit where they hold tensors."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def same_run(left: Checkpoint, right: Checkpoint) -> bool:
    """Whether two runs are in the same state, to the bit; only their clocks may differ."""
    states = [
        (
            checkpoint.parameters,
            checkpoint.optimizer,
            checkpoint.counters._replace(wall_seconds=0),
            checkpoint.normalizer,
            checkpoint.vbn_batch,
            checkpoint.relative_sigma,
            checkpoint.solved,
        )
        for checkpoint in (left, right)
    ]
    return same(*states)


def rows(directory: Path = RUN, table: str = "progress.csv") -> list[dict[str, str]]:
    """What a table of a run holds."""
    with (directory / table).open(newline="") as file:
        return list(csv.DictReader(file))


def timeless(directory: Path, table: str = "progress.csv") -> list[dict[str, str]]:
    """The same without what depends on the clock."""
    return [
        {key: row[key] for key in row if key not in ("wall_seconds", "steps_per_second")}
        for row in rows(directory, table)
    ]
