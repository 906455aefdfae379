r"""A harness for Humanoid-v5, which learns to walk in it.

A humanoid that falls within a second, whatever its policy does, learns nothing about walking. In a
harness it walks after a few minutes. Then it trains on in a weaker and weaker one, and finally
without (Yu, Turk and Liu 2018, "Learning symmetric and low-energy locomotion"). The phases of
configs/Humanoid-v5.toml do so, which takes many hours: python main.py --config Humanoid-v5

In the project's folder, watch a policy walk in a harness:

    python main.py --test --restore examples/harness.safetensors \
        --env-wrapper examples.harness:Harness strength=0.025
"""

import math
from typing import Any

import gymnasium
import numpy as np

LIFT, LIFT_DAMPING = 2000.0, 200.0  # N per metre, and per metre a second, at strength 1
TURN, TURN_DAMPING = 400.0, 20.0  # Nm per radian, and per radian a second


class Harness(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draw the trunk towards upright, and upwards to its height at the start, by springs.

    strength: of the springs at the start of an episode. half_life: the steps in which it halves.
    Then an episode lasts the longer, the weaker a harness the policy can walk in.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], strength: float, half_life: float = math.inf
    ) -> None:
        super().__init__(env)
        simulation: Any = env.unwrapped
        self.data, self.height = simulation.data, simulation.init_qpos[2]
        self.first_strength = self.strength = strength
        self.decay = 0.5 ** (1 / half_life)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self.strength = self.first_strength
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        trunk = self.data.body("torso")
        turning, moving = trunk.cvel[:3], trunk.cvel[3:]  # in the world's axes
        lift = max(LIFT * (self.height - trunk.xpos[2]) - LIFT_DAMPING * moving[2], 0)
        x, y, _ = trunk.xmat[2::3]  # the trunk's upward direction
        force = 0, 0, lift
        torque = TURN * np.array((y, -x, 0)) - TURN_DAMPING * turning  # its cross product with z
        trunk.xfrc_applied[:] = self.strength * np.array((*force, *torque))
        self.strength *= self.decay
        return self.env.step(action)
