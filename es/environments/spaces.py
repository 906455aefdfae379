"""An environment's spaces: observations as vectors or images, actions as plain descriptions."""

import textwrap
from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from es.errors import UsageError

MAX_CHANNELS = 4  # of an image: gray, RGB, RGBA, or as many frames
LEAST_SIDE = 28  # of an image: smaller arrays are grids of codes, whose mean says nothing
MAX_NUMBERS = 2**20  # of an observation, or outputs for an action: each has many weights
MAX_BOUND = 1e18  # a larger one means that there is none
LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
LONGEST_SHOWN = 200  # characters of a space in an error
WRAP = "in an environment that your own module registers (--env-name my_module:MyEnv-v0)"


def is_image(space: spaces.Space) -> bool:
    """Return whether observations are images: (height, width), or with channels before or after.

    They hold bytes or, with channels, numbers from 0 to 1 or to 255, and are not too small.
    """
    if not isinstance(space, spaces.Box) or not all(space.shape):
        return False
    shape = space.shape
    has_channels = len(shape) == 3 and min(shape[0], shape[2]) <= MAX_CHANNELS
    if not (has_channels or len(shape) == 2) or sorted(shape)[-2] < LEAST_SIDE:
        return False
    if space.dtype == np.uint8:
        return True
    numbers = has_channels and np.issubdtype(space.dtype, np.floating)
    return bool(numbers and (space.low == 0).all() and np.isin(space.high, (1, 255)).all())


def is_vector(space: spaces.Space) -> bool:
    """Return whether observations need not be flattened."""
    return isinstance(space, spaces.Box) and len(space.shape) == 1


def as_vector(env: gymnasium.Env, name: str) -> gymnasium.Env:
    """Return the environment with its observations flattened; discrete ones become one-hot.

    Raise UsageError for parts without a fixed number of numbers, for pictures among other parts or
    with many channels, and for no numbers or too many.
    """
    space = env.observation_space
    refuse = partial(_refuse, f"--env-name {name}: its observations are", space)
    for part in _parts(space):
        left_out = "" if part is space else "leave it out with FilterObservation, or "
        if not isinstance(part, LEAVES):
            refuse(
                f"{type(part).__name__} cannot be seen: {left_out}make a Box of it with "
                "TransformObservation"
            )
        shape = part.shape or ()
        stacked = len(shape) > 2 and sorted(shape)[-2] >= LEAST_SIDE and part.dtype == np.uint8
        if is_image(part) or stacked:
            refuse(
                f"a picture is seen alone, with {MAX_CHANNELS} channels at most: {left_out}make "
                "such a one with TransformObservation"
            )
    if not 0 < spaces.flatdim(space) <= MAX_NUMBERS:
        refuse(
            f"they make a vector of {spaces.flatdim(space)} numbers, and 1 to {MAX_NUMBERS} are "
            "possible: make a smaller Box of them with TransformObservation"
        )
    return env if is_vector(space) else gymnasium.wrappers.FlattenObservation(env)


def describe_actions(space: spaces.Space, name: str) -> dict[str, Any]:
    """Return a plain description of an action space, from which `es.networks` decodes actions.

    {"kind": "discrete", "n", "start"}, {"kind": "multi-discrete", "counts", "start", "shape",
    "dtype"}, {"kind": "multi-binary", "shape"}, or {"kind": "box", "low", "high", "shape", "dtype",
    "bins", "noise"}, where lists have a number for each dimension. Raise UsageError for spaces
    that are none of these, have no bounds, or need too many outputs.
    """
    refuse = partial(_refuse, f"--env-name {name}: its actions are", space)
    is_box = isinstance(space, spaces.Box)
    if not isinstance(space, LEAVES) or (is_box and not np.issubdtype(space.dtype, np.floating)):
        refuse(
            "what is supported are Discrete, MultiDiscrete, MultiBinary and Box of floating-point "
            "numbers: make them of one of these with TransformAction"
        )
    if not 0 < spaces.flatdim(space) <= MAX_NUMBERS:
        refuse(
            f"they need {spaces.flatdim(space)} outputs, and 1 to {MAX_NUMBERS} are possible: make "
            "them of fewer with TransformAction"
        )
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    shape, dtype = list(space.shape or ()), str(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        counts, start = space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist()
        described = {"kind": "multi-discrete", "counts": counts, "start": start}
        return described | {"shape": shape, "dtype": dtype}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi-binary", "shape": shape}
    bounds = np.stack([space.low.reshape(-1), space.high.reshape(-1)]).astype(np.float64)
    if np.abs(bounds).max() > MAX_BOUND:
        refuse(f"they need finite bounds (below {MAX_BOUND:g}): set some with TransformAction")
    low, high = bounds.tolist()
    described = {"kind": "box", "low": low, "high": high, "shape": shape, "dtype": dtype}
    return described | {"bins": None, "noise": 0.0}


def _parts(space: spaces.Space) -> Iterator[spaces.Space]:
    """Yield the parts of Dict and Tuple, at any depth, or the space itself."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.values() if isinstance(space, spaces.Dict) else space:
            yield from _parts(part)
    else:
        yield space


def _refuse(complaint: str, space: spaces.Space, remedy: str) -> NoReturn:
    shown = textwrap.shorten(str(space), LONGEST_SHOWN, placeholder=" ...")
    raise UsageError(f"{complaint} {shown}; {remedy} of gymnasium.wrappers, {WRAP}")
