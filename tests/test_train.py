"""Training, through the command line, in this process where processes do not matter."""

import json
import re
import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest

from es.algorithm.noise import Stream, derive_seeds
from es.checkpoint import save
from es.errors import Interrupted
from es.policy import make_policy
from es.reports.log import COLUMNS
from es.rollouts.episode import rollout
from es.train import Trainer
from tests.checkpoints import RUN, read, rows, same, same_run, settings, timeless
from tests.conftest import CARTPOLE, SEED
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
    assert settings["seed"] == SEED
    assert settings["env-name"] == "CartPole-v1"


def test_a_seed_is_drawn_printed_and_saved(program):
    arguments = ("--env-name", "CartPole-v1", "--n", 2, "--workers", 0, "--small-net")
    seeds = set()
    for directory in ("a", "b"):
        _, out, _ = program(*arguments, "--max-gradient-updates", 1, "--run-dir", directory)
        seed = settings(f"{directory}/latest.safetensors").seed
        assert f"Seed: {seed}\n" in out
        seeds.add(seed)
    assert len(seeds) == 2


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


@pytest.mark.parametrize("env_name", ["tests.awful:Awful-v0", "CartPole-v1"])
def test_a_run_whose_episodes_may_have_no_end_says_so(program, env_name):
    small = ("--env-name", env_name, "--n", 2, "--workers", 0, "--max-gradient-updates", 1)
    said = "The environment has no known step limit. Episodes end after 100000 steps"
    status, out, _ = program(*small)
    assert status == 0
    assert (said in out) == (env_name != "CartPole-v1")


def test_frames_and_minutes_end_a_run(program):
    program.train("--max-frames", 500, "--run-dir", "a")
    found = [int(row["frames"]) for row in rows(Path("a"))]
    assert found[-1] >= 500 > found[-2]
    program.train("--max-minutes", 0.002, "--run-dir", "b")
    clock = [float(row["wall_seconds"]) for row in rows(Path("b"))]
    assert clock[-1] >= 0.12 > max([0.0, *clock[:-1]])


def test_the_cap_follows_the_batch_with_variable_ep_len(program):
    out = program.train("--max-gradient-updates", 3, "--variable-ep-len", "--log-every", 0)
    lengths = [float(row["episode_length_mean"]) for row in rows()]
    caps = [int(cap) for cap in re.findall(r"Max episode length: (\d+)", out)]
    assert caps == [100_000, *(int(2 * length) for length in lengths[:-1])]
    assert read(RUN / "latest.safetensors").counters.max_episode_length == int(2 * lengths[-1])
    assert settings(RUN / "latest.safetensors").max_episode_length == 100_000


def test_what_begins_is_said_before_torch_is_imported():
    """Which takes seconds."""
    program = (
        "import builtins, sys; from es.cli import main\n"
        "def say(*words, **options):\n"
        "    sys.exit(str((words, sorted({'torch', 'numba'} & sys.modules.keys()))))\n"
        "builtins.print = say\n"
        "main(['--env-name', 'CartPole-v1', '--small-net', '--workers', '2'])"
    )
    assert run_python(program).stderr == "(('Training CartPole-v1 ...',), [])\n"


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


def test_a_vector_environment_uses_the_mlp_and_says_so(program):
    _, out, _ = program(
        "--env-name", "Acrobot-v1", "--n", 2, "--workers", 0, "--max-gradient-updates", 1,
        "--max-episode-length", 20,
    )  # fmt: skip
    assert out.startswith(
        "Observations of Acrobot-v1 are vectors of 6 numbers: using the MLP (--small-net).\n"
    )
    assert "linear1.weight" in read("checkpoints/Acrobot-v1/latest.safetensors").parameters


# ---- evaluations and the target ----


def test_the_best_checkpoint_reproduces_its_score(program):
    program.train("--max-gradient-updates", 12)
    best = read(RUN / "best.safetensors")
    scores = [float(row["unperturbed_return"]) for row in rows()]
    assert read(RUN / "latest.safetensors").counters.best_score == max(scores)
    # An update's unperturbed episode is played by the parameters before it.
    update = scores.index(max(scores))
    assert best.counters.update == update
    assert best.config
    policy = make_policy(best.config, best)
    actor = policy.actor()
    *_, seed = derive_seeds(SEED, update, Stream.EPISODE, 3)
    assert rollout(policy.recipe.make_env(), actor, seed, 500).episode_return == max(scores)


