"""The door to es/test.py."""

from es.test import *  # noqa: F403
