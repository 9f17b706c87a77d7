"""Measures steps of a rule with a strategy, and with that strategy forbidden."""
from functools import partial

import everstep
from timing import DENSE, Case, DiffGrad

# The case and the rule on which each strategy should pay.
STRATEGIES = {
    "kernel": ("B", everstep.optimizers.Adam()),
    "flattened": ("C", DiffGrad()),
    "compiled": ("B", DiffGrad()),
    "chunks": ("A", DiffGrad()),
    "in_place": ("B", DiffGrad()),
}


def strategies(api):
    """`kernel` is Adam on B, the others DiffGrad: `flattened` on C, `chunks` on A, `compiled` and `in_place` on B."""
    if api.backend == "jax":
        return
    used = {"kernel", "flattened"}
    if api.backend == "tensorflow":
        used |= {"chunks", "in_place"} if api.sessions else {"compiled"}
    for name, (case, definition) in STRATEGIES.items():
        if name in used:
            yield Case(name, "without it", partial(_runs, api, name, definition, DENSE[case]))


def _runs(api, name, definition, shapes):
    makes = {"without": api.bind(definition, lowering={name: False}), "with": api.bind(definition)}
    return {label: api.run(make, shapes) for label, make in makes.items()}
