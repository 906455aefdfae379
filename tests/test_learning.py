"""Training from a program's own code."""

import os
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import torch

from es import learn, load_policy
from es.errors import RunError, UsageError
from es.reports.log import COLUMNS
from es.rollouts.processes import PRELOAD
from tests.awful import Awful
from tests.checkpoints import RUN, read, rows, same, same_run, timeless
from tests.processes import run_python

QUICK: dict[str, Any] = {
    "env_name": "CartPole-v1",
    "n": 4,
    "seed": 1,
    "small_net": True,
    "silent": True,
}
HERE = QUICK | {"workers": 0}
OBSERVATION = np.array([0.01, -0.02, 0.03, 0.04], np.float32)


@pytest.fixture
def short_folder() -> Iterator[str]:
    """The names of the sockets in it may have a hundred letters."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def state_of_this_process():
    """What a training must leave as it is."""
    return (
        {name: os.environ[name] for name in os.environ if name != "PYTEST_CURRENT_TEST"},
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        [*sys.path],
        sys.modules["__main__"],
        random.getstate(),
        str(np.random.get_state()),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        gymnasium.logger.min_level,
        threading.enumerate(),
        psutil.Process().children(recursive=True),
        [*Path(os.environ["TMPDIR"]).iterdir()],
        Path.cwd(),
    )


def test_it_is_the_run_of_the_command_line_and_changes_nothing_in_its_process(
    program, monkeypatch, capfd, short_folder
):
    program.train("--max-gradient-updates", 3, "--obs-norm", "--run-dir", "theirs")
    monkeypatch.setenv("TMPDIR", short_folder)
    monkeypatch.setattr(gymnasium.logger, "min_level", 30)
    torch.set_num_threads(2)
    before = state_of_this_process()
    settings = QUICK | {"max_gradient_updates": 3, "obs_norm": True, "workers": 2}
    runs = [learn(**settings)]
    thread = threading.Thread(target=lambda: runs.append(learn(**settings)))
    thread.start()
    thread.join()
    assert state_of_this_process() == before
    torch.set_num_threads(1)
    assert [run.path for run in runs] == [RUN, Path(f"{RUN}.2")]
    for run in runs:
        assert same_run(read("theirs/latest.safetensors"), read(run.path / "latest.safetensors"))
        assert timeless(Path("theirs")) == timeless(run.path)
        assert not run.solved
        assert {name: [*map(float, column)] for name, column in run.history.items()} == {
            name: [float(row[name]) for row in rows(run.path)] for name in COLUMNS
        }
        loaded = load_policy(run.path / "latest.safetensors")
        assert run.policy.update == loaded.update == 3
        assert same(run.policy.settings, loaded.settings)
        assert run.policy(OBSERVATION) == loaded(OBSERVATION)
    assert capfd.readouterr().err == ""


def test_the_process_of_the_pool_starts_before_anything_heavy_is_imported():
    """It imports what workers need, while this process imports torch."""
    program = (
        "import subprocess, sys; from es import learn\n"
        "def start(*words, **options):\n"
        "    sys.exit(str(sorted({'torch', 'rich', 'gymnasium', 'numba'} & sys.modules.keys())))\n"
        "subprocess.Popen = start\n"
        "learn(env_name='CartPole-v1', small_net=True)"
    )
    assert run_python(program).stderr == "[]\n"


def test_a_resumed_run_prepares_its_pool_for_the_environment_of_its_checkpoint(monkeypatch):
    prepared: list[str] = []

    class Noted:
        def __init__(self, preload, variables):
            prepared.append(variables[PRELOAD])

        def close(self):
            pass

    monkeypatch.setattr("es.learning.PoolProcess", Noted)
    path = learn(**HERE, max_gradient_updates=1).path
    learn(restore=path)  # it has finished; its workers=0 is kept
    assert prepared == []
    learn(restore=path, workers=2)
    assert prepared == ["CartPole-v1"]


def test_what_is_played_in_its_process_changes_nothing_there(monkeypatch, short_folder):
    monkeypatch.setenv("TMPDIR", short_folder)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)  # which filming may set
    before = state_of_this_process()
    learn(env_name="CartPole-v1", net="tests.nets:Plain", workers=0, n=4, video_every=1,
          max_gradient_updates=2)  # fmt: skip
    assert state_of_this_process() == before


def test_a_callback_sees_each_update_with_its_policy_and_may_end_the_run():
    seen = []

    def follow(row, policy):
        seen.append((row, policy.update, policy(OBSERVATION), policy.frames))
        return np.float64(row.update) < 3  # NumPy's False

    run = learn(**HERE, callback=follow, max_gradient_updates=9, lr=3.0, save_every=1)
    assert [row.update for row, *_ in seen] == [1, 2, 3] == [*run.history["update"]]
    assert [row.frames for row, *_ in seen] == [*run.history["frames"]]
    for row, update, action, frames in seen:
        policy = load_policy(run.path / f"update-{update}.safetensors")
        assert (row.update, row.frames) == (policy.update, policy.frames) == (update, frames)
        assert action == policy(OBSERVATION)
    assert run.policy.update == 3
    further = learn(restore=run.path, workers=0, max_gradient_updates=4)
    assert (further.path, [*further.history["update"]]) == (run.path, [1, 2, 3, 4])
    again = learn(restore=run.path, max_gradient_updates=4)  # it has ended: nothing is played
    assert (again.path, again.policy.update, again.solved) == (run.path, 4, False)


def test_the_callback_and_the_history_end_with_the_policy_that_reaches_the_target():
    seen = []

    def follow(row, policy):
        seen.append((row.update, policy.update, policy(OBSERVATION)))

    run = learn(**HERE, callback=follow, target_return=9, eval_episodes=3, max_gradient_updates=9)
    assert run.solved
    assert [update for update, *_ in seen] == [1, 2, 3] == [*run.history["update"]]
    assert seen[-1] == (3, run.policy.update, run.policy(OBSERVATION))


def test_what_the_callback_raises_ends_the_run_with_its_files():
    def fail(row, policy):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        learn(**HERE, callback=fail, run_dir="run")
    assert read("run/latest.safetensors").counters.update == 1


@pytest.fixture
def ctrl_c_raises() -> Iterator[None]:
    """Python's own handler, also where the tests run in the background, which ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_saves_the_run_and_is_raised(ctrl_c_raises):

    def interrupt(row, policy):
        os.kill(os.getpid(), signal.SIGINT)

    before = psutil.Process().children()  # of other tests
    with pytest.raises(KeyboardInterrupt):
        learn(**QUICK, workers=1, callback=interrupt, run_dir="run", max_gradient_updates=9)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert read("run/latest.safetensors").counters.update == 1
    assert psutil.Process().children() == before
    assert learn(restore="run", workers=0, max_gradient_updates=2).history["update"].size == 2


