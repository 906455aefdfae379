"""How good a run's policy is: evaluations in fresh episodes, the target, the best score."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from es.algorithm.population import mean_and_std
from es.config import Config
from es.rollouts.rollout import Result, Task, evaluation_tasks


class Evaluation(NamedTuple):
    """Mean and standard deviation of the returns of the policy after so many updates."""

    update: int
    mean: float
    std: float


class Evaluator:
    """Evaluates the policy of a run.

    play: plays tasks, named in words, with the policy. say: shows a line to the user.
    """

    def __init__(
        self,
        config: Config,
        play: Callable[[Sequence[Task], str], list[Result]],
        say: Callable[[str], None],
    ) -> None:
        self._config, self._play, self._say = config, play, say
        self._last: Evaluation | None = None

    def evaluate(self, update: int) -> Evaluation:
        """Play fresh episodes with the policy after so many updates; for the same one, once."""
        config = self._config
        if self._last is None or self._last.update != update:
            episodes, most = config.eval_episodes, config.max_episode_length
            assert config.seed is not None
            tasks = evaluation_tasks(config.seed, update, episodes, most)
            results = self._play(tasks, f"evaluation after {update} updates")
            mean, std = mean_and_std([result.episode_return for result in results])
            self._last = Evaluation(update, mean, std)
            self._say(
                f"Evaluation after {update} updates: mean {mean:.2f}, standard deviation {std:.2f} "
                f"over {episodes} fresh episodes\n"
            )
        return self._last

    def reach_target(self, score: float, update: int) -> dict[str, float] | None:
        """Return the evaluation that shows the target to be reached, or None.

        score: the unperturbed return; evaluated is only a policy whose score is the target's.
        """
        target = self._config.target_return
        if target is None or not score >= target:  # it may be no number
            return None
        _, mean, std = self.evaluate(update)
        return {"target": target, "mean": mean, "std": std} if target <= mean < math.inf else None
