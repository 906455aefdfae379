"""torch's optimisers on the flat parameter vector, and learning rate schedules."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from es.noise import FloatArray

CLIPUP_MOMENTUM = 0.9


class ClipUp(torch.optim.Optimizer):
    """ClipUp (Toklu et al. 2020, algorithm 1): each gradient counts by its direction alone.

    lr: the length that a gradient adds to the velocity. max_speed: the longest velocity, which is
    the step.
    """

    def __init__(self, params: Any, *, max_speed: float, weight_decay: float, lr: float = 1e-3):
        defaults = {"max_speed": max_speed, "weight_decay": weight_decay, "lr": lr}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change the parameters in place; closure is not used."""
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad + group["weight_decay"] * parameter
                state = self.state[parameter]
                velocity = state.setdefault("velocity", torch.zeros_like(parameter))
                velocity.mul_(CLIPUP_MOMENTUM).sub_(gradient, alpha=group["lr"] / length(gradient))
                velocity.mul_(min(1.0, group["max_speed"] / max(length(velocity), 1e-30)))
                parameter.add_(velocity)


def length(vector: FloatArray | torch.Tensor) -> float:
    """Return the Euclidean norm; NumPy sums in one order on every processor, unlike torch."""
    return float(np.sqrt(np.sum(np.asarray(vector, np.float64) ** 2)))


class Optimizer:
    """A torch optimiser that maximises: it steps along the gradient, not against it.

    name: sgd, adam, adamw or clipup. max_speed: the longest step of clipup. weight_decay: an L2
    term in the gradient, as in Salimans et al. (2017, section 2.1); decoupled from it under adamw.
    """

    def __init__(
        self,
        name: str,
        parameter: torch.Tensor,
        *,
        momentum: float,
        max_speed: float | None,
        weight_decay: float,
    ) -> None:
        self._parameter = parameter
        self._torch: torch.optim.Optimizer
        if name == "sgd":
            self._torch = torch.optim.SGD([parameter], momentum=momentum, weight_decay=weight_decay)
            self._names = {"momentum_buffer"} if momentum else set()
        elif name == "clipup":
            assert max_speed is not None
            self._torch = ClipUp([parameter], max_speed=max_speed, weight_decay=weight_decay)
            self._names = {"velocity"}
        else:
            kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
            self._torch = kind([parameter], weight_decay=weight_decay)
            self._names = {"step", "exp_avg", "exp_avg_sq"}

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        for group in self._torch.param_groups:
            group["lr"] = lr

    def step(self, gradient: torch.Tensor) -> None:
        """Change the parameter in place."""
        self._parameter.grad = -gradient
        self._torch.step()

    def finite(self) -> bool:
        """Return whether the parameter and the moments are finite."""
        tensors = [self._parameter, *self.moments().values()]
        return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)

    def moments(self) -> dict[str, torch.Tensor]:
        """Return the optimiser's state by torch's names; {} before the first step."""
        return self._torch.state_dict()["state"].get(0, {})

    def load(self, moments: dict[str, torch.Tensor]) -> None:
        """Continue with these moments; raise ValueError unless they fit."""
        if moments and set(moments) != self._names:
            raise ValueError(f"the optimiser's state holds {sorted(moments)}")
        for name, value in moments.items():
            shape = () if name == "step" else self._parameter.shape
            least = {"step": 1, "exp_avg_sq": 0}.get(name, -math.inf)
            if value.shape != shape or value.dtype != torch.float32:
                raise ValueError(f"the optimiser's {name} is not of this network's shape")
            if not (torch.isfinite(value) & (value >= least)).all():
                raise ValueError(f"the optimiser's {name} is out of range")
        state = {0: moments} if moments else {}
        self._torch.load_state_dict({**self._torch.state_dict(), "state": state})


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
