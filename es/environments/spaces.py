"""An environment's spaces: observations as vectors or images, actions as plain descriptions."""

import textwrap
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from gymnasium.wrappers import FlattenObservation, TransformObservation

from es.algorithm.noise import DoubleArray
from es.errors import MisfitError, UsageError

MAX_CHANNELS = 4  # of an image: gray, RGB, RGBA, or as many frames
MIN_SIDE = 28  # of an image: smaller arrays are grids of codes, whose mean says nothing
MAX_BOUND = 1e18  # a larger one means that there is none
LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
MAX_SHOWN = 200  # characters of a space in an error
CUSTOM = "a wrapper of your own (--env-wrapper my_module:my_wrapper)"


def is_image(space: spaces.Space) -> bool:
    """Return whether observations are images: (height, width), or with channels before or after.

    They hold bytes or, with channels, numbers from 0 to 1 or to 255, and are not too small.
    """
    if not isinstance(space, spaces.Box) or not all(space.shape):
        return False
    shape = space.shape
    has_channels = len(shape) == 3 and min(shape[0], shape[2]) <= MAX_CHANNELS
    if not (has_channels or len(shape) == 2) or sorted(shape)[-2] < MIN_SIDE:
        return False
    if space.dtype == np.uint8:
        return True
    numbers = has_channels and np.issubdtype(space.dtype, np.floating)
    return bool(numbers and (space.low == 0).all() and np.isin(space.high, (1, 255)).all())


def as_network_sees(env: gymnasium.Env, name: str, *, keeps_shape: bool = False) -> gymnasium.Env:
    """Return the environment in wrappers that show its observations as the network sees them.

    It sees images, (1, 42, 42), or vectors; Discrete becomes one-hot. keeps_shape: keep the shape
    of arrays, and all of a Dict, for a --net module. Each wrapper is an ObservationWrapper. Raise
    UsageError for parts whose size is not fixed, and for images beside other parts or with many
    channels.
    """
    space = env.observation_space
    refuse = partial(_refuse, f"--env-name {name}: its observations are", space)
    if isinstance(space, spaces.Dict) and len(space) == 1 and not keeps_shape:
        ((key, part),) = space.items()
        return as_network_sees(TransformObservation(env, itemgetter(key), part), name)
    if is_image(space):
        from es.environments.images import ImageObservation  # this loads kernels

        return ImageObservation(env)
    is_dict = isinstance(space, spaces.Dict)
    entries = dict(space.items()) if isinstance(space, spaces.Dict) else {}
    for part in _parts(space):
        if not isinstance(part, LEAVES):
            complaint = f"{type(part).__name__} is not supported"
            keys = [key for key, entry in entries.items() if isinstance(entry, LEAVES)]
        elif _has_image(part) and not (keeps_shape and (is_dict or part is space)):
            complaint = f"an image must be alone, with at most {MAX_CHANNELS} channels"
            keys = [key for key, entry in entries.items() if is_image(entry)][:1]
        else:
            continue
        keep = f'--env-wrapper gymnasium.wrappers:FilterObservation "filter_keys={keys}", or '
        refuse(f"{complaint}: {keep if keys else ''}make a Box of it with {CUSTOM}")
    is_box = isinstance(space, spaces.Box)
    if (keeps_shape and (is_dict or is_box)) or (is_box and len(space.shape or ()) == 1):
        return env
    if isinstance(space, spaces.Discrete):
        # Not the integers of FlattenObservation, for which the MLP needs longer.
        one_hot = spaces.Box(0, 1, (int(space.n),), np.float32)
        return TransformObservation(env, partial(_one_hot, int(space.n), int(space.start)), one_hot)
    return FlattenObservation(env)


def _one_hot(count: int, start: int, number: int) -> np.ndarray:
    vector = np.zeros(count, np.float32)
    vector[number - start] = 1
    return vector


def unbatch(space: spaces.Space, observation: Any) -> list[Any] | None:
    """Split a vector environment's batch into observations; return None for one observation."""
    part, first = space, observation
    while isinstance(part, spaces.Dict | spaces.Tuple):
        key: Any = next(iter(part)) if isinstance(part, spaces.Dict) else 0
        part, first = part[key], first[key]
    shape = np.shape(first)
    if len(shape) != len(part.shape or ()) + 1:
        return None
    return [*iterate(batch_space(space, shape[0]), observation)]


def as_numbers(observation: Any, shape: tuple[int, ...]) -> DoubleArray:
    """Return an observation as a new array; raise MisfitError if it is none of this shape."""
    array = np.asarray(observation)
    if array.shape != shape or array.dtype.kind not in "biuf":
        raise MisfitError(
            f"its observation has the shape {array.shape} and the type {array.dtype}, and should "
            f"hold numbers in the shape {shape}",
            steps_ago=1,
        )
    return array.astype(np.float64, "C")


def describe_actions(space: spaces.Space, name: str) -> dict[str, Any]:
    """Return a plain description of an action space, from which `es.networks` decodes actions.

    {"kind": "discrete", "n", "start"}, {"kind": "multi-discrete", "counts", "start", "shape",
    "dtype"}, {"kind": "multi-binary", "shape"}, or {"kind": "box", "low", "high", "shape", "dtype",
    "bins", "noise", "squash"}. Lists have a number for each dimension. Raise UsageError for other
    spaces, and for boxes without finite bounds.
    """
    refuse = partial(_refuse, f"--env-name {name}: its actions are", space)
    if not isinstance(space, LEAVES):
        refuse(f"they must be Discrete, MultiDiscrete, MultiBinary or Box: use {CUSTOM}")
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
        refuse(f"they need finite bounds (below {MAX_BOUND:g}): set some with {CUSTOM}")
    low, high = bounds.tolist()
    described = {"kind": "box", "low": low, "high": high, "shape": shape, "dtype": dtype}
    return described | {"bins": None, "noise": 0.0, "squash": "tanh"}


def _parts(space: spaces.Space) -> Iterator[spaces.Space]:
    """Yield the parts of Dict and Tuple, at any depth, or the space itself."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.values() if isinstance(space, spaces.Dict) else space:
            yield from _parts(part)
    else:
        yield space


def _has_image(space: spaces.Space) -> bool:
    """Return whether this is an image, or a stack of images, which no network takes."""
    shape = space.shape or ()
    stacked = len(shape) > 2 and sorted(shape)[-2] >= MIN_SIDE and space.dtype == np.uint8
    return is_image(space) or stacked


def _refuse(complaint: str, space: spaces.Space, remedy: str) -> NoReturn:
    shown = textwrap.shorten(str(space), MAX_SHOWN, placeholder=" ...")
    raise UsageError(f"{complaint} {shown}; {remedy}")
