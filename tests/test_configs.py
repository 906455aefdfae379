"""The settings files: each is complete, and trains what its name says."""

import re
import tomllib
from pathlib import Path

import pytest

from tests import checkpoints
from tests.checkpoints import rows
from tests.processes import ROOT

PLAIN = "tests.nets:Plain"
CONFIGS = sorted({*(ROOT / "configs").glob("*.toml")} - {ROOT / "configs" / "unknown.toml"})
ENV_NAMES = {
    "HalfCheetahARS-v5": "HalfCheetah-v5",
    "LunarLanderContinuous-v3": "LunarLander-v3",
    "MiniGrid-DoorKey-5x5-v0": "minigrid:MiniGrid-DoorKey-5x5-v0",
    "PointMaze_UMazeDense-v3": "gymnasium_robotics:PointMaze_UMazeDense-v3",
}


def test_the_results_have_a_row_for_each():
    page = (ROOT / "docs" / "results.md").read_text()
    tables = page.partition("## Tuned settings")[2].partition("### Settings for any task")[0]
    names = {*re.findall(r"^\| (\S+-v\d) \|", tables, re.MULTILINE)}
    assert {path.stem for path in CONFIGS} == names


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_it_plays_an_update_and_ends(program, config):
    settings = tomllib.loads(config.read_text())
    assert settings["workers"] == "auto"
    assert settings.keys() & {"max-frames", "max-gradient-updates"}
    if "lr-schedule" in settings:
        assert "max-gradient-updates" in settings  # which the schedule is laid out for
    package, colon, _ = settings["env-name"].partition(":")
    if colon:
        pytest.importorskip(package)
    status, _, err = program(
        "--config", config, "--seed", 1, "--workers", 0, "--max-gradient-updates", 1,
        "--max-episode-length", 10, "--target-return", 1e9,
    )  # fmt: skip
    assert (status, err) == (1, "")  # the target is out of reach
    run = Path("checkpoints", config.stem)  # by which it is found, and no other file's run
    (row,) = rows(run)
    most = settings.get("n-max", settings["n"])  # as short as these episodes are
    assert int(row["episodes"]) == most * settings.get("episodes-per-perturbation", 1)
    saved = checkpoints.settings(run / "latest.safetensors")
    assert saved.env_name == ENV_NAMES.get(config.stem, config.stem)
    assert saved.env_kwargs == tuple(settings.get("env-kwargs", []))


@pytest.mark.parametrize(
    ("config", "env_name", "net"),
    [
        ("unknown", "Pendulum-v1", ()),
        ("unknown", "FrozenLake-v1", ()),
        ("unknown", "CartPole-v1", (PLAIN,)),
        ("InvertedPendulum-v5", "Pendulum-v1", (PLAIN, "--target-return", "None")),
    ],
)
def test_settings_train_another_task_or_network(program, config, env_name, net):
    status, _, err = program(
        "--config", config, "--env-name", env_name, "--workers", 0, "--max-gradient-updates", 1,
        *(("--net", *net) if net else ()),
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert len(rows(Path("checkpoints", env_name))) == 1
