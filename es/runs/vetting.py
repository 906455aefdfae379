"""What a checkpoint's file may hold, looked at before torch opens it.

torch.load with weights_only runs no code, but trusts a file otherwise: it inflates what is
compressed, allocates what is asked for, builds what grows exponentially, overlooks flipped bits,
and finds other parts in an archive than Python does. So torch gets an archive that is put together
anew, and only after a dry run in which no tensor is made.
"""

from __future__ import annotations

import collections
import io
import math
import os
import pickle
import pickletools
import re
import stat
import zipfile
from collections.abc import Callable, Sequence
from typing import IO, Any, ClassVar, NamedTuple

MOST_BYTES = 2**31  # room for a hundred million parameters with two moments
MOST_PICKLED = 2**20  # without the tensors' numbers
MOST_KEYS = 10_000  # tuples, which are hashed by recursion, and long numbers, whose hashes collide
MOST_NUMBER, MOST_DIMENSIONS = 2**63, 64
OPCODES = """
    PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    BINUNICODE BINSTRING SHORT_BINSTRING BINGET LONG_BINGET BINPUT LONG_BINPUT
    EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT SETITEM SETITEMS
    GLOBAL REDUCE BUILD BINPERSID
"""
NAMES = frozenset(("GLOBAL", "BINUNICODE", "BINSTRING", "SHORT_BINSTRING"))
ITEM_BYTES = {
    f"{kind}Storage": size
    for size, kinds in {
        1: ("Bool", "Byte", "Char"), 2: ("Half", "BFloat16", "Short"), 4: ("Float", "Int"),
        8: ("Double", "Long"),
    }.items()
    for kind in kinds
}  # fmt: skip
PARTS = re.compile(
    r"data\.pkl|version|byteorder|data/[0-9]{1,6}"
    r"|\.format_version|\.storage_alignment|\.data/serialization_id"
)
OLD_PICKLES = 5  # in a file of torch before 1.6, before the tensors' numbers
CONTENT, KEYS = 3, 4  # of these


class UnfitError(ValueError):
    """What a file holds is not what torch.save writes."""


class Storage(NamedTuple):
    """In the dry run, so many numbers that tensors are made of."""

    items: int


class Tensor:
    """In the dry run, a tensor."""


def vetted(file: IO[bytes]) -> IO[bytes]:
    """What is to be given to torch.load instead of a file that cannot be trusted.

    Raises UnfitError, or another Exception, unless it is safe to load: that then takes a small
    multiple of the file's size, and nothing is made that the file does not hold.
    """
    status = os.fstat(file.fileno())
    _require(stat.S_ISREG(status.st_mode), "it is not an ordinary file")
    _require(status.st_size <= MOST_BYTES, f"it is larger than {MOST_BYTES >> 30} GiB")
    if file.read(4) == b"PK\x03\x04":  # as torch tells them apart
        return _vetted_archive(file, status.st_size)
    file.seek(0)
    return _vetted_old(file)


def _vetted_archive(file: IO[bytes], size: int) -> IO[bytes]:
    clean = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(clean, "w") as new:
        entries = archive.infolist()
        root = entries[0].filename.partition("/")[0] + "/"
        parts = {entry.filename.removeprefix(root): entry for entry in entries}
        _require(len(parts) == len(entries), "two of its parts have one name")
        _require(all(map(PARTS.fullmatch, parts)), "it has parts that no checkpoint has")
        stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
        _require(stored, "it is compressed")
        _require(sum(entry.file_size for entry in entries) <= size, "its parts overlap")
        _require(parts["data.pkl"].file_size <= MOST_PICKLED, "it holds too much besides tensors")
        _require(archive.testzip() is None, "a checksum is wrong")
        for name, entry in parts.items():
            new.writestr("checkpoint/" + name, archive.read(entry))
        storages = DryRun(archive.read(parts["data.pkl"])).storages
    for key, length in storages.items():
        there = parts.get(f"data/{key}")
        _require(there is not None and there.file_size == length, "a tensor is not there")
    clean.seek(0)
    return clean


def _vetted_old(file: IO[bytes]) -> IO[bytes]:
    """The format of torch before 1.6: pickles, and then the numbers of the tensors named last."""
    content = file.read()
    pickles = io.BytesIO(content[:MOST_PICKLED])
    runs = [DryRun(pickles) for _ in range(OLD_PICKLES)]
    storages, keys = runs[CONTENT].storages, runs[KEYS].value
    _require(isinstance(keys, list) and sorted(keys) == sorted(storages), "a tensor is not there")
    _require(sum(storages.values()) <= len(content), "it is shorter than its tensors")
    return io.BytesIO(content)


