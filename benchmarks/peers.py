"""The same job side by side with other libraries: environment steps per second while training.

The job: train an MLP with two hidden layers of 64 SELU units on an environment, with populations of
40 mirrored perturbations, each played for one episode, in so many processes. Every library runs in
a program of its own, alternating, each with its own algorithm: ours, sb3-contrib's ARS with
AsyncEval, EvoTorch's PGPE on GymNE with Ray actors. The first population, with which processes
start up, is not counted.
"""

import argparse
import csv
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from es.rollouts.processes import cores, limit_threads

ROOT = Path(__file__).resolve().parent.parent
POPULATION, SIGMA = 40, 0.05


class Case(NamedTuple):
    """An environment to compare on, and the learning rates of each library."""

    env: str
    ours: float = 0.1
    ars: float = 0.02
    evotorch: float = 0.1


CASES = (Case("CartPole-v1"), Case("Acrobot-v1"), Case("HalfCheetah-v5", 0.02))


def ours(case: Case, processes: int, seconds: float) -> tuple[int, float, int]:
    """Environment steps, seconds and episodes of the perturbed population."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        subprocess.run(
            [
                sys.executable, str(ROOT / "main.py"), "--small-net", "--env-name", case.env,
                "--n", str(POPULATION), "--sigma", str(SIGMA), "--lr", str(case.ours),
                "--workers", str(processes), "--max-minutes", str(seconds / 60),
                "--run-dir", str(run), "--silent",
            ],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        with (run / "progress.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    first, last = rows[0], rows[-1]
    steps, episodes = (int(last[name]) - int(first[name]) for name in ("frames", "episodes"))
    return steps, float(last["wall_seconds"]) - float(first["wall_seconds"]), episodes


def ars(case: Case, processes: int, seconds: float) -> tuple[int, float, int]:
    """sb3-contrib's Augmented Random Search, evaluated by worker processes."""
    import torch
    from sb3_contrib import ARS
    from sb3_contrib.common.vec_env import AsyncEval
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    marks: list[tuple[int, float]] = []

    class Clock(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            marks.append((self.num_timesteps, time.perf_counter()))
            if marks[-1][1] - marks[0][1] >= seconds:
                raise TimeoutError

    env = make_vec_env(case.env)
    model = ARS(
        "MlpPolicy", env, n_delta=POPULATION // 2, n_top=POPULATION // 2, delta_std=SIGMA,
        learning_rate=case.ars, zero_policy=False,
        policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.SELU},
    )  # fmt: skip
    makers = [lambda: make_vec_env(case.env) for _ in range(processes)]
    pool = AsyncEval(makers, model.policy)
    try:
        model.learn(10**12, callback=Clock(), log_interval=10**9, async_eval=pool)
    except TimeoutError:
        pool.close()
    (first, start), (last, end) = marks[0], marks[-1]
    return last - first, end - start, POPULATION * (len(marks) - 1)


def evotorch(case: Case, processes: int, seconds: float) -> tuple[int, float, int]:
    """Train by EvoTorch's PGPE with as many actors."""
    from evotorch.algorithms import PGPE
    from evotorch.neuroevolution import GymNE

    logging.disable()
    network = (
        "Linear(obs_length, 64) >> SELU() >> Linear(64, 64) >> SELU() >> Linear(64, act_length)"
    )
    problem = GymNE(case.env, network, num_actors=processes)
    searcher = PGPE(
        problem, popsize=POPULATION, stdev_init=SIGMA, stdev_learning_rate=0.0,
        center_learning_rate=case.evotorch, optimizer="adam", ranking_method="centered",
    )  # fmt: skip
    searcher.step()
    first, start, populations = _interactions(problem), time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        searcher.step()
        populations += 1
    elapsed = time.perf_counter() - start
    return _interactions(problem) - first, elapsed, POPULATION * populations


def _interactions(problem: Any) -> int:
    return int(problem.status["total_interaction_count"])


LIBRARIES: dict[str, Callable[[Case, int, float], tuple[int, float, int]]] = {
    "ours": ours, "sb3-contrib ARS": ars, "EvoTorch": evotorch
}  # fmt: skip


def apart(library: str, case: Case, processes: int, seconds: float) -> dict[str, float]:
    """Return a library's figures, from a program of its own."""
    output = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.peers", "--env", case.env, "--library", library,
            "--processes", str(processes), "--seconds", str(seconds),
        ],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return json.loads(output.splitlines()[-1])


def main() -> None:
    """Print a row per environment and library, with our speed as a multiple of the other's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", choices=[case.env for case in CASES], help="only this one")
    parser.add_argument("--library", choices=LIBRARIES, help="one run, as JSON")
    parser.add_argument("--processes", type=int, default=cores())
    parser.add_argument("--seconds", type=float, default=15.0, help="of training, each time")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not (find_spec("sb3_contrib") and find_spec("evotorch")):
        sys.exit("what to compare with is missing: pip install -r benchmarks/requirements.txt")
    limit_threads()
    cases = [case for case in CASES if arguments.env in (None, case.env)]
    if arguments.library:
        measure = LIBRARIES[arguments.library]
        steps, elapsed, episodes = measure(cases[0], arguments.processes, arguments.seconds)
        print(json.dumps({"speed": steps / elapsed, "length": steps / episodes}))
        return
    print(
        "| environment | processes | library | steps/s, median | lowest | highest | mean episode | "
        "ours / this |\n|---|---|---|---|---|---|---|---|"
    )
    for case in cases:
        runs: dict[str, list[dict[str, float]]] = {library: [] for library in LIBRARIES}
        for _ in range(arguments.rounds):
            for library, done in runs.items():
                done.append(apart(library, case, arguments.processes, arguments.seconds))
        for library, done in runs.items():
            speeds = [run["speed"] for run in done]
            ratios = [a["speed"] / b["speed"] for a, b in zip(runs["ours"], done, strict=True)]
            length = statistics.median(run["length"] for run in done)
            print(
                f"| {case.env} | {arguments.processes} | {library} | "
                f"{statistics.median(speeds):.0f} | {min(speeds):.0f} | {max(speeds):.0f} | "
                f"{length:.0f} | {statistics.median(ratios):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
