"""Seconds from the start of the program to a solved task, of this trainer and of other libraries.

A task is solved when the mean of 100 fresh episodes is at the target of its file in configs/. The
clock runs from the start of the process, imports and compilation included, on the whole machine;
evaluations are left out for all alike. The others ask for one whenever 5 episodes do not speak
against it; this trainer has to find its target itself, and to confirm it. Outcomes are kept in
solve.csv, and not measured again while they are there; the table is in RESULTS.md.

Needs what benchmarks/requirements.txt has. Everything at 20 minutes each is several days;
`--times 5` gives up on a library after 5 times as long as this trainer took.
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
import tomllib
from pathlib import Path
from typing import NamedTuple

from benchmarks.learn import RESULTS, ROOT, cells, with_row
from benchmarks.solvers import LEARNERS, settings_of

OUTCOMES = Path(__file__).with_suffix(".csv")
TOOLS = ("ours", *LEARNERS)
LEAST = 60.0  # seconds that a library is given in any case
EVALUATION = re.compile(r"(?:E|Second e)valuation after .*, in ([\d.]+) s$", re.MULTILINE)


class Outcome(NamedTuple):
    """How a run ended: after so many seconds, solved or not."""

    task: str
    tool: str
    seed: int
    solved: bool
    seconds: float


def main() -> None:
    """Measure what is missing; a task's row is in RESULTS.md as soon as it is complete."""
    names = sorted(path.stem for path in (ROOT / "configs").glob("*-v*.toml"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(names)}")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, at most")
    parser.add_argument("--times", type=float, help="as long as this trainer's median, at most")
    arguments = parser.parse_args()
    if wrong := sorted({*arguments.tasks} - {*names}):
        parser.error(f"{wrong[0]}: use {', '.join(names)}")
    tasks = arguments.tasks or [name for name in names if "Deterministic" not in name]
    for task in tasks:
        for tool in arguments.tools:
            if tool != "ours" and settings_of(tool, task) is None:
                continue
            for seed in arguments.seeds:
                known = kept(task)
                if any((known.tool, known.seed) == (tool, seed) for known in known):
                    continue
                limit = arguments.minutes * 60
                own = [outcome.seconds for outcome in known if outcome.tool == "ours"]
                if arguments.times and tool != "ours" and own:
                    limit = min(limit, max(LEAST, arguments.times * statistics.median(own)))
                print(f"{task} {tool} seed {seed}:", end=" ", flush=True)
                outcome = measure(task, tool, seed, limit)
                print("solved" if outcome.solved else "not solved", f"{outcome.seconds:.1f} s")
                keep(outcome)
        RESULTS.write_text(with_row(RESULTS.read_text("utf-8"), "solve", row(task)), "utf-8")


def measure(task: str, tool: str, seed: int, limit: float) -> Outcome:
    """Run a program until it has solved the task or trained for `limit` seconds."""
    target = tomllib.loads((ROOT / "configs" / f"{task}.toml").read_text())["target-return"]
    with tempfile.TemporaryDirectory() as directory:
        if tool == "ours":
            arguments = [
                "main.py", "--config", task, "--seed", seed, "--max-minutes", limit / 60,
                "--run-dir", Path(directory) / "run",
            ]  # fmt: skip
        else:
            arguments = ["-m", "benchmarks.solvers", tool, task, seed, target, limit]
        start = time.perf_counter()
        program = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        out, complaint = program.communicate()
        elapsed = time.perf_counter() - start
    if tool == "ours":
        solved = program.returncode == 0 and out.splitlines()[-1].startswith("Solved:")
        judging = sum(float(seconds) for seconds in EVALUATION.findall(out))
    else:
        try:
            outcome = json.loads(out.splitlines()[-1])
        except (IndexError, json.JSONDecodeError) as error:
            raise RuntimeError(f"{tool} on {task}: {complaint[-2000:]}") from error
        solved, judging = outcome["solved"], outcome["judging"]
    return Outcome(task, tool, seed, solved, round(elapsed - judging, 2))


def kept(task: str) -> list[Outcome]:
    """Return the outcomes that were measured before."""
    with OUTCOMES.open(newline="") as file:
        return [
            Outcome(
                line["task"], line["tool"], int(line["seed"]),
                line["solved"] == "True", float(line["seconds"]),
            )
            for line in csv.DictReader(file)
            if line["task"] == task
        ]  # fmt: skip


def keep(outcome: Outcome) -> None:
    """Add an outcome to the file."""
    with OUTCOMES.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(outcome)


def row(task: str) -> str:
    """Return a task's row: each library's median, and how many times this trainer's it is.

    A run that did not solve the task counts as longer than any, and as `>` the time it was given.
    """
    texts, own = [task], 0.0
    for tool in TOOLS:
        outcomes = [outcome for outcome in kept(task) if outcome.tool == tool]
        if not outcomes:
            texts.append("-")
            continue
        ordered = sorted(outcomes, key=lambda outcome: (not outcome.solved, outcome.seconds))
        middle = ordered[(len(ordered) - 1) // 2]
        text = f"{'' if middle.solved else '> '}{middle.seconds:.3g} s"
        if tool == "ours":
            own = middle.seconds
        elif own:
            text += f", {middle.seconds / own:.2g} times"
        solved = sum(outcome.solved for outcome in outcomes)
        texts.append(text if solved == len(outcomes) else f"{text} ({solved} of {len(outcomes)})")
    return cells(*texts)


if __name__ == "__main__":
    main()
