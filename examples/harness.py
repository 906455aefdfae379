"""Humanoid-v5 learns to walk in a harness, which is let out as it learns.

A humanoid that falls within the second, whatever its policy does, learns nothing of walking. In a
harness it walks after a few minutes; train on with less and less of it, and at last without (Yu,
Turk and Liu 2018, "Learning symmetric and low-energy locomotion").

In this folder: python harness.py. It takes hours; benchmarks/LOG.md has a run by hand with nearly
these settings, and how far that came. Watch harness.safetensors walk:

    python ../main.py --test --restore harness.safetensors
        --env-wrapper harness:Harness strength=0.05
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from es import learn

LIFT, LIFT_DAMPING = 2000.0, 200.0  # N per metre, and per metre a second, at strength 1
TURN, TURN_DAMPING = 400.0, 20.0  # Nm per radian, and per radian a second

STRENGTHS = (0.5, 0.4, 0.34, 0.3, 0.26, 0.22, 0.19, 0.16, 0.13, 0.11, 0.09, 0.07, 0.05, 0.03, 0.01)


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


def learned(level: float) -> Callable[[Any, Any], bool]:
    """Return a callback that ends a run once its last ten episodes are worth `level` on average."""
    returns: deque[float] = deque(maxlen=10)

    def callback(row: Any, _policy: Any) -> bool:
        returns.append(row.unperturbed_return)
        return len(returns) < 10 or sum(returns) / 10 < level

    return callback


if __name__ == "__main__":
    before: dict[str, Any] = {}
    for strength in STRENGTHS:
        sigma = 0.03 * strength**0.5  # the weaker the harness, the less does a gait endure
        steps = {"sigma": sigma, "max_speed": 2 * sigma, "lr": 1.5 * sigma}
        run = learn(
            config="Humanoid-v5",
            env_wrapper=(Harness, {"strength": strength}),
            run_dir=f"checkpoints/harness-{strength}",
            callback=learned(level=4500),
            **steps,
            **before,
        )
        before = {"restore": run.path, "override": True}
    learn(config="Humanoid-v5", env_wrapper=[], run_dir="checkpoints/walking", **steps, **before)
