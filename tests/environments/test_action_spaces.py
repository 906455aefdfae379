"""Spaces of actions, as they are described to the networks."""

import numpy as np
import pytest
from gymnasium import spaces

from es.environments.spaces import describe_actions
from es.errors import UsageError


def test_action_spaces_are_described():
    assert describe_actions(spaces.Discrete(3, start=2), "") == {
        "kind": "discrete", "n": 3, "start": 2
    }  # fmt: skip
    assert describe_actions(spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), "") == {
        "kind": "multi-discrete", "counts": [2, 3, 4, 5], "start": [0] * 4, "shape": [2, 2],
        "dtype": "int64",
    }  # fmt: skip
    assert describe_actions(spaces.MultiBinary((2, 3)), "") == {
        "kind": "multi-binary", "shape": [2, 3]
    }  # fmt: skip
    box = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 5.0]), dtype=np.float64)
    assert describe_actions(box, "") == {
        "kind": "box", "low": [-1, 0], "high": [1, 5], "shape": [2], "dtype": "float64",
        "bins": None, "noise": 0.0, "squash": "tanh",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), "finite bounds"),
        (spaces.Box(np.array([-1, -3.4e38], "f"), np.array([1, 3.4e38], "f")), "finite bounds"),
        (spaces.Box(0, 2**63 - 1, (2,), np.int64), "finite bounds"),
        (spaces.Dict(a=spaces.Discrete(2)), "what is supported"),
        (spaces.Text(5), "what is supported"),
        (spaces.Box(-1, 1, (0,)), "0 outputs"),
        (spaces.Discrete(2**40), "1099511627776 outputs, and 1 to 1048576 are possible"),
        (spaces.MultiDiscrete([2**31 - 1] * 3), "6442450941 outputs"),
        (spaces.MultiBinary(2**33), "8589934592 outputs"),
    ],
)
def test_actions_that_make_no_sense_are_errors(space, words):
    words = f"its actions are .*{words}.* a wrapper of your own"
    with pytest.raises(UsageError, match=f"--env-name Some-v0: {words}"):
        describe_actions(space, "Some-v0")
