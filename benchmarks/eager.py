"""Measures steps in eager mode on small variables: the cost of a call, not of its arithmetic."""
from functools import partial

import everstep
import stacks
from timing import Case, DiffGrad


def eager(api):
    if api.eager:
        for count in (10, 100, 300):
            yield Case("{} variables".format(count), stacks.ADAM, partial(_eager, api, [(1000,)] * count))


def _eager(api, shapes):
    makes = {"stock": api.adam, "everstep": api.bind(everstep.optimizers.Adam()), "DiffGrad": api.bind(DiffGrad())}
    return {label: api.eager(make, shapes) for label, make in makes.items()}
