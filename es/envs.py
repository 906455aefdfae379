"""Environments: Gymnasium ids and the old Atari names, made so that episodes are reproducible.

A plain dict describes an environment: `{"id": ..., "kwargs": {...}, "frame_skip": n, "noop_max":
n}`. Master, workers and a later test make the same environment from it. noop_max: the most steps
that are played before an episode begins. There is also `"fire_reset": True` with --fire-reset, and
`"wrappers": [{"name": "MODULE:CALLABLE", "kwargs": ...}, ...]` with --env-wrapper, and `"shaped":
True` with --net.
"""

import dataclasses
import difflib
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import ale_py
import gymnasium
from gymnasium.envs.registration import EnvSpec

from es.config import read_assignments, read_wrappers
from es.environments import catalogue
from es.environments.simulators import load
from es.environments.spaces import as_vector, is_image, take_picture
from es.environments.users_wrappers import refuse_statistics, wrap
from es.environments.wrappers import FrameSkip, FreshWorld, RandomStart, SeededSpaces
from es.errors import UsageError, as_usage_error

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
gymnasium.register_envs(ale_py)
gymnasium.register("CyclicMDP-v0", entry_point="es.environments.cyclic:CyclicMDP")

OLD_ATARI_NAME = re.compile(r"(\w+)Deterministic-v([034])")
FRAME_SKIPS = {"SpaceInvaders": 3}  # with 4, the frames that are seen would never show its shots
RESERVED = {
    "render_mode": "is chosen by --test, which shows the policy",
    "max_episode_steps": "give --max-episode-length instead",
}
OLD_STICKINESS = {"0": 0.25, "3": 0.0, "4": 0.0}
BOX2D = "gymnasium.envs.box2d."
SAMPLING_NOTHING = ("gymnasium.envs.", "ale_py.")  # no environment there draws from its spaces


def describe_env(
    name: str,
    assignments: Sequence[str] = (),
    env_wrapper: Sequence[str] = (),
    *,
    frame_skip: int | None = None,
    noop_max: int = 0,
    sticky_actions: float | None = None,
    fire_reset: bool = False,
    shaped: bool = False,
) -> dict[str, Any]:
    """Describe the environment of a name, with its own arguments, KEY=VALUE, in its wrappers.

    shaped: whether observations keep their shapes, for a network of the user's own.
    Raise UsageError, with a hint, if there is no such environment or the settings do not fit.
    """
    given = read_assignments(assignments)
    _refuse_reserved(given)
    name, kwargs, spec = _find(name)
    kwargs |= given
    description = {"id": name, "kwargs": kwargs, "frame_skip": frame_skip or 1, "noop_max": 0}
    if env_wrapper:  # older checkpoints have no such key
        description["wrappers"] = read_wrappers(env_wrapper)
    if shaped:
        description["shaped"] = True
    if _is_atari(name, spec):
        for key, flag, setting in (
            ("frameskip", "--frame-skip", frame_skip),
            ("repeat_action_probability", "--sticky-actions", sticky_actions),
        ):
            if setting is not None:
                if key in given:
                    raise UsageError(
                        f"{flag} {setting}: contradicts --env-kwargs {key}={given[key]}; give one"
                    )
                kwargs[key] = setting
        fire = {"fire_reset": True} if fire_reset else {}  # older checkpoints have no such key
        return description | {"frame_skip": 1, "noop_max": noop_max} | fire
    for given_flag, is_given in (
        (f"--noop-max {noop_max}", noop_max),
        (f"--sticky-actions {sticky_actions}", sticky_actions is not None),
        ("--fire-reset", fire_reset),
    ):
        if is_given:
            raise UsageError(f"{given_flag}: is for Atari games, and {name} is not one")
    return description


def require_env(name: str) -> None:
    """Raise UsageError, with a hint, if there is no environment of this name."""
    _find(name)


def make_env(
    env: Mapping[str, Any], render_mode: str | None = None, *, preprocess: bool = True
) -> gymnasium.Env:
    """Make the described environment; an episode depends on its seed and actions alone.

    The environment does not end episodes after `max_steps`: the loop, which counts steps anyway,
    does. Images are preprocessed to (1, 42, 42) float32, in a buffer that the next step writes
    over; all other observations are vectors. preprocess: False leaves all observations as
    Gymnasium has them. Raise UsageError if it cannot be made.
    """
    made = make_bare_env(env, render_mode)
    if not type(made).__module__.startswith(SAMPLING_NOTHING):
        made = SeededSpaces(made)
    # Others may keep more in their world than a new one would have.
    if any(base.__module__.startswith(BOX2D) for base in type(made.unwrapped).__mro__):
        made = FreshWorld(made)
    if env["frame_skip"] > 1:
        made = FrameSkip(made, env["frame_skip"])
    if preprocess:
        made = _preprocessed(made, env)
    if env["noop_max"]:
        is_atari = isinstance(made.unwrapped, ale_py.AtariEnv)
        made = RandomStart(made, env["noop_max"], noops=is_atari)
    if not env.get("fire_reset"):
        return made
    from es.environments.atari import FireReset

    try:
        return FireReset(made)
    except ValueError as error:
        raise UsageError(f"--fire-reset: {env['id']} {error}; leave it out") from error


