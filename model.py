"""The door to es/model.py: from model import MLP, ConvLSTM."""

from es.model import *  # noqa: F403
