"""Environments that go wrong, through the command line."""

import re
from pathlib import Path

import pytest

from tests.checkpoints import read, rows, same_run

FAULTY = ("--env-name", "tests.faulty:Faulty-v0", "--small-net", "--n", 8, "--seed", 3)
UPDATES = ("--max-gradient-updates", 4, "--sigma", 1)


def faulty(program, directory, *arguments, kwargs=()):
    given = ("--env-kwargs", *kwargs) if kwargs else ()
    return program(*FAULTY, *UPDATES, "--run-dir", directory, *given, *arguments)


@pytest.mark.parametrize("fault", ["nan", "inf"])
def test_returns_that_are_no_numbers_rank_last_and_are_counted(program, fault):
    kwargs = (f"fault={fault}",)
    status, out, err = faulty(program, "alone", "--workers", 0, "--log-every", 0, kwargs=kwargs)
    assert (status, err) == (0, "")
    counts = [int(row["non_finite"]) for row in rows(Path("alone"))]
    assert any(counts)
    assert all(abs(float(row["return_mean"])) < 10 for row in rows(Path("alone")))
    assert out.count("Returns not finite: ") == sum(count > 0 for count in counts)
    assert f"Returns not finite: {max(counts)} (ranked last)" in out
    assert faulty(program, "two", "--workers", 2, kwargs=kwargs)[0] == 0
    assert same_run(read("alone/latest.safetensors"), read("two/latest.safetensors"))
    assert any(float(row["grad_norm"]) > 0 for row in rows(Path("two")))


def test_returns_none_of_which_is_a_number_end_the_run(program):
    status, _, err = faulty(program, "run", "--workers", 0, kwargs=("fault=nan", "share=1.0"))
    assert status == 1
    assert err.startswith("error: --env-name tests.faulty:Faulty-v0: none of 8 returns")
    assert err.count("\n") == 1
    assert read("run/latest.safetensors").counters.update == 0


def test_a_score_that_is_no_number_is_neither_the_best_nor_the_target(program):
    target = ("--target-return", -5, "--eval-episodes", 30, "--workers", 0)
    status, out, _ = faulty(program, "run", *target, kwargs=("fault=inf",))
    assert status == 1
    assert "mean nan" in out
    assert out.splitlines()[-1].startswith("Target not reached")
    every = ("--eval-every", 1, "--eval-episodes", 30, "--workers", 0)
    assert faulty(program, "nan", *every, kwargs=("fault=nan",))[0] == 0
    assert not Path("nan/best.safetensors").exists()
    play = ("--test", "--no-render", "--restore", "nan/latest.safetensors", "--episodes", 30)
    status, out, err = program(*play, *FAULTY[:2])
    assert (status, err) == (0, "")
    assert "mean nan" in out


def test_observations_that_are_no_numbers_stay_out_of_the_statistics(program):
    assert faulty(program, "run", "--workers", 0, "--obs-norm", kwargs=("fault=unseen",))[0] == 0
    normalizer = read("run/latest.safetensors").normalizer
    assert normalizer is not None
    assert normalizer["moments"].isfinite().all()
    assert 0 < normalizer["count"] < read("run/latest.safetensors").counters.frames


@pytest.mark.parametrize(
    ("fault", "workers", "how", "last"),
    [
        ("raise", 0, "failed (ValueError: unlucky)", "ValueError: unlucky"),
        ("raise", 2, "failed 3 times; the last worker failed", "ValueError: unlucky"),
        ("crash", 2, "failed 3 times; the last worker died", "(signal SIGSEGV)"),
    ],
)
def test_an_episode_that_cannot_be_played_ends_the_run(program, fault, workers, how, last):
    status, _, err = faulty(program, "run", "--workers", workers, kwargs=(f"fault={fault}",))
    assert status == 1
    who = r"error: --env-name tests.faulty:Faulty-v0: the episode of seed \d+ with noise seed \d+"
    assert re.match(who, err)
    assert how in err
    assert err.rstrip().endswith(last)
    assert [row["update"] for row in rows(Path("run"))] == ["1"]
    assert read("run/latest.safetensors").counters.update == 1


@pytest.mark.parametrize("fault", ["raise", "crash", "hang"])
def test_what_goes_wrong_once_changes_nothing(program, fault):
    kwargs = (f"fault={fault}", "once=happened")
    timeout = ("--rollout-timeout", 0.5)
    status, out, err = faulty(program, "run", "--workers", 2, *timeout, kwargs=kwargs)
    assert (status, err) == (0, "")
    assert Path("happened").exists()
    assert ": replaced." in out
    Path("happened").touch()
    assert faulty(program, "quiet", "--workers", 0, kwargs=kwargs)[0] == 0
    assert same_run(read("run/latest.safetensors"), read("quiet/latest.safetensors"))


def test_parameters_that_are_no_numbers_do_not_replace_the_checkpoint(program):
    steep = ("--lr", 1e30, "--sigma", 1e-6, "--sigma-decay", 0.1, "--workers", 0)
    luck = ("--episode-seeding", "independent")
    status, _, err = program(
        *FAULTY, *steep, *luck, "--max-gradient-updates", 20, "--run-dir", "run"
    )
    assert status == 1
    assert "no longer finite" in err
    last = read("run/latest.safetensors")
    assert last.counters.update == len(rows(Path("run"))) > 0
    assert all(tensor.isfinite().all() for tensor in last.parameters.values())
