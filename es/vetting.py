"""What a checkpoint's file may hold, looked at before torch opens it.

torch.load with weights_only runs no code, but trusts a file otherwise: it inflates what is
compressed, allocates what is asked for, builds what grows exponentially, overlooks flipped bits.
"""

from __future__ import annotations

import io
import os
import pickletools
import stat
import zipfile
from typing import IO

MOST_BYTES = 2**31  # room for a hundred million parameters with two moments
MOST_PICKLED = 2**20  # without the tensors' numbers
OPCODES = """
    PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT
    BINUNICODE BINSTRING SHORT_BINSTRING BINGET LONG_BINGET BINPUT LONG_BINPUT
    EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT SETITEM SETITEMS
    GLOBAL REDUCE BUILD BINPERSID
"""
NAMES = frozenset(("GLOBAL", "BINUNICODE", "BINSTRING", "SHORT_BINSTRING"))
KINDS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
GLOBALS = frozenset(
    [
        "collections OrderedDict",
        "torch._utils _rebuild_tensor",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        *(f"torch {kind}Storage" for kind in KINDS),
    ]
)
OLD_PICKLES = 5  # that the tensors' numbers follow, in a file of torch before 1.6


class UnfitError(ValueError):
    """What a file holds is not what torch.save writes."""


def vet(file: IO[bytes]) -> None:
    """Raises UnfitError, or another Exception, unless a file is one that is safe to load.

    Nothing is unpickled. What torch makes of the file then takes a small multiple of its size.
    """
    status = os.fstat(file.fileno())
    _require(stat.S_ISREG(status.st_mode), "it is not an ordinary file")
    _require(status.st_size <= MOST_BYTES, f"it is larger than {MOST_BYTES >> 30} GiB")
    if file.read(4) == b"PK\x03\x04":  # as torch tells them apart
        _vet_archive(file, status.st_size)
        return
    file.seek(0)
    pickles = io.BytesIO(file.read(MOST_PICKLED))
    for number in range(OLD_PICKLES):  # the first is a large number by which such files are known
        _vet_pickle(pickles, most=max(status.st_size, MOST_PICKLED) if number else None)


def _vet_archive(file: IO[bytes], size: int) -> None:
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        names = [entry.filename for entry in entries]
        _require(len({*names}) == len(names), "two of its parts have one name")
        _require(len({name.partition("/")[0] for name in names}) == 1, "it is not one archive")
        stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
        _require(stored, "it is compressed")
        _require(sum(entry.file_size for entry in entries) <= size, "its parts overlap")
        _require(archive.testzip() is None, "a checksum is wrong")
        content = archive.read(names[0].partition("/")[0] + "/data.pkl")
    _require(len(content) <= MOST_PICKLED, "it holds too much text")
    _vet_pickle(io.BytesIO(content))


def _vet_pickle(pickled: IO[bytes], most: int | None = None) -> None:
    """Vets one pickle of a stream. most: no number in it is larger than this.

    Strings and names alone may be fetched again from what was pickled before: what holds the same
    list twice, and that another one twice, would be of exponential size.
    """
    names, known = set[object](), OPCODES.split()
    before = ""
    for opcode, argument, _ in pickletools.genops(pickled):
        operation = opcode.name
        _require(operation in known, f"it asks for {operation}")
        _require(operation != "GLOBAL" or argument in GLOBALS, f"it asks for {argument}")
        if "BINGET" in operation:
            _require(argument in names, "its parts hold each other")
        if "BINPUT" in operation:
            (names.add if before in NAMES else names.discard)(argument)
        else:
            before = operation
            _require(most is None or not isinstance(argument, int) or argument <= most,
                     "its size is not what it says")  # fmt: skip


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise UnfitError(otherwise)
