"""Damaged and hostile checkpoints, made from a good one: the same for the same number."""

import io
import json
import os
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import safetensors.torch
import torch

from es.runs.checkpoint import FORMAT, checksum

OWNED = "owned"  # the file that hostile code would make
HUGE = 2**40


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {OWNED}",)


def contents(good: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the values of a checkpoint."""
    header = json.loads(good[8 : 8 + int.from_bytes(good[:8], "little")])
    return safetensors.torch.load(good), json.loads(header["__metadata__"]["values"])


def packed(tensors: dict[str, torch.Tensor], values: Any, **metadata: str) -> bytes:
    """A file with these, and with their checksum."""
    text = values if isinstance(values, str) else json.dumps(values)
    own = {"format": FORMAT, "values": text, "crc32": checksum(text, tensors)}
    return safetensors.torch.save(tensors, own | metadata)


def pickled(content: Any, *, old: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=not old)
    return buffer.getvalue()


def with_header(header: Any, numbers: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + numbers


# Headers that take memory or time without bound, in whatever believes them.
BOMBS = {
    "long": (2**62).to_bytes(8, "little") + b"{}",
    "deep": with_header(b'{"a":' * 10**5),
    "a huge tensor": with_header(
        {"a": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}}
    ),
    "beyond the file": with_header(
        {"a": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4]}}, bytes(4)
    ),
    "too many dimensions": with_header(
        {"a": {"dtype": "F32", "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]}}
    ),
    "overlapping": with_header(
        {
            f"{number}": {"dtype": "U8", "shape": [10**6], "data_offsets": [0, 10**6]}
            for number in range(10**5)
        },
        bytes(10**6),
    ),
    "metadata of numbers": with_header({"__metadata__": {"format": 1, "values": 2}}),
    "no metadata": with_header(
        {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}, b"abcd"
    ),
    "deep values": packed({}, "[" * 10**6),
    "a long number": packed({}, "1" * 10**6),
    "no values": packed({}, "[]"),
}


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
    """Two names of one level with each other's contents; some are still a checkpoint."""
    tensors, values = contents(good)
    parts = rng.choice([tensors, values, *_dicts(values)])
    first, second = rng.sample(sorted(parts), 2)
    parts[first], parts[second] = parts[second], parts[first]
    return packed(tensors, values)


def misshapen(good: bytes, rng: random.Random) -> bytes:
    tensors, values = contents(good)
    name = rng.choice(sorted(tensors))
    tensor = tensors.pop(name)
    changes: list[Callable[[], torch.Tensor]] = [
        lambda: tensor.reshape(-1)[:-1].clone(),
        lambda: torch.cat([tensor.reshape(-1), torch.zeros(1, dtype=tensor.dtype)]),
        lambda: tensor.unsqueeze(0),
        lambda: torch.zeros((), dtype=tensor.dtype),
        lambda: torch.zeros(0, 3),
        lambda: tensor.bool(),
        lambda: tensor.double() if tensor.dtype == torch.float32 else tensor.float(),
        lambda: tensor * float("nan"),
    ]
    if rng.randrange(len(changes) + 1):  # else it is missing
        tensors[name] = rng.choice(changes)()
    return packed(tensors, values)


def wrong(good: bytes, rng: random.Random) -> bytes:
    """A value replaced, removed or added."""
    tensors, values = contents(good)
    holder = rng.choice([values, *_dicts(values)])
    key = rng.choice(sorted(holder))
    odd: list[Any] = [
        None, -1, 2**63, 10**400, float("nan"), float("inf"), "", "x\x1b[2J\n" * 9, "x" * 10**5,
        "\udcff", [], {}, True, [[[]]],
    ]  # fmt: skip
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1:
            holder["one more"] = rng.choice(odd)
        case _:
            holder[key] = rng.choice(odd)
    return packed(tensors, values)


def huge(good: bytes, rng: random.Random) -> bytes:
    """Settings that ask for more than any computer has."""
    tensors, values = contents(good)
    key, value = rng.choice(
        [
            ("hidden_sizes", [65_536] * 50), ("hidden_sizes", [1] * 10**5), ("n", 10**12),
            ("eval_episodes", 10**12), ("episodes_per_perturbation", 10**10),
            ("frame_skip", 10**12), ("workers", 10**9), ("action_bins", 10**9),
            ("max_episode_length", 10**30), ("seed", 10**299), ("env_kwargs", ["states=10**9"]),
        ]
    )  # fmt: skip
    values["settings"][key] = value
    return packed(tensors, values)


def hostile(good: bytes, rng: random.Random) -> bytes:
    """What runs code, or takes time or memory without bound, in whatever opens it trustingly."""
    tensors, values = contents(good)
    makers: list[Callable[[], bytes]] = [
        lambda: pickle.dumps(Malicious()),
        lambda: pickled({"a": Malicious()}),
        lambda: pickled({"a": Malicious()}, old=True),
        lambda: pickled({"linear1.weight": torch.zeros(1).expand(HUGE, 3)}),
        lambda: pickled({"linear1.weight": torch.zeros(2, 2, device="meta")}),
        lambda: pickled({"linear1.weight": torch.zeros(2, 2).to_sparse()}),
        *(lambda bomb=bomb: bomb for bomb in BOMBS.values()),
        lambda: packed(tensors, values, format="evolution-strategies-checkpoint-5"),
        lambda: packed(tensors, values, crc32="00000000"),
        lambda: packed(
            tensors | {f"more.{number}": torch.zeros(0) for number in range(10**4)}, values
        ),
        lambda: b"PK\x03\x04" + good,
        lambda: good + bytes(1000),
        lambda: rng.randbytes(5000),
    ]
    return rng.choice(makers)()


KINDS: list[Callable[[bytes, random.Random], bytes]] = [
    truncated, flipped, overwritten, swapped, misshapen, wrong, huge, hostile
]  # fmt: skip


def damaged(good: bytes, number: int) -> tuple[str, bytes]:
    """What damage is done, and the file."""
    kind = KINDS[number % len(KINDS)]
    return kind.__name__, kind(good, random.Random(number))


def _dicts(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for value in content.values():
        if isinstance(value, dict) and len(value) > 1:
            yield value
            yield from _dicts(value)
