"""README and docs: their links, their flags and their Python."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.processes import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "trained/README.md"]
PAGES += sorted((ROOT / "docs").glob("*.md"))
# Flags of ray, pytest, tensorboard, the benchmarks and the shell's completion.
OTHERS = {
    "--head", "--port", "--address", "--num-cpus", "--generate", "--logdir", "--unknown", "--ship",
    "--no-deps", "--seeds",
}  # fmt: skip


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_flags_exist():
    known = {*OTHERS}
    for program in ("main", "compare", "sweep"):
        done = subprocess.run(
            [sys.executable, ROOT / f"{program}.py", "--help"],
            check=True,
            capture_output=True,
            text=True,
        )
        known |= set(re.findall(r"--[\w-]+", done.stdout))
    for page in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*", page.read_text()))
        assert named <= known, (page, named - known)


def test_the_tables_of_flags_are_those_of_the_settings():
    """`python docs/flags.py` writes them."""
    page = runpy.run_path(str(ROOT / "docs/flags.py"))["page"]()
    assert (ROOT / "docs/flags.md").read_text("utf-8") == page


def test_the_algorithm_of_the_readme_climbs():
    code = (ROOT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    theta = np.full(5, 2.0)
    names: dict[str, Any] = {
        "np": np, "rng": np.random.default_rng(0), "theta": theta,
        "updates": 200, "n": 20, "sigma": 0.1, "lr": 0.1,
        "play": lambda theta: -np.sum(theta**2),
        "utilities": lambda returns: np.argsort(np.argsort(returns)) / (len(returns) - 1) - 0.5,
    }  # fmt: skip
    exec(code, names)
    assert np.linalg.norm(names["theta"]) < np.linalg.norm(theta) / 4
