"""Measures steps of Adam with what people put around it, and of the best stock parts that do the same."""
from functools import partial

import stacks
from timing import TEN, Case


def wrappers(api):
    for name, stack in stacks.stacks(api).items():
        yield Case(name, stack.beside, partial(api.compared, stack.make, stack.definition, TEN))
