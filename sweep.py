#!/usr/bin/env python3
"""The door to es/sweep.py: python sweep.py --help."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until it is handled: no traceback

from es.program import hide_doors, leave
from es.sweep import main

if __name__ == "__main__":
    hide_doors()
    leave(main(sys.argv[1:]))
