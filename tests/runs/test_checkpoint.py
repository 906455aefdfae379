import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from es.errors import UsageError
from es.model import make_module
from es.runs.checkpoint import Checkpoint, Counters, load, save
from tests.checkpoints import read, same
from tests.processes import ROOT
from tests.runs.damage import OWNED, Malicious, contents, packed, pickled

PARAMETERS = {"linear1.weight": torch.randn(3, 2), "linear1.bias": torch.randn(3)}


def example() -> Checkpoint:
    return Checkpoint(
        parameters=PARAMETERS,
        optimizer={"step": torch.tensor(3.0), "exp_avg": torch.randn(9)},
        counters=Counters(3, 120, 4567, 0.1 + 0.2, 1000, None, 0.1, 0.05),
        settings={"env_name": "CartPole-v1", "lr": 1 / 3, "seed": 10**12, "run_dir": "\udcff ü😀"},
        environment={"id": "CartPole-v1", "kwargs": {}, "frame_skip": 1, "noop_max": 0},
        network={"kind": "mlp", "inputs": 4, "actions": {"low": [-1e-300, 5e-324]}},
        versions={"torch": "2.13.0"},
        solved={"target": 1.0, "mean": 2.0, "std": 0.5, "second_mean": 1.5},
        normalizer={"count": torch.tensor(3), "moments": torch.randn(2, 4).double()},
        vbn_batch=torch.randn(2, 1, 42, 42),
        history={"3": {"lr": 0.5, "seed": None}},
    )


def test_what_is_saved_is_loaded(tmp_path):
    saved = example()
    save(saved, tmp_path / "a.safetensors")
    loaded = load(str(tmp_path / "a.safetensors"))
    assert isinstance(loaded, Checkpoint)
    assert same(loaded._asdict(), saved._asdict())
    assert os.listdir(tmp_path) == ["a.safetensors"]
    first = Checkpoint(*saved[:7])._replace(optimizer={})
    save(first, tmp_path / "a.safetensors")
    assert same(load(str(tmp_path / "a.safetensors")), first)


def test_a_checkpoint_without_later_additions_is_loaded(tmp_path):
    path, saved = tmp_path / "a.safetensors", example()
    save(saved, path)
    tensors, values = contents(path.read_bytes())
    for name in ("missed_update", "missed_return"):
        del values["counters"][name]
    del values["history"]
    path.write_bytes(packed(tensors, values))
    assert same(read(path), saved._replace(history={}))


def test_a_best_score_that_is_not_finite_is_none(tmp_path):
    saved = example()
    counters = saved.counters._replace(best_score=float("inf"))
    save(saved._replace(counters=counters), tmp_path / "a.safetensors")
    assert read(tmp_path / "a.safetensors").counters == saved.counters


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
    expected, _ = module(torch.tensor([0.0, 0.1, 0.0, -0.1]))
    assert found["action"] == expected.argmax()


def test_a_failed_write_leaves_the_older_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    save(example(), path)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        save(example(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_a_bare_state_dict_is_loaded_as_parameters(tmp_path):
    torch.save(PARAMETERS, tmp_path / "new.pth")
    torch.save(PARAMETERS, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("new.pth", "old.pth"):
        assert same(load(str(tmp_path / name)), PARAMETERS)


def whole() -> bytes:
    return packed({f"{number}": torch.arange(8.0) for number in range(2)}, values())


def values(**changed) -> dict:
    fields = example()._asdict()
    names = ("settings", "environment", "network", "versions", "solved")
    counters = example().counters._asdict() | changed.pop("counters", {})
    return {name: fields[name] for name in names} | {"counters": counters} | changed


BAD = {
    "settings": 3, "environment": [], "versions": {"a": 1}, "network": None, "counters": {"x": 1},
    "one more": 1, "solved": {"mean": 1.0},
}  # fmt: skip
BAD_COUNTERS = {
    "update": 1.5, "frames": float("inf"), "lr": float("nan"), "sigma": 1e300, "episodes": 2**62,
    "evaluated": True, "wall_seconds": -1.0, "max_episode_length": 0, "best_score": float("nan"),
}  # fmt: skip


def bad_files(good: bytes) -> dict[str, bytes]:
    numbers = torch.arange(8.0).numpy().tobytes()
    at = good.index(numbers)
    return {
        "empty": b"",
        "text": b"hello\n",
        "truncated": good[: len(good) // 2],
        "a byte less": good[:-1],
        "flipped": good[: at + 3] + bytes([good[at + 3] ^ 1]) + good[at + 4 :],
        "flipped name": good.replace(b'"0"', b'"2"'),
        "flipped value": good.replace(b"CartPole-v1", b"CartPole-v0"),
        "pickle": pickle.dumps(Malicious()),
        "code": pickled({"a": Malicious()}),
        "old code": pickled({"a": Malicious()}, old=True),
        "list": pickled([1, 2, 3]),
        "foreign": pickled({"epoch": 3}),
        "nothing": pickled({}),
        "numbered": pickled({1: torch.zeros(2)}),
        "another checksum": packed({}, values(), crc32="0"),
        "no frames": packed({"vbn_batch": torch.zeros(3, 1, 42, 40)}, values()),
        **{f"bad {key}": packed({}, values(**{key: value})) for key, value in BAD.items()},
        **{
            f"bad counter {key}": packed({}, values(counters={key: value}))
            for key, value in BAD_COUNTERS.items()
        },
        **{
            f"no {key}": packed({}, values(settings=values()["settings"] | {key: None}))
            for key in ("env_name", "seed")
        },
    }


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as raised:
        load(str(path))
    message = str(raised.value)
    assert message.startswith(f"--restore {path}: ")
    assert "\n" not in message
    return message


def test_every_other_file_is_one_line_and_runs_no_code(recwarn):
    good = Path("good.safetensors")
    good.write_bytes(whole())
    assert isinstance(load("good.safetensors"), Checkpoint)
    for name, content in bad_files(good.read_bytes()).items():
        Path(name).write_bytes(content)
        message = refusal(Path(name))
        assert "checksum" in message or not name.startswith("flipped"), name
    assert not Path(OWNED).exists()
    assert not recwarn.list
    subprocess.run(  # so that this means something
        [sys.executable, "-c", "import torch; torch.load('code', weights_only=False)"],
        check=False, capture_output=True,
    )  # fmt: skip
    assert Path(OWNED).exists()


def test_what_is_no_file_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "is not an ordinary file" in refusal(tmp_path / "pipe")
    assert "No such file" in refusal(tmp_path / "missing.safetensors")


def test_a_checkpoint_of_an_earlier_version_is_named_as_such(tmp_path):
    older = {"format": "evolution-strategies-checkpoint-3", "parameters": PARAMETERS}
    torch.save(older, tmp_path / "old.pth")
    told = "written by version 0.1 of this program (evolution-strategies-checkpoint-3)"
    assert told in refusal(tmp_path / "old.pth")
