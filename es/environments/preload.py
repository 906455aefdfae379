"""Imports the simulator of the environment named in the variable ES_PRELOAD.

The process that workers are forked from imports this module, so that the workers need not: MuJoCo
and Box2D take long to import, and can be forked. A module of the user's is left to the workers.
"""

from __future__ import annotations

import os
from contextlib import suppress

import gymnasium

from es.environments.simulators import load
from es.rollouts.processes import PRELOAD

SIMULATORS = ("gymnasium.envs.mujoco", "gymnasium.envs.box2d")

name = os.environ.get(PRELOAD, "")
with suppress(Exception):  # the master finds out what is wrong, and says so
    if ":" not in name:
        spec = gymnasium.spec(name)
        if str(spec.entry_point).startswith(SIMULATORS):
            load(spec)
