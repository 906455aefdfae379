"""Settings that change in the course of a run: [[phase]] tables."""

from pathlib import Path

import pytest
import torch

from es import learn
from tests.checkpoints import read, rows

START = ("--env-name", "CartPole-v1", "--small-net", "--n", 8, "--seed", 3, "--workers", 0)
TABLES = """\
[[phase]]
after-updates = 3
lr = 0.05
sigma = 0.1
env-kwargs = ["sutton_barto_reward=True"]

[[phase]]
after-frames = 800
env-kwargs = []
n = 12
"""


def phases(text=TABLES):
    Path("phases.toml").write_text(text)
    return (*START, "--config", "phases.toml")


def theta(run):
    parameters = read(Path(run, "latest.safetensors")).parameters
    return torch.cat([tensor.flatten() for tensor in parameters.values()])


def test_a_phase_is_a_restore_with_other_settings(program):
    """The first one has equal returns, so its step and sigma show in the updates of the second."""
    limits = ("--max-gradient-updates", 7, "--workers", 2)
    out = program(*phases(), *limits, "--run-dir", "phases")[1]
    assert "Phase 1 of 2: --lr 0.05, --sigma 0.1, --env-kwargs sutton_barto_reward=True" in out
    program(*START, "--max-gradient-updates", 3, "--run-dir", "by-hand")
    again = ("--restore", "by-hand/latest.safetensors", "--override", "--max-gradient-updates")
    first = ("--lr", 0.05, "--sigma", 0.1, "--env-kwargs", "sutton_barto_reward=True")
    program(*again, 5, *first)
    program(*again, 7, "--env-kwargs", "--n", 12)
    assert torch.equal(theta("phases"), theta("by-hand"))
    found = rows(Path("phases"))
    assert [row["lr"] for row in found] == ["0.1"] * 3 + ["0.05"] * 4
    assert all(float(row["grad_norm"]) > 0 for row in (*found[:3], *found[5:]))


def test_each_phase_begins_when_its_table_says_so_and_changes_what_the_one_before_has_left(program):
    program(*phases(), "--max-gradient-updates", 10, "--run-dir", "run")
    found = rows(Path("run"))
    before = [
        int(row["frames"]) for row in found if row["lr"] == "0.1" or row["return_max"] == "-1.0"
    ]
    assert before[-2] < 800 <= before[-1]
    last = found[len(before)]
    assert (last["lr"], float(last["unperturbed_return"]) > 0) == ("0.05", True)
    assert int(last["episodes"]) - int(found[len(before) - 1]["episodes"]) == 12
    assert read("run/latest.safetensors").counters.phase == 2


def test_a_phase_takes_back_what_it_contradicts_and_a_resumed_run_checks_what_follows(program):
    Path("phases.toml").write_text(
        "n = 16\noptimizer = 'clipup'\nmax-speed = 0.3\n"
        "[[phase]]\nafter-updates = 1\ntop-directions = 6\noptimizer = 'adam'\n"
        "[[phase]]\nafter-updates = 2\ntop-directions = 2\nn = 8\n"
    )
    run = (*START[:3], *START[5:], "--config", "phases.toml", "--max-gradient-updates")
    program(*run, 4, "--run-dir", "whole")
    assert [row["lr"] for row in rows(Path("whole"))] == ["0.22499999999999998"] + ["0.1"] * 3
    program(*run, 1, "--run-dir", "parts")
    for limit in (2, 3, 4):
        program("--restore", "parts", "--max-gradient-updates", limit)
    assert torch.equal(theta("whole"), theta("parts"))


def test_the_settings_file_tells_what_was_overridden_and_not_what_phases_change(program):
    program(*phases(), "--max-gradient-updates", 4, "--run-dir", "run")
    begun = Path("run/config.toml").read_text()
    program("--restore", "run", "--max-gradient-updates", 5)
    further = begun.replace("max-gradient-updates = 4", "max-gradient-updates = 5")
    assert Path("run/config.toml").read_text() == further != begun
    program("--restore", "run", "--override", "--sigma", 0.2, "--max-gradient-updates", 10)
    assert "# until update 5: --sigma 0.1\n" in Path("run/config.toml").read_text()


def test_a_resumed_run_has_the_phases_of_an_uninterrupted_one(program):
    program(*phases(), "--max-gradient-updates", 10, "--run-dir", "whole")
    for stop in ("3", "4", "8"):  # the directory's name, too
        program(*phases(), "--max-gradient-updates", stop, "--run-dir", stop)
        _, out, _ = program("--restore", f"{stop}/latest.safetensors", "--max-gradient-updates", 10)
        assert f"Run directory: {stop}\n" in out
        assert torch.equal(theta("whole"), theta(stop))
    program("--config", "8/config.toml", "--max-gradient-updates", 10, "--run-dir", "again")
    assert torch.equal(theta("whole"), theta("again"))


