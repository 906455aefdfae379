"""The door to es/model.py: from model import MLP, ConvLSTM."""

from es.model import *  # noqa: F403

if __name__ == "__main__":
    raise SystemExit("This file is imported. To train: python main.py --help")
