#!/usr/bin/env python3
"""The door to es/compare.py: python compare.py --help."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until it is handled: no traceback

from es.compare import main
from es.program import hide_doors, leave

if __name__ == "__main__":
    hide_doors()
    leave(main(sys.argv[1:]))
