"""Import environments by their familiar name: from envs import make_env."""

from es.envs import *  # noqa: F403
