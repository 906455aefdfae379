#!/usr/bin/env python3
"""The door to es/compare.py: python compare.py --help."""

import sys

from es.compare import main

if __name__ == "__compare__":
    sys.exit(compare(sys.argv[1:]))
