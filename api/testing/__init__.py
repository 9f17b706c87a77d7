"""Tests definitions and native optimizers on every API of TensorFlow and Keras that is installed.

`check_definition` needs no pytest. `everstep.testing.plugin` has fixtures for it.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.ways.known import all_ways
from everstep.compat.ways.worlds import World
from everstep.testing.checks import CHECKS
from everstep.testing.comparing import Comparison, compare
from everstep.testing.definitions import Report, check_definition
from everstep.testing.training import KINDS, SHAPES

__all__ = ["CHECKS", "Comparison", "KINDS", "Report", "SHAPES", "World", "all_ways", "check_definition", "compare"]
