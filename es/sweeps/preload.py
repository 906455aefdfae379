"""What the process that trials are forked from imports, once for all of them."""

import torch

from es.environments import preload  # noqa: F401
import es.sweeps.trial  # noqa: F401
from es import train  # noqa: F401
from es.algorithm.optimizer import Optimizer

# torch imports what an optimiser needs when the first one is made, which takes a second.
Optimizer("sgd", torch.zeros(1, requires_grad=True), momentum=0.0, weight_decay=0.0)
