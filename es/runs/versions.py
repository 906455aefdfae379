"""The versions of what results depend on to the last digit."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from collections.abc import Mapping

from es.errors import in_one_line

LIBRARIES = (
    "torch", "numpy", "numba", "gymnasium", "mujoco", "box2d", "ale-py", "opencv-python-headless"
)  # fmt: skip


@functools.cache  # every checkpoint asks for them
def versions() -> dict[str, str]:
    """Those of Python and of the libraries that are installed, and the kind of processor."""
    from llvmlite import binding  # which numba compiles with

    found = {"python": platform.python_version(), "processor": binding.get_host_cpu_name()}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def differences(now: Mapping[str, str], other: Mapping[str, str]) -> str:
    """In what other `versions` differ from those of now; empty where they are these."""
    return ", ".join(
        f"{name} {other.get(name, '-')} (here {now.get(name, '-')})"
        for name in sorted({*other, *now})
        if other.get(name) != now.get(name)
    )


def notice(saved: Mapping[str, str], file: str) -> str:
    """What to tell of a file that was saved under other `versions`; empty where they are these."""
    changed = differences(versions(), saved)
    if not changed:
        return ""
    return in_one_line(f"{file} was saved under {changed}: results may differ in the last digits.")