def test_of_equal_scores_the_last_is_the_best(program):
    program.train("--max-gradient-updates", 3, "--max-episode-length", 5)
    assert {row["unperturbed_return"] for row in rows()} == {"5.0"}
    assert read(RUN / "best.safetensors").counters.update == 2


def test_every_evaluation_is_a_row(program):
    """Those of --eval-every, and those of --target-return, here the last; also when carried on."""
    options = ("--seed", 19, "--eval-every", 2, "--eval-episodes", 3, "--max-gradient-updates")
    program.train(*options, 5, "--run-dir", "parts")
    carried_on = ("--restore", "parts/latest.safetensors", "--workers", 0, "--target-return", 40)
    program(*carried_on, "--max-gradient-updates", 9)
    program.train(*options, 9, "--target-return", 40, "--run-dir", "whole")
    found = rows(Path("whole"), "evaluations.csv")
    solved = read("whole/latest.safetensors")
    assert [row["update"] for row in found] == ["2", "4", "6", "7"]
    assert solved.counters.update == 7
    for row in found:
        returns = [float(each) for each in row["returns"].split()]
        figures = [float(row[name]) for name in ("episodes", "min", "max")]
        assert [len(returns), min(returns), max(returns)] == figures
        update = rows(Path("whole"))[int(row["update"]) - 1]
        assert all(row[name] == update[name] for name in ("frames", "wall_seconds"))
    assert solved.solved
    assert float(found[-1]["mean"]) == solved.solved["mean"]
    assert timeless(Path("parts"), "evaluations.csv") == timeless(Path("whole"), "evaluations.csv")
    parts, whole = (read(f"{name}/best.safetensors").parameters for name in ("parts", "whole"))
    assert same(parts, whole)


def test_a_policy_at_the_target_is_not_the_best_if_an_evaluation_was_better(program):
    program.train("--max-gradient-updates", 8, "--eval-every", 1, "--eval-episodes", 3)
    scores = [float(row["mean"]) for row in rows(RUN, "evaluations.csv")]
    assert scores[-1] < max(scores)
    out = program("--restore", RUN, "--target-return", 1, "--max-gradient-updates", 9)[1]
    assert f"Solved: mean {scores[-1]:.2f}" in out
    assert read(RUN / "best.safetensors").counters.best_score == max(scores)
    assert read(RUN / "best.safetensors").solved is None


def test_all_episodes_are_counted_in_the_total_of_frames(program):
    """A return of CartPole is the number of its steps."""
    program.train("--max-gradient-updates", 4, "--eval-every", 2, "--eval-episodes", 3)
    counters = read(RUN / "latest.safetensors").counters
    evaluated = " ".join(row["returns"] for row in rows(RUN, "evaluations.csv")).split()
    further = sum(map(float, [*evaluated, *(row["unperturbed_return"] for row in rows())]))
    assert counters.total_frames == counters.frames + further
    assert int(rows()[1]["total_frames"]) < counters.total_frames


def test_the_update_ratio_is_the_length_of_the_step_over_that_of_the_parameters(program):
    program.train("--max-gradient-updates", 2, "--save-every", 1)
    before, after = (
        np.concatenate([each.numpy().ravel() for each in read(RUN / name).parameters.values()])
        for name in ("update-1.safetensors", "update-2.safetensors")
    )
    ratio = np.linalg.norm(after - before) / np.linalg.norm(after)
    assert float(rows()[1]["update_ratio"]) == pytest.approx(ratio, rel=1e-5)


def test_a_policy_is_evaluated_again_where_scores_no_longer_compare(program):
    program.train("--max-gradient-updates", 2, "--eval-every", 2, "--eval-episodes", 3)
    again = ("--restore", RUN, "--override", "--max-episode-length", 7, "--workers", 0)
    _, out, _ = program(*again, "--max-gradient-updates", 3)
    assert "Evaluation after 2 updates: mean 7.00" in out
    best = read(RUN / "best.safetensors")
    assert best.config
    assert (best.counters.best_score, best.config.max_episode_length) == (7.0, 7)


