"""A run's environment and network, as plain descriptions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from es.algorithm.noise import FloatArray
from es.rollouts.rollout import Recipe


class Setup(NamedTuple):
    """Environment and network as plain descriptions; with the recipe, every process builds them.

    make_module: makes the network as a torch module, whose parameters are yet to be loaded.
    vbn_batch: (128, 1, 42, 42) float32, if virtual batch normalisation is used. unlimited:
    whether no limit of an episode's steps is known. kept: tensors of the user's own network that
    are not trained, by name. drawable: whether the environment names the render mode rgb_array.
    repeatable: whether the same episode began alike each time.
    """

    environment: dict[str, Any]
    network: dict[str, Any]
    recipe: Recipe
    make_module: Callable[[], nn.Module]
    vbn_batch: FloatArray | None = None
    unlimited: bool = False
    kept: dict[str, Tensor] = {}  # noqa: RUF012 (nobody writes to it)
    drawable: bool = True
    repeatable: bool = True

    @property
    def normalized_inputs(self) -> int:
        """Return how many numbers an observation has, or 0 if observations are not normalised."""
        return self.network["inputs"] if self.network.get("normalize") else 0
