"""Import the simulator of the environment that the variable ES_PRELOAD names.

The process that workers are forked from can be told only to import modules, so this one acts when
it is imported: workers then need not import MuJoCo and Box2D, which takes long. Modules of the
user's are imported by the workers themselves.
"""

import os
from contextlib import suppress

import gymnasium

from es.envs import load_creator
from es.rollouts.processes import PRELOAD

SIMULATORS = ("gymnasium.envs.mujoco", "gymnasium.envs.box2d")

with suppress(Exception):  # the master finds and reports what is wrong
    spec = gymnasium.spec(os.environ[PRELOAD])
    if str(spec.entry_point).startswith(SIMULATORS):
        load_creator(spec)
