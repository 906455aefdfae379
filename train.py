"""The door to es/train.py."""

from es.train import *  # noqa: F403

if __name__ == "__main__":
    raise SystemExit("This file is imported. To train: python main.py --help")
