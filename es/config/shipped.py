"""The tuned settings that come with the program: one TOML file for each environment."""

import contextlib
import difflib
import os
import tomllib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
# Installed, they lie in the package; in a checkout, beside it.
INSTALLED = PACKAGE / "configs"
CONFIGS = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent / "configs"


def find(name: str) -> str:
    """Return the path of a settings file: `name`, or what is shipped as `name` or `name`.toml."""
    if not os.path.exists(name) and Path(name).name == name:
        for shipped in (CONFIGS / name, CONFIGS / f"{name}.toml"):
            if os.path.isfile(shipped):  # unlike Path.is_file, this raises nothing
                return str(shipped)
    return name


def hint(path: str) -> str:
    """Return the end of a message which suggests the file that was meant by a missing one.

    It lies beside it or, if no folder was named, is shipped.
    """
    with contextlib.suppress(OSError, ValueError):
        missing = Path(path)
        meant = {file.name: str(file) for file in missing.parent.glob("*.toml")}
        if missing.name == path:
            meant |= {file.stem: file.stem for file in CONFIGS.glob("*.toml")}
        close = difflib.get_close_matches(missing.name, meant, n=1)
        return f"; did you mean {meant[close[0]]}?" if close else ""
    return ""


def tuned_settings() -> dict[str, list[str]]:
    """Return the shipped files by the environment that they are for, and by their own name.

    Those for any environment are left out.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(CONFIGS.glob("*.toml")):
        try:
            settings = tomllib.loads(path.read_text())
        except (OSError, ValueError):  # a file of the user's own, who will learn when it is used
            continue
        name = settings.get("env-name", settings.get("env_name"))
        for key in {name, path.stem} if isinstance(name, str) else ():  # both may be registered
            found.setdefault(key, []).append(f"configs/{path.name}")
    return found
