"""torch's optimisers on the flat parameter vector, ClipUp, and learning rate schedules."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from es.algorithm.noise import FloatArray

CLIPUP_MOMENTUM = 0.9
ADAM = ("step", "exp_avg", "exp_avg_sq")
MOMENTS = {"sgd": ("momentum_buffer",), "clipup": ("velocity",), "adam": ADAM, "adamw": ADAM}


def norm(vector: FloatArray | torch.Tensor) -> float:
    """Return the Euclidean norm."""
    return float(np.sqrt(np.sum(np.asarray(vector, np.float64) ** 2)))


class Optimizer:
    """A torch optimiser that maximises: it steps along the gradient, not against it.

    parameter: (P,), changed in place. settings: has `optimizer` (sgd, adam, adamw or clipup),
    `momentum` (of sgd), `max_speed` (the longest step of clipup) and `weight_decay`: an L2 term in
    the gradient, as in Salimans et al. (2017, section 2.1). Under adamw and clipup it is decoupled:
    the step multiplies the parameter by 1 - lr * weight_decay.

    moments: the optimiser's state by torch's names; {} before the first step.
    """

    # The classes of torch.optim import torch's compiler, which takes longer than a short run.

    def __init__(self, parameter: torch.Tensor, settings: Any) -> None:
        self._parameter, self._settings = parameter, settings
        self._name = settings.optimizer
        plain = self._name == "sgd" and not settings.momentum
        self._names = () if plain else MOMENTS[self._name]
        self.moments: dict[str, torch.Tensor] = {}

    def step(self, gradient: torch.Tensor, lr: float) -> None:
        """Change the parameter in place."""
        decay = self._settings.weight_decay
        if not self.moments:
            self.moments = {
                name: torch.tensor(0.0) if name == "step" else torch.zeros_like(self._parameter)
                for name in self._names
            }
        parameter = [self._parameter]
        if self._name == "clipup":
            self._clipup(gradient, lr)
        elif self._name == "sgd":
            sgd(
                parameter, [gradient], [self.moments.get("momentum_buffer")], lr=lr,
                momentum=self._settings.momentum, weight_decay=decay, dampening=0, nesterov=False,
                maximize=True,
            )  # fmt: skip
        else:
            step, first, second = ([self.moments[name]] for name in ADAM)
            adam(
                parameter, [gradient], first, second, [], step, lr=lr, beta1=0.9, beta2=0.999,
                eps=1e-8, weight_decay=decay, decoupled_weight_decay=self._name == "adamw",
                amsgrad=False, maximize=True,
            )  # fmt: skip

    def _clipup(self, gradient: torch.Tensor, lr: float) -> None:
        """Step by ClipUp (Toklu et al. 2020, algorithm 1): only the gradient's direction counts.

        lr: the length that the gradient adds to the velocity, which is the step. Weight decay stays
        out of the gradient: it would depend on the scale of the utilities.
        """
        velocity = self.moments["velocity"]
        velocity.mul_(CLIPUP_MOMENTUM).add_(gradient, alpha=lr / norm(gradient))
        velocity.mul_(min(1.0, self._settings.max_speed / max(norm(velocity), 1e-30)))
        self._parameter.mul_(1 - lr * self._settings.weight_decay).add_(velocity)

    def finite(self) -> bool:
        """Return whether the parameter and the moments are finite."""
        tensors = [self._parameter, *self.moments.values()]
        return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)

    def load(self, moments: Mapping[str, torch.Tensor]) -> None:
        """Continue with copies of these moments; raise ValueError unless they fit."""
        shapes = {name: () if name == "step" else self._parameter.shape for name in self._names}
        if moments and {name: tensor.shape for name, tensor in moments.items()} != shapes:
            raise ValueError("the optimiser's state does not fit this network")
        self.moments = {name: tensor.clone() for name, tensor in moments.items()}


def schedule_factor(schedule: str, update: int, updates: int) -> float:
    """Return the factor of the learning rate after `update` of `updates` updates, from 1 to 0.

    schedule: constant (always 1), linear, or cosine (Loshchilov and Hutter 2017, equation 5).
    """
    done = min(1.0, update / updates)
    if schedule == "linear":
        return 1 - done
    if schedule == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    return 1.0
