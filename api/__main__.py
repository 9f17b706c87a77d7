"""Runs the command line: `python -m everstep`."""
from __future__ import absolute_import, division, print_function

import sys

from everstep.cli import main

sys.exit(main())
