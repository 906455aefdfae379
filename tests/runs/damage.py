"""Damaged and hostile checkpoints, made from a good one: the same for the same number."""

from __future__ import annotations

import io
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

OWNED = "owned"  # the file that hostile code would make
GIGABYTES = 2**36


def _laughing(start: bytes, end: bytes, holder: bytes) -> bytes:
    """What holds twice what holds twice what ..., fifty times. holder: pickles it, as `last`."""
    pickled = start + b"(K\x01K\x01" + end + b"q\x00"
    for level in range(1, 50):
        fetch = b"h" + bytes([level - 1])
        pickled += start + b"(" + fetch * 2 + end + b"q" + bytes([level])
    return b"\x80\x02" + pickled + holder.replace(b"last", b"h" + bytes([49])) + b"."


# Pickles that take memory or time without bound, in whatever opens them trustingly.
BOMBS = {
    "lists of lists": _laughing(b"]", b"e", b"}X\x01\x00\x00\x00alasts"),
    "a key to be hashed": _laughing(b"", b"t", b"}lastK\x01s"),
    "depth": b"\x80\x02" + b"]" * 10**6 + b"a" * (10**6 - 1) + b".",
    "a far memo": b"\x80\x02}r\xff\xff\xff\xff.",
    "a long string": b"\x80\x02\x8d" + struct.pack("<Q", GIGABYTES) + b"a.",
    "a long number": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"1.",
    "bytes": b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
}


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {OWNED}",)


class Greedy:
    """Asks for memory by a call that torch allows."""

    def __reduce__(self) -> Any:
        return bytearray, (GIGABYTES,)


def truncated(good: bytes, rng: random.Random) -> bytes:
    return good[: rng.randrange(len(good))]


