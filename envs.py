"""The door to es/envs.py."""

from es.envs import *  # noqa: F403

if __name__ == "__main__":
    raise SystemExit("This file is imported. To train: python main.py --help")
