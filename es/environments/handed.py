"""Environments that a program has registered, in processes that have not run its code."""

from collections.abc import Callable

import gymnasium
from gymnasium.envs.registration import EnvSpec


def make_registered(spec: EnvSpec, make_env: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    """Register the environment of a spec, and return what `make_env` makes."""
    gymnasium.registry[spec.id] = spec
    return make_env()
