"""Running statistics of observations, merged from the sums in results."""

from collections.abc import Mapping

import numpy as np
import torch

from es.errors import RunError
from es.noise import DoubleArray
from es.rollouts.tasks import Results

VARIANCE_ADDED = 1e-8  # for numbers that never change


class Normalizer:
    """Mean and standard deviation of each input, as in the code of Salimans et al. 2017.

    They change after each update, by all of its episodes. least_std: the floor of the deviations
    that observations are divided by.
    """

    def __init__(self, inputs: int, least_std: float = 0.0) -> None:
        self._least_std = least_std
        self.count = 0
        # (2, inputs): means, and sums of the squared deviations from them.
        self._moments: DoubleArray = np.zeros((2, inputs))

    def merge(self, results: Results) -> None:
        """Add the observations of an update's results, in the order given.

        The results' sums are of deviations from the current means (Chan et al. 1983, equation 1.5,
        with the old mean as the origin). Episodes with an observation that is not finite are left
        out. Raise RunError if none are left, or if they are too large.
        """
        sums, count = self._added_up(results)
        if not np.isfinite(sums).all():  # rare, so results are only then checked one by one
            finite = np.isfinite(results["observed"]).all(axis=(1, 2))
            sums, count = self._added_up(results[finite])
        if not (count and np.isfinite(sums).all()):
            raise RunError(
                "observations are not finite, or too large to be normalised (--obs-norm)"
            )
        self.count += count
        shift = sums[0] / self.count
        self._moments[0] += shift
        self._moments[1] += np.maximum(sums[1] - self.count * shift**2, -self._moments[1])

    def _added_up(self, results: Results) -> tuple[DoubleArray, int]:
        sums = np.zeros_like(self._moments)
        with np.errstate(all="ignore"):
            for observed in results["observed"]:  # in order
                sums += observed
        return sums, int(results["steps"].sum())

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
        count, moments = state["count"], state["moments"]
        if count.shape != () or count.dtype != torch.int64 or count < 0:
            raise ValueError("the number of observations is no number")
        if moments.shape != self._moments.shape or moments.dtype != torch.float64:
            raise ValueError("the statistics are not those of such observations")
        if not torch.isfinite(moments).all() or (moments[1] < 0).any():
            raise ValueError("the statistics are out of range")
        self.count, self._moments = int(count), moments.numpy().copy()