def test_the_process_of_the_workers_may_be_killed():
    killed: list[int] = []
    before = psutil.Process().children()  # of other tests

    def kill(row, policy):
        if row.update == 2:
            (process,) = [
                child
                for child in psutil.Process().children()
                if "es.rollouts.pool_server" in " ".join(child.cmdline())
            ]
            process.kill()
            killed.append(process.pid)

    learn(**QUICK, workers=1, callback=kill, max_gradient_updates=4, run_dir="killed")
    assert killed
    assert psutil.Process().children() == before
    learn(**HERE, max_gradient_updates=4, run_dir="quiet")
    assert same_run(read("killed/latest.safetensors"), read("quiet/latest.safetensors"))


def test_what_an_environment_raises_in_a_worker_is_raised():
    name, arguments = "tests.awful:Awful-v0", {"place": "step", "first": 2}
    before = psutil.Process().children()  # of other tests
    with pytest.raises(RunError, match=r"env_name tests.awful(?s:.*)KeyError: 'boom'"):
        learn(**QUICK | {"env_name": name}, env_kwargs=arguments, workers=1)
    assert psutil.Process().children() == before


def test_an_environment_that_cannot_be_handed_over_is_an_error():
    lock = threading.Lock()

    class Locked(Awful):
        def step(self, action):
            with lock:
                return super().step(action)

    with pytest.raises(UsageError, match="env_name=Locked-v0: cannot be handed to worker proc"):
        learn(**QUICK | {"env_name": Locked}, workers=1)
    with pytest.raises(UsageError, match="there is another CartPole-v0; register yours"):
        learn(**QUICK | {"env_name": type("CartPole", (Awful,), {})})
    gymnasium.registry.pop("Locked-v0")
