"""What a network of the user's own sees: arrays in their shape, the entries of a Dict apart."""

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation
from torch import Tensor, nn

from es.algorithm.noise import DoubleArray
from es.environments.spaces import is_image, without_text
from es.exporting.views import VectorView, make_view


def make_shaped_view(
    env: gymnasium.Env, statistics: DoubleArray | None = None, clip: float = math.inf
) -> nn.Module:
    """Return the view of what `es.envs.make_bare_env` makes, held to `View(..., shaped=True)`.

    statistics, clip: as `make_view` takes them.
    """
    space = without_text(env.observation_space)
    if isinstance(space, spaces.Dict):
        return PartsView(env, spaces.Dict({**space}), statistics, clip)  # sorted, as statistics are
    return make_view(env) if is_image(space) else ShapedView(space, statistics, clip)


class ShapedView(VectorView):
    """Do as `VectorView`, and give arrays their shape."""

    def __init__(self, space: spaces.Space, statistics: DoubleArray | None, clip: float) -> None:
        super().__init__(space, statistics, clip)
        self._shape = space.shape if isinstance(space, spaces.Box) else (-1,)

    def forward(self, observation: Any, state: None) -> tuple[Tensor, None]:
        """Return the array."""
        numbers, _ = super().forward(observation, state)
        return numbers.reshape(self._shape), None


class PartsView(nn.Module):
    """Show each entry of a Dict by a view of its own, whose states are a dict, too."""

    def __init__(
        self,
        env: gymnasium.Env,
        space: spaces.Dict,
        statistics: DoubleArray | None,
        clip: float,
    ) -> None:
        super().__init__()
        self._views, self._keys, stop = nn.ModuleList(), [*space], 0
        for key, part in space.items():
            own = None
            if statistics is not None and not is_image(part):
                start, stop = stop, stop + spaces.flatdim(part)
                own = statistics[:, start:stop]
            alone = TransformObservation(env, itemgetter(key), part)
            view = make_view(alone) if is_image(part) else ShapedView(part, own, clip)
            self._views.append(view)
        self.initial: dict[str, Any] = {
            key: view.initial for key, view in zip(self._keys, self._views, strict=True)
        }

    def forward(
        self, observation: Mapping[str, Any], state: Mapping[str, Any] | None
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the entries, and their next states."""
        before = state or self.initial
        seen = {
            key: view(observation[key], before[key])
            for key, view in zip(self._keys, self._views, strict=True)
        }
        shown = {key: image for key, (image, _) in seen.items()}
        return shown, {key: after for key, (_, after) in seen.items()}
