"""The versions of what results depend on to the last digit."""

import contextlib
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
    """Return those of Python and of the installed libraries, and the kind of processor."""
    from llvmlite import binding  # numba's compiler

    found = {"python": platform.python_version(), "processor": binding.get_host_cpu_name()}
    for library in LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[library] = importlib.metadata.version(library)
    return found


def differences(now: Mapping[str, str], other: Mapping[str, str]) -> str:
    """Describe in what other `versions` differ from those of now; return "" if in nothing."""
    return ", ".join(
        f"{name} {other.get(name, '-')} (here {now.get(name, '-')})"
        for name in sorted({*other, *now})
        if other.get(name) != now.get(name)
    )


def notice(saved: Mapping[str, str], file: str) -> str:
    """Return what to tell the user of a file saved under other `versions`, or ""."""
    changed = differences(versions(), saved)
    told = f"{file} was saved under {changed}: results may differ in the last digits."
    return in_one_line(told) if changed else ""
