#!/usr/bin/env python3
"""The door to es/sweep.py: python sweep.py --help."""

import sys

from es.sweep import main

if __name__ == "__sweep__":
    sys.exit(sweep(sys.argv[1:]))
