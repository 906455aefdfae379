"""Training from a program's own code."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec

from es import learn, load_policy
from es.config import Config
from es.errors import RunError, UsageError
from es.learning import _pickle_definitions
from es.reports.log import COLUMNS
from tests.awful import Awful
from tests.checkpoints import RUN, has_rows, read, rows, same, same_run, timeless
from tests.conftest import SEED
from tests.processes import ROOT, all_gone, descendants, run_python, wait_until

QUICK: dict[str, Any] = {
    "env_name": "CartPole-v1",
    "n": 4,
    "seed": SEED,
    "small_net": True,
    "silent": True,
}
HERE = QUICK | {"workers": 0}
IMPORTS = {"PYTHONPATH": str(ROOT)}
OBSERVATIONS = np.random.default_rng(0).uniform(-1, 1, (100, 4)).astype(np.float32)


def state_of_this_process():
    """What a training must leave as it is."""
    return (
        {name: os.environ[name] for name in os.environ if name != "PYTEST_CURRENT_TEST"},
        [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        [*sys.path],
        random.getstate(),
        str(np.random.get_state()),
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        threading.enumerate(),
        psutil.Process().children(recursive=True),
        Path.cwd(),
    )


def test_it_is_the_run_of_the_command_line_and_changes_nothing_in_its_process(program, capfd):
    program.train("--max-gradient-updates", 3, "--obs-norm", "--run-dir", "theirs")
    before = state_of_this_process()
    run = learn(**QUICK, max_gradient_updates=3, obs_norm=True, workers=2)
    assert state_of_this_process() == before
    assert run.path == RUN
    assert same_run(read("theirs/latest.safetensors"), read(run.path / "latest.safetensors"))
    assert timeless(Path("theirs")) == timeless(run.path)
    assert not run.solved
    assert {name: [*map(float, column)] for name, column in run.history.items()} == {
        name: [float(row[name]) for row in rows(run.path)] for name in COLUMNS
    }
    loaded = load_policy(run.path / "latest.safetensors")
    assert run.policy.update == loaded.update == 3
    assert same(run.policy.settings, loaded.settings)
    assert (run.policy(OBSERVATIONS) == loaded(OBSERVATIONS)).all()
    assert capfd.readouterr().err == ""


def test_the_import_and_the_start_of_a_training_import_nothing_heavy():
    program = (
        "import subprocess, sys; from es import learn\n"
        "def start(*words, **options):\n"
        "    sys.exit(str(sorted({'torch', 'rich', 'gymnasium', 'numba'} & sys.modules.keys())))\n"
        "subprocess.Popen = start\n"
        "learn(env_name='CartPole-v1', small_net=True)"
    )
    assert run_python(program).stderr == "[]\n"


def test_a_callback_sees_each_update_with_its_policy_and_may_end_the_run():
    seen = []

    def follow(row, policy):
        seen.append((row, policy.update, policy(OBSERVATIONS), policy.frames))
        return np.float64(row.update) < 3  # NumPy's False

    run = learn(**HERE, callback=follow, max_gradient_updates=9, save_every=1)
    assert [row.update for row, *_ in seen] == [1, 2, 3] == [*run.history["update"]]
    assert [row.frames for row, *_ in seen] == [*run.history["frames"]]
    for row, update, actions, frames in seen:
        policy = load_policy(run.path / f"update-{update}.safetensors")
        assert (row.update, row.frames) == (policy.update, policy.frames) == (update, frames)
        assert (actions == policy(OBSERVATIONS)).all()
    assert all((before[2] != after[2]).any() for before, after in pairwise(seen))
    assert run.policy.update == 3
    further = learn(restore=run.path, workers=0, max_gradient_updates=4)
    assert (further.path, [*further.history["update"]]) == (run.path, [1, 2, 3, 4])
    again = learn(restore=run.path, max_gradient_updates=4)  # it has ended: nothing is played
    assert (again.path, again.policy.update, again.solved) == (run.path, 4, False)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_callback_has_the_policy_of_the_phase(workers):
    seen = []
    learn(
        **QUICK, workers=workers, max_gradient_updates=3,
        phase=[{"after_updates": 1, "max_episode_length": 7}],
        callback=lambda row, policy: seen.append((policy, policy.settings["max_episode_length"])),
    )  # fmt: skip
    (_, before), (policy, length), again = seen
    assert before != length == 7
    assert again == (policy, 7)


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

    before = {*psutil.Process().children()}  # of other tests, which may end
    with pytest.raises(KeyboardInterrupt):
        learn(**QUICK, workers=1, callback=interrupt, run_dir="run", max_gradient_updates=9)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert read("run/latest.safetensors").counters.update == 1
    assert {*psutil.Process().children()} <= before
    assert learn(restore="run", workers=0, max_gradient_updates=2).history["update"].size == 2


def test_a_training_process_that_dies_is_an_error_and_its_run_can_go_on():
    before = {*psutil.Process().children()}  # of other tests, which may end

    def kill(row, policy):
        if row.update == 2:
            wait_until(Path("run/latest.safetensors").exists)
            (process,) = [each for each in psutil.Process().children() if each not in before]
            process.kill()

    with pytest.raises(RunError, match=r"training process died \(exit code -9\)\. Continue from"):
        learn(**QUICK, workers=1, callback=kill, run_dir="run", max_gradient_updates=9)
    assert {*psutil.Process().children()} <= before
    run = learn(restore="run", workers=0, max_gradient_updates=2)
    assert [*run.history["update"]] == [1, 2]


def test_it_ends_with_its_work_saved_when_the_program_is_killed():
    program = (
        "from es import learn\n"
        "learn(env_name='CartPole-v1', small_net=True, n=4, seed=1, workers=1, silent=True,\n"
        "      run_dir='run', max_gradient_updates=10**6)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | IMPORTS)
    wait_until(lambda: has_rows(Path("run"), 2))
    started = descendants(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: all_gone(started))
    assert read("run/latest.safetensors").counters.update == len(rows(Path("run")))


def test_what_an_environment_raises_in_a_worker_is_raised():
    name, arguments = "tests.awful:Awful-v0", {"place": "step", "first": 2}
    before = {*psutil.Process().children()}  # of other tests, which may end
    with pytest.raises(RunError, match=r"env_name tests.awful(?s:.*)KeyError: 'boom'"):
        learn(**QUICK | {"env_name": name}, env_kwargs=arguments, workers=1)
    assert {*psutil.Process().children()} <= before


def test_what_a_script_defines_is_an_error_in_a_process_of_multiprocessing(monkeypatch):
    class Mine(CartPoleEnv):
        pass

    Mine.__module__ = "__mp_main__"  # as spawn and forkserver name it
    made_by: Any = Mine
    monkeypatch.setitem(gymnasium.registry, "Mine-v0", EnvSpec("Mine-v0", made_by))
    for config in (Config(env_name="Mine-v0"), Config(net="__mp_main__:Net")):
        with pytest.raises(UsageError, match="Define it in a module"):
            _pickle_definitions(config)


def test_a_module_that_learns_when_it_is_imported_starts_no_chain_of_processes():
    Path("own.py").write_text(
        "open('imports', 'a').write('.')\n"
        "assert len(open('imports').read()) < 5  # ends the chain, if there is one\n"
        "from es import learn\n"
        "learn(env_name='own:Mine-v0', workers=1)\n"
    )
    ended = run_python("import own", Path.cwd(), **IMPORTS)
    assert "UsageError: learn() was called by a module that a training imports" in ended.stderr


def test_an_environment_that_cannot_be_sent_is_an_error():
    class Locked(Awful):
        lock = threading.Lock()

    with pytest.raises(UsageError, match="env_name=Locked-v0 cannot be sent to another process"):
        learn(**QUICK | {"env_name": Locked}, workers=1)
    with pytest.raises(UsageError, match=r"there is another CartPole-v0\. Register yours"):
        learn(**QUICK | {"env_name": type("CartPole", (Awful,), {})})
    gymnasium.registry.pop("Locked-v0")
