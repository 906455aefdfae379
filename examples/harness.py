r"""Humanoid-v5 learns to walk in a harness, which is let out as it learns.

A humanoid that falls within a second, whatever its policy does, learns nothing about walking. In a
harness it walks after a few minutes. Then train on with a weaker and weaker harness, and finally
without (Yu, Turk and Liu 2018, "Learning symmetric and low-energy locomotion").

In the project's folder: python -m examples.harness. It takes hours; docs/lessons.md says what a
run by hand with nearly these settings taught. Watch harness.safetensors walk:

    python main.py --test --restore examples/harness.safetensors \
        --env-wrapper examples.harness:Harness strength=0.025
"""

from collections.abc import Callable
from statistics import fmean
from typing import Any

import gymnasium
import numpy as np

from es import learn

LIFT, LIFT_DAMPING = 2000.0, 200.0  # N per metre, and per metre a second, at strength 1
TURN, TURN_DAMPING = 400.0, 20.0  # Nm per radian, and per radian a second

STRENGTHS = (
    0.5, 0.4, 0.34, 0.3, 0.26, 0.22, 0.19, 0.16, 0.13, 0.11, 0.08,
    0.07, 0.06, 0.05, 0.04, 0.03, 0.025, 0.02, 0.015, 0.01, 0.005,
)  # fmt: skip


class Harness(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draw the trunk towards upright, and upwards to its height at the start, by springs."""

    def __init__(self, env: gymnasium.Env[Any, Any], strength: float) -> None:
        super().__init__(env)
        simulation: Any = env.unwrapped
        self.data, self.strength = simulation.data, strength
        self.height = simulation.init_qpos[2]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        trunk = self.data.body("torso")
        turning, moving = trunk.cvel[:3], trunk.cvel[3:]  # in the world's axes
        lift = max(LIFT * (self.height - trunk.xpos[2]) - LIFT_DAMPING * moving[2], 0)
        tilt = np.cross(trunk.xmat[2::3], (0, 0, 1))  # the axis to turn about, as long as the sine
        torque = TURN * tilt - TURN_DAMPING * turning
        trunk.xfrc_applied[:] = self.strength * np.array([0, 0, lift, *torque])
        return self.env.step(action)


def learned(level: float, patience: int) -> Callable[[Any, Any], bool]:
    """Return a callback that ends a run once ten updates average `level`, or after `patience`.

    The perturbed episodes count: a gait that stands perturbations stands a weaker harness.
    """
    returns: list[float] = []

    def callback(row: Any, _policy: Any) -> bool:
        returns.append(row.return_mean)
        return len(returns) < 10 or (len(returns) < patience and fmean(returns[-10:]) < level)

    return callback


def steps(sigma: float, speed: float) -> dict[str, Any]:
    """Return the settings of a run's steps."""
    return {"sigma": sigma, "max_speed": speed, "lr": 0.75 * speed}


if __name__ == "__main__":
    before: dict[str, Any] = {}
    for strength in STRENGTHS:
        sigma = max(0.03 * strength**0.5, 0.01)  # smaller ones teach gaits that stand nothing else
        run = learn(
            config="Humanoid-v5",
            env_wrapper=(Harness, {"strength": strength}),
            run_dir=f"checkpoints/harness-{strength}",
            callback=learned(level=2000, patience=100),
            **steps(sigma, 2 * sigma if strength > 0.1 else sigma),
            **before,
        )
        before = {"restore": run.path, "override": True}
    last = steps(0.003, 0.003)
    learn(config="Humanoid-v5", env_wrapper=[], run_dir="checkpoints/walking", **last, **before)
