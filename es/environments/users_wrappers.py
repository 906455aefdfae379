"""Wrappers that a user puts around an environment (--env-wrapper)."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from es.environments.wrappers import layers
from es.errors import UsageError, as_usage_error, find_named

REFUSED = {  # wrappers of Gymnasium's
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
        refuse_statistics(made, flag)
        env = made
    return env


def refuse_statistics(env: gymnasium.Env, flag: str) -> None:
    """Raise UsageError, which names `flag`, if the environment or a wrapper of it learns.

    That is what updates a RunningMeanStd, as Gymnasium's NormalizeObservation and NormalizeReward
    do. Each worker process would have other statistics, and no checkpoint would hold them.
    """
    for layer in layers(env):
        learns = getattr(layer, "update_running_mean", True)
        if learns and any(map(_is_running, vars(layer).values())):
            raise UsageError(
                f"{flag}: {type(layer).__name__} keeps running statistics, which differ between "
                "worker processes and are in no checkpoint; remove it, and give --obs-norm to "
                "normalise observations (rewards need no scale, since returns are ranked)"
            )


def _is_running(value: object) -> bool:
    """Return whether this is a RunningMeanStd: Gymnasium's, or a class named after it."""
    return any(base.__name__ == "RunningMeanStd" for base in type(value).__mro__)


def _find(name: str) -> Any:
    path, _, word = name.partition(":")
    if path == "gymnasium.wrappers" and word in REFUSED:
        raise UsageError(f"--env-wrapper {name}: {REFUSED[word]}")
    return find_named("--env-wrapper", name, "wrapper")


def _arrays(make: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, of which lists are arrays where the callable's annotation has these."""
    # An annotation may be a class, a union, or a string.
    parameters = inspect.signature(make).parameters.items()
    wants = {key for key, parameter in parameters if "ndarray" in str(parameter.annotation)}
    return {
        key: np.array(value) if key in wants and isinstance(value, list | tuple) else value
        for key, value in kwargs.items()
    }
