#!/usr/bin/env python3
"""Train, play or export a policy: python main.py --help."""

from es.__main__ import run

if __name__ == "__main__":
    run("main")
