"""Checkpoints: everything needed to continue a run exactly, in one safetensors file.

docs/checkpoint-format.md describes the file. Weights that pytorch-es wrote can be loaded too.
"""

import io
import json
import math
import re
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.numpy
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from es.errors import UsageError
from es.program import read_file
from es.runs.directory import replace

FORMAT = "evolution-strategies-checkpoint-4"
OLDER = "evolution-strategies-checkpoint-"  # of version 0.1, which wrote them with torch.save
OPTIMIZER, NORMALIZER, VBN_BATCH, SPREAD = "optimizer.", "normalizer.", "vbn_batch", "sigma.spread"
VALUES = (  # as JSON
    "counters", "settings", "environment", "network", "versions", "solved", "history"
)  # fmt: skip
History = dict[str, dict[str, Any]]
SOLVED = {"target", "mean", "std", "second_mean"}
FRAME = torch.Size((1, 42, 42))
RECENT = 3  # unperturbed returns whose mean has to reach the target before an evaluation
MOST_BYTES = 2**31  # room for a hundred million parameters with two moments
MOST_COUNTED = 2**62


class Counters(NamedTuple):
    """The progress of a run.

    episodes and frames count perturbed rollouts only. max_episode_length: the current cap of
    training episodes. best_score: the best so far (None: there is none yet). lr (before its
    schedule) and sigma: of the next update. evaluated: the update after which --eval-every last
    evaluated. recent: the last unperturbed returns, RECENT at most, if they are finite.
    missed_update: the update after which an evaluation last missed --target-return.
    missed_return: the recent_mean at that time (None: no evaluation has missed it).
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
    recent: list[float] = []  # noqa: RUF012 (never changed)
    missed_update: int = 0
    missed_return: float | None = None

    @property
    def recent_mean(self) -> float:
        """The mean of the RECENT last unperturbed returns; NaN while there are fewer."""
        return sum(self.recent) / RECENT if len(self.recent) == RECENT else math.nan


class Checkpoint(NamedTuple):
    """The state of a run.

    parameters: tensors by layer name. optimizer: its moments by name. settings: by Config field.
    environment, network: the descriptions they are built from. versions: from `es.runs.versions`.
    solved: the evaluation that ended the run, if one did: its target, its mean and std, and the
    second_mean, of the one that confirmed it. normalizer: the statistics of observations, if these
    are normalised. vbn_batch: (128, 1, 42, 42), the reference batch of virtual batch normalisation,
    if it is used. spread: (P,), each parameter's sigma relative to the common one, with
    --sigma-adapt. history: which settings were changed after an update, by its number, with their
    values until then. kept: what --net does not train, by name.
    """

    parameters: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    counters: Counters
    settings: dict[str, Any]
    environment: dict[str, Any]
    network: dict[str, Any]
    versions: dict[str, str]
    solved: dict[str, float] | None = None
    normalizer: dict[str, Tensor] | None = None
    vbn_batch: Tensor | None = None
    spread: Tensor | None = None
    history: History = {}  # noqa: RUF012 (nobody writes to it)
    kept: dict[str, Tensor] = {}  # noqa: RUF012 (nor to it)


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write the whole checkpoint, or leave the older file as it is and raise OSError."""
    counters = checkpoint.counters
    if counters.best_score is not None and not math.isfinite(counters.best_score):
        counters = counters._replace(best_score=None)
    values = {name: getattr(checkpoint, name) for name in VALUES}
    text = json.dumps(values | {"counters": counters._asdict()}, allow_nan=False)
    tensors = {
        **checkpoint.parameters,
        **checkpoint.kept,
        **{OPTIMIZER + name: tensor for name, tensor in checkpoint.optimizer.items()},
        **{NORMALIZER + name: tensor for name, tensor in (checkpoint.normalizer or {}).items()},
    }
    for name, tensor in ((VBN_BATCH, checkpoint.vbn_batch), (SPREAD, checkpoint.spread)):
        if tensor is not None:
            tensors[name] = tensor
    metadata = {"format": FORMAT, "values": text, "crc32": checksum(text, tensors)}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    # For small networks, this is three times as fast as safetensors.torch.save.
    replace(path, safetensors.numpy.save(arrays, metadata))


