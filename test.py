"""The door to es/test.py."""

from es.test import *  # noqa: F403

if __name__ == "__main__":
    raise SystemExit("This file is imported. To train: python main.py --help")
