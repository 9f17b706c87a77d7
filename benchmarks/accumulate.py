"""CPU time of a step that only accumulates: python benchmarks/accumulate.py

Compares a step of `everstep.accumulate(Adam(), k)` that does not update with a step of `Adam()`, on dense variables and
on an embedding (where the rows of a batch are added to a table), in each way of the environment. Steps of both
alternate, so that other load on the machine affects both. On JAX buffers are donated, as in `fit`.
"""
from __future__ import absolute_import, division, print_function

import importlib
import os
import sys
import time

import numpy as np

import everstep

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
harness = importlib.import_module("harness")

WARM, STEPS, ROUNDS = 3, 10, 11
ADAM, NEVER = everstep.optimizers.Adam(), 10**6
SHAPES = {"dense": (1000, 1000), "table": (100000, 32)}
WRAPPED = {
    "accumulate(Adam)": everstep.accumulate(ADAM, NEVER),
    "accumulate(clip(Adam))": everstep.accumulate(everstep.clip(ADAM, global_norm=1.0), NEVER),
}
clock = getattr(time, "process_time", None) or time.clock


class Case(object):
    """Steps of one definition on a large variable. Reading a small variable's slot waits for unfinished work."""

    def __init__(self, way, name, definition):
        random, shape = np.random.RandomState(0), SHAPES[name]
        kinds = {name: harness.SPARSE if name == "table" else harness.DENSE, "a_bias": harness.DENSE}
        self.grads = {"a_bias": np.ones(1, "float32"), name: random.normal(0, 1, shape).astype("float32")}
        if name == "table":
            self.grads[name] = self.grads[name][:256], random.randint(0, shape[0], 256).astype("int64")
        start = {name: np.zeros(shape, "float32"), "a_bias": np.zeros(1, "float32")}
        self.run = way.run(lambda: definition.bind(way.module), start, kinds)
        if isinstance(self.run, harness.KerasJitRun):
            import jax

            self.run.function = jax.jit(self.run.stateless, donate_argnums=(0, 2))
        self.seconds(WARM)

    def seconds(self, steps=STEPS):
        start = clock()
        for _ in range(steps):
            self.run.step(self.grads)
        self.run.slot("a_bias", "m")
        return (clock() - start) / steps


def ratio(way, name, definition):
    """Returns the median seconds of (a step that accumulates, a whole step)."""
    if way.target == "get_updates":  # a second model clears the session of the first
        cases = []
        for rule in (definition, ADAM):
            case = Case(way, name, rule)
            cases.append([case.seconds() for _ in range(ROUNDS)])
            case.run.close()
        return np.median(cases, axis=1)
    cases = [Case(way, name, rule) for rule in (definition, ADAM)]
    medians = np.median([[case.seconds() for case in cases] for _ in range(ROUNDS)], axis=0)
    for case in cases:
        case.run.close()
    return medians


def main():
    for way in harness.framework_ways() or [harness.NUMPY]:
        for name in sorted(SHAPES):
            for label, definition in sorted(WRAPPED.items()):
                if name == "dense" or way.sparse:
                    pending, whole = ratio(way, name, definition)
                    print(
                        "{:26} {:6} {:24} {:7.2f} ms / {:7.2f} ms = {:.2f}".format(
                            way.name, name, label, 1e3 * pending, 1e3 * whole, pending / whole
                        )
                    )


if __name__ == "__main__":
    main()
