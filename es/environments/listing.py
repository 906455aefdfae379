"""The environments that can be trained on, as `--list-envs` shows them."""

import importlib
import re
from collections.abc import Mapping, Sequence

import ale_py
import gymnasium
from farama_notifications import notifications
from gymnasium.envs.registration import EnvSpec

from es.environments import cyclic_mdp
from es.errors import UsageError, as_usage_error

HIDDEN = re.compile(r"(\w+?)(?:NoFrameskip)?-v\d+")  # Gymnasium's other names of a game


def show(words: Sequence[str], tuned: Mapping[str, Sequence[str]]) -> int:
    """Print the environments whose names contain one of the words; return the exit status.

    Without words: all, but of each the newest version only. tuned: settings files by environment.
    Raise UsageError if there is none.
    """
    # Tasks of packages that are registered only when they are imported.
    others = {name for name in tuned if ":" in name}
    meant = {name for name in others if any(word.lower() in name.lower() for word in words)}
    found = sorted({*names(words), *(meant if words else others)}, key=str.lower)
    if not found:
        raise UsageError(
            f"--list-envs {' '.join(words)}: there is no such environment. List those that a "
            "module registers by its name and a colon: --list-envs MODULE:"
        )
    print(f"{'environment':<34} tuned settings")
    for name in found:
        print(f"{name:<34} {' '.join(tuned.get(name, ()))}".rstrip())
    if not words:
        print(
            "Older versions: --list-envs NAME. Each game also has its old name, "
            "<Game>Deterministic-v4."
        )
    return 0


def names(words: Sequence[str]) -> list[str]:
    """Return the sorted names that contain one of the words, in any case; see `show`.

    A word MODULE:NAME is looked for among the names that the module registers.
    """
    gymnasium.register_envs(ale_py)
    cyclic_mdp.register()
    games = [name[4:-3] for name in gymnasium.registry if re.fullmatch(r"ALE/\w+-v5", name)]
    if not words:
        newest: dict[str, EnvSpec] = {}
        for spec in gymnasium.registry.values():
            match = HIDDEN.fullmatch(spec.id)
            if not match or match[1] not in games:
                base = spec.id.removesuffix(f"-v{spec.version}")
                newest[base] = max(newest.get(base, spec), spec, key=lambda s: s.version or 0)
        return sorted((spec.id for spec in newest.values()), key=str.lower)
    found = set()
    for word in words:
        module, colon, part = word.rpartition(":")
        known = [*gymnasium.registry, *(f"{game}Deterministic-v4" for game in games)]
        if colon:
            known = _names_of(module)
        found |= {name for name in known if part.lower() in name.lower()}
    return sorted(found, key=str.lower)


def register_from(module: str, complaint: str) -> None:
    """Import a module that registers environments; raise UsageError if it cannot be imported.

    Also silence the version notices that the Farama Foundation's packages print in each process.
    """
    notifications.clear()
    with as_usage_error(complaint):
        importlib.import_module(module)


def _names_of(module: str) -> list[str]:
    """Import a module; return the names of its environments, as --env-name takes them."""
    before = {*gymnasium.registry}
    register_from(module, f"--list-envs {module}: cannot be imported")
    # If it was imported before, its environments are known by where their code is.
    return [
        f"{module}:{name}"
        for name, spec in gymnasium.registry.items()
        if name not in before
        or str(getattr(spec.entry_point, "__module__", spec.entry_point)).startswith(module)
    ]
