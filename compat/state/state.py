"""The module that old pickles of a `State` name. New ones name `everstep.compat.checkpoints.state`."""
from __future__ import absolute_import, division, print_function

from everstep.compat.checkpoints.state import State  # noqa: F401
