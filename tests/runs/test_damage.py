"""Damaged checkpoints, through the command line."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from es.runs.checkpoint import load, save
from tests.checkpoints import read, same
from tests.config.test_options import learned
from tests.processes import run_python
from tests.runs.damage import BOMBS, KINDS, OWNED, damaged

MOMENTS = torch.zeros(2, 3).double()
DAMAGE: dict[str, list[Any]] = {
    "normalizer": [None, {"count": torch.tensor(1)},
                   {"count": torch.tensor(-1), "moments": MOMENTS},
                   {"count": torch.tensor(1), "moments": MOMENTS - 1}],
    "optimizer": [{"step": torch.tensor(-1.0)}, {"momentum_buffer": torch.zeros(2)}],
    "settings": [{}],
    "history": [{"-1": {}}, {"1": {"rate": 3}}, {"1": {"lr": "fast"}}],
    "solved": [{}, {"mean": float("1e300"), "std": 0.0, "bar": 1.0}],
    "environment": [{}, {"id": "Pendulum-v1", "kwargs": {}},
                    {"id": "Pendulum-v1", "kwargs": {}, "frame_skip": 10**9, "noop_max": 0},
                    {"id": "Pendulum-v1", "kwargs": {"g": 9}, "frame_skip": 1, "noop_max": 0}],
}  # fmt: skip


def assert_refused(program, checkpoint):
    """Continue a run from a damaged checkpoint, which must be one line of error."""
    save(checkpoint, Path("damaged/latest.safetensors"))
    status, _, err = program("--restore", "damaged/latest.safetensors", "--max-gradient-updates", 3)
    assert (status, err.count("\n")) == (2, 1)
    assert "damaged" in err


@pytest.mark.parametrize(("field", "value"), [(k, v) for k in DAMAGE for v in DAMAGE[k]])
def test_a_damaged_checkpoint_is_one_line(program, field, value):
    learned(program, "--obs-norm", "--optimizer", "adam")
    checkpoint = read("run/latest.safetensors")
    if field == "optimizer":
        value = checkpoint.optimizer | value
    Path("damaged").mkdir()
    assert_refused(program, checkpoint._replace(**{field: value}))


@pytest.mark.parametrize("shape", [None, (0, 1, 42, 42), (3, 1, 40, 40)])
def test_a_damaged_reference_batch_is_one_line(program, shape):
    run = ("--env-name", "BoxingDeterministic-v4", "--vbn", "--n", 2, "--max-episode-length", 3)
    program(*run, "--workers", 0, "--max-gradient-updates", 1, "--run-dir", "damaged")
    checkpoint = read("damaged/latest.safetensors")
    batch = None if shape is None else torch.zeros(shape)
    assert_refused(program, checkpoint._replace(vbn_batch=batch))


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=lambda kind: KINDS[kind].__name__)
def test_a_damaged_file_is_one_line_or_is_loaded_as_what_it_says(program, kind):
    """25 of each kind, which are trained or played in turn."""
    learned(program, "--obs-norm", "--optimizer", "adam")
    good, original = Path("run/latest.safetensors").read_bytes(), load("run/latest.safetensors")
    play, statuses = ("--test", "--no-render", "--episodes", 1), list[int]()
    for number in range(kind, 25 * len(KINDS), len(KINDS)):
        name, content = damaged(good, number)
        Path("damaged.safetensors").write_bytes(content)
        train = ("--workers", 0, "--run-dir", f"again-{number}", "--max-gradient-updates", 3)
        status, _, err = program(
            "--restore", "damaged.safetensors", *(play if len(statuses) % 2 else train)
        )
        statuses.append(status)
        assert status in (0, 2), (number, err)
        assert status == 2 or err == "", number
        assert status == 0 or (err.startswith("error: ") and err[:-1].isprintable()), number
        if status == 0 and name in ("truncated", "flipped", "overwritten"):
            assert same(load("damaged.safetensors"), original)
    assert not Path(OWNED).exists()
    assert 2 in statuses


def test_what_would_fill_the_memory_or_never_end_is_refused_at_once(tmp_path):
    """In a process of its own: it has little memory, and a time limit."""
    program = (
        "import resource, sys; from es.errors import UsageError\n"
        "from es.runs.checkpoint import load\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (40, 40))\n"
        "for name in {names}:\n"
        "    try: load(name); print(name)\n"
        "    except UsageError as error: print(error)\n"
    )
    for name, content in BOMBS.items():
        (tmp_path / name).write_bytes(content)
    Path("endless").symlink_to("/dev/zero")
    os.mkfifo("pipe")
    with Path("sparse").open("wb") as file:
        file.truncate(2**40)
    names = [str(tmp_path / name) for name in (*BOMBS, "endless", "pipe", "sparse")]
    done = run_python(program.replace("{names}", repr(names)))
    assert (done.returncode, done.stderr) == (0, "")
    *bombs, endless, pipe, sparse = done.stdout.splitlines()
    assert all(line.startswith("--restore ") for line in bombs)
    assert "not an ordinary file" in endless
    assert "not an ordinary file" in pipe
    assert "larger than 2048 MiB" in sparse
