"""The program installed by pip, used from a folder whose modules have the same names as ours."""

import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.processes import ROOT, output

MINE = """
import gymnasium
import numpy as np

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), float(action), True, False, {}

gymnasium.register("My-v0", entry_point=Mine)
"""
LATEST = "run/latest.safetensors"
LOADING = f"""
from es import load_policy
policy = load_policy({LATEST!r})
print(policy.env_id, policy([0.0, 0.0, 0.0, 0.0]) in (0, 1))
"""
QUICK = ("--small-net", "--n", "4", "--max-gradient-updates", "2", "--seed", "1", "--workers", "2")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the project installed, and its dependencies at hand."""
    folder = tmp_path_factory.mktemp("installed")
    copy, made = folder / "copy", folder / "environment"
    copy.mkdir()
    for name in ("es", "configs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    packages = made / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    subprocess.run(
        [
            sys.executable, "-m", "pip", "--python", made / "bin" / "python", "install", "--quiet",
            "--no-deps", "--no-build-isolation", "--disable-pip-version-check", copy,
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    found = {path.name.partition("-")[0] for path in packages.iterdir()}
    assert found == {"es", "evolution_strategies", "dependencies.pth"}
    return made / "bin"


def test_the_installed_program_works_from_any_folder(environment):
    """Also from one whose modules have the names of ours, and of the standard library's."""
    Path("envs").mkdir()
    Path("envs/mine.py").write_text(MINE)
    for name in ("model", "policy", "train", "random", "signal"):
        Path(f"{name}.py").write_text("raise SystemExit('a module of the user was imported')")
    version = output(environment / "es", "--version").removeprefix("es ").strip()
    (packages,) = environment.parent.glob("lib/*/site-packages")
    assert (packages / f"evolution_strategies-{version}.dist-info").exists()
    output(environment / "es", "--env-name", "envs.mine:My-v0", *QUICK)
    assert Path("checkpoints/envs.mine.My-v0/progress.csv").exists()
    output(environment / "es", "--config", "CartPole-v1", "--max-gradient-updates", 1,
        "--target-return", "None", "--run-dir", "run")  # fmt: skip
    assert "2 episodes: mean" in output(
        environment / "es", "--test", "--restore", LATEST, "--no-render", "--episodes", 2
    )
    assert "comparison.png" in output(environment / "es", "compare", "run")
    for name in ("random", "signal", "policy"):  # which an interpreter begun with -c imports
        Path(f"{name}.py").unlink()
    assert output(environment / "python", "-c", LOADING) == "CartPole-v1 True\n"


@pytest.mark.picture
def test_nothing_is_imported_from_the_folder_that_the_program_is_started_in(monkeypatch):
    """By no process: master, fork server, resource tracker, worker, learning curve or film."""
    names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions()}
    log = Path("imported.log").resolve()
    for name in names | {"game", "model", "envs", "es", "main", "train", "policy", "sitecustomize"}:
        if name.isidentifier():
            Path(f"{name}.py").write_text(
                f"open({str(log)!r}, 'a').write('{name} ')\nraise ImportError('of the user')\n"
            )
    Path("benchmarks").mkdir()  # as beside main.py
    Path("benchmarks/mine.py").write_text(MINE)
    started = (ROOT / "main.py", *QUICK, "--video-every", 1, "--run-dir", "run", "--env-name")
    with monkeypatch.context() as context:
        context.setenv("PYTHONPATH", str(ROOT))
        output(sys.executable, "-P", *started, "CartPole-v1")
    assert Path("run/learning_curve.png").exists()
    assert Path("run/videos/update-1.mp4").exists()
    output(sys.executable, *started, "benchmarks.mine:My-v0", "--video-every", "None")
    assert not log.exists(), log.read_text()
