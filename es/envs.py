"""Environments: Gymnasium ids and the old Atari names, made so that episodes are reproducible.

A plain dict describes an environment: `{"id": ..., "kwargs": {...}, "wrappers": [{"name":
"MODULE:CALLABLE", "kwargs": {...}}, ...], "frame_skip": n, "noop_max": n, "fire_reset": bool,
"keeps_shape": bool}`. Master, workers and a later test make the same environment from it. noop_max:
the most steps that are played before an episode begins. keeps_shape: whether observations keep
their shapes, for --net.
"""

import dataclasses
import itertools
import os
import random
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ale_py
import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.utils.env_checker import data_equivalence

from es.algorithm.noise import seed_shared_generators
from es.config import read_assignments, read_wrappers
from es.environments import cyclic_mdp
from es.environments.listing import register_from
from es.environments.spaces import as_network_sees, as_numbers, is_image
from es.environments.wrappers import (
    FrameSkip,
    FreshWorld,
    RandomStart,
    SeededSpaces,
    layers,
    refuse_statistics,
    wrap,
)
from es.errors import MisfitError, UsageError, as_usage_error
from es.rollouts.episode import as_number

OLD_ATARI_NAME = re.compile(r"(\w+)Deterministic-v([034])")
FRAME_SKIPS = {"SpaceInvaders": 3}  # with 4, the frames that are seen would never show its shots
OLD_STICKINESS = {"0": 0.25, "3": 0.0, "4": 0.0}
LIMIT = "max_episode_steps"  # an argument of gymnasium.make, not of the environment
BOX2D = "gymnasium.envs.box2d."
SAMPLING_NOTHING = ("gymnasium.envs.", "ale_py.")  # no environment there draws from its spaces


def describe_env(
    env_name: str,
    env_kwargs: Sequence[str] = (),
    env_wrapper: Sequence[str] = (),
    *,
    frame_skip: int | None = None,
    noop_max: int = 0,
    sticky_actions: float | None = None,
    fire_reset: bool = False,
    keeps_shape: bool = False,
) -> dict[str, Any]:
    """Describe the environment of a name, with its own arguments, KEY=VALUE, in its wrappers.

    keeps_shape: whether observations keep their shapes, for a --net module. Raise UsageError if
    there is no such environment or the settings do not fit.
    """
    name, kwargs, spec = find_env(env_name)
    arguments = read_assignments(env_kwargs)
    if "render_mode" in arguments:
        raise UsageError("--env-kwargs render_mode: --test shows the policy. Remove it")
    limit = arguments.get(LIMIT, 1)
    if not isinstance(limit, int) or limit < 1:
        raise UsageError(f"--env-kwargs {LIMIT}={limit} must be a whole number of at least 1")
    kwargs |= arguments
    description = {
        "id": name,
        "kwargs": kwargs,
        "wrappers": read_wrappers(env_wrapper),
        "frame_skip": frame_skip or 1,
        "noop_max": noop_max,
        "fire_reset": fire_reset,
        "keeps_shape": keeps_shape,
    }
    if not _is_atari(name, spec):
        if noop_max or sticky_actions is not None or fire_reset:
            raise UsageError(
                "--noop-max, --sticky-actions and --fire-reset apply only to Atari games. Remove "
                f"them for {name}"
            )
        return description
    if frame_skip is not None:
        kwargs["frameskip"] = frame_skip
    if sticky_actions is not None:
        kwargs["repeat_action_probability"] = sticky_actions
    return description | {"frame_skip": 1}


def make_env(env: Mapping[str, Any], render_mode: str | None = None) -> gymnasium.Env:
    """Make the described environment; an episode depends on its seed and actions alone.

    The environment does not end episodes after `max_steps`: the loop, which counts steps anyway,
    does. Images are preprocessed to (1, 42, 42) float32, in a buffer that the next step writes
    over; all other observations are vectors, unless they keep their shapes. Raise UsageError if it
    cannot be made.
    """
    made = make_bare_env(env, render_mode)
    if not type(made).__module__.startswith(SAMPLING_NOTHING):
        made = SeededSpaces(made)
    # Others may keep more in their world than a new one would have.
    if any(base.__module__.startswith(BOX2D) for base in type(made.unwrapped).__mro__):
        made = FreshWorld(made)
    if env["frame_skip"] > 1:
        made = FrameSkip(made, env["frame_skip"])
    takes_codes = isinstance(made.action_space, gymnasium.spaces.Discrete)
    if type(made) is ale_py.AtariEnv and takes_codes and is_image(made.observation_space):
        from es.environments.atari import AtariImages  # this loads kernels

        made = AtariImages(made)
    else:
        made = as_network_sees(made, env["id"], keeps_shape=env["keeps_shape"])
    if env["noop_max"]:
        is_atari = isinstance(made.unwrapped, ale_py.AtariEnv)
        made = RandomStart(made, env["noop_max"], noops=is_atari)
    if env["fire_reset"]:
        from es.environments.atari import FireOnNewLife  # this loads kernels

        made = FireOnNewLife(made)
    return made


