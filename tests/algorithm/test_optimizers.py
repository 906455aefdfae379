"""Optimisers and schedules, by the steps of a whole strategy."""

import copy
from functools import partial

import numpy as np
import pytest
import torch

from es.algorithm.optimizers import Optimizer
from es.algorithm.strategy import Strategy
from es.config import Config
from tests.algorithm.formulas import SIZE, make, theta
from tests.checkpoints import same


def steps(strategy: Strategy, updates: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Gradients of so many updates, with `theta` as it was before each."""
    found = []
    for update in range(updates):
        returns = np.random.default_rng(update).permutation(strategy.n).astype(float)
        found.append((strategy.theta.astype(np.float64), strategy.estimate(returns)[0]))
        strategy.tell(returns)
    return found


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_clipup_against_its_formula(decay):
    """Toklu et al. 2020, algorithm 1; only the first step is shorter than the maximum speed."""
    strategy = make(n=8, sigma=0.05, lr=0.03, optimizer="clipup", max_speed=0.04,
        weight_decay=decay, seed=1,
    )  # fmt: skip
    velocity, speeds = np.zeros(SIZE), []
    for before, gradient in steps(strategy, 4):
        velocity = 0.9 * velocity + 0.03 * gradient / np.linalg.norm(gradient.astype(np.float64))
        velocity *= min(1.0, 0.04 / float(np.linalg.norm(velocity)))
        speeds.append(np.linalg.norm(velocity))
        expected = (1 - 0.03 * decay) * before + velocity
    np.testing.assert_allclose(strategy.theta, expected, rtol=1e-5, atol=1e-6)
    assert speeds[0] == pytest.approx(0.03)
    assert max(speeds) == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("name", "torch_class"),
    [
        ("sgd", partial(torch.optim.SGD, weight_decay=0.1)),
        ("sgd", partial(torch.optim.SGD, momentum=0.9, weight_decay=0.1)),
        ("adam", partial(torch.optim.Adam, weight_decay=0.1)),
        ("adamw", partial(torch.optim.AdamW, weight_decay=0.1)),
    ],
)
def test_steps_are_those_of_the_classes_of_torch_to_the_bit(name, torch_class):
    ours, theirs = (torch.from_numpy(theta()) for _ in range(2))
    reference = torch_class([theirs], lr=0.02)
    momentum = reference.defaults.get("momentum", 0.0)
    optimizer = Optimizer(ours, Config(optimizer=name, momentum=momentum, weight_decay=0.1))
    for update in range(5):
        gradient = torch.from_numpy(np.random.default_rng(update).standard_normal(SIZE, np.float32))
        optimizer.step(gradient, 0.02)
        theirs.grad = -gradient
        reference.step()
    assert torch.equal(ours, theirs)
    assert same(optimizer.moments, reference.state_dict()["state"].get(0, {}))


def test_schedules_and_decay_of_the_learning_rate():
    for schedule, factors in (
        ("constant", [1, 1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0.25, 0]),
        ("cosine", [1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, 0]),
    ):
        strategy = make(
            n=4, sigma=0.1, lr=0.1, lr_decay=0.5, lr_schedule=schedule, max_gradient_updates=4
        )
        for update, factor in enumerate(factors):
            lr = 0.1 * 0.5**update * factor
            assert strategy.scheduled_lr() == pytest.approx(lr, abs=1e-12)
            before, returns = strategy.theta.copy(), [1.0, 4.0, 2.0, 3.0]
            gradient = strategy.estimate(returns)[0]
            assert strategy.tell(returns) == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
            np.testing.assert_allclose(strategy.theta, before + lr * gradient, atol=1e-6)
    assert strategy.scheduled_lr() == 0  # beyond its end


def test_moments_that_do_not_fit_are_refused():
    adam = make(n=4, sigma=0.1, lr=0.1, optimizer="adam")
    adam.tell([1.0, 2.0, 3.0, 4.0])
    moments = copy.deepcopy(adam.optimizer.moments)
    short = {**moments, "exp_avg": torch.zeros(SIZE + 1)}
    for optimizer, wrong in (
        ("adam", short),
        ("adam", {"step": torch.tensor(1.0)}),
        ("sgd", moments),
    ):
        with pytest.raises(ValueError, match="optimiser"):
            make(n=4, optimizer=optimizer).optimizer.load(wrong)