def flipped(good: bytes, rng: random.Random) -> bytes:
    content = bytearray(good)
    for _ in range(rng.randint(1, 3)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def overwritten(good: bytes, rng: random.Random) -> bytes:
    content, length = bytearray(good), rng.randint(1, 600)
    start = rng.randrange(len(content) - length)
    content[start : start + length] = rng.choice([bytes(length), rng.randbytes(length)])
    return bytes(content)


def swapped(good: bytes, rng: random.Random) -> bytes:
    """Two keys of one level with each other's values; some are still a checkpoint."""
    content = contents(good)
    parts = rng.choice([content, *_dicts(content)])
    first, second = rng.sample(sorted(parts, key=str), 2)
    parts[first], parts[second] = parts[second], parts[first]
    return packed(content)


def misshapen(good: bytes, rng: random.Random) -> bytes:
    content = contents(good)
    holder, key = rng.choice(list(_tensors(content)))
    tensor = holder[key]
    holder[key] = rng.choice(
        [
            lambda: tensor.reshape(-1)[:-1].clone(),
            lambda: torch.cat([tensor.reshape(-1), torch.zeros(1, dtype=tensor.dtype)]),
            lambda: tensor.unsqueeze(0),
            lambda: torch.zeros((), dtype=tensor.dtype),
            lambda: torch.zeros(0, 3),
            lambda: torch.zeros(1).expand(GIGABYTES, 3),
            lambda: torch.zeros(1).expand(tensor.shape),
            lambda: tensor.to_sparse(),
            lambda: tensor.bool(),
            lambda: tensor.double() if tensor.dtype == torch.float32 else tensor.float(),
            lambda: tensor * float("nan"),
            lambda: None,
        ]
    )()
    return packed(content)


def wrong(good: bytes, rng: random.Random) -> bytes:
    """A plain value replaced, removed or added."""
    content = contents(good)
    holder = rng.choice([content, *_dicts(content)])
    key = rng.choice(sorted(holder, key=str))
    values: list[Any] = [
        None, -1, 2**63, 10**400, float("nan"), float("inf"), "", "x\x1b[2J\n" * 9, "x" * 10**5,
        [], {}, True, [[[]]], torch.zeros(2), b"bytes", 3 + 4j,
    ]  # fmt: skip
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1:
            holder["one more"] = rng.choice(values)
        case _:
            holder[key] = rng.choice(values)
    return packed(content)


def huge(good: bytes, rng: random.Random) -> bytes:
    """Settings that ask for more than any computer has."""
    content = contents(good)
    settings = content["settings"]
    key, value = rng.choice(
        [
            ("hidden_sizes", [65_536] * 50), ("hidden_sizes", [1] * 10**5), ("n", 10**12),
            ("eval_episodes", 10**12), ("episodes_per_perturbation", 10**10),
            ("frame_skip", 10**12), ("workers", 10**9), ("action_bins", 10**9),
            ("max_episode_length", 10**30), ("seed", 10**299), ("env_kwargs", ["states=10**9"]),
        ]
    )  # fmt: skip
    settings[key] = value
    return packed(content)


def hostile(good: bytes, rng: random.Random) -> bytes:
    """What runs code, or takes time or memory without bound, in whatever opens it trustingly."""
    makers: list[Callable[[], bytes]] = [
        lambda: pickle.dumps(Malicious()),
        lambda: pickle.dumps({"format": "x", "parameters": Malicious()}, protocol=2),
        lambda: packed(contents(good) | {"parameters": Malicious()}),
        lambda: packed(contents(good) | {"settings": {"env_name": Malicious()}}),
        lambda: packed({"a": Malicious()}, old=True),
        lambda: packed(contents(good) | {"settings": Greedy()}),
        lambda: packed({"a": Greedy()}, old=True),
        *(partial(with_pickle, good, bomb) for bomb in BOMBS.values()),
        lambda: rezipped(good, compression=zipfile.ZIP_DEFLATED),
        lambda: rezipped(good, more={"archive/data/0": bytes(10**8)},
                     compression=zipfile.ZIP_DEFLATED),
        lambda: _with_huge_record(good),
        lambda: _old_with_huge_storage(),
        lambda: rezipped(good, drop="data/0"),
        lambda: rezipped(good, drop="data.pkl"),
        lambda: b"PK\x03\x04" + good,
        lambda: good + bytes(1000),
        lambda: rng.randbytes(5000),
    ]  # fmt: skip
    return rng.choice(makers)()


KINDS: list[Callable[[bytes, random.Random], bytes]] = [
    truncated, flipped, overwritten, swapped, misshapen, wrong, huge, hostile
]  # fmt: skip


def damaged(good: bytes, number: int) -> tuple[str, bytes]:
    """What damage is done, and the file."""
    kind = KINDS[number % len(KINDS)]
    return kind.__name__, kind(good, random.Random(number))


def contents(good: bytes) -> dict[str, Any]:
    return torch.load(io.BytesIO(good), weights_only=True)


def packed(content: Any, *, old: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=not old)
    return buffer.getvalue()


def rezipped(
    good: bytes,
    more: dict[str, bytes] | None = None,
    drop: str = "nothing",
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(buffer, "w", compression) as new:
        parts = {info.filename: old.read(info) for info in old.infolist()} | (more or {})
        for name, part in parts.items():
            if not name.endswith(drop):
                new.writestr(name, part)
    return buffer.getvalue()


def with_pickle(good: bytes, pickled: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(good)) as old:
        (name,) = (name for name in old.namelist() if name.endswith("data.pkl"))
    return rezipped(good, {name: pickled})


def _with_huge_record(good: bytes) -> bytes:
    """The directory of the archive tells of a part of many gigabytes."""
    content = bytearray(good)
    at = content.rindex(b"PK\x01\x02")
    content[at + 20 : at + 28] = struct.pack("<II", 2**32 - 2, 2**32 - 2)
    return bytes(content)


def _old_with_huge_storage() -> bytes:
    """A storage of so many numbers, which the file does not have."""
    content = packed({"a": torch.zeros(1000)}, old=True)
    return content.replace(b"M\xe8\x03", b"J" + struct.pack("<i", 2**31 - 1))


def _dicts(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for value in content.values():
        if isinstance(value, dict) and len(value) > 1:
            yield value
            yield from _dicts(value)


def _tensors(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for key, value in content.items():
        if isinstance(value, torch.Tensor):
            yield content, key
        elif isinstance(value, dict):
            yield from _tensors(value)