def test_what_is_overridden_holds_in_the_phases_that_follow_and_other_phases_begin_anew(program):
    program(*phases(), "--max-gradient-updates", 4, "--run-dir", "run")
    restored = ("--restore", "run", "--override", "--max-gradient-updates")
    program(*restored, 10, "--lr", 0.3)
    assert read("run/latest.safetensors").counters.phase == 2
    assert [row["lr"] for row in rows(Path("run"))[3:]] == ["0.05"] + ["0.3"] * 6
    Path("others.toml").write_text("[[phase]]\nafter-updates = 11\nlr = 0.01\n")
    assert program(*restored, 12, "--config", "others.toml")[0] == 0
    assert [row["lr"] for row in rows(Path("run"))[10:]] == ["0.3", "0.01"]


def test_a_phase_sets_a_decayed_rate_and_sigma_back(program):
    table = "[[phase]]\nafter-updates = 2\nlr = 0.1\nsigma = 0.2\n"
    decays = ("--sigma", 0.2, "--lr-decay", 0.5, "--sigma-decay", 0.5)
    program(*phases(table), *decays, "--max-gradient-updates", 4, "--run-dir", "run")
    found = [(float(row["lr"]), float(row["sigma"])) for row in rows(Path("run"))]
    assert found == [(0.1, 0.2), (0.05, 0.1)] * 2


def test_a_return_begins_a_phase_and_the_target_counts_after_the_last(program):
    table = "[[phase]]\nafter-return = 60\nlr = 0.01\n"
    target = ("--target-return", 15, "--eval-episodes", 1)
    out = program(*phases(table), *target, "--max-gradient-updates", 60, "--run-dir", "run")[1]
    found = rows(Path("run"))
    returns = [float(row["unperturbed_return"]) for row in found]
    began = next(index for index, row in enumerate(found) if row["lr"] == "0.01")
    means = [sum(returns[i - 2 : i + 1]) / 3 for i in range(2, began)]
    assert max(means[:-1]) < 60 <= means[-1]
    assert out.index("Phase 1 of 1: --lr 0.01") < out.index("Solved: ")


@pytest.mark.parametrize(("updates", "frames", "before"), [(2, 10**6, 2), (9, 25, 1)])
def test_a_phase_with_several_starts_begins_at_the_first(program, updates, frames, before):
    table = f"[[phase]]\nafter-updates = {updates}\nafter-frames = {frames}\nlr = 0.02\n"
    program(*phases(table), "--max-gradient-updates", 4, "--run-dir", "run")
    found = [row["lr"] for row in rows(Path("run"))]
    assert found == ["0.1"] * before + ["0.02"] * (4 - before)


def test_a_phase_may_remove_a_setting(program):
    """Here a cap on training episodes. Also one from Python, whose file says the same."""
    table = "[[phase]]\nafter-updates = 2\ntraining-ep-len = 'None'\n"
    program(*phases(table), "--training-ep-len", 5, "--max-gradient-updates", 3, "--run-dir", "run")
    lengths = [float(row["episode_length_mean"]) for row in rows(Path("run"))]
    assert lengths[:2] == [5, 5]
    assert lengths[2] > 5
    run = learn(
        config="run/config.toml", run_dir="python", silent=True,
        phase=[{"after_updates": 2, "training_ep_len": None}],
    )  # fmt: skip
    assert [*run.history["episode_length_mean"]] == lengths
    assert 'training-ep-len = "None"' in Path("python/config.toml").read_text()
    program("--config", "python/config.toml", "--run-dir", "again")
    assert torch.equal(theta("again"), theta("run"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("lr = 1", "needs after-updates, after-frames or after-return"),
        ("after-updates = 1.5\nlr = 1", "after-updates = 1.5 must be a whole number"),
        ("after-updates = 1\nlr = 'a'", "lr = 'a' must be a number"),
        ("after-updates = 1\nlr = -1", "[[phase]] 1: --lr -1.0 must be from"),
        ("after-updates = 1\nhidden-sizes = []", "hidden-sizes cannot change"),
        ("after-updates = 1\nn = 7", "--n 7 must be even, or give --sampling gaussian; --n 7 is"),
        (
            "after-updates = 1\nenv-kwargs = ['a=1']",
            "[[phase]] 1: --env-name CartPole-v1 --env-kwargs a=1: ",
        ),
        ("after-updates = 1\naction-noise = 0.1", "[[phase]] 1: --action-noise 0.1 applies only"),
        (
            "after-updates = 1\nenv-wrapper = ['gymnasium.wrappers:TimeAwareObservation']",
            "[[phase]] 1 changes the size of observations or actions",
        ),
        ("after-updates = 1\nsigma-min = 0.01", "[[phase]] 1: --sigma-min applies only with"),
        ("after-updates = 1\nspeed = 7", "unknown setting 'speed'"),
    ],
)
def test_a_wrong_phase_is_one_line(program, table, message):
    status, _, err = program(*phases(f"[[phase]]\n{table}\n"))
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
    assert not Path("checkpoints").exists()


def test_what_is_wrong_from_the_beginning_is_no_phase(program):
    words = phases("[[phase]]\nafter-updates = 1\nlr = 1\n")
    status, _, err = program(*words, "--env-kwargs", "a=1")
    assert status == 2
    assert err.startswith("error: --env-name CartPole-v1 --env-kwargs a=1: ")
