import errno
import os
import pickle
import subprocess
import sys
import zipfile

import pytest
import torch

from es.errors import UsageError
from es.runs import checkpoint as checkpoints
from es.runs.checkpoint import Checkpoint, Counters, load, save
from tests.conftest import same

PARAMETERS = {"linear1.weight": torch.randn(3, 2), "linear1.bias": torch.randn(3)}


def example() -> Checkpoint:
    parameter = torch.nn.Parameter(torch.randn(9))
    adam = torch.optim.Adam([parameter], lr=0.1)
    parameter.grad = torch.randn(9)
    adam.step()
    return Checkpoint(
        parameters=PARAMETERS,
        optimizer=adam.state_dict(),
        counters=Counters(3, 120, 4567, 8.9, 1000, None, 0.1, 0.05),
        settings={"env_name": "CartPole-v1", "lr": 0.1, "seed": 10**12, "small_net": True},
        environment={"id": "CartPole-v1", "kwargs": {}, "frame_skip": 1, "noop_max": 0},
        network={"kind": "mlp", "inputs": 4, "actions": 2},
        versions={"torch": "2.13.0"},
        solved={"target": 1.0, "mean": 2.0, "std": 0.5},
        normalizer={"count": 3, "moments": torch.randn(2, 4).double()},
        reference=torch.randn(2, 1, 42, 42),
    )


def test_what_is_saved_is_loaded(tmp_path):
    saved = example()
    save(saved, tmp_path / "a.pth")
    loaded = load(str(tmp_path / "a.pth"))
    assert isinstance(loaded, Checkpoint)
    assert same(loaded._asdict(), saved._asdict())
    assert os.listdir(tmp_path) == ["a.pth"]


def test_a_failed_write_leaves_the_older_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.pth"
    save(example(), path)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        save(example(), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.pth"]


def test_a_bare_state_dict_is_loaded_as_parameters(tmp_path):
    torch.save(PARAMETERS, tmp_path / "new.pth")
    torch.save(PARAMETERS, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("new.pth", "old.pth"):
        assert same(load(str(tmp_path / name)), PARAMETERS)


class Malicious:
    def __reduce__(self):
        return os.system, ("touch owned",)


def bad_files(tmp_path):
    save(example(), tmp_path / "good.pth")
    good = (tmp_path / "good.pth").read_bytes()
    (tmp_path / "empty.pth").write_bytes(b"")
    (tmp_path / "truncated.pth").write_bytes(good[: len(good) // 2])
    (tmp_path / "text.pth").write_text("hello\n")
    (tmp_path / "pickle.pth").write_bytes(pickle.dumps(Malicious()))
    torch.save({"format": checkpoints.FORMAT, "parameters": Malicious()}, tmp_path / "evil.pth")
    torch.save([1, 2, 3], tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "foreign.pth")
    torch.save({}, tmp_path / "nothing.pth")
    torch.save({"format": checkpoints.FORMAT}, tmp_path / "hollow.pth")
    content = {"format": checkpoints.FORMAT, **example()._asdict(), "counters": {"update": 1}}
    torch.save(content, tmp_path / "counterless.pth")
    odd = {
        "settings": 3,
        "environment": {"id": 4, "kwargs": {}},
        "optimizer": [],
        "solved": {},
        "parameters": {"a": 1},
        "versions": {1: "x"},
        "counters": {**example().counters._asdict(), "update": "1"},
    }
    for key, value in odd.items():
        whole = {**example()._asdict(), "counters": example().counters._asdict()}
        torch.save({"format": checkpoints.FORMAT, **whole, key: value}, tmp_path / f"{key}.pth")
    whole = {**example()._asdict(), "counters": example().counters._asdict()}
    for key, value in {
        "update": 1.5, "frames": float("inf"), "lr": float("nan"), "sigma": 1e300, "episodes": 2**62
    }.items():  # fmt: skip
        counters = {**whole["counters"], key: value}
        content = {"format": checkpoints.FORMAT, **whole, "counters": counters}
        torch.save(content, tmp_path / f"counters-{key}.pth")
    torch.save({1: torch.zeros(2)}, tmp_path / "numbered.pth")
    with zipfile.ZipFile(tmp_path / "zip.pth", "w") as archive:
        archive.writestr("data.pkl", b"nothing")
    (tmp_path / "folder.pth").mkdir()
    return [*sorted({path.name for path in tmp_path.iterdir()} - {"good.pth"}), "missing.pth"]


def test_every_other_file_is_one_line_and_runs_no_code(tmp_path):
    for name in bad_files(tmp_path):
        with pytest.raises(UsageError) as raised:
            load(str(tmp_path / name))
        message = str(raised.value)
        assert message.startswith("--restore ")
        assert name in message
        assert "\n" not in message
    assert not (tmp_path / "owned").exists()


def test_the_malicious_file_would_run_code_if_it_were_let(tmp_path):
    """So that the test above means something."""
    bad_files(tmp_path)
    program = "import torch; torch.load('evil.pth', weights_only=False)"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, capture_output=True)
    assert (tmp_path / "owned").exists()
