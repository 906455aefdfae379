"""An environment's spaces: observations as vectors or images, actions as plain descriptions."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from es.errors import UsageError

MAX_CHANNELS = 4  # of an image: gray, RGB, RGBA, or as many frames
LEAST_SIDE = 16  # of an image of numbers: smaller ones are grids, whose channels mean something
MAX_BOUND = 1e18  # a larger one means that there is none
LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def is_image(space: spaces.Space) -> bool:
    """Return whether observations are images: (height, width), or with channels before or after.

    They hold bytes or, with channels and if not too small, numbers from 0 to 1 or to 255.
    """
    if not isinstance(space, spaces.Box) or not all(space.shape):
        return False
    shape, is_bytes = space.shape, space.dtype == np.uint8
    if len(shape) == 3 and min(shape[0], shape[2]) <= MAX_CHANNELS:
        if is_bytes:
            return True
        numbers = np.issubdtype(space.dtype, np.floating) and sorted(shape)[1] >= LEAST_SIDE
        return bool(numbers and (space.low == 0).all() and np.isin(space.high, (1, 255)).all())
    return len(shape) == 2 and is_bytes


def is_vector(space: spaces.Space) -> bool:
    """Return whether observations need not be flattened."""
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def as_vector(env: gymnasium.Env, name: str) -> gymnasium.Env:
    """Return the environment with its observations flattened; discrete ones become one-hot.

    Raise UsageError for observations without a fixed number of numbers, or of none.
    """
    space = env.observation_space
    if not _can_be_flattened(space) or spaces.flatdim(space) == 0:
        raise UsageError(
            f"--env-name {name}: its observations are {space}; what is supported are Box, "
            "Discrete, MultiDiscrete and MultiBinary, and Dict and Tuple of these"
        )
    if is_vector(space):
        return env
    return gymnasium.wrappers.FlattenObservation(env)


def describe_actions(space: spaces.Space, name: str) -> dict[str, Any]:
    """Return a plain description of an action space, from which `es.networks` decodes actions.

    {"kind": "discrete", "n", "start"}, {"kind": "multi-discrete", "counts", "start", "shape",
    "dtype"}, {"kind": "multi-binary", "shape"}, or {"kind": "box", "low", "high", "shape", "dtype",
    "bins", "noise"}, where lists have a number for each dimension. Raise UsageError for spaces
    that are none of these, or have no bounds.
    """
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    shape, dtype = list(space.shape or ()), str(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        counts, start = space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist()
        described = {"kind": "multi-discrete", "counts": counts, "start": start}
        return described | {"shape": shape, "dtype": dtype}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi-binary", "shape": shape}
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise UsageError(
            f"--env-name {name}: its actions are {space}; what is supported are Discrete, "
            "MultiDiscrete, MultiBinary and Box of floating-point numbers"
        )
    bounds = np.stack([space.low.reshape(-1), space.high.reshape(-1)]).astype(np.float64)
    if not bounds.size or np.abs(bounds).max() > MAX_BOUND:
        raise UsageError(
            f"--env-name {name}: its actions are {space}; they need finite bounds "
            f"(below {MAX_BOUND:g})"
        )
    low, high = bounds.tolist()
    described = {"kind": "box", "low": low, "high": high, "shape": shape, "dtype": dtype}
    return described | {"bins": None, "noise": 0.0}


def _can_be_flattened(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Dict):
        return all(map(_can_be_flattened, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return all(map(_can_be_flattened, space.spaces))
    return isinstance(space, LEAVES)
