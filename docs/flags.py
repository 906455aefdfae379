"""Write the tables of flags.md from the settings: `python docs/flags.py`."""

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from es.config import FIELDS, KINDS, default_in_words, flag  # noqa: E402 (found by the line above)

PAGE = ROOT / "docs" / "flags.md"
BEGIN, END = "<!-- flags -->\n", "<!-- end of flags -->\n"
TITLES = {
    "task": "The environment",
    "policy": "The policy",
    "algorithm": "The algorithm",
    "ending": "The end of a run",
    "evaluation": "Evaluations",
    "run": "The run",
    "watching": "Playing, exporting, listing",
}


def tables() -> str:
    """Return a Markdown table for each group of settings."""
    lines: list[str] = []
    for group, fields in groupby(FIELDS.values(), lambda field: field.metadata["group"]):
        lines += [f"## {TITLES[group]}", "", "| flag | default | meaning |", "|---|---|---|"]
        for field in fields:
            if field.name == "phase":  # only in files
                continue
            name = " ".join(filter(None, [flag(field.name), KINDS[field.name].metavar]))
            row = f"| `{name}` | {default_in_words(field)} | {field.metadata['help']} |"
            lines.append(row.replace("|INT", r"\|INT").replace("|{", r"\|{"))
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """Return flags.md with its tables as they should be."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{tables()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
