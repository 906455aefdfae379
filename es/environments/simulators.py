"""Quiet imports of simulators."""

import sys
import warnings
from typing import Any

from gymnasium.envs.registration import EnvSpec, load_env_creator


def load(spec: EnvSpec) -> Any:
    """Import and return what makes an environment; switch MuJoCo's warnings off."""
    entry = spec.entry_point
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of simulators' imports; Box2D crashes on an "error"
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
    if mujoco := sys.modules.get("mujoco"):  # it prints, and writes a log in the current folder
        mujoco.set_mju_user_warning(lambda text: None)
    return creator
