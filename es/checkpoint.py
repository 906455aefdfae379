"""Checkpoints: all that a run needs to continue bit for bit, in one safetensors file.

docs/internals.md describes the file. The weights of pytorch-es can be loaded too. torch is
imported only when a file is read, so that this module is light.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import math
import os
import pickle
import platform
import re
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from es.config import Config, from_mapping
from es.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "evolution-strategies-checkpoint-5"
LATEST, BEST = "latest.safetensors", "best.safetensors"
OPTIMIZER, NORMALIZER = "optimizer.", "normalizer."
VBN_BATCH, RELATIVE_SIGMA = "vbn_batch", "sigma.spread"
RECENT = 3  # unperturbed returns whose mean has to reach the target before an evaluation
LIBRARIES = (  # on which results depend to the last digit
    "torch", "numpy", "numba", "gymnasium", "mujoco", "box2d", "ale-py", "opencv-python-headless"
)  # fmt: skip


class Counters(NamedTuple):
    """The progress of a run.

    episodes and frames count perturbed episodes only. total_frames: the steps of all episodes, with
    those of unperturbed parameters and evaluations. max_episode_length: the current cap of training
    episodes. best_score: None while there is none. lr (before its schedule) and sigma: of the next
    update. evaluated: the update after which --eval-every last evaluated. recent: the last
    unperturbed returns, RECENT at most, if they are finite. missed_update: the update after which
    an evaluation last missed --target-return. missed_return: the recent_mean at that time.
    phase: how many of the settings' phases have begun.
    """

    update: int = 0
    episodes: int = 0
    frames: int = 0
    wall_seconds: float = 0.0
    max_episode_length: int = 0
    best_score: float | None = None
    lr: float = 0.0
    sigma: float = 0.0
    evaluated: int = 0
    recent: list[float] = []  # noqa: RUF012 (never changed)
    missed_update: int = 0
    missed_return: float | None = None
    total_frames: int = 0
    phase: int = 0

    @property
    def recent_mean(self) -> float:
        """The mean of the RECENT last unperturbed returns; NaN while there are fewer."""
        return sum(self.recent) / RECENT if len(self.recent) == RECENT else math.nan


class Checkpoint(NamedTuple):
    """The state of a run.

    parameters: all tensors of the network by name, float32 unless a custom network keeps others.
    config: the settings of the run, or None for weights alone. optimizer: its moments by name.
    solved: the evaluation that ended the run, if one did: target, mean, std, and second_mean of the
    one that confirmed it. normalizer: statistics of observations, if these are normalised.
    vbn_batch: (128, 1, 42, 42), the reference batch of virtual batch normalisation.
    relative_sigma: (P,), each parameter's sigma relative to the common one, with --sigma-adapt.
    """

    parameters: dict[str, Tensor]
    config: Config | None = None
    counters: Counters = Counters()
    optimizer: dict[str, Tensor] = {}  # noqa: RUF012 (never changed)
    solved: dict[str, float] | None = None
    normalizer: dict[str, Tensor] | None = None
    vbn_batch: Tensor | None = None
    relative_sigma: Tensor | None = None


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write the whole checkpoint, or leave the older file as it is and raise OSError."""
    import safetensors.numpy

    assert checkpoint.config is not None
    values = {
        "counters": checkpoint.counters._asdict(),
        "settings": checkpoint.config.saved(),
        "solved": checkpoint.solved,
        "versions": versions(),
    }
    text = json.dumps(values, allow_nan=False)
    tensors = {
        **checkpoint.parameters,
        **{OPTIMIZER + name: tensor for name, tensor in checkpoint.optimizer.items()},
        **{NORMALIZER + name: tensor for name, tensor in (checkpoint.normalizer or {}).items()},
    }
    optional = {VBN_BATCH: checkpoint.vbn_batch, RELATIVE_SIGMA: checkpoint.relative_sigma}
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    metadata = {"format": FORMAT, "values": text, "crc32": checksum(text, tensors)}
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    # For small networks, this is three times as fast as safetensors.torch.save.
    replace(path, safetensors.numpy.save(arrays, metadata))


