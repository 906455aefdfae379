"""Checkpoints: saved atomically, loaded safely, enough to resume exactly.

A file holds tensors and plain types only and is loaded with `weights_only=True`, so that opening
one can never run code. A bare state_dict, as pytorch-es wrote, is loaded as parameters alone.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from es.config.option import SCALE
from es.errors import UsageError
from es.runs.directory import replace
from es.runs.vetting import UnfitError, vetted

FORMAT = "evolution-strategies-checkpoint-3"

# Of counters: all but these are whole numbers.
KINDS: dict[str, tuple[type, ...]] = {
    "wall_seconds": (float,), "lr": (float,), "sigma": (float,), "best_score": (float, type(None))
}  # fmt: skip
DICTS = ("parameters", "optimizer", "counters", "settings", "environment", "network", "versions")
FRAMES = (torch.Size((1, 42, 42)), torch.float32)
DEPTH = 8  # of values within values
MOST, MOST_COUNTED = 10**300, 2**62


class Counters(NamedTuple):
    """How far a run has come.

    episodes and frames count perturbed rollouts only. max_episode_length is the current cap of
    training episodes. best_score belongs to best.pth (None: there is none yet). lr (before its
    schedule) and sigma: those of the coming update. evaluated: the update after which --eval-every
    last evaluated.
    """

    update: int
    episodes: int
    frames: int
    wall_seconds: float
    max_episode_length: int
    best_score: float | None
    lr: float
    sigma: float
    evaluated: int = 0


class Checkpoint(NamedTuple):
    """Everything a run is made of.

    parameters: tensors by layer name. optimizer: its state_dict. settings: by Config field.
    environment, network: the descriptions they are built from. versions: as of `es.runs.versions`.
    solved: the evaluation that ended the run, `{"target": ..., "mean": ..., "std": ...}`, if one
    did. normalizer: the statistics of observations, where these are normalised. reference:
    (128, 1, 42, 42), the batch of virtual batch normalisation, where it is used.
    """

    parameters: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    counters: Counters
    settings: dict[str, Any]
    environment: dict[str, Any]
    network: dict[str, Any]
    versions: dict[str, str]
    solved: dict[str, float] | None = None
    normalizer: dict[str, Any] | None = None
    reference: torch.Tensor | None = None


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Writes the whole checkpoint to disk or leaves what was there; raises OSError."""
    content = {
        "format": FORMAT, **checkpoint._asdict(), "counters": checkpoint.counters._asdict()
    }  # fmt: skip
    buffer = io.BytesIO()  # torch's own words for a full disk are of no help
    torch.save(content, buffer)
    replace(path, buffer.getbuffer())


def load(path: str) -> Checkpoint | dict[str, torch.Tensor]:
    """A checkpoint of ours, or the tensors by layer name of a bare state_dict.

    Raises UsageError for anything else: a missing, damaged or foreign file, or one with code in it.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            content = torch.load(vetted(file), map_location="cpu", weights_only=True)
    except OSError as error:
        remedy = "; give a file in it, such as latest.pth" if os.path.isdir(path) else ""
        raise UsageError(f"--restore {path}: cannot be read ({error.strerror}){remedy}") from error
    except Exception as error:  # torch raises all kinds of things for damaged files
        reason = f" ({error})" if isinstance(error, UnfitError) else ""
        raise UsageError(
            f"--restore {path}: is not a checkpoint, or damaged, or holds more than tensors and "
            f"plain values{reason}; give a .pth file that this program or pytorch-es wrote"
        ) from error
    if isinstance(content, Mapping) and content.get("format") == FORMAT:
        return _ours(path, dict(content))
    if (
        isinstance(content, Mapping)
        and content
        and all(isinstance(key, str) for key in content)
        and all(isinstance(value, torch.Tensor) for value in content.values())
        and _is_plain([value.detach() for value in content.values()])
    ):
        return dict(content)
    raise UsageError(f"--restore {path}: holds neither a checkpoint of this program nor weights")


def _ours(path: str, content: dict[str, Any]) -> Checkpoint:
    """The checkpoint in a file of our format; everything in it is of the type that is relied on."""
    try:
        del content["format"]
        _require(all(map(_is_plain, content.values())))
        _require(all(type(content[name]) is dict for name in DICTS))
        checkpoint = Checkpoint(**content)._replace(counters=Counters(**content["counters"]))
        counters, solved = checkpoint.counters, checkpoint.solved
        for name, number in counters._asdict().items():
            _require(type(number) in KINDS.get(name, (int,)))
            _require(number is None or math.isfinite(number))
            _require(name == "best_score" or number >= 0)
            _require(type(number) is not int or number < MOST_COUNTED)
        _require(counters.max_episode_length > 0 and counters.lr > 0)
        _require(SCALE[0](counters.sigma))  # as of the setting, from which it only ever decays
        _require(type(checkpoint.settings["env_name"]) is str)
        _require(type(checkpoint.settings["seed"]) is int)
        _require(all(type(name) is str for pair in checkpoint.versions.items() for name in pair))
        _require(type(checkpoint.environment["id"]) is str)
        _require(all(type(key) is str for key in checkpoint.environment["kwargs"]))
        for number in (checkpoint.environment["frame_skip"], checkpoint.environment["noop_max"]):
            _require(type(number) is int and number >= 0)
        _require(isinstance(checkpoint.optimizer["state"], dict))
        _require(checkpoint.normalizer is None or type(checkpoint.normalizer) is dict)
        reference = checkpoint.reference
        _require(reference is None or (reference.shape[1:], reference.dtype) == FRAMES)
        _require(solved is None or set(solved) == {"mean", "std", "target"})
        for number in (solved or {}).values():
            _require(type(number) in (int, float) and math.isfinite(number))
        for name, tensor in checkpoint.parameters.items():
            _require(type(name) is str and isinstance(tensor, torch.Tensor))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"--restore {path}: is incomplete or damaged ({error})") from error
    return checkpoint


def _is_plain(value: Any, depth: int = DEPTH) -> bool:
    """Whether this is a plain value, or ordinary tensors, as `save` writes them."""
    if isinstance(value, torch.Tensor):  # its numbers lie there one by one, or it could be endless
        return value.device.type == "cpu" and value.is_contiguous() and not value.requires_grad
    if isinstance(value, dict):
        keys = all(type(key) in (str, int) for key in value)
        return keys and _is_plain([*value, *value.values()], depth)
    if isinstance(value, list | tuple):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    if type(value) is int:
        return abs(value) < MOST
    return value is None or type(value) in (str, float, bool)


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; a pipe that nobody writes to, too."""
    return os.open(path, flags | os.O_NONBLOCK)


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("a value is not of the type that it is saved as")
