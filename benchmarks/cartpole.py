"""Solve CartPole-v1 (target 475) with the default hyperparameters, for ten seeds."""

import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEEDS = range(10)
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Print a row per seed as they end."""
    print("| seed | status | updates | episodes | frames | training s | whole program s | score |")
    print("|---|---|---|---|---|---|---|---|")
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as directory:
            start = time.perf_counter()
            result = subprocess.run(
                [
                    sys.executable, str(ROOT / "main.py"), "--small-net", "--env-name",
                    "CartPole-v1", "--seed", str(seed), "--target-return", "475",
                    "--max-gradient-updates", "100", "--run-dir", f"{directory}/run", "--silent",
                ],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            seconds = time.perf_counter() - start
            with Path(directory, "run", "progress.csv").open(newline="") as file:
                last = list(csv.DictReader(file))[-1]
        score = result.stdout.partition(" over")[0]
        print(
            f"| {seed} | {result.returncode} | {last['update']} | {last['episodes']} | "
            f"{last['frames']} | {float(last['wall_seconds']):.1f} | {seconds:.1f} | {score} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
