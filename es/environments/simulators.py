"""Importing what makes an environment, without its noise."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from gymnasium.envs.registration import EnvSpec, load_env_creator


def load(spec: EnvSpec) -> Any:
    """Import what makes an environment, and return it; MuJoCo is told to keep its warnings."""
    entry = spec.entry_point
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of simulators' imports; Box2D crashes on an "error"
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
    if mujoco := sys.modules.get("mujoco"):  # it prints, and writes a log where the user stands
        mujoco.set_mju_user_warning(lambda text: None)
    return creator
