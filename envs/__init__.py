"""Environments: Gymnasium ids and the old Atari names, made so that episodes are reproducible.

An environment is described by a plain dict, `{"id": ..., "kwargs": {...}}`, from which master,
workers and a later test make the same thing.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import ale_py
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from envs.atari import AtariImages
from envs.images import PreprocessImage
from es.errors import UsageError

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
gymnasium.logger.min_level = gymnasium.logger.ERROR  # no deprecation warnings
gymnasium.register_envs(ale_py)

OLD_ATARI_NAME = re.compile(r"(\w+)Deterministic-v([034])")
FRAME_SKIPS = {"SpaceInvaders": 3}  # at 4 its shots would blink out of every frame that is seen
OLD_STICKINESS = {"0": 0.25, "3": 0.0, "4": 0.0}


def describe_env(name: str) -> dict[str, Any]:
    """The environment that `name` stands for; UsageError, with a hint, for an unknown one."""
    old = OLD_ATARI_NAME.fullmatch(name)
    if old and f"ALE/{old[1]}-v5" in gymnasium.registry:
        kwargs = {
            "frameskip": FRAME_SKIPS.get(old[1], 4),
            "repeat_action_probability": OLD_STICKINESS[old[2]],
        }
        return {"id": f"ALE/{old[1]}-v5", "kwargs": kwargs}
    try:
        _spec(name)
    except (gymnasium.error.Error, ValueError) as error:
        raise UsageError(f"--env-name {name}: there is no such environment{_hint(name)}") from error
    return {"id": name, "kwargs": {}}


def make_env(env: Mapping[str, Any], render_mode: str | None = None) -> gymnasium.Env:
    """The described environment, in which an episode depends on its seed and actions alone.

    It does not end episodes after `max_steps`: that is left to the loop, which counts anyway.
    Images come out preprocessed, as (1, 42, 42) float32, in a buffer that the next step writes
    over. Raises UsageError where it cannot be made.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of simulators' imports; Box2D crashes on an "error"
            kwargs = dict(env["kwargs"])
            if render_mode:  # an environment need not know of it
                kwargs["render_mode"] = render_mode
            # Wrappers that cost time in every step: one that watches the order of calls, and one
            # that counts them. (Where others are registered, these lie around it and may need it.)
            spec = dataclasses.replace(_spec(env["id"]), order_enforce=False)
            limit = None if spec.additional_wrappers else -1
            made = gymnasium.make(spec, max_episode_steps=limit, disable_env_checker=True, **kwargs)
    except Exception as error:  # third-party constructors raise what they like
        raise UsageError(f"--env-name {env['id']}: cannot be made ({error})") from error
    if hasattr(made.unwrapped, "world") and hasattr(made.unwrapped, "_destroy"):
        made = FreshWorld(made)
    if not _is_image(made.observation_space):
        return made
    if type(made) is ale_py.AtariEnv:  # nothing changes what it returns
        return AtariImages(made)
    return PreprocessImage(made)


def max_steps(env: Mapping[str, Any]) -> int | None:
    """After how many steps the loop must cut an episode of the environment off, if at all."""
    spec = _spec(env["id"])
    return None if spec.additional_wrappers else spec.max_episode_steps


def shapes(env: gymnasium.Env, name: str) -> tuple[tuple[int, ...], int]:
    """An environment's observation shape and number of actions; UsageError for other spaces."""
    observations, actions = env.observation_space, env.action_space
    if not isinstance(actions, spaces.Discrete) or actions.start != 0:
        raise UsageError(f"--env-name {name}: its actions are {actions}; Discrete(n) is supported")
    is_vector = isinstance(observations, spaces.Box) and len(observations.shape) == 1
    if not is_vector and not isinstance(env, PreprocessImage | AtariImages):
        raise UsageError(
            f"--env-name {name}: its observations are {observations}; "
            "vectors and RGB or gray images are supported"
        )
    assert observations.shape is not None
    return observations.shape, int(actions.n)


class FreshWorld(gymnasium.Wrapper):
    """A new Box2D world for each episode: a used one keeps an order of contacts in its memory.

    BipedalWalker-v3 otherwise plays the same seed and actions differently after other episodes.
    """

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in a new world."""
        base: Any = self.unwrapped
        base._destroy()
        base.world = type(base.world)(gravity=tuple(base.world.gravity))
        return super().reset(**kwargs)


def _spec(name: str) -> EnvSpec:
    """What is registered as `name`; what is before a colon is a module that registers it."""
    module, _, rest = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a stranger's module raises
            raise UsageError(f"--env-name {name}: cannot import {module} ({error})") from error
    return gymnasium.spec(rest)


def _is_image(space: spaces.Space) -> bool:
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) == 2 or (len(space.shape) == 3 and space.shape[2] in (1, 3))


def _hint(name: str) -> str:
    games = [
        match[1] for key in gymnasium.registry if (match := re.fullmatch(r"ALE/(\w+)-v5", key))
    ]
    names = [*gymnasium.registry, *(f"{game}Deterministic-v4" for game in games)]
    by_lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
