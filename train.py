"""The door to es/train.py."""

from es.train import *  # noqa: F403
