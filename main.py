#!/usr/bin/env python3
"""The door to es/main.py: python main.py --help."""

import sys

from es.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
