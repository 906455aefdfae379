"""Running statistics of observations."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from es.algorithm.noise import DoubleArray
from es.errors import RunError

VARIANCE_ADDED = 1e-8  # for inputs that never change


class Normalizer:
    """Running mean and standard deviation of each input of the observations.

    As in the code of Salimans et al. (github.com/openai/evolution-strategies-starter), they change
    once per update, by all its episodes. least_std: the smallest standard deviation that
    observations are divided by.
    """

    def __init__(self, inputs: int, least_std: float = 0.0) -> None:
        self._least_std = least_std
        self.count = 0
        # (2, inputs): means, and sums of the squared deviations from them.
        self._moments: DoubleArray = np.zeros((2, inputs))

    def merge(self, sums: npt.ArrayLike, steps: npt.ArrayLike) -> None:
        """Add the observations of an update's episodes.

        sums: (episodes, 2, inputs), of the deviations from the current means and of their squares
        (Chan et al. 1983, equation 1.5, with the old mean as the origin). steps: (episodes,).
        Episodes with an observation that is not finite are left out. Raise RunError if none are
        left, or if the sums are too large.
        """
        by_episode, lengths = np.asarray(sums), np.asarray(steps)
        finite = np.isfinite(by_episode).all(axis=(1, 2))
        with np.errstate(over="ignore"):
            total = by_episode[finite].sum(axis=0)
        count = int(lengths[finite].sum())
        if not (count and np.isfinite(total).all()):
            raise RunError("--obs-norm: observations are not finite, or too large")
        self.count += count
        shift = total[0] / self.count
        self._moments[0] += shift
        self._moments[1] += np.maximum(total[1] - self.count * shift**2, -self._moments[1])

    def statistics(self) -> DoubleArray:
        """Return the means and 1 / standard deviation, (2, inputs); 0 and 1 before any data."""
        mean, squares = self._moments
        if not self.count:
            return np.stack([mean, np.ones_like(mean)])
        std = np.maximum(np.sqrt(squares / self.count + VARIANCE_ADDED), self._least_std)
        return np.stack([mean, 1 / std])

    def state(self) -> dict[str, torch.Tensor]:
        """Return a copy of the statistics, which `load` takes."""
        moments = torch.from_numpy(self._moments.copy())
        return {"count": torch.tensor(self.count), "moments": moments}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue with these statistics; raise ValueError unless they fit the observations."""
        moments = state.get("moments")
        if moments is None or moments.shape != self._moments.shape:
            raise ValueError("the statistics of observations do not fit these observations")
        self.count, self._moments = int(state["count"]), moments.double().numpy().copy()