class Preprocessor:
    """Show single observations of an environment as the network sees them in training.

    bare: the described environment as `make_bare_env` makes it, which is not played.
    """

    def __init__(self, bare: gymnasium.Env, env: Mapping[str, Any]) -> None:
        preprocessed = as_network_sees(bare, env["id"], keeps_shape=env["keeps_shape"])
        outermost_first = itertools.takewhile(lambda layer: layer is not bare, layers(preprocessed))
        self._wrappers: list[Any] = [*outermost_first][::-1]

    def reset(self) -> None:
        """Start an episode."""
        for wrapper in self._wrappers:
            if hasattr(wrapper, "start_episode"):
                wrapper.start_episode()

    def __call__(self, observation: Any) -> Any:
        """Return what the network sees, valid until the next call.

        Raise ValueError for an image of another shape.
        """
        for wrapper in self._wrappers:
            observation = wrapper.observation(observation)
        return observation


def make_bare_env(
    env: Mapping[str, Any], render_mode: str | None = None, *, endless: bool = True
) -> gymnasium.Env:
    """Make the described environment in its wrappers, with their observations.

    endless: leave the step limit to the loop where that can apply it (`max_steps`). Raise
    UsageError if it cannot be made.
    """
    arguments = "".join(f" {key}={value}" for key, value in env["kwargs"].items())
    arguments = f" --env-kwargs{arguments}" if arguments else ""
    mode = f" with render_mode={render_mode}" if render_mode else ""
    blame = as_usage_error(f"--env-name {env['id']}{arguments}: cannot be made{mode}")
    with warnings.catch_warnings(action="ignore"):
        with blame:
            # Not every environment has the argument render_mode.
            kwargs = {key: value for key, value in env["kwargs"].items() if key != LIMIT}
            kwargs |= {"render_mode": render_mode} if render_mode else {}
            # Leave out two wrappers that cost time in every step: one checks the order of calls,
            # one counts steps. (The second stays where wrappers around it may need it.)
            spec = dataclasses.replace(_described_spec(env), order_enforce=False)
            load_creator(spec)
            limit = -1 if endless and _loop_counts(env, spec) else None
            made = gymnasium.make(spec, max_episode_steps=limit, disable_env_checker=True, **kwargs)
            _ = made.observation_space, made.action_space  # which it may have forgotten
        refuse_statistics(made, f"--env-name {env['id']}")
        return wrap(made, env["wrappers"])


def load_creator(spec: EnvSpec) -> Callable[..., Any]:
    """Import and return what makes an environment, and keep simulators from printing."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    with warnings.catch_warnings(action="ignore"):  # Box2D crashes on an "error" while imported
        entry = spec.entry_point
        creator: Any = load_env_creator(entry) if isinstance(entry, str) else entry
    if mujoco := sys.modules.get("mujoco"):  # it prints, and writes a log in the current folder
        mujoco.set_mju_user_warning(lambda text: None)
    return creator


def check_first_step(env: gymnasium.Env, name: str) -> bool:
    """Begin an episode and play a random step, twice; return whether both times are the same.

    Arguments that make no sense often fail here only. Raise UsageError if it fails, or if an
    observation or a reward is of another kind than the environment promises. The shared generators
    of Python and NumPy stay as they are.
    """
    before = random.getstate(), np.random.get_state()
    try:
        with as_usage_error(f"--env-name {name}: cannot be played"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first, second = _first_step(env), _first_step(env)
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
    return data_equivalence(first, second, exact=True)


def _first_step(env: gymnasium.Env) -> list[Any]:
    seed_shared_generators(0)
    env.action_space.seed(0)
    begun = env.reset(seed=0)
    if not isinstance(begun, tuple) or len(begun) != 2:
        raise MisfitError("its reset() does not return (observation, info)")
    before = _numbers(begun[0], env.observation_space)
    outcome = env.step(env.action_space.sample())
    if len(outcome) != 5:
        raise MisfitError(
            f"its step() returns {len(outcome)} values, not (observation, reward, terminated, "
            "truncated, info)"
        )
    observation, reward, terminated, truncated, _ = outcome
    after = _numbers(observation, env.observation_space)
    if not np.isfinite(paid := as_number(reward)):
        raise MisfitError(f"its reward is {reward}, not a finite number")
    return [before, after, paid, bool(terminated), bool(truncated)]


def _numbers(observation: Any, space: gymnasium.Space) -> Any:
    """Return an observation in new arrays; raise MisfitError if it is not of the space."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _numbers(observation[key], part) for key, part in space.items()}
    array = as_numbers(observation, space.shape or ())
    if not np.isfinite(array).all():
        raise MisfitError("its observation holds numbers that are not finite")
    return array


