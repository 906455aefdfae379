#!/usr/bin/env python3
"""Play a policy, as main.py --test does: python test.py --restore CHECKPOINT."""

from es.__main__ import run

if __name__ == "__main__":
    run("main", "--test")
