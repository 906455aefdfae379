"""Damaged checkpoints, through the command line."""

from pathlib import Path
from typing import Any

import pytest
import torch

from es.checkpoint import save
from tests.conftest import read
from tests.test_options import learned

BAD_STEP: Any = {"state": {0: {"step": torch.tensor(-1.0)}}}
DAMAGE: dict[str, list[Any]] = {
    "normalizer": [None, {}, {"count": 10**400, "moments": torch.zeros(2, 3).double()},
                   {"count": 1, "moments": torch.zeros(2, 3).double().requires_grad_()},
                   {"count": 1, "moments": torch.zeros(2, 3).double().to_sparse()},
                   {"count": 1, "moments": torch.zeros(2, 4).double()}],
    "optimizer": [BAD_STEP, {"state": {1: {}}},
                  {"state": torch.zeros(2)}, torch.zeros(())],
    "settings": [torch.zeros(())],
    "environment": [torch.zeros(()), {"id": "Pendulum-v1", "kwargs": {}}],
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), [(k, v) for k in DAMAGE for v in DAMAGE[k]])
def test_a_damaged_checkpoint_is_one_line(program, field, value):
    learned(program, "--obs-norm", "--optimizer", "adam")
    checkpoint = read("run/latest.pth")
    if value is BAD_STEP:
        value = {"state": {0: checkpoint.optimizer["state"][0] | value["state"][0]}}
    Path("damaged").mkdir()
    save(checkpoint._replace(**{field: value}), Path("damaged/latest.pth"))
    status, _, err = program("--restore", "damaged/latest.pth", "--max-gradient-updates", 3)
    assert status == 2
    assert "damaged" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("shape", [None, (0, 1, 42, 42), (3, 1, 40, 40)])
def test_a_damaged_reference_batch_is_one_line(program, shape):
    run = ("--env-name", "BoxingDeterministic-v4", "--vbn", "--n", 2, "--max-episode-length", 3)
    program(*run, "--workers", 0, "--max-gradient-updates", 1, "--run-dir", "damaged")
    checkpoint = read("damaged/latest.pth")
    reference = None if shape is None else torch.zeros(shape)
    save(checkpoint._replace(reference=reference), Path("damaged/latest.pth"))
    status, _, err = program("--restore", "damaged/latest.pth", "--max-gradient-updates", 3)
    assert status == 2
    assert "damaged" in err
    assert err.count("\n") == 1