def max_steps(env: Mapping[str, Any]) -> int | None:
    """Return after how many steps the loop must end an episode, or None."""
    spec = _described_spec(env)
    return spec.max_episode_steps if _loop_counts(env, spec) else None


def is_unlimited(env: Mapping[str, Any]) -> bool:
    """Return whether no limit of an episode's steps is known."""
    spec = _described_spec(env)
    wrapped = spec.additional_wrappers or env["wrappers"]
    limited = spec.max_episode_steps or wrapped or _is_atari(env["id"], spec)
    return not limited


def register_creator(creator: Callable[..., Any]) -> str:
    """Return the id of a class, or a function, that makes an environment; register it if needed.

    The id is its name and -v0. A notebook's cell that defines it again replaces the one before,
    whose limit of steps it keeps. Raise UsageError if it has no name, or another has its id.
    """
    name = getattr(creator, "__name__", "")
    if not name.isidentifier():
        raise UsageError(f"env_name={creator!r} has no name. Give a class or a function with one")
    entry_points = (creator, f"{creator.__module__}:{creator.__qualname__}")
    for spec in reversed(gymnasium.registry.values()):  # the newest version first
        if spec.entry_point in entry_points:
            return spec.id
    env_id, limit = f"{name}-v0", None
    if before := gymnasium.registry.get(env_id):
        if getattr(before.entry_point, "__module__", None) != creator.__module__:
            raise UsageError(
                f"env_name={name}: there is another {env_id}. Register yours: "
                f'gymnasium.register("my/{env_id}", {name})'
            )
        limit = before.max_episode_steps
        del gymnasium.registry[env_id]
    gymnasium.register(env_id, creator, max_episode_steps=limit)
    return env_id


def make_registered(spec: EnvSpec, make_env: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    """Register a script's environment in a process that has not run the script, and make it."""
    gymnasium.registry[spec.id] = spec
    return make_env()


def _loop_counts(env: Mapping[str, Any], spec: EnvSpec) -> bool:
    """Return whether the environment's limit counts the same steps as the loop."""
    wrapped = spec.additional_wrappers or env["wrappers"]
    return not wrapped and env["frame_skip"] == 1


def find_env(name: str) -> tuple[str, dict[str, Any], EnvSpec]:
    """Return the id, arguments and spec of a name, which may be an old one of Atari.

    Raise UsageError if there is no such environment.
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
        raise UsageError(
            f"--env-name {name}: there is no such environment ({error}). --list-envs WORD lists "
            "the names that contain a word; one that a module registers is MODULE:NAME"
        ) from error


def _is_atari(name: str, spec: EnvSpec) -> bool:
    with as_usage_error(f"--env-name {name}: cannot be made"):  # what it needs may not be installed
        creator = load_creator(spec)
    return isinstance(creator, type) and issubclass(creator, ale_py.AtariEnv)


def _described_spec(env: Mapping[str, Any]) -> EnvSpec:
    """Return the spec of a described environment, with the limit of steps that it is given."""
    spec = _spec(env["id"])
    limit = env["kwargs"].get(LIMIT, spec.max_episode_steps)
    return dataclasses.replace(spec, max_episode_steps=limit)


def _spec(name: str) -> EnvSpec:
    """Return the spec of a name, of which the part before a colon is a module to import."""
    gymnasium.register_envs(ale_py)
    cyclic_mdp.register()
    module, _, env_id = name.rpartition(":")
    if module:
        register_from(module, f"--env-name {name}: cannot import {module}")
    return gymnasium.spec(env_id)
