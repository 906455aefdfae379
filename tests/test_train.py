"""Whole runs through the command line, in this process where processes do not matter."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from es.reports.log import COLUMNS
from tests.checkpoints import RUN, read, rows, same, same_run, settings, timeless
from tests.conftest import CARTPOLE
from tests.processes import ROOT, run_python


@pytest.mark.picture
def test_what_a_run_leaves(program):
    out = program.train("--max-gradient-updates", 3, "--save-every", 2, "--log-every", 0)
    assert {path.name.split(".")[0] for path in RUN.iterdir() if path.name != ".lock"} == {
        "latest", "best", "update-2", "progress", "learning_curve", "config", "events"
    }  # fmt: skip
    assert "Num params in network: 4610" in out
    assert out.count("Unperturbed rank: ") == 3
    assert out.splitlines()[-1].startswith("Finished: 3 updates, 12 episodes")
    found = rows()
    assert list(found[0]) == list(COLUMNS)
    assert [row["update"] for row in found] == ["1", "2", "3"]
    assert [row["episodes"] for row in found] == ["4", "8", "12"]
    steps = [4 * float(row["episode_length_mean"]) for row in found]
    assert [float(row["frames"]) for row in found] == pytest.approx(np.cumsum(steps))
    checkpoint = read(RUN / "latest.safetensors")
    assert checkpoint.counters.update == 3
    assert checkpoint.counters.frames == int(found[-1]["frames"])
    assert read(RUN / "update-2.safetensors").counters.update == 2
    settings = tomllib.loads((RUN / "config.toml").read_text())
    assert settings["seed"] == 1
    assert settings["env-name"] == "CartPole-v1"


def test_the_settings_file_repeats_the_run(program):
    program.train("--max-gradient-updates", 3, "--useAdam", "--run-dir", "a")
    status, _, _ = program("--config", "a/config.toml", "--run-dir", "b")
    assert status == 0
    assert same_run(read("a/latest.safetensors"), read("b/latest.safetensors"))


def test_a_seed_is_drawn_printed_and_saved(program):
    arguments = ("--env-name", "CartPole-v1", "--n", 2, "--workers", 0, "--small-net")
    seeds = set()
    for directory in ("a", "b"):
        _, out, _ = program(*arguments, "--max-gradient-updates", 1, "--run-dir", directory)
        seed = settings(f"{directory}/latest.safetensors").seed
        assert f"Seed: {seed}\n" in out
        seeds.add(seed)
    assert len(seeds) == 2


@pytest.mark.parametrize("workers", [1, 2, None])
def test_any_number_of_workers_gives_the_same_run_to_the_bit(program, workers):
    options = ("--useAdam", "--variable-ep-len", "--max-gradient-updates", 4)
    program.train(*options, "--run-dir", "a")
    chosen = () if workers is None else ("--workers", workers)
    status, _, err = program(*CARTPOLE, *options, *chosen, "--run-dir", "b")
    assert (status, err) == (0, "")
    assert same_run(read("a/latest.safetensors"), read("b/latest.safetensors"))
    assert same(read("a/best.safetensors").parameters, read("b/best.safetensors").parameters)
    assert timeless(Path("a")) == timeless(Path("b"))


def test_a_second_run_of_an_environment_takes_a_number_and_says_so(program):
    program.train("--max-gradient-updates", 1, "--sigma", 0.2)
    before = {path: path.read_bytes() for path in RUN.iterdir()}
    out = program.train("--max-gradient-updates", 2)
    assert f"{RUN} holds another run: this one goes to {RUN}.2." in out
    assert f"Run directory: {RUN}.2\n" in out
    assert out.endswith(f", saved as {RUN}.2/latest.safetensors\n")
    assert {path: path.read_bytes() for path in RUN.iterdir()} == before
    # Its settings, repeated, are those of a run with a number of its own.
    assert program("--config", f"{RUN}.2/config.toml")[0] == 0
    assert same_run(read(f"{RUN}.3/latest.safetensors"), read(f"{RUN}.2/latest.safetensors"))
    # A run that is carried on stays where it is.
    restored = ("--restore", f"{RUN}.2/latest.safetensors", "--workers", 0)
    assert program(*restored, "--max-gradient-updates", 3)[0] == 0
    assert read(f"{RUN}.2/latest.safetensors").counters.update == 3


def test_a_run_that_learns_nothing_says_so(program):
    """Nobody finds the goal in so few episodes."""
    lake = ("--env-name", "FrozenLake-v1", "--n", 2, "--workers", 0, "--max-gradient-updates", 12)
    _, out, _ = program(*lake, "--seed", 2, "--sigma", 0.001)
    assert out.count("In each of the last 10 updates all returns were equal (in this one 0), ") == 1


@pytest.mark.parametrize(
    ("env_name", "flags", "said"),
    [
        ("tests.awful:Awful-v0", (), True),
        ("tests.awful:Awful-v0", ("--max-episode-length", 20), False),
        ("CartPole-v1", (), False),
    ],
)
def test_a_run_whose_episodes_may_have_no_end_says_so(program, env_name, flags, said):
    small = ("--env-name", env_name, "--n", 2, "--workers", 0, "--max-gradient-updates", 1)
    _, out, _ = program(*small, *flags)
    told = "No limit of steps is known: episodes may last 100000 (--max-episode-length).\n"
    assert (told in out) == said


@pytest.mark.parametrize("flags", [(), ("--fire-reset",)])
def test_a_game_that_waits_for_fire_is_given_the_flag(program, flags):
    game = ("--env-name", "BreakoutDeterministic-v4", "--max-episode-length", 20, "--n", 2)
    _, out, _ = program(*game, "--workers", 0, "--seed", 1, "--max-gradient-updates", 2, *flags)
    assert out.count("waits for the button FIRE, --fire-reset presses it") == (not flags)


def test_frames_and_minutes_end_a_run(program):
    program.train("--max-frames", 500, "--run-dir", "a")
    found = [int(row["frames"]) for row in rows(Path("a"))]
    assert found[-1] >= 500 > found[-2]
    program.train("--max-minutes", 0.002, "--run-dir", "b")
    clock = [float(row["wall_seconds"]) for row in rows(Path("b"))]
    assert clock[-1] >= 0.12 > clock[-2]


def test_the_cap_follows_the_batch_with_variable_ep_len(program):
    out = program.train("--max-gradient-updates", 3, "--variable-ep-len", "--log-every", 0)
    lengths = [float(row["episode_length_mean"]) for row in rows()]
    caps = [int(cap) for cap in re.findall(r"Max episode length: (\d+)", out)]
    assert caps == [100_000, *(int(2 * length) for length in lengths[:-1])]
    assert read(RUN / "latest.safetensors").counters.max_episode_length == int(2 * lengths[-1])
    assert settings(RUN / "latest.safetensors").max_episode_length == 100_000


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--env-name", "CartPole-v1"), "Training CartPole-v1 (MLP, workers: 2): starting ..."),
        (
            (),
            "No --env-name given: training PongDeterministic-v4, which takes hours. "
            "Try --env-name CartPole-v1.",
        ),
    ],
)
def test_what_begins_is_said_before_torch_is_imported(flags, said):
    """Which takes seconds."""
    program = (
        "import builtins, sys; from es.cli import main\n"
        "def say(*words, **options):\n"
        "    sys.exit(str((words, sorted({'torch', 'numba'} & sys.modules.keys()))))\n"
        "builtins.print = say\n"
        f"main([*{flags}, '--small-net', '--workers', '2'])"
    )
    assert run_python(program).stderr == f"{((said,), [])}\n"


def test_an_environment_that_does_not_exist_is_not_said_to_be_trained(program):
    status, _, err = program("--env-name", "CartPoole-v1", "--workers", 0)
    assert (status, program.announced) == (2, "")
    assert err.endswith("; did you mean CartPole-v1?\n")


def test_no_process_of_a_run_imports_what_would_slow_its_start(tmp_path):
    """Workers take torch's memory otherwise, once for each perturbation."""
    Path(tmp_path, "frugal.py").write_text(
        "import os, sys\n"
        "from pathlib import Path\n"
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Frugal(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        Path(f'played-{os.getpid()}').write_text(' '.join(sys.modules))\n"
        "        return super().step(action)\n"
        "gymnasium.register('Frugal-v0', Frugal, max_episode_steps=5)\n"
    )
    program = (
        "import os, sys; from es.cli import main\n"
        "try: main('--small-net --n 2 --workers 2 --max-gradient-updates 2 --silent'.split()\n"
        "    + ['--useAdam', '--env-name', 'frugal:Frugal-v0', '--run-dir', 'run'])\n"
        "finally: print(os.getpid(), *sorted({'torch._dynamo', 'numba'} & sys.modules.keys()))"
    )
    done = run_python(program, tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    master, *slow = done.stdout.splitlines()[-1].split()
    assert not slow
    Path(tmp_path, f"played-{master}").unlink(missing_ok=True)
    played = [*tmp_path.glob("played-*")]
    assert played
    for process in played:
        assert not {"torch", "matplotlib"} & set(process.read_text().split())


def test_silence(program):
    out = program.train("--max-gradient-updates", 2, "--silent")
    assert program.announced == ""
    assert out.startswith("Finished: 2 updates")
    assert out.count("\n") == 1


def test_a_vector_environment_uses_the_mlp_and_says_so(program):
    _, out, _ = program(
        "--env-name", "Acrobot-v1", "--n", 2, "--workers", 0, "--max-gradient-updates", 1,
        "--max-episode-length", 20,
    )  # fmt: skip
    assert out.startswith(
        "Acrobot-v1 is seen as a vector of 6 numbers: using the MLP (--small-net).\n"
    )
    assert "linear1.weight" in read("checkpoints/Acrobot-v1/latest.safetensors").parameters
