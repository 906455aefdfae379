"""Import the simulator of the environment that the variable ES_PRELOAD names.

The process that workers are forked from imports this module, so that workers need not import MuJoCo
and Box2D, which takes long. The workers import modules of the user's themselves.
"""

import os
from contextlib import suppress

import gymnasium

from es.environments.simulators import load
from es.rollouts.processes import PRELOAD

SIMULATORS = ("gymnasium.envs.mujoco", "gymnasium.envs.box2d")

name = os.environ.get(PRELOAD, "")
with suppress(Exception):  # the master finds and reports what is wrong
    if ":" not in name:
        spec = gymnasium.spec(name)
        if str(spec.entry_point).startswith(SIMULATORS):
            load(spec)
