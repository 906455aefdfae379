#!/usr/bin/env python3
"""Compare runs: python compare.py --help."""

from es.__main__ import run

if __name__ == "__main__":
    run("compare")
