"""The arrows between the rooms, read from the sources: who may import what."""

import ast
from pathlib import Path

import pytest

from tests.processes import ROOT

DOORS = ("main", "train", "test", "model", "envs", "compare", "sweep")
STORY = (*DOORS, "policy", "loading", "learning", "host", "export")
EVERYWHERE = {"errors", "program", "interrupts"}
# A room, and the rooms that it may import besides these.
ROOMS = {
    "config": set(),
    "kernels": set(),
    "algorithm": {"config"},
    "networks": {"algorithm", "config", "environments"},
    "environments": {"algorithm", "kernels", "rollouts"},
    "exporting": {"algorithm", "environments", "kernels", "networks"},
    "rollouts": {"algorithm"},
    "cluster": {"algorithm", "rollouts", "runs"},
    "runs": {"config", "algorithm", "rollouts", "cluster", "reports", "rendering"},
    "rendering": {"runs"},
    "reports": {"config", "algorithm", "rollouts", "runs", "rendering"},
    "sweeps": {"config", "algorithm", "reports", "rendering", "rollouts", "runs"},
}
STARTS_A_RUN = {"start", "finish"}  # of es.runs, above the reports


def imported(path: Path) -> list[str]:
    """Return the modules of the project that a source imports, as dotted names."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            if node.module == "es":
                found += [f"es.{alias.name}" for alias in node.names]
    return [name for name in found if name.split(".")[0] in {"es", *DOORS}]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_below_it(room):
    for path in (ROOT / "es" / room).rglob("*.py"):
        for name in imported(path):
            head = name.split(".")[1] if "." in name else ""
            assert head in ROOMS[room] | EVERYWHERE | {room, ""}, f"{path} imports {name}"
            assert head not in STORY, f"{path} imports the story file {name}"


def test_of_runs_only_its_start_and_its_end_see_the_reports():
    for path in (ROOT / "es" / "runs").glob("*.py"):
        above = [n for n in imported(path) if n.startswith(("es.reports", "es.rendering"))]
        assert path.stem in STARTS_A_RUN or not above, f"{path} imports {above}"


def test_every_room_has_its_arrows_and_nothing_imports_a_door():
    folders = {path.parent.name for path in (ROOT / "es").glob("*/__init__.py")}
    assert folders == set(ROOMS)
    for path in (ROOT / "es").rglob("*.py"):
        assert not [name for name in imported(path) if name.split(".")[0] in DOORS]


def test_doors_are_short_and_the_top_has_no_other_module():
    assert {path.stem for path in ROOT.glob("*.py")} == set(DOORS)
    for name in DOORS:
        assert len((ROOT / f"{name}.py").read_text().splitlines()) <= 15


def test_tests_mirror_the_rooms():
    rooms = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists()}
    assert rooms == set(ROOMS)
