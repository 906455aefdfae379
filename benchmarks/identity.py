"""Whether this version learns the same as an older one: python -m benchmarks.identity COMMIT.

Checks the older commit out into a temporary folder, makes ten updates with the seed 3 there and
here, and compares the parameters. A row per task: the SHA-256 of the older version's parameters,
and for each number of workers whether this version's are the same. Exit status 1 if any differs.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from es.checkpoint import load

ROOT = Path(__file__).resolve().parent.parent
TASKS = {
    "CartPole-v1, SGD": "--small-net --env-name CartPole-v1",
    "CartPole-v1, Adam": "--small-net --env-name CartPole-v1 --useAdam --lr 0.01",
    "HalfCheetah-v5, --obs-norm": "--env-name HalfCheetah-v5 --obs-norm --n 10",
    "LunarLander-v3": "--env-name LunarLander-v3",
    "PongDeterministic-v4, --vbn": (
        "--env-name PongDeterministic-v4 --vbn --n 8 --lr 0.01 --useAdam --max-episode-length 800"
    ),
}
WORKERS = {"0": ["--workers", "0"], "2": ["--workers", "2"], "n + 1": []}


def train(folder: Path, task: str, workers: list[str], run_dir: Path) -> str:
    """Make ten updates with the program in a folder; return the SHA-256 of the parameters."""
    ending = ["--seed", "3", "--max-gradient-updates", "10", "--silent", "--run-dir", str(run_dir)]
    command = [sys.executable, str(folder / "main.py"), *task.split(), *workers, *ending]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    digest = hashlib.sha256()
    parameters = load(str(run_dir / "latest.safetensors")).parameters
    for name in sorted(parameters):
        digest.update(name.encode() + parameters[name].numpy().tobytes())
    return digest.hexdigest()


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    commit = parser.parse_args().commit
    columns = " | ".join(f"{name} workers" for name in WORKERS)
    print(f"| task | parameters at {commit[:7]} | {columns} |\n|---|---|" + "---|" * len(WORKERS))
    alike = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        older = folder / "older"
        command = ["git", "archive", f"--output={older}.zip", commit]
        subprocess.run(command, cwd=ROOT, check=True)
        shutil.unpack_archive(f"{older}.zip", older)
        for number, (task, arguments) in enumerate(TASKS.items()):
            before = train(older, arguments, WORKERS["2"], folder / f"before-{number}")
            cells = []
            for count, workers in enumerate(WORKERS.values()):
                now = train(ROOT, arguments, workers, folder / f"now-{number}-{count}")
                cells.append("the same" if now == before else f"**{now[:12]}**")
                alike &= now == before
            print(f"| {task} | {before[:12]} | {' | '.join(cells)} |", flush=True)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