def _preprocessed(made: gymnasium.Env, env: Mapping[str, Any]) -> gymnasium.Env:
    shaped = env.get("shaped", False)
    made = made if shaped else take_picture(made)
    if not is_image(made.observation_space):
        return as_vector(made, env["id"], shaped=shaped)
    from es.environments.atari import as_images  # this loads kernels

    return as_images(made)


def make_bare_env(
    env: Mapping[str, Any], render_mode: str | None = None, *, endless: bool = True
) -> gymnasium.Env:
    """Make the described environment in its wrappers, with their observations.

    endless: leave the step limit to the loop where that can apply it (`max_steps`). Raise
    UsageError if it cannot be made.
    """
    _refuse_reserved(env["kwargs"])
    given = "".join(f" {key}={value}" for key, value in env["kwargs"].items())
    given = f" --env-kwargs{given}" if given else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode = f" with render_mode={render_mode}" if render_mode else ""
        with as_usage_error(f"--env-name {env['id']}{given}: cannot be made{mode}"):
            # Not every environment has the argument render_mode.
            kwargs = env["kwargs"] | ({"render_mode": render_mode} if render_mode else {})
            # Leave out wrappers that cost time in every step: one checks the order of calls, and
            # one counts them. (If others are registered, they lie around it and may need it.)
            spec = dataclasses.replace(_spec(env["id"]), order_enforce=False)
            load(spec)
            limit = -1 if endless and _loop_counts(env, spec) else None
            made = gymnasium.make(spec, max_episode_steps=limit, disable_env_checker=True, **kwargs)
            _ = made.observation_space, made.action_space  # which it may have forgotten
        refuse_statistics(made, f"--env-name {env['id']}")
        return wrap(made, env.get("wrappers", ()))


def max_steps(env: Mapping[str, Any]) -> int | None:
    """Return after how many steps the loop must end an episode, or None."""
    spec = _spec(env["id"])
    return spec.max_episode_steps if _loop_counts(env, spec) else None


def is_unlimited(env: Mapping[str, Any]) -> bool:
    """Return whether no limit of an episode's steps is known."""
    spec = _spec(env["id"])
    wrapped = spec.additional_wrappers or env.get("wrappers")
    limited = spec.max_episode_steps or wrapped or _is_atari(env["id"], spec)
    return not limited


def _loop_counts(env: Mapping[str, Any], spec: EnvSpec) -> bool:
    """Return whether the environment's limit counts the same steps as the loop."""
    wrapped = spec.additional_wrappers or env.get("wrappers")
    return not wrapped and env["frame_skip"] == 1


def _find(name: str) -> tuple[str, dict[str, Any], EnvSpec]:
    """Return the id, arguments and spec of a name, which may be an old one of Atari.

    Raise UsageError, with a hint, if there is no such environment.
    """
    kwargs: dict[str, Any] = {}
    old = OLD_ATARI_NAME.fullmatch(name)
    if old and f"ALE/{old[1]}-v5" in gymnasium.registry:
        name = f"ALE/{old[1]}-v5"
        kwargs["frameskip"] = FRAME_SKIPS.get(old[1], 4)
        kwargs["repeat_action_probability"] = OLD_STICKINESS[old[2]]
    try:
        return name, kwargs, _spec(name)
    except (gymnasium.error.Error, ValueError) as error:
        raise UsageError(f"--env-name {name}: there is no such environment{_hint(name)}") from error


def _refuse_reserved(kwargs: Mapping[str, Any]) -> None:
    for key, remedy in RESERVED.items():
        if key in kwargs:
            raise UsageError(f"--env-kwargs {key}={kwargs[key]}: {remedy}")


def _is_atari(name: str, spec: EnvSpec) -> bool:
    with as_usage_error(f"--env-name {name}: cannot be made"):  # what it needs may not be installed
        creator = load(spec)
    return isinstance(creator, type) and issubclass(creator, ale_py.AtariEnv)


def _spec(name: str) -> EnvSpec:
    """Return the spec of a name, of which the part before a colon is a module to import."""
    module, _, rest = name.rpartition(":")
    if module:
        catalogue.register_from(module, f"--env-name {name}: cannot import {module}")
    return gymnasium.spec(rest)


def _hint(name: str) -> str:
    module, _, word = name.rpartition(":")
    known = catalogue.names_of(module) if module else catalogue.known_names()
    by_lower = {each.rpartition(":")[2].lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    # A version that two names share does not make them alike.
    bare = [each.lower().partition("-v")[0] for each in (word, *close)]
    if difflib.get_close_matches(bare[0], bare[1:], n=1, cutoff=0.7):
        return f"; did you mean {by_lower[close[0]]}?"
    if module:
        return f"; give an id that {module} registers (gymnasium.register)"
    return f"; of a module that registers it: --env-name MODULE:{name}"
