#!/usr/bin/env python3
"""Train a policy, as main.py does: python train.py --help."""

from es.__main__ import run

if __name__ == "__main__":
    run("main")
