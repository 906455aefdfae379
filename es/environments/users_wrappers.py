"""Wrappers that a user puts around an environment (--env-wrapper)."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from es.errors import UsageError, as_usage_error, find_named

SHARED = "keeps figures over episodes, which every worker process would have of its own"
REFUSED = {  # wrappers of Gymnasium's
    "NormalizeObservation": f"{SHARED}; give --obs-norm",
    "NormalizeReward": f"{SHARED}; leave it out, as the ranks of returns are learned from",
    "RecordVideo": "give --video-every, or --test --video",
    "HumanRendering": "give --test, which opens a window",
}


def wrap(env: gymnasium.Env, wrappers: Sequence[Mapping[str, Any]]) -> gymnasium.Env:
    """Return the environment in its described wrappers, the first one innermost.

    wrappers: {"name": "MODULE:CALLABLE", "kwargs": {...}}. Raise UsageError if one cannot be made.
    """
    for wrapper in wrappers:
        name, kwargs = wrapper["name"], wrapper["kwargs"]
        given = "".join(f" {key}={value}" for key, value in kwargs.items())
        flag = f"--env-wrapper {name}{given}"
        with as_usage_error(f"{flag}: cannot be made"):
            make = _find(name)
            made = make(env, **_arrays(make, kwargs))
        if not isinstance(made, gymnasium.Env):
            raise UsageError(f"{flag}: makes a {type(made).__name__}, and not an environment")
        env = made
    return env


def _find(name: str) -> Any:
    path, _, word = name.partition(":")
    if path == "gymnasium.wrappers" and word in REFUSED:
        raise UsageError(f"--env-wrapper {name}: {REFUSED[word]}")
    return find_named("--env-wrapper", name, "wrapper")


def _arrays(make: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, of which lists are arrays where the callable's annotation says so."""
    parameters = inspect.signature(make).parameters
    wants = {key for key, parameter in parameters.items() if parameter.annotation is np.ndarray}
    return {key: np.array(value) if key in wants else value for key, value in kwargs.items()}
