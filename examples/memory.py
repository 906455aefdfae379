"""CartPole that hides its velocities, and a network with a memory, which has to infer them.

cd examples
python ../main.py --env-name memory:HiddenVelocities-v0 --net memory:GRUPolicy --net-kwargs units=16 \
  --obs-norm --workers auto --optimizer adam --lr 0.1 --sigma 0.1 --target-return 475
"""

import gymnasium
import torch
from gymnasium.wrappers import TransformObservation
from torch import Tensor, nn

from es import count_outputs


def make(**kwargs: object) -> gymnasium.Env:
    """Make a CartPole that shows positions alone: (cart, pole)."""
    env = gymnasium.make("CartPole-v1", **kwargs)
    limits = gymnasium.spaces.Box(env.observation_space.low[::2], env.observation_space.high[::2])
    return TransformObservation(env, lambda observation: observation[::2], limits)


gymnasium.register("HiddenVelocities-v0", entry_point=make)


class GRUPolicy(nn.Module):
    """A cell of gated recurrent units, and a layer that chooses an action by its memory."""

    def __init__(
        self, observations: gymnasium.Space, actions: gymnasium.Space, units: int = 16
    ) -> None:
        super().__init__()
        self.memory = nn.GRUCell(observations.shape[0], units)
        self.choice = nn.Linear(units, count_outputs(actions))

    def forward(self, observation: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return an output for each action, and the memory for the next step."""
        state = self.memory(observation, state)
        return self.choice(torch.relu(state)), state
