"""Names for people's own annotations. Type checkers read types.pyi; Python 2.7 has no typing to write them with."""
from __future__ import absolute_import, division, print_function

HyperValue = object  # a number, a scalar tensor, a callable or an everstep.Schedule
