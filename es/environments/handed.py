"""Environments that a program has registered, in processes that have not run its code."""

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from es.errors import UsageError


def register_creator(creator: Callable[..., Any]) -> str:
    """Return the id under which a class, or a function that makes an environment, is registered.

    If it is under none yet, register it by its name, with the limit of steps of what had its name
    before, as in a notebook's cell. Raise UsageError if it has no name, or that is another one's.
    """
    name = getattr(creator, "__name__", "")
    if not name.isidentifier():
        raise UsageError(f"env_name={creator!r}: has no name; give a class or a function with one")
    by_name = f"{creator.__module__}:{creator.__qualname__}"
    specs = gymnasium.registry.values()
    known = [spec.id for spec in specs if spec.entry_point in (creator, by_name)]
    if len(known) > 1:
        raise UsageError(f"env_name={name}: is registered as {', '.join(known)}; give one of these")
    if known:
        return known[0]
    name = f"{name}-v0"
    before = gymnasium.registry.get(name)
    if before and _place(before.entry_point) != _place(creator):
        raise UsageError(
            f"env_name={creator.__name__}: there is another {name}; register yours: "
            f'gymnasium.register("my/{name}", {creator.__name__})'
        )
    limit = before.max_episode_steps if before else None
    gymnasium.registry.pop(name, None)
    gymnasium.register(name, creator, max_episode_steps=limit)
    return name


def _place(creator: object) -> tuple[object, object]:
    return getattr(creator, "__module__", None), getattr(creator, "__qualname__", None)


def make_registered(spec: EnvSpec, make_env: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    """Register the environment of a spec, and return what `make_env` makes."""
    gymnasium.registry[spec.id] = spec
    return make_env()
