"""torch's optimisers on the flat parameter vector, and learning rate schedules."""

import math

import numpy as np
import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from es.noise import FloatArray

CLIPUP_MOMENTUM = 0.9
ADAM = ("step", "exp_avg", "exp_avg_sq")
MOMENTS = {"sgd": ("momentum_buffer",), "clipup": ("velocity",), "adam": ADAM, "adamw": ADAM}


def length(vector: FloatArray | torch.Tensor) -> float:
    """Return the Euclidean norm; NumPy sums in one order on every processor, unlike torch."""
    return float(np.sqrt(np.sum(np.asarray(vector, np.float64) ** 2)))


class Optimizer:
    """A torch optimiser that maximises: it steps along the gradient, not against it.

    name: sgd, adam, adamw or clipup. max_speed: the longest step of clipup. weight_decay: an L2
    term in the gradient, as in Salimans et al. (2017, section 2.1). Under adamw and clipup it is
    decoupled: the step multiplies the parameter by 1 - lr * weight_decay.

    moments: the optimiser's state by torch's names; {} before the first step.
    """

    # The classes of torch.optim import torch's compiler, which takes longer than a short run.

    def __init__(
        self,
        name: str,
        parameter: torch.Tensor,
        *,
        momentum: float,
        max_speed: float | None,
        weight_decay: float,
    ) -> None:
        self._name, self._parameter, self._max_speed = name, parameter, max_speed
        self._momentum, self._weight_decay = momentum, weight_decay
        self._names = () if name == "sgd" and not momentum else MOMENTS[name]
        self.moments: dict[str, torch.Tensor] = {}

    def step(self, gradient: torch.Tensor, lr: float) -> None:
        """Change the parameter in place."""
        downhill, decay = -gradient, self._weight_decay
        if not self.moments:
            zeros = {name: torch.zeros_like(self._parameter) for name in self._names}
            self.moments = zeros | ({"step": torch.tensor(0.0)} if "step" in zeros else {})
        parameter = [self._parameter]
        if self._name == "clipup":
            self._clipup(downhill, lr)
        elif self._name == "sgd":
            sgd(
                parameter, [downhill], [self.moments.get("momentum_buffer")], lr=lr,
                momentum=self._momentum, weight_decay=decay, dampening=0, nesterov=False,
                maximize=False,
            )  # fmt: skip
        else:
            step, first, second = ([self.moments[name]] for name in ADAM)
            adam(
                parameter, [downhill], first, second, [], step, lr=lr, beta1=0.9, beta2=0.999,
                eps=1e-8, weight_decay=decay, decoupled_weight_decay=self._name == "adamw",
                amsgrad=False, maximize=False,
            )  # fmt: skip

    def _clipup(self, downhill: torch.Tensor, lr: float) -> None:
        """Step by ClipUp (Toklu et al. 2020, algorithm 1): a gradient counts by its direction.

        lr: the length that the gradient adds to the velocity, which is the step. A weight decay in
        the gradient would depend on the scale of the utilities.
        """
        assert self._max_speed is not None
        velocity = self.moments["velocity"]
        velocity.mul_(CLIPUP_MOMENTUM).sub_(downhill, alpha=lr / length(downhill))
        velocity.mul_(min(1.0, self._max_speed / max(length(velocity), 1e-30)))
        self._parameter.mul_(1 - lr * self._weight_decay).add_(velocity)

    def finite(self) -> bool:
        """Return whether the parameter and the moments are finite."""
        tensors = [self._parameter, *self.moments.values()]
        return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)

    def load(self, moments: dict[str, torch.Tensor]) -> None:
        """Continue with copies of these moments; raise ValueError unless they fit."""
        if moments and set(moments) != {*self._names}:
            raise ValueError(f"the optimiser's state holds {sorted(moments)}")
        for name, value in moments.items():
            shape = () if name == "step" else self._parameter.shape
            least = {"step": 1, "exp_avg_sq": 0}.get(name, -math.inf)
            if value.shape != shape or value.dtype != torch.float32:
                raise ValueError(f"the optimiser's {name} is not of this network's shape")
            if not (torch.isfinite(value) & (value >= least)).all():
                raise ValueError(f"the optimiser's {name} is out of range")
        self.moments = {name: moments[name].clone() for name in self._names if moments}


def scheduled(schedule: str, update: int, updates: int) -> float:
    """Return the factor of the learning rate after `update` of `updates` updates, from 1 to 0.

    schedule: constant (always 1), linear, or cosine (Loshchilov and Hutter 2017, equation 5).
    """
    done = min(1.0, update / updates)
    if schedule == "linear":
        return 1 - done
    if schedule == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    return 1.0
