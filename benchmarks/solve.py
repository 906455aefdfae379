"""Seconds from the start of the program to a solved task, of this trainer and of other libraries.

A task is solved when the mean of 100 fresh episodes reaches Gymnasium's threshold. The clock runs
from the start of the process, imports included, on the whole machine. Compiled kernels are in the
cache. The time of evaluations is left out for all. A library is evaluated fully whenever 5 episodes
do not speak against it, and is given up after 3 times the seconds of this trainer, or half a
minute. This trainer has to find its target itself, and to confirm it. Its settings were not chosen
on these seeds.

Outcomes are kept in solve.csv and are not measured again. The table is in docs/results.md.
"""

import argparse
import csv
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.learn import RESULTS, ROOT, SEEDS, cells, ended, threshold, write_row
from benchmarks.solvers import LEARNERS, settings_of

OUTCOMES = Path(__file__).with_suffix(".csv")
TOOLS = ("ours", *LEARNERS)
LIMIT = 1200.0  # seconds of this trainer
TIMES, LEAST = 3, 30.0  # of another library: times this trainer's median seconds, and at least
EVALUATION = re.compile(r"(?:E|Second e)valuation after .*, in ([\d.]+) s$", re.MULTILINE)


class Outcome(NamedTuple):
    """How a run ended: solved or not, after `seconds`."""

    task: str
    tool: str
    seed: int
    solved: bool
    seconds: float


def main() -> None:
    """Measure what is missing; a task's row is in docs/results.md as soon as it is complete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+", metavar="TASK", help="such as CartPole-v1")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS[:3])
    arguments = parser.parse_args()
    for task in arguments.tasks:
        for tool in arguments.tools:
            for seed in arguments.seeds:
                outcomes = measured(task)
                known = any((tool, seed) == (each.tool, each.seed) for each in outcomes)
                if known or (tool != "ours" and settings_of(tool, task) is None):
                    continue
                own = [outcome.seconds for outcome in outcomes if outcome.tool == "ours"]
                limit = LIMIT
                if tool != "ours" and own:
                    limit = max(LEAST, TIMES * statistics.median(own))
                outcome = measure(task, tool, seed, limit)
                print(outcome, flush=True)
                with OUTCOMES.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow(outcome)
        write_row(RESULTS, "solve", row(task, measured(task)))


def measure(task: str, tool: str, seed: int, limit: float) -> Outcome:
    """Run a program until it has solved the task or trained for `limit` seconds."""
    known = threshold(task, task)
    assert known, f"{task} has no threshold"
    target = known[0]
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", "benchmarks.solvers", tool, task, seed, target, limit]
        if tool == "ours":
            arguments = [
                "main.py", "--config", task, "--seed", seed, "--target-return", target,
                "--max-minutes", limit / 60, "--run-dir", Path(folder) / "run",
            ]  # fmt: skip
        command = [sys.executable, *map(str, arguments)]
        start = time.perf_counter()
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        elapsed = time.perf_counter() - start
    lines = result.stdout.splitlines() or [""]
    if tool == "ours" and ended(result):
        solved = lines[-1].startswith("Solved:")
        judging = sum(float(seconds) for seconds in EVALUATION.findall(result.stdout))
    elif lines[-1].startswith("{"):
        solved, judging = json.loads(lines[-1]).values()
    else:
        raise RuntimeError(f"{tool} on {task}: {result.stderr[-2000:]}")
    return Outcome(task, tool, seed, solved, round(elapsed - judging, 2))


def measured(task: str) -> list[Outcome]:
    """Return the outcomes in solve.csv."""
    with OUTCOMES.open(newline="") as file:
        return [
            Outcome(task, line["tool"], int(line["seed"]), line["solved"] == "True",
                    float(line["seconds"]))
            for line in csv.DictReader(file)
            if line["task"] == task
        ]  # fmt: skip


def row(task: str, outcomes: list[Outcome]) -> str:
    """Return a task's row: each library's median, and its ratio to this trainer's.

    A run that did not solve the task counts as longer than any other, and as `>` its time. There is
    no ratio if the median of this trainer's is such a run.
    """
    texts, own = [task], 0.0
    for tool in TOOLS:
        ordered = sorted(
            (outcome for outcome in outcomes if outcome.tool == tool),
            key=lambda outcome: (not outcome.solved, outcome.seconds),
        )
        if not ordered:
            texts.append("-")
            continue
        middle = ordered[(len(ordered) - 1) // 2]
        text = f"{'' if middle.solved else '> '}{middle.seconds:.3g} s"
        if tool == "ours":
            own = middle.seconds if middle.solved else 0.0
        elif own:
            text += f", {middle.seconds / own:.2g} times"
        solved = sum(outcome.solved for outcome in ordered)
        texts.append(text if solved == len(ordered) else f"{text} ({solved} of {len(ordered)})")
    return cells(*texts)


if __name__ == "__main__":
    main()
