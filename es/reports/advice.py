"""Advice where the figures of a run show that it learns nothing, or what it lacks."""

import math
from collections.abc import Iterator

import numpy as np

from es.algorithm.shaping import Population
from es.errors import counted
from es.reports.record import Record
from es.reports.tables import Table

EQUAL_UPDATES = 10  # in a row, before it is said that nothing is learned from them
EMULATOR_STEPS = 27_000  # of 4 frames, after which the Atari emulator itself ends an episode
FEWEST_UPDATES = 20  # that show a trend
PARTS = 4  # of a run, of which the last two are compared
CLEAR = 2.0  # standard errors between two means that differ


class Advisor:
    """Give advice on a run that goes on, once on each trouble.

    fire: whether it plays an Atari game, without --fire-reset.
    """

    def __init__(self, *, fire: bool) -> None:
        self._fire, self._equal, self._told = fire, 0, False

    def advise(self, record: Record, population: Population, cap: int) -> Iterator[str]:
        """Yield advice after an update. cap: the most steps of its episodes."""
        self._equal = self._equal + 1 if np.ptp(population.fitness) == 0 else 0
        if self._equal == EQUAL_UPDATES and not self._told:
            self._told = True
            yield (
                f"In each of the last {EQUAL_UPDATES} updates all returns were equal (in this one "
                f"{record.return_max:g}), and equal returns teach nothing. Unless none can be "
                f"higher, try a larger --sigma (it is {record.sigma:g}), a smaller "
                "--max-episode-length, or an environment whose reward tells better from worse."
            )
        if self._fire and (waiting := waiting_episodes(population, cap)):
            self._fire = False
            yield (
                f"{counted(waiting, 'perturbation')} played until the limit of steps for a return "
                "of 0. If the game waits for the button FIRE, --fire-reset presses it."
            )


def waiting_episodes(population: Population, cap: int) -> int:
    """Return how many perturbations had a return of 0 and no episode that ended before its cap.

    None in a game that takes points as well, where 0 is a draw.
    """
    if np.min(population.returns) < 0:
        return 0
    shortest = np.reshape(population.lengths, (len(population.returns), -1)).min(axis=1)
    return int(((population.returns == 0) & (shortest >= min(cap, EMULATOR_STEPS))).sum())


def after_missing_the_target(progress: Table, carry_on: str) -> str:
    """Return what to try after a run that did not reach its target. carry_on: its command."""
    returns = progress["unperturbed_return"][np.isfinite(progress["unperturbed_return"])]
    more = f"carry on with a higher limit:\n  {carry_on}"
    if returns.size < FEWEST_UPDATES:
        return f"So few updates show no trend: {more}"
    if (progress["return_min"] == progress["return_max"]).all():
        return "All returns of each update were equal: try a larger --sigma, or another reward."
    before, last = np.array_split(returns, PARTS)[-2:]
    rise = last.mean() - before.mean()
    error = math.hypot(before.std() / before.size**0.5, last.std() / last.size**0.5)
    if rise > CLEAR * error:
        return f"The returns were still rising: {more}"
    if rise < -CLEAR * error:
        return "The returns were falling in the end: try a smaller --lr, or another --seed."
    return (
        "The returns were rising no more: try another --seed or a larger --sigma, or have sweep.py "
        "search for settings."
    )
