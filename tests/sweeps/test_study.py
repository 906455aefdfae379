"""The search, with trials that play in threads, and the process of a trial."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe, get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from es.config import Config
from es.errors import Interrupts, RunError, UsageError
from es.sweeps.space import Space
from es.sweeps.study import FRAMES, REASON, RunningTrial, Sweep, open_study, search, write_tables
from es.sweeps.trial import Milestone, Value
from tests.fakes import start_lasting
from tests.processes import all_gone, wait_until
from tests.sweeps.common import table

LRS = (1e-6, 0.1)
Play = Callable[[float, Any], None]


def sweep_of(total: int, **more: Any) -> Sweep:
    Path("here").mkdir(exist_ok=True)
    config = Config(env_name="CartPole-v1", max_gradient_updates=9, seed=1, lr=1e-6)
    space: Space = {"lr": CategoricalDistribution(LRS)}
    return Sweep(config, space, Path("here"), total, 1, 0)._replace(**more)


class Thread(threading.Thread):
    """A trial's process that is a thread."""

    pid, exitcode = None, 7

    def kill(self) -> None:
        pass


def find(sweep: Sweep, play: Play) -> list[Any]:
    """Searches with trials that `play` plays: called with the rate and the link."""

    def start(study: optuna.Study, sweep: Sweep) -> RunningTrial:
        trial = study.ask(sweep.space)
        ours, theirs = Pipe()

        def run() -> None:
            with theirs, suppress(BrokenPipeError):
                play(trial.params["lr"], theirs)

        process = Thread(target=run)
        process.start()
        return RunningTrial(trial, process, ours)

    with open_study(sweep) as study, patch("es.sweeps.study.start_trial", start):
        search(study, sweep, Interrupts(), lambda trial: write_tables(study, sweep), print)
        return study.get_trials()


def learns(lr: float, link: Any) -> None:
    """Earns 500 times the rate, at each milestone and in the end."""
    for number in range(1, 10):
        link.send(Milestone(number, 500 * lr, 10 * number))
        if not link.recv():
            return
    link.send(Value(500 * lr, 100))


def test_it_plays_what_is_missing_and_writes_the_best_settings():
    assert len(find(sweep_of(3), learns)) == 3
    trials = find(sweep_of(6, jobs=2), learns)
    assert [trial.number for trial in trials] == [*range(6)]
    assert trials[0].params == {"lr": 1e-6}  # the settings as they are given
    assert {row["state"] for row in table()} == {"complete"}
    assert table()[0] == {
        "trial": "0", "state": "complete", "value": "0.0005", "frames": "100",
        "seconds": table()[0]["seconds"], "lr": "1e-06", "reason": "",
    }  # fmt: skip
    assert "\nlr = 0.1\n" in Path("here/best.toml").read_text()
    other = {"lr": CategoricalDistribution((1e-6, 0.2))}
    for wrong in (sweep_of(3, space=other), sweep_of(3, base=Config(max_gradient_updates=8))):
        with pytest.raises(UsageError, match=r"with other settings .* Choose another --dir"):
            find(wrong, learns)


def test_a_trial_that_is_worse_than_others_ends_early():
    asked: list[int] = []

    def counts(lr: float, link: Any) -> None:
        before = len(asked)
        for number in range(1, 10):
            link.send(Milestone(number, -len(asked[:before]), 10 * number))
            if not link.recv():
                asked.append(number)
                return
        link.send(Value(0.0, 100))
        asked.append(10)

    trials = find(sweep_of(7), counts)
    assert [trial.state for trial in trials[:5]] == [TrialState.COMPLETE] * 5
    assert trials[5].state == TrialState.PRUNED
    assert asked[5] == 3  # the first milestone after the warm-up
    assert trials[5].user_attrs[FRAMES] == 30
    assert {row["value"] for row in table() if row["state"] == "pruned"} == {""}


def test_a_trial_that_fails_is_noted_and_when_all_do_the_sweep_ends():
    def fails(lr: float, link: Any) -> None:
        if lr == 0.1:
            learns(lr, link)
        else:
            link.send("unlucky")

    trials = find(sweep_of(8), fails)
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    assert {trial.user_attrs[REASON] for trial in failed} == {"unlucky"}
    assert len(failed) < len(trials)
    Path("here/study.db").unlink()
    with pytest.raises(RunError, match="the first 5 trials have all failed, the last: its process"):
        find(sweep_of(8), lambda lr, link: None)
    assert table()[-1]["reason"] == "its process died (exit code 7)"
    with pytest.raises(RunError, match=r"first 10 trials .* the last: its mean .* nan"):
        find(sweep_of(20), lambda lr, link: link.send(Value(float("nan"), 1)))


def test_a_study_that_cannot_be_used_is_one_line():
    sweep = sweep_of(1)
    Path("here/study.db").write_bytes(b"damaged" * 99)
    with pytest.raises(UsageError, match=r"--dir here: study.db cannot be used .* another --dir$"):
        find(sweep, learns)


def linger(directory: Path) -> None:
    """A trial's process whose environment has started another one, and which never ends."""
    os.setsid()
    (directory / "pid").write_text(str(start_lasting().pid))
    (directory / "begun").touch()
    threading.Event().wait()


def test_a_trial_that_dies_takes_with_it_what_its_environment_has_started(tmp_path):
    ours, theirs = Pipe()
    process = get_context("forkserver").Process(target=linger, args=(tmp_path,))
    process.start()
    optuna_trial: Any = SimpleNamespace(set_user_attr=lambda *words: None, number=0)
    study: Any = SimpleNamespace(tell=lambda *words, **more: None)
    trial = RunningTrial(optuna_trial, process, ours)
    wait_until((tmp_path / "begun").exists)
    os.kill(process.pid or 0, signal.SIGKILL)
    theirs.close()
    assert not trial.receive()
    trial.tell(study)
    wait_until(lambda: all_gone([int((tmp_path / "pid").read_text())]), 30)
