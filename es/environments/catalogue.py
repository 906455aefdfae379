"""The environments that can be trained on, as `--list-envs` shows them."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import gymnasium
from farama_notifications import notifications
from gymnasium import spaces

from es.environments.spaces import describe_actions
from es.errors import UsageError, as_usage_error

Make = Callable[[str], gymnasium.Env]  # an environment by its name
ROW = "{:<34} {:<22} {:<18} {:<13} {}"
GAME = re.compile(r"(?:ALE/)?(\w+?)(?:Deterministic|NoFrameskip)?-v\d+")


def show(words: Sequence[str], make: Make, tuned: Mapping[str, Sequence[str]]) -> int:
    """Print the environments whose names contain one of the words; return the exit status.

    Without words: the names of all, but of each the newest version only. Their spaces are left out,
    since all environments would have to be made. tuned: settings files by environment.
    """
    wanted = names(words)
    if not wanted:
        raise UsageError(
            f"--list-envs {' '.join(words)}: there is no such environment; those that a module "
            "registers are listed by its name and a colon: --list-envs MODULE:"
        )
    if not words:
        print(f"{'environment':<34} tuned settings")
        for name in wanted:
            print(f"{name:<34} {' '.join(tuned.get(name, ()))}".rstrip())
        print(
            "Spaces, networks and older versions: --list-envs NAME. Each game is also there by its "
            "old name, <Game>Deterministic-v4."
        )
        return 0
    missing = 0
    rows: dict[str, tuple[str, str, str]] = {}  # all versions of a game have the same spaces
    print(ROW.format("environment", "observations", "actions", "network", "tuned settings"))
    for name in wanted:
        game = GAME.fullmatch(name)
        is_game = game is not None and f"ALE/{game[1]}-v5" in gymnasium.registry
        key = game[1] if game and is_game else name
        try:
            rows[key] = rows.get(key) or _row(name, make)
        except UsageError:  # its simulator is not installed, or its spaces are not supported
            missing += 1
        else:
            print(ROW.format(name, *rows[key], " ".join(tuned.get(name, ()))).rstrip(), flush=True)
    if missing:
        print(f"Not supported or not installed: {missing} more.")
    return 0


def names(words: Sequence[str]) -> list[str]:
    """Return the sorted names that contain one of the words, in any case; see `show`.

    A word MODULE:NAME is looked for among the names that the module registers.
    """
    if words:
        found = []
        for word in words:
            module, colon, part = word.rpartition(":")
            known = names_of(module) if colon else known_names()
            found += [name for name in known if part.lower() in name.lower()]
        found = [*dict.fromkeys(found)]
    else:
        newest: dict[str, int] = {}
        for spec in gymnasium.registry.values():
            base = spec.id.rpartition("-v")[0]
            newest[base] = max(newest.get(base, 0), spec.version or 0)
        old = {f"{game}{kind}" for game in _games() for kind in ("", "NoFrameskip")}
        found = [f"{base}-v{version}" for base, version in newest.items() if base not in old]
    return sorted(found, key=str.lower)


def register_from(module: str, complaint: str) -> None:
    """Import a module that registers environments; raise UsageError if it cannot be.

    Packages of the Farama Foundation print what it has to say of their version, in each process.
    """
    notifications.clear()
    with as_usage_error(complaint):
        importlib.import_module(module)


def names_of(module: str) -> list[str]:
    """Import a module; return the names of its environments, as --env-name takes them."""
    before = {*gymnasium.registry}
    register_from(module, f"--list-envs {module}: cannot be imported")
    # Those of a module that had been imported before are told by their namespace or their code.
    return [
        f"{module}:{name}"
        for name, spec in gymnasium.registry.items()
        if name not in before
        or spec.namespace == module
        or re.match(rf"{re.escape(module)}([.:]|$)", _module_of(spec.entry_point))
    ]


def _module_of(entry_point: object) -> str:
    """Return the module of a class, or the string that names both."""
    return str(getattr(entry_point, "__module__", entry_point))


def known_names() -> list[str]:
    """Return all names that can be given, the old ones of Atari games last."""
    return [*gymnasium.registry, *(f"{game}Deterministic-v4" for game in _games())]


def _games() -> list[str]:
    return [name[4:-3] for name in gymnasium.registry if re.fullmatch(r"ALE/\w+-v5", name)]


def _row(name: str, make: Make) -> tuple[str, str, str]:
    with closing(make(name)) as env:
        describe_actions(env.action_space, name)
        plain = env.unwrapped
        network = "Convnet-LSTM" if len(env.observation_space.shape or ()) == 3 else "MLP"
        return _in_short(plain.observation_space), _in_short(plain.action_space), network


def _in_short(space: spaces.Space) -> str:
    """Return for example `Box(4)`, `Discrete(2)` or `Tuple(Discrete(32), Discrete(11))`."""
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, spaces.MultiDiscrete):
        return f"MultiDiscrete({', '.join(map(str, space.nvec.reshape(-1)))})"
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return f"{type(space).__name__}({', '.join(map(_in_short, parts))})"
    return f"{type(space).__name__}({'x'.join(map(str, space.shape or ()))})"