def test_reaching_the_target_ends_the_run_with_these_parameters(program):
    """And the score can be played again: evaluation and test use the same episodes."""
    out = program.train(
        "--seed", 3, "--target-return", 40, "--max-gradient-updates", 50, "--eval-episodes", 6
    )
    last = out.splitlines()[-1]
    assert last.startswith("Solved: mean ")
    solved = read(RUN / "latest.safetensors")
    assert same(solved.parameters, read(RUN / "best.safetensors").parameters)
    assert solved.solved is not None
    mean, std = solved.solved["mean"], solved.solved["std"]
    assert mean >= 40
    assert solved.counters.update > 0
    second = solved.solved["second_mean"]
    assert f"mean {mean:.2f}, standard deviation {std:.2f} over 6 episodes, " in last
    assert f", mean {second:.2f} over as many others (target 40) after " in last
    assert last.endswith(f", saved as {RUN}/latest.safetensors")
    assert np.mean([float(row["unperturbed_return"]) for row in rows()[-3:]]) >= 40
    assert len(rows()) == solved.counters.update
    _, played, _ = program(
        "--test", "--no-render", "--episodes", 6, "--restore", RUN / "latest.safetensors"
    )
    assert f"6 episodes: mean {mean:.2f}, standard deviation {std:.2f}" in played
    _, played, _ = program(
        "--test", "--json", "--episodes", 12, "--restore", RUN / "latest.safetensors"
    )
    assert np.mean(json.loads(played)["returns"][6:]) == second >= 40
    assert program("--restore", RUN / "latest.safetensors")[1].startswith("Finished already: ")


def test_the_policy_is_evaluated_when_the_mean_of_three_returns_reaches_the_target(program):
    """And again when the mean is higher. It is the same if the run is interrupted between them."""
    options = (*CARTPOLE, "--workers", 0, "--seed", 35, "--n", 8, "--target-return", 100)
    _, whole, _ = program(*options, "--max-gradient-updates", 15, "--run-dir", "whole")
    _, out, _ = program(*options, "--max-gradient-updates", 8, "--run-dir", "parts")
    restored = ("--restore", "parts/latest.safetensors", "--workers", 0)
    _, more, _ = program(*restored, "--max-gradient-updates", 15)
    returns = [float(row["unperturbed_return"]) for row in rows(Path("whole"))]
    means = {last: float(np.mean(returns[last - 3 : last])) for last in range(3, 16)}
    expected, highest = [], 0.0
    for update, mean in means.items():
        if mean >= 100 and mean > highest:
            expected.append(update)
            highest = mean
    assert len(expected) < sum(mean >= 100 for mean in means.values())
    for text in (whole, out + more):
        found = re.findall(r"Evaluation after (\d+) .* over (.*) fresh", text)
        assert [int(update) for update, _ in found] == expected == [7, 10, 15]
        few = "the first 5 of 20"  # which show that the policy is far from the target
        assert [played for _, played in found] == [few, "20", few]
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))
    assert [row["episodes"] for row in rows(Path("parts"), "evaluations.csv")] == ["20"]


