"""The door to es/envs.py."""

from es.envs import *  # noqa: F403
