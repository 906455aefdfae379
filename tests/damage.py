"""Damaged and hostile checkpoints, made from a good one: the same for the same number."""

import io
import json
import os
import pickle
import random
from collections.abc import Callable
from typing import Any

import torch

OWNED = "owned"  # the file that hostile code would make
HUGE = 2**40


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {OWNED}",)


def pickled(content: Any, *, zipped: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def with_header(header: Any, numbers: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


def one_tensor(shape: list[int], size: int) -> dict[str, Any]:
    return {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}


HOSTILE = {  # files that run code, or take memory or time, in whatever opens them trustingly
    "plain pickle": pickle.dumps(Malicious()),
    "code": pickled({"a": Malicious()}),
    "old code": pickled({"a": Malicious()}, zipped=False),
    "long": (2**62).to_bytes(8, "little") + b"{}",
    "deep": with_header(b'{"a":' * 10**5),
    "a huge tensor": with_header(one_tensor([HUGE], 4 * HUGE)),
    "beyond the file": with_header(one_tensor([HUGE], 4), bytes(4)),
    "too many dimensions": with_header(one_tensor([2**62, 2**62, 0], 0)),
    "metadata of numbers": with_header({"__metadata__": {"format": 1, "values": 2}}),
}


def truncated(good: bytes, rng: random.Random) -> bytes:
    return good[: rng.randrange(len(good))]


def flipped(good: bytes, rng: random.Random) -> bytes:
    content = bytearray(good)
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def overwritten(good: bytes, rng: random.Random) -> bytes:
    content, length = bytearray(good), rng.randint(1, 600)
    start = rng.randrange(len(content) - length)
    content[start : start + length] = rng.choice([bytes(length), rng.randbytes(length)])
    return bytes(content)


def hostile(good: bytes, rng: random.Random) -> bytes:
    return rng.choice([*HOSTILE.values(), b"PK\x03\x04" + good, good + bytes(1000)])


KINDS: list[Callable[[bytes, random.Random], bytes]] = [truncated, flipped, overwritten, hostile]


def damaged(good: bytes, number: int) -> tuple[str, bytes]:
    """What damage is done, and the file."""
    kind = KINDS[number % len(KINDS)]
    return kind.__name__, kind(good, random.Random(number))
