#!/usr/bin/env python3
"""Search for hyperparameters: python sweep.py --help."""

from es.__main__ import run

if __name__ == "__main__":
    run("sweep")
