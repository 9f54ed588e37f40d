"""Runs the command line: ``python -m pager.cli``."""

import sys

from pager.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