def test_a_run_interrupted_between_its_two_kinds_of_evaluation_ends_alike(program, monkeypatch):
    task = (*CARTPOLE, "--workers", 0, "--seed", 35, "--n", 8)
    options = (*task, "--target-return", 100, "--eval-every", 7, "--max-gradient-updates", 8)
    program(*options, "--run-dir", "whole")

    def interrupt(_: Trainer) -> None:
        raise Interrupted(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate_for_target", interrupt)
        status, _, _ = program(*options, "--run-dir", "parts")
    assert status == 130
    assert read("parts/latest.safetensors").counters.update == 7
    program("--restore", "parts", "--workers", 0)
    assert same_run(read("whole/latest.safetensors"), read("parts/latest.safetensors"))


def test_a_run_at_its_limit_is_evaluated_for_a_target_that_is_new(program):
    program.train("--max-gradient-updates", 3)
    target = ("--target-return", 5, "--eval-episodes", 3, "--workers", 0)
    status, out, _ = program("--restore", RUN, *target)
    assert status == 0
    assert out.splitlines()[-1].startswith("Solved: mean ")
    assert len(rows()) == 3


def test_a_lucky_evaluation_does_not_reach_the_target(program):
    """A second one must confirm the first, with other episodes."""
    target = ("--seed", 28, "--n", 8, "--target-return", 60, "--eval-episodes", 1)
    out = program.train(*target, "--max-gradient-updates", 40)
    found = re.findall(r"valuation after (\d+) updates?: mean ([\d.]+)", out)
    means = [(int(update), float(mean)) for update, mean in found]
    _, (before, lucky), (unlucky_before, unlucky), *_, (update, first), (confirmed, second) = means
    assert before == unlucky_before < update == confirmed
    assert unlucky < 60 <= min(lucky, first, second)
    assert read(RUN / "latest.safetensors").counters.update == update


def test_a_cap_on_training_episodes_is_none_on_the_policy_itself(program):
    """The same is learned as with shorter episodes, but the policy's own are whole."""
    options = ("--n", 8, "--seed", 1, "--obs-norm", "--max-gradient-updates", 6)
    program.train(*options, "--training-ep-len", 20)
    program.train(*options, "--max-episode-length", 20, "--run-dir", "short")
    ours, short = timeless(RUN), timeless(Path("short"))
    for row in (*ours, *short):
        del row["total_frames"]  # of whole episodes, too
    whole = [float(row.pop("unperturbed_return")) for row in ours]
    capped = [float(row.pop("unperturbed_return")) for row in short]
    assert ours == short  # the rank is one among equally long episodes
    learned = [read(directory / "latest.safetensors") for directory in (RUN, Path("short"))]
    assert same(*(checkpoint.parameters for checkpoint in learned))
    assert same(*(checkpoint.normalizer for checkpoint in learned))
    assert max(capped) <= 20 < max(whole)
    assert [min(20, length) for length in whole] == capped  # a return is a length


@pytest.mark.parametrize("limit", ["--variable-ep-len", "--adaptive-ep-len"])
def test_the_policys_own_return_is_that_of_a_whole_episode_under_a_moving_cap(program, limit):
    """Pendulum's rewards are negative: a shorter episode would look better."""
    program(
        "--env-name", "Pendulum-v1", "--n", 4, "--workers", 0, "--seed", 1, "--run-dir", "run",
        "--max-gradient-updates", 1, limit,
    )  # fmt: skip
    latest = read("run/latest.safetensors")
    counters = latest.counters._replace(max_episode_length=20)
    save(latest._replace(counters=counters), Path("run/latest.safetensors"))
    program("--restore", "run", "--workers", 0, "--max-gradient-updates", 2)
    row = rows(Path("run"))[-1]
    assert float(row["episode_length_mean"]) == 20
    assert latest.config
    policy = make_policy(latest.config, latest)
    actor, env = policy.actor(), policy.recipe.make_env()
    *_, seed = derive_seeds(1, 1, Stream.EPISODE, 3)
    assert float(row["unperturbed_return"]) == rollout(env, actor, seed, 200).episode_return


def test_going_on_after_the_target_is_as_if_there_had_been_none(program):
    options = ("--n", 20, "--max-gradient-updates", 12)
    program.train(*options, "--run-dir", "whole")
    program.train(*options, "--target-return", 30, "--eval-episodes", 3, "--run-dir", "parts")
    assert read("parts/latest.safetensors").solved
    program("--restore", "parts/latest.safetensors", "--target-return", "None", "--workers", 0)
    whole, parts = (read(f"{run}/latest.safetensors") for run in ("whole", "parts"))
    total = whole.counters.total_frames  # without evaluations
    assert total < parts.counters.total_frames
    assert same_run(whole, parts._replace(counters=parts.counters._replace(total_frames=total)))
    for row, other in zip(timeless(Path("whole")), timeless(Path("parts")), strict=True):
        assert row == other | {"total_frames": row["total_frames"]}


def test_missing_the_target_is_status_1(program):
    status, out, _ = program(
        *CARTPOLE, "--workers", 0, "--target-return", 501, "--max-gradient-updates", 2
    )
    assert status == 1
    *_, advice, watch, _, last = out.splitlines()
    assert advice.startswith("Restore the run with a higher limit, ")
    assert watch == "Watch it:"
    assert last.startswith("Target not reached: ")
    assert last.endswith(f", saved as {RUN}/latest.safetensors")
