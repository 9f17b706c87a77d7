"""Defines what a definition is: declarations, trees, schedules, kernel names. Imports no framework.

The optimizers and the rest of everstep import these names from here. The modules of this folder import each other, in
one direction.
"""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract.averages import Averages
from everstep.optimizers.contract.by_name import ByName, Factors
from everstep.optimizers.contract.checks import SIXTEEN_BITS, check_number, check_pattern, compute_dtype, is_tensor
from everstep.optimizers.contract.closed_forms import decayed, geometric, surely_zero
from everstep.optimizers.contract.composite import Composite, Wrapper
from everstep.optimizers.contract.counted_random import random_normal, random_uniform
from everstep.optimizers.contract.declarations import REQUIRED, VARIABLE, Option, hyper, option, scalar, slot
from everstep.optimizers.contract.decoupled import Decoupled
from everstep.optimizers.contract.definition import Definition, Variable, assign, total
from everstep.optimizers.contract.kernel_names import kernel, kernel_of
from everstep.optimizers.contract.refreshing import has_refresh, refresh
from everstep.optimizers.contract.schedule_base import Schedule, at_present
from everstep.optimizers.contract.trees import (
    Names,
    changed_hypers,
    chosen,
    flat,
    flatten,
    scalar_starts,
    tree,
    walk,
    with_hypers,
)
from everstep.optimizers.contract.verbs import defines