def load(path: str) -> Checkpoint | dict[str, Tensor]:
    """Return a checkpoint of this program, or the weights by layer name of a bare state_dict.

    Raise UsageError for any other file: missing, damaged, foreign, or with code in it.
    """
    try:
        content = read_file(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--restore {path}: cannot be read ({reason})") from error
    try:
        if content[8:9] == b"{":  # after the length of a safetensors file's header
            return _checkpoint(content)
        with warnings.catch_warnings(action="ignore"):  # about unusual pickles
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds of errors
        reason = f" ({error})" if isinstance(error, ValueError | SafetensorError) else ""
        raise UsageError(
            f"--restore {path}: is not a checkpoint, or damaged, or holds more than tensors and "
            f"plain values{reason}; give a file that this program or pytorch-es wrote"
        ) from error
    if isinstance(found, Mapping) and found:
        version = found.get("format")
        if isinstance(version, str) and version.startswith(OLDER):
            raise UsageError(
                f"--restore {path}: was written by version 0.1 of this program ({version}), and "
                "this version cannot continue it; use that version, or start a new run"
            )
        if all(type(name) is str and isinstance(found[name], Tensor) for name in found):
            return dict(found)
    raise UsageError(f"--restore {path}: holds neither a checkpoint of this program nor weights")


def checksum(values: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the CRC-32 of the JSON and of all names, types, shapes and bytes of the tensors."""
    crc = zlib.crc32(values.encode())
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.numpy().data, crc)
    return f"{crc:08x}"


def _checkpoint(content: bytes) -> Checkpoint:
    """Return the checkpoint in a safetensors file; raise ValueError unless all of it is valid."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # here: the import is slow

    parameters = safetensors.torch.load(content)
    # The functions of safetensors that take bytes do not return the metadata.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata = header.get("__metadata__", {})
    if metadata.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    if metadata.get("crc32") != checksum(metadata["values"], parameters):
        raise ValueError("its checksum is wrong")
    vbn_batch, spread = parameters.pop(VBN_BATCH, None), parameters.pop(SPREAD, None)
    optimizer, normalizer = (
        {
            name.removeprefix(prefix): parameters.pop(name)
            for name in list(parameters)
            if name.startswith(prefix)
        }
        for prefix in (OPTIMIZER, NORMALIZER)
    )
    values = json.loads(metadata["values"])
    trained = values["network"].get("shapes", parameters)  # else all are
    values |= {
        "kept": {name: parameters.pop(name) for name in list(parameters) if name not in trained},
        "vbn_batch": vbn_batch,
        "spread": spread,
        "parameters": parameters,
        "optimizer": optimizer,
        "normalizer": normalizer or None,
    }
    config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True
    )
    try:
        checkpoint = TypeAdapter(Checkpoint, config=config).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    _require_sound(checkpoint)
    return checkpoint


def _require_sound(checkpoint: Checkpoint) -> None:
    """Raise ValueError for values that have the right types, but occur in no run."""
    counters, settings = checkpoint.counters, checkpoint.settings
    solved, batch, spread = checkpoint.solved, checkpoint.vbn_batch, checkpoint.spread
    returns = {"best_score", "recent", "missed_return"}
    numbers = [number for name, number in counters._asdict().items() if name not in returns]
    largest = max(number for number in numbers if isinstance(number, int))
    sound = counters.max_episode_length and counters.lr and 1e-30 <= counters.sigma <= 1e30
    if not sound or min(numbers) < 0 or largest >= MOST_COUNTED:
        raise ValueError("a counter is out of range")
    if type(settings.get("env_name")) is not str or type(settings.get("seed")) is not int:
        raise ValueError("its settings are incomplete")
    if solved is not None and set(solved) != SOLVED:
        raise ValueError("its last evaluation is incomplete")
    if not all(re.fullmatch("[0-9]{1,19}", update) for update in checkpoint.history):
        raise ValueError("its history is out of range")
    if batch is not None and (batch.shape[1:], batch.dtype) != (FRAME, torch.float32):
        raise ValueError("its reference batch holds no frames")
    size = sum(tensor.numel() for tensor in checkpoint.parameters.values())
    if spread is not None and not (
        (spread.shape, spread.dtype) == ((size,), torch.float32)
        and (torch.isfinite(spread) & (spread >= 0)).all()
    ):
        raise ValueError("its spread of sigma is out of range")
