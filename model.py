"""Import the networks by their familiar name: from model import MLP, ConvLSTM."""

from es.model import *  # noqa: F403