def load(path: str) -> Checkpoint:
    """Return a checkpoint of this program, or the weights of a bare state_dict.

    No code in the file is run. Raise UsageError for any other file.
    """
    import torch

    try:
        with Path(path).open("rb") as file:
            if file.read(9)[8:] == b"{":  # after the length of a safetensors file's header
                return _read(path)
            file.seek(0)
            with warnings.catch_warnings(action="ignore"):  # about unusual pickles
                weights = torch.load(file, map_location="cpu", weights_only=True)
        if not weights or not all(isinstance(each, torch.Tensor) for each in weights.values()):
            raise ValueError("it does not hold tensors alone")
        return Checkpoint(dict(weights))
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"--restore {path}: cannot be read ({error.strerror})") from error
    except Exception as error:  # torch and safetensors raise many kinds
        reason = str(error).partition("\n")[0]
        if isinstance(error, pickle.UnpicklingError):  # its message says how to run the file's code
            reason = "it holds more than tensors, or was not written by PyTorch"
        raise UsageError(
            f"--restore {path}: is damaged, or is not a checkpoint of this program or pytorch-es "
            f"({reason})"
        ) from error


def _read(path: str) -> Checkpoint:
    """Return the checkpoint in a safetensors file; raise an error of any kind if it is damaged."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if metadata.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    if metadata["crc32"] != checksum(metadata["values"], tensors):
        raise ValueError("its checksum is wrong")
    values = json.loads(metadata["values"])
    settings = from_mapping(values["settings"], f"--restore {path}")
    vbn_batch, relative_sigma = tensors.pop(VBN_BATCH, None), tensors.pop(RELATIVE_SIGMA, None)
    optimizer, normalizer = _split(tensors, OPTIMIZER), _split(tensors, NORMALIZER)
    return Checkpoint(
        parameters=tensors,
        config=Config(**settings),
        counters=Counters(**values["counters"]),
        optimizer=optimizer,
        solved=values["solved"],
        normalizer=normalizer or None,
        vbn_batch=vbn_batch,
        relative_sigma=relative_sigma,
    )


def _split(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Remove the tensors whose names have a prefix; return them by their names without it."""
    names = [name for name in tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in names}


def checksum(values: str, tensors: Mapping[str, Tensor]) -> str:
    """Return the CRC-32 of the JSON and of all names, types, shapes and bytes of the tensors."""
    crc = zlib.crc32(values.encode())
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(tensor.numpy().data, crc)
    return f"{crc:08x}"


@functools.cache  # every checkpoint asks for them
def versions() -> dict[str, str]:
    """Return the versions of Python and of LIBRARIES, and the kind of processor."""
    from llvmlite import binding  # numba's compiler

    found = {"python": platform.python_version(), "processor": binding.get_host_cpu_name()}
    for library in LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[library] = importlib.metadata.version(library)
    return found


def find(path: str) -> str:
    """Return the checkpoint, or the latest one of a run's directory.

    Raise UsageError if a directory holds none.
    """
    if not os.path.isdir(path):
        return path
    if not (latest := Path(path) / LATEST).exists():
        raise UsageError(f"--restore {path}: holds no {LATEST}; give a run's directory or a file")
    return str(latest)


def find_all(path: str) -> list[str]:
    """Return the checkpoint, or those of a directory: first update-*, by update, then the others.

    Raise UsageError if a directory holds none.
    """
    if not os.path.isdir(path):
        return [path]
    found: list[tuple[float, str]] = []
    for file in Path(path).glob("*.safetensors"):
        number = re.fullmatch(r"update-(\d+)", file.stem)
        found.append((int(number[1]) if number else math.inf, str(file)))
    if not found:
        raise UsageError(
            f"--restore {path}: holds no checkpoint (*.safetensors); give a run's directory"
        )
    return [file for _, file in sorted(found)]


@contextmanager
def writable(path: Path, flag: str = "--run-dir") -> Iterator[None]:
    """Raise UsageError, which names the flag, if the path cannot be written."""
    try:
        yield
    except OSError as error:
        # mkdir finds a file in the place of a directory.
        in_the_way = isinstance(error, FileExistsError)
        reason = "not a directory" if in_the_way else error.strerror or error
        raise UsageError(
            f"{flag} {path}: cannot be written ({reason}). Choose another path, or free some space"
        ) from error


def require_writable(path: Path, flag: str) -> None:
    """Raise UsageError, which names the flag, if the file cannot be written. Make its folder."""
    with writable(path, flag):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        with tempfile.TemporaryFile(dir=path.parent):
            pass


def replace(path: Path, content: bytes | memoryview) -> None:
    """Write a whole file to disk, or leave the older one as it is and raise OSError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
