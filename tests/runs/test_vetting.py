import io
import struct
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from es.runs.vetting import UnfitError, vetted
from tests.runs.damage import BOMBS, packed, rezipped, with_pickle

GOOD = packed({"a": torch.arange(6.0).reshape(2, 3), "b": [1, (2.5, None)], "c": torch.zeros(())})
ONE = packed({"a": torch.arange(6.0).reshape(2, 3)})
OLD = packed({"a": torch.zeros(1000)}, old=True)


def vet(content):
    Path("file").write_bytes(content)
    with Path("file").open("rb") as file:
        return vetted(file)


@pytest.mark.parametrize("old", [False, True])
def test_what_torch_saves_is_loaded(old):
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.Linear(1, 4)).half()
    content: dict[str, Any] = {
        "state": module.state_dict(),
        "none": torch.zeros(0, 3),
        "view": torch.arange(9)[3:5],
        "flags": torch.ones(2, 1, 2, dtype=torch.bool),
        "parameter": torch.nn.Parameter(torch.zeros(2)),
        "plain": OrderedDict(a=[1, 2.5, "x", None, True, (1, (2, 3))]),
    }
    loaded = torch.load(vet(packed(content, old=old)), weights_only=True)
    assert loaded["plain"] == content["plain"]
    for name in ("none", "view", "flags", "parameter"):
        assert torch.equal(loaded[name], content[name])
        assert loaded[name].dtype == content[name].dtype
    for name, tensor in content["state"].items():
        assert torch.equal(loaded["state"][name], tensor)


def twice():
    buffer = io.BytesIO(GOOD)
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("archive/data.pkl", b"N.")
    return buffer.getvalue()


def overlapping():
    content, at = bytearray(GOOD), GOOD.rindex(b"PK\x01\x02")
    content[at + 20 : at + 28] = struct.pack("<II", 10**9, 10**9)
    return bytes(content)


def repickled(before, after, content=GOOD):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        pickled = archive.read("archive/data.pkl")
    assert before in pickled
    return with_pickle(content, pickled.replace(before, after, 1))


def flipped():
    content, at = bytearray(GOOD), GOOD.index(struct.pack("<6f", *range(6)))
    content[at + 3] ^= 1
    return bytes(content)


UNFIT = {
    "a part for each way torch could read a name": (
        rezipped(GOOD, {"archive/DATA.PKL": b"N."}), "parts that no checkpoint has"),
    "two archives": (rezipped(GOOD, {"other/data.pkl": b"N."}), "parts that no checkpoint has"),
    "odd records": (rezipped(GOOD, {"archive/data/a": b""}), "parts that no checkpoint has"),
    "twice the same": (twice(), "two of its parts"),
    "compressed": (rezipped(GOOD, compression=zipfile.ZIP_DEFLATED), "compressed"),
    "overlapping": (overlapping(), "overlap"),
    "flipped": (flipped(), "checksum"),
    "long": (with_pickle(GOOD, b"\x80\x02" + b"N0" * 2**20 + b"N."), "too much besides"),
    "nested keys": (
        with_pickle(GOOD, b"\x80\x02})" + b"\x85" * 900_000 + b"K\x01s."), "too much besides"),
    "shared lists": (with_pickle(GOOD, BOMBS["lists of lists"]), "hold each other"),
    "shared keys": (with_pickle(GOOD, BOMBS["a key to be hashed"]), "hold each other"),
    "a long string": (with_pickle(GOOD, b"\x80\x02\x8d\x01" + bytes(7) + b"a."), "BINUNICODE8"),
    "bytes": (with_pickle(GOOD, BOMBS["bytes"]), "builtins.bytearray"),
    "no record": (rezipped(GOOD, drop="data/0"), "a tensor is not there"),
    "other key": (repickled(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x007"), "is not there"),
    "more items": (repickled(b"K\x06tq", b"K\x60tq"), "a tensor is not there"),
    "fewer items": (repickled(b"K\x06tq", b"K\x05tq"), "larger than its numbers"),
    "larger": (repickled(b"K\x02K\x03\x86", b"K\x02K\x60\x86"), "larger than its numbers"),
    "beyond": (repickled(b"QK\x00K", b"QK\x01K"), "larger than its numbers"),
    "negative": (repickled(b"QK\x00K", b"QJ\xff\xff\xff\xffK"), "odd tensors"),
    "transposed": (packed({"a": torch.zeros(2, 3).T}), "odd tensors"),
    "expanded": (packed({"a": torch.zeros(6)[:1].expand(6)}), "odd tensors"),
    "colliding keys": (
        with_pickle(GOOD, b"\x80\x02}(" + b"".join(
            b"\x8a\x0a" + (k * (2**61 - 1)).to_bytes(10, "little") + b"N" for k in range(20_000)
        ) + b"u."), "too much besides"),
    "long shape": (repickled(b"K\x02K\x03\x86", b"(" + b"K\x01" * 65 + b"t"), "odd tensors"),
    "long numbers": (
        repickled(b"K\x02K\x03\x86", b"\x8a\x09" + bytes(8) + b"\x01K\x03\x86"), "odd tensors"),
    "metadata": (
        repickled(b")Rq\x0btq", b")Rq\x0b}X\x03\x00\x00\x00neg\x88stq", ONE), "odd tensors"),
    "hooks": (
        repickled(b"\x89ccollections\nOrderedDict\nq\x0a)R", b"\x89K\x05", ONE), "odd tensors"),
    "attributes": (
        with_pickle(GOOD, b"\x80\x02ccollections\nOrderedDict\n)R}X\x03\x00\x00\x00getK\x01sb."),
        "odd attributes"),
    "no attributes": (
        with_pickle(GOOD, b"\x80\x02ccollections\nOrderedDict\n)R)b."), "odd attributes"),
    "another protocol": (with_pickle(GOOD, b"\x80\x03}."), "odd way"),
    "old and huge": (OLD.replace(b"M\xe8\x03\x85", b"J\xff\xff\xff\x7f\x85"), "larger than"),
    "old and short": (OLD[:-100].replace(b"M\xe8\x03", b"J\xff\xff\xff\x7f"), "shorter than"),
    "old without keys": (
        OLD.replace(OLD[OLD.rindex(b"\x80\x02]") :][:30].split(b".")[0], b"\x80\x02]"),
        "a tensor is not there"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_what_torch_would_not_save_is_refused(name):
    content, words = UNFIT[name]
    with pytest.raises(UnfitError, match=words):
        vet(content)


def test_torch_gets_an_archive_that_is_put_together_anew():
    """There are ways to hide a second one, which other programs find, in the same file."""
    with zipfile.ZipFile(vet(b"".join([GOOD, bytes(1000)]))) as archive:
        assert {name.partition("/")[0] for name in archive.namelist()} == {"checkpoint"}
        assert archive.testzip() is None
