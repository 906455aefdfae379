"""Checkpoints: what is saved is loaded, and any other file is one line of error."""

import errno
import io
import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from es.checkpoint import (
    FORMAT,
    Checkpoint,
    Counters,
    checksum,
    find,
    find_all,
    load,
    save,
    versions,
)
from es.config import Config
from es.errors import UsageError
from es.model import make_module
from tests.checkpoints import same
from tests.processes import ROOT

PARAMETERS = {"linear1.weight": torch.randn(3, 2), "linear1.bias": torch.randn(3)}
PATH = Path("a.safetensors")


def example() -> Checkpoint:
    return Checkpoint(
        parameters=PARAMETERS,
        config=Config(env_name="CartPole-v1", lr=1 / 3, seed=10**12, run_dir="\udcff ü😀"),
        counters=Counters(3, 120, 4567, 0.1 + 0.2, 1000, None, 0.1, 0.05),
        optimizer={"step": torch.tensor(3.0), "exp_avg": torch.randn(9)},
        solved={"target": 1.0, "mean": 2.0, "std": 0.5, "second_mean": 1.5},
        normalizer={"count": torch.tensor(3), "moments": torch.randn(2, 4).double()},
        vbn_batch=torch.randn(2, 1, 42, 42),
        relative_sigma=torch.ones(9),
    )


def contents() -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors and the values of the checkpoint."""
    with safetensors.safe_open(PATH, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["values"])


def write(tensors: dict[str, torch.Tensor], values: Any, **metadata: str) -> None:
    """Write a checkpoint with these, and with their checksum."""
    text = json.dumps(values)
    all_metadata = {"format": FORMAT, "values": text, "crc32": checksum(text, tensors)} | metadata
    PATH.write_bytes(safetensors.torch.save(tensors, all_metadata))


def test_what_is_saved_is_loaded():
    saved = example()
    save(saved, PATH)
    assert same(load(str(PATH))._asdict(), saved._asdict())
    assert contents()[1]["versions"] == versions()
    assert os.listdir() == [PATH.name]
    least = Checkpoint({}, Config(lr=0.1, seed=1))
    save(least, PATH)
    assert same(load(str(PATH)), least)


def test_the_documented_lines_play_a_policy_in_plain_torch():
    page = (ROOT / "docs/internals.md").read_text()
    snippet = page.partition("```python\n")[2].partition("```")[0]
    actions = {"kind": "discrete", "n": 2, "start": 0}
    network = {"kind": "mlp", "inputs": 4, "hidden": [64, 64], "activation": "selu"}
    module = make_module(network | {"actions": actions})
    Path("checkpoints/CartPole-v1").mkdir(parents=True)
    saved = example()._replace(parameters=module.state_dict())
    save(saved, Path("checkpoints/CartPole-v1/latest.safetensors"))
    found: dict = {}
    exec(snippet, found)
    assert same(dict(found["model"].state_dict()), dict(module.state_dict()))
    observations = torch.vstack([torch.tensor([0.0, 0.1, 0.0, -0.1]), torch.randn(100, 4)])
    expected, _ = module(observations)
    assert torch.allclose(found["model"](observations), expected)
    assert found["action"] == expected[0].argmax()


def test_a_failed_write_leaves_the_older_file_whole(monkeypatch):
    save(example(), PATH)
    before = PATH.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        save(example(), PATH)
    assert PATH.read_bytes() == before
    assert os.listdir() == [PATH.name]


@pytest.mark.parametrize("zipped", [True, False])
def test_a_bare_state_dict_is_loaded_as_weights_alone(zipped):
    torch.save(PARAMETERS, "weights.pth", _use_new_zipfile_serialization=zipped)
    assert same(load("weights.pth"), Checkpoint(PARAMETERS))


def test_a_checkpoint_is_found_by_its_directory():
    Path("run").mkdir()
    with pytest.raises(UsageError, match="--restore run: holds no latest"):
        find("run")
    with pytest.raises(UsageError, match="--restore run: holds no checkpoint"):
        find_all("run")
    for name in ("update-10", "best", "update-9", "latest"):
        Path(f"run/{name}.safetensors").touch()
    assert find("run") == "run/latest.safetensors"
    names = ["update-9", "update-10", "best", "latest"]
    assert find_all("run") == [f"run/{name}.safetensors" for name in names]
    assert (find("x"), find_all("x")) == ("x", ["x"])


def refusal() -> str:
    with pytest.raises(UsageError) as raised:
        load(str(PATH))
    message = str(raised.value)
    assert message.startswith(f"--restore {PATH}: ")
    assert message.isprintable()
    return message


NO_VALUES: dict[str, Any] = {"counters": {}, "settings": {}, "solved": None}
BAD_FILES: dict[str, Callable[[], object]] = {
    "empty": lambda: PATH.write_bytes(b""),
    "text": lambda: PATH.write_bytes(b"hello\n"),
    "list": lambda: torch.save([1, 2, 3], PATH),
    "foreign": lambda: torch.save({"epoch": 3}, PATH),
    "nothing": lambda: torch.save({}, PATH),
    "no metadata": lambda: safetensors.torch.save_file(PARAMETERS, PATH),
    "another format": lambda: write({}, NO_VALUES, format="evolution-strategies-checkpoint-3"),
    "another checksum": lambda: write({}, NO_VALUES, crc32="0"),
    "no values": lambda: write({}, {}),
    "a list of values": lambda: write({}, []),
    "unknown counter": lambda: write({}, NO_VALUES | {"counters": {"x": 1}}),
    "unknown setting": lambda: write({}, NO_VALUES | {"settings": {"x": 1}}),
}


def test_every_other_file_is_one_line(recwarn):
    for make in BAD_FILES.values():
        make()
        refusal()
    assert not recwarn.list
    PATH.unlink()
    assert "No such file" in refusal()


# ---- damaged and hostile files ----

OWNED = "owned"  # the file that hostile code would make
LARGE = {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}


class Malicious:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {OWNED}",)


def pickled(content: Any, *, zipped: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def with_header(header: Any) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


HOSTILE = {  # files that run code, or take memory or time, in whatever opens them trustingly
    "plain pickle": pickle.dumps(Malicious()),
    "code": pickled({"a": Malicious()}),
    "old code": pickled({"a": Malicious()}, zipped=False),
    "deep": with_header(b'{"a":' * 10**5),
    "a huge tensor": with_header({"a": LARGE}),
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


def test_no_code_in_a_file_is_run(recwarn):
    for content in HOSTILE.values():
        PATH.write_bytes(content)
        assert "weights_only" not in refusal()  # torch's advice to run it
    assert not Path(OWNED).exists()
    assert not recwarn.list
    pickle.loads(HOSTILE["plain pickle"])  # so that this means something
    assert Path(OWNED).exists()


def test_a_damaged_file_is_refused_or_loaded_as_it_was():
    saved, refused = example(), 0
    save(saved, PATH)
    good = PATH.read_bytes()
    for number in range(120):
        PATH.write_bytes(KINDS[number % len(KINDS)](good, random.Random(number)))
        try:
            assert same(load(str(PATH)), saved)
        except UsageError:
            refused += 1
    assert refused > 110
    assert not Path(OWNED).exists()
