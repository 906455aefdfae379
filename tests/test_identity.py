"""The same run, to the bit, with any number of workers."""

from pathlib import Path

import pytest

from tests.checkpoints import read, same_run, timeless

RUNS = {
    "classic": "CartPole-v1 --variable-ep-len --max-episode-length 60",
    "MuJoCo": "HalfCheetah-v5 --obs-norm --action-noise 0.1 --variable-ep-len "
    "--max-episode-length 20 --useAdam",
    "capped": "Pendulum-v1 --training-ep-len 30 --max-episode-length 90 "
    "--episodes-per-perturbation 2",
    "Box2D": "LunarLander-v3 --episodes-per-perturbation 2 --adaptive-ep-len",
    "Atari": "BreakoutDeterministic-v0 --vbn --noop-max 9 --max-episode-length 60",
}


@pytest.mark.parametrize("run", RUNS)
def test_the_number_of_workers_changes_nothing(program, run):
    command = ("--env-name", *RUNS[run].split(), "--n", 6, "--seed", 5, "--sigma", 0.5)
    counts = {"alone": 0, "one": 1, "two": 2, "five": 5, "default": None}
    for name, workers in counts.items():
        given = () if workers is None else ("--workers", workers)
        status, _, err = program(*command, *given, "--max-gradient-updates", 3, "--run-dir", name)
        assert (status, err) == (0, "")
    first = timeless(Path("alone"))
    assert any(float(row["grad_norm"]) > 0 for row in first)
    for name in counts:
        assert same_run(read(f"{name}/latest.safetensors"), read("alone/latest.safetensors"))
        assert timeless(Path(name)) == first