class DryRun(pickle._Unpickler):
    """Goes through a pickle as torch would, without making a tensor; raises UnfitError.

    storages: the bytes that tensors are made of, by key. value: what was pickled.
    The Unpickler that is written in Python, since the other one allocates what it is told to.
    """

    def build(self) -> None:
        """Refuses attributes for anything but what a state_dict has besides its entries."""
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        state = stack.pop()
        good = type(stack[-1]) is collections.OrderedDict and isinstance(state, dict)
        _require(good and list(state) == ["_metadata"], "it has odd attributes")

    # Where the Unpickler looks operations up.
    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: build}

    def __init__(self, pickled: bytes | io.BytesIO) -> None:
        stream = io.BytesIO(pickled) if isinstance(pickled, bytes) else pickled
        start = stream.tell()
        _vet_operations(stream)
        stream.seek(start)
        super().__init__(stream)
        self.storages: dict[str, int] = {}
        self.value = self.load()

    def find_class(self, module: str, name: str) -> Any:
        """What stands for one of the few names that a checkpoint needs."""
        tensor: dict[str, Callable[..., Any]] = {
            "_rebuild_tensor": _rebuild, "_rebuild_tensor_v2": _rebuild,
            "_rebuild_parameter": _rebuild_parameter,
        }  # fmt: skip
        known: dict[str, Any] = {
            "collections": {"OrderedDict": collections.OrderedDict},
            "torch": ITEM_BYTES,
            "torch._utils": tensor,
        }
        _require(name in known.get(module, ()), f"it asks for {module}.{name}")
        return known[module][name]

    def persistent_load(self, saved: Sequence[Any]) -> Storage:
        """Takes note of a storage, which is told by its type, key, device and number of items."""
        kind, item_bytes, key, _, count, *view = saved
        _require(kind == "storage" and type(key) is str and not any(view), "it has odd tensors")
        _require(type(item_bytes) is int and type(count) is int, "it has odd tensors")
        length = self.storages.setdefault(key, item_bytes * count)
        good = 0 <= count < MOST_NUMBER and length == item_bytes * count
        _require(good, "it has odd tensors")
        return Storage(count)


def _vet_operations(pickled: io.BytesIO) -> None:
    """Refuses what only serves to ask for memory or time.

    Strings and names alone may be fetched again from what was pickled before: what holds the same
    list twice, and that another one twice, would be of exponential size.
    """
    names, known, before, keys = set[object](), set(OPCODES.split()), "", 0
    for opcode, argument, _ in pickletools.genops(pickled):
        operation = opcode.name
        _require(operation in known, f"it asks for {operation}")
        _require(operation != "PROTO" or argument == 2, "it is pickled in an odd way")
        keys += operation.startswith(("TUPLE", "LONG1"))
        _require(keys <= MOST_KEYS, "it holds too much besides tensors")
        if "BINGET" in operation:
            _require(argument in names, "its parts hold each other")
        if "BINPUT" in operation:
            (names.add if before in NAMES else names.discard)(argument)
        else:
            before = operation


def _rebuild(
    storage: Any,
    offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool = False,
    hooks: Any = None,
    *metadata: Any,
) -> Tensor:
    """Refuses a tensor whose numbers do not lie one by one in its storage."""
    shape = type(size) is type(stride) is tuple and len(size) == len(stride) <= MOST_DIMENSIONS
    _require(isinstance(storage, Storage) and shape, "it has odd tensors")
    numbers = (offset, *size, *stride)
    whole = all(type(number) is int and 0 <= number < MOST_NUMBER for number in numbers)
    _require(whole and type(requires_grad) is bool, "it has odd tensors")
    _require(not (hooks or metadata), "it has odd tensors")
    step = count = math.prod(size)
    _require(offset + count <= storage.items, "a tensor is larger than its numbers")
    for length, distance in zip(size, stride, strict=True):
        step //= max(length, 1)
        _require(count == 0 or length == 1 or distance == step, "it has odd tensors")
    return Tensor()


def _rebuild_parameter(tensor: Any, requires_grad: bool, hooks: Any) -> Tensor:
    good = isinstance(tensor, Tensor) and type(requires_grad) is bool and not hooks
    _require(good, "it has odd tensors")
    return Tensor()


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise UnfitError(otherwise)
