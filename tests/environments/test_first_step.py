from typing import Any

import gymnasium
import numpy as np
import pytest

from es.environments.first_step import check_first_step
from es.errors import UsageError


class Odd(gymnasium.Env):
    """Does as a test wants: `first` and `outcome` may be functions."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, first, outcome):
        self.first, self.outcome = first, outcome

    def reset(self, *, seed=None, options=None):
        return self.first() if callable(self.first) else self.first

    def step(self, action):
        return self.outcome() if callable(self.outcome) else self.outcome


def burn():
    raise RuntimeError("motor on\nfire")


SEEN = np.zeros(2, np.float32)
FIRST: Any = (SEEN, {})
NEXT: Any = (SEEN, 1.0, False, False, {})


def test_what_keeps_to_the_rules_passes():
    check_first_step(Odd(FIRST, NEXT), "Odd-v0")
    check_first_step(Odd(([0, 0], {}), (SEEN, np.float32(1), True, False, {})), "Odd-v0")
    check_first_step(Odd(FIRST, (SEEN, np.array([1]), False, False, {})), "Odd-v0")


@pytest.mark.parametrize(
    ("first", "outcome", "words"),
    [
        (burn, NEXT, "RuntimeError: motor on fire"),
        (FIRST, burn, "RuntimeError: motor on fire"),
        (np.zeros(3), NEXT, r"reset\(\) must return .*unpack"),
        (FIRST, (SEEN, 1.0, False, {}), r"step\(\) must return .*unpack"),
        (FIRST, None, r"step\(\) must return .*unpack"),
        ((np.zeros(3), {}), NEXT, r"shape \(3,\), its observation space \(2,\)"),
        ((None, {}), NEXT, "shape"),
        (FIRST, (np.zeros((2, 1)), 1.0, False, False, {}), r"shape \(2, 1\)"),
        ((np.array([0, np.nan]), {}), NEXT, "not finite"),
        (FIRST, (np.array([0, np.inf]), 1.0, False, False, {}), "not finite"),
        (FIRST, (SEEN, np.nan, False, False, {}), "reward is nan"),
        (FIRST, (SEEN, np.array([1.0, 2.0]), False, False, {}), "vector.*LinearReward"),
        (FIRST, (SEEN, "much", False, False, {}), "reward is 'much', not a number"),
        (FIRST, (SEEN, "1.5", False, False, {}), "reward is '1.5', not a number"),
        (FIRST, (SEEN, None, False, False, {}), "reward is None, not a number"),
        (FIRST, (SEEN, 1j, False, False, {}), "reward is 1j, not a number"),
        (FIRST, (np.zeros(2, complex), 1.0, False, False, {}), "complex128"),
        ((["1", "2"], {}), NEXT, "no numbers"),
    ],
)
def test_what_does_not_is_one_line(first, outcome, words):
    with pytest.raises(UsageError, match=rf"Odd-v0: cannot be played .*({words})") as error:
        check_first_step(Odd(first, outcome), "Odd-v0")
    assert "\n" not in error.value.message
    assert ("Traceback" in error.value.trace) == any(each is burn for each in (first, outcome))


class Drawing(Odd):
    """Shows what a generator draws; `own`: in place of the environment's."""

    def __init__(self, own=None):
        super().__init__(FIRST, NEXT)
        self.own = own

    def reset(self, *, seed=None, options=None):
        gymnasium.Env.reset(self, seed=seed)
        generator = self.own or self.np_random
        return generator.uniform(-1, 1, 2), {}


def test_a_start_that_differs_from_itself_is_noticed(monkeypatch):
    monkeypatch.setattr("es.environments.first_step.SECONDS", 60)
    assert check_first_step(Drawing(), "Drawing-v0")
    assert check_first_step(Drawing(np.random), "Drawing-v0")  # which each episode seeds
    assert not check_first_step(Drawing(np.random.default_rng(0)), "Drawing-v0")


def test_a_run_whose_episodes_differ_by_chance_says_so_once(program, monkeypatch):
    monkeypatch.setattr("es.environments.first_step.SECONDS", 60)
    generator = np.random.default_rng(0)  # of a module, say
    gymnasium.register("Drawing-v0", lambda **_: Drawing(generator), max_episode_steps=2)
    run = ("--env-name", "Drawing-v0", "--small-net", "--n", 2, "--workers", 0)
    status, _, err = program(*run, "--max-gradient-updates", 2)
    del gymnasium.registry["Drawing-v0"]
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith("warning: --env-name Drawing-v0: the same episode differs when it is pl")


def test_the_shared_generators_are_left_as_they_were():
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    check_first_step(Drawing(), "Drawing-v0")
    assert np.random.random() == expected


def test_a_later_start_that_fails_is_left_to_the_run():
    outcomes = iter([NEXT, NEXT])
    assert check_first_step(Odd(FIRST, lambda: next(outcomes)), "Odd-v0")
