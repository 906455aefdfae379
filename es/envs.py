"""Environments: Gymnasium ids and the old Atari names, made so that episodes are reproducible.

An environment is described by a plain dict, `{"id": ..., "kwargs": {...}, "frame_skip": n,
"noop_max": n}`, from which master, workers and a later test make the same thing. noop_max: how many
steps at most are played before an episode begins.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import importlib
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import ale_py
import gymnasium
from gymnasium.envs.registration import EnvSpec

from es.environments.atari import AtariImages, is_bare
from es.environments.images import PreprocessImage
from es.environments.simulators import load
from es.environments.spaces import as_vector, is_image
from es.environments.wrappers import FrameSkip, FreshWorld, RandomStart
from es.errors import UsageError

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
gymnasium.logger.min_level = gymnasium.logger.ERROR  # no deprecation warnings
gymnasium.register_envs(ale_py)
gymnasium.register("CyclicMDP-v0", entry_point="es.environments.cyclic:CyclicMDP")

OLD_ATARI_NAME = re.compile(r"(\w+)Deterministic-v([034])")
FRAME_SKIPS = {"SpaceInvaders": 3}  # at 4 its shots would blink out of every frame that is seen
RESERVED = {
    "render_mode": "is chosen by --test, which shows the policy",
    "max_episode_steps": "give --max-episode-length instead",
}
OLD_STICKINESS = {"0": 0.25, "3": 0.0, "4": 0.0}


def describe_env(
    name: str,
    assignments: Sequence[str] = (),
    *,
    frame_skip: int | None = None,
    noop_max: int = 0,
    sticky_actions: float | None = None,
) -> dict[str, Any]:
    """The environment that `name` stands for, with arguments of its own: KEY=VALUE.

    Raises UsageError, with a hint, for an unknown one, and where the settings do not fit.
    """
    given = dict(map(_argument, assignments))
    kwargs = dict(given)
    _refuse_reserved(given)
    old = OLD_ATARI_NAME.fullmatch(name)
    if old and f"ALE/{old[1]}-v5" in gymnasium.registry:
        name = f"ALE/{old[1]}-v5"
        kwargs = {
            "frameskip": FRAME_SKIPS.get(old[1], 4),
            "repeat_action_probability": OLD_STICKINESS[old[2]],
        } | given
    try:
        spec = _spec(name)
    except (gymnasium.error.Error, ValueError) as error:
        raise UsageError(f"--env-name {name}: there is no such environment{_hint(name)}") from error
    description = {"id": name, "kwargs": kwargs, "frame_skip": frame_skip or 1, "noop_max": 0}
    if _is_atari(name, spec):
        for key, flag, setting in (
            ("frameskip", "--frame-skip", frame_skip),
            ("repeat_action_probability", "--sticky-actions", sticky_actions),
        ):
            if setting is None:
                continue
            if key in given:
                raise UsageError(
                    f"{flag} {setting}: contradicts --env-kwargs {key}={given[key]}; give one"
                )
            kwargs[key] = setting
        return description | {"frame_skip": 1, "noop_max": noop_max}
    for flag, value, default in (
        ("--noop-max", noop_max, 0), ("--sticky-actions", sticky_actions, None)
    ):  # fmt: skip
        if value not in (None, default):
            raise UsageError(f"{flag} {value}: is for Atari games, and {name} is none")
    return description


def make_env(env: Mapping[str, Any], render_mode: str | None = None) -> gymnasium.Env:
    """The described environment, in which an episode depends on its seed and actions alone.

    It does not end episodes after `max_steps`: that is left to the loop, which counts anyway.
    Images come out preprocessed, as (1, 42, 42) float32, in a buffer that the next step writes
    over; all other observations as vectors. Raises UsageError where it cannot be made.
    """
    made = make_bare_env(env, render_mode)
    if hasattr(made.unwrapped, "world") and hasattr(made.unwrapped, "_destroy"):
        made = FreshWorld(made)
    if env["frame_skip"] > 1:
        made = FrameSkip(made, env["frame_skip"])
    if not is_image(made.observation_space):
        made = as_vector(made, env["id"])
    elif is_bare(made):
        made = AtariImages(made)
    else:
        made = PreprocessImage(made)
    if not env["noop_max"]:
        return made
    is_atari = isinstance(made.unwrapped, ale_py.AtariEnv)
    return RandomStart(made, env["noop_max"], noops=is_atari)


def make_bare_env(env: Mapping[str, Any], render_mode: str | None = None) -> gymnasium.Env:
    """The described environment, whose observations are as Gymnasium shows them.

    Raises UsageError where it cannot be made.
    """
    _refuse_reserved(env["kwargs"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is made
            kwargs = dict(env["kwargs"])
            if render_mode:  # an environment need not know of it
                kwargs["render_mode"] = render_mode
            # Wrappers that cost time in every step: one that watches the order of calls, and one
            # that counts them. (Where others are registered, these lie around it and may need it.)
            spec = dataclasses.replace(_spec(env["id"]), order_enforce=False)
            load(spec)
            limit = -1 if _loop_counts(env, spec) else None
            made = gymnasium.make(spec, max_episode_steps=limit, disable_env_checker=True, **kwargs)
    except Exception as error:  # third-party constructors raise what they like
        given = "".join(f" {key}={value}" for key, value in env["kwargs"].items())
        given = f" --env-kwargs{given}" if given else ""
        words = " ".join(
            str(error).partition(" was raised from the environment creator")[0].split()
        )
        raise UsageError(f"--env-name {env['id']}{given}: cannot be made ({words})") from error
    return made


def max_steps(env: Mapping[str, Any]) -> int | None:
    """After how many steps the loop must cut an episode of the environment off, if at all."""
    spec = _spec(env["id"])
    return spec.max_episode_steps if _loop_counts(env, spec) else None


def _loop_counts(env: Mapping[str, Any], spec: EnvSpec) -> bool:
    """Whether the loop's steps are those that the environment's limit counts."""
    return not spec.additional_wrappers and env["frame_skip"] == 1


def _argument(assignment: str) -> tuple[str, Any]:
    """The key and the value of KEY=VALUE: a Python literal, true or false, or else a string."""
    key, _, text = assignment.partition("=")
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        json.dumps(value)  # plain types only, since a checkpoint holds it
    except Exception:  # whatever strange texts lead to
        value = text
    return key, value


def _refuse_reserved(kwargs: Mapping[str, Any]) -> None:
    for key, remedy in RESERVED.items():
        if key in kwargs:
            raise UsageError(f"--env-kwargs {key}={kwargs[key]}: {remedy}")


def _is_atari(name: str, spec: EnvSpec) -> bool:
    try:
        creator = load(spec)
    except Exception as error:  # what it needs is not installed
        raise UsageError(f"--env-name {name}: cannot be made ({error})") from error
    return isinstance(creator, type) and issubclass(creator, ale_py.AtariEnv)


def _spec(name: str) -> EnvSpec:
    """What is registered as `name`; what is before a colon is a module that registers it."""
    module, _, rest = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a stranger's module raises
            raise UsageError(f"--env-name {name}: cannot import {module} ({error})") from error
    return gymnasium.spec(rest)


def _hint(name: str) -> str:
    games = [
        match[1] for key in gymnasium.registry if (match := re.fullmatch(r"ALE/(\w+)-v5", key))
    ]
    names = [*gymnasium.registry, *(f"{game}Deterministic-v4" for game in games)]
    by_lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
