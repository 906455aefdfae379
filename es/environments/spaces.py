"""An environment's spaces: observations as vectors or images, actions as plain descriptions."""

import textwrap
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from es.environments.wrappers import OneHot
from es.errors import UsageError

MAX_CHANNELS = 4  # of an image: gray, RGB, RGBA, or as many frames
LEAST_SIDE = 28  # of an image: smaller arrays are grids of codes, whose mean says nothing
MAX_NUMBERS = 2**20  # of an observation, or outputs for an action: each has many weights
MAX_BOUND = 1e18  # a larger one means that there is none
LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
LONGEST_SHOWN = 200  # characters of a space in an error
FILTER = "gymnasium.wrappers:FilterObservation filter_keys=[...]"
OWN = "a wrapper of your own (--env-wrapper my_module:my_wrapper)"


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


def is_text(space: spaces.Space) -> bool:
    """Return whether this is Text, or a space of a user's that holds texts."""
    return space.dtype is not None and space.dtype.kind == "U"


def without_text(space: spaces.Space) -> spaces.Space:
    """Return the space without the Text entries of its Dicts, which a network cannot see."""
    if not isinstance(space, spaces.Dict) or not list(texts(space)):
        return space
    kept = {key: part for key, part in space.items() if not is_text(part)}
    return spaces.Dict({key: without_text(part) for key, part in kept.items()})


def texts(space: spaces.Space, place: str = "") -> Iterator[str]:
    """Yield the names of the Text entries of a Dict and of the Dicts in it."""
    for key, part in space.items() if isinstance(space, spaces.Dict) else ():
        yield from [f"{place}{key}"] if is_text(part) else ()
        yield from texts(part, f"{place}{key}.")


def picture_key(space: spaces.Space) -> str | None:
    """Return the key of the picture that a Dict holds apart from Text, if it holds nothing else."""
    seen = without_text(space)
    if not isinstance(seen, spaces.Dict) or len(seen) != 1:
        return None
    ((key, part),) = seen.items()
    return key if is_image(part) else None


def take_picture(env: gymnasium.Env) -> gymnasium.Env:
    """Return the environment with the only picture of its observations as the observation."""
    space, key = env.observation_space, picture_key(env.observation_space)
    if key is None or not isinstance(space, spaces.Dict):
        return env
    return gymnasium.wrappers.TransformObservation(env, itemgetter(key), space[key])


def seen_as_image(space: spaces.Space) -> bool:
    """Return whether observations are images that are preprocessed already."""
    return space.shape == (1, 42, 42) and bool(np.isinf(getattr(space, "low", 0)).all())


def as_vector(env: gymnasium.Env, name: str, *, shaped: bool = False) -> gymnasium.Env:
    """Return the environment with its observations flattened; discrete ones become one-hot.

    shaped: keep the shape of arrays, of stacked pictures, too, and the entries of a Dict apart.
    The Text entries of Dicts are left out. Raise UsageError for other parts without a fixed number
    of numbers, for pictures among other parts or with many channels, and for no numbers or too
    many.
    """
    space = without_text(env.observation_space)
    refuse = partial(_refuse, f"--env-name {name}: its observations are", space)
    apart = [space] if shaped else []
    apart += space.values() if shaped and isinstance(space, spaces.Dict) else []
    for part in _parts(space):
        left_out = "" if part is space else f"leave it out with --env-wrapper {FILTER}, or "
        if not isinstance(part, LEAVES):
            refuse(f"{type(part).__name__} cannot be seen: {left_out}make a Box of it with {OWN}")
        shape = part.shape or ()
        stacked = len(shape) > 2 and sorted(shape)[-2] >= LEAST_SIDE and part.dtype == np.uint8
        if (is_image(part) or stacked) and not any(part is each for each in apart):
            refuse(
                f"a picture is seen alone, with {MAX_CHANNELS} channels at most: {left_out}make "
                f"such a one with {OWN}"
            )
    if not 0 < spaces.flatdim(space) <= MAX_NUMBERS:
        refuse(
            f"they make a vector of {spaces.flatdim(space)} numbers, and 1 to {MAX_NUMBERS} are "
            f"possible: make a smaller Box of them with {OWN}"
        )
    if is_vector(space) or (shaped and isinstance(space, spaces.Box)):
        return env
    if shaped and isinstance(space, spaces.Dict):
        from es.environments.parts import AsParts

        return AsParts(env)
    if isinstance(space, spaces.Discrete):
        return OneHot(env, space)
    return AsVector(env, space)


class AsVector(gymnasium.wrappers.TransformObservation):
    """Flatten what of the observations belongs to `space`. es_unseen: the Text entries left out."""

    def __init__(self, env: gymnasium.Env, space: spaces.Space) -> None:
        super().__init__(env, partial(spaces.flatten, space), spaces.flatten_space(space))
        self.es_unseen = [*texts(env.observation_space)]


def describe_actions(space: spaces.Space, name: str) -> dict[str, Any]:
    """Return a plain description of an action space, from which `es.networks` decodes actions.

    {"kind": "discrete", "n", "start"}, {"kind": "multi-discrete", "counts", "start", "shape",
    "dtype"}, {"kind": "multi-binary", "shape"}, or {"kind": "box", "low", "high", "shape", "dtype",
    "bins", "noise"}, where lists have a number for each dimension. Raise UsageError for spaces
    that are none of these, have no bounds, or need too many outputs.
    """
    refuse = partial(_refuse, f"--env-name {name}: its actions are", space)
    if not isinstance(space, LEAVES):
        refuse(
            "what is supported are Discrete, MultiDiscrete, MultiBinary and Box: make "
            f"them of one of these with {OWN}"
        )
    if not 0 < spaces.flatdim(space) <= MAX_NUMBERS:
        refuse(
            f"they need {spaces.flatdim(space)} outputs, and 1 to {MAX_NUMBERS} are possible: make "
            f"them of fewer with {OWN}"
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
        refuse(f"they need finite bounds (below {MAX_BOUND:g}): set some with {OWN}")
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


def _refuse(complaint: str, space: spaces.Space, remedy: str) -> NoReturn:
    shown = textwrap.shorten(str(space), LONGEST_SHOWN, placeholder=" ...")
    raise UsageError(f"{complaint} {shown}; {remedy}")
