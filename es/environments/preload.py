"""What the process that workers are forked from imports, once for all of them.

Besides the project's own modules, which come with `game`, that is the simulator of the environment
named in the variable ES_PRELOAD, where importing it takes long and it can be forked.
"""

from __future__ import annotations

import os
from contextlib import suppress

from es.rollouts.processes import PRELOAD

SIMULATORS = ("gymnasium.envs.mujoco", "gymnasium.envs.box2d")

with suppress(Exception):  # the master finds out what is wrong, and says so
    import gymnasium

    from es import policy as game  # noqa: F401 (for the workers)
    from es.envs import load

    spec = gymnasium.spec(os.environ.get(PRELOAD, ""))
    if str(spec.entry_point).startswith(SIMULATORS):
        load(spec)
