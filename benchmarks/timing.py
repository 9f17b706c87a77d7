"""Measures steps of optimizers in turns. Every measure uses it.

Every figure is CPU time (user and system, all threads). Steps of two optimizers, each on its own variables, alternate
in one process, so that other load on the machine affects both. A ratio is the median of the rounds. Gradients are
constant, so only the apply step is measured.
"""
import collections
import time

import numpy as np

import everstep

# What is measured: its name, what it is compared with, and a function that returns {label: Run}. Ratios are relative to
# the first label.
Case = collections.namedtuple("Case", "name beside runs")

DENSE = {"A": [(10000000,)], "B": [(100000,)] * 100, "C": [(1000,)] * 300}
TEN = [(1000000,)] * 10  # the size of a small transformer, for everything that people put around an optimizer
ROUNDS, SECONDS = 7, 0.12  # the steps of a round take about this long
BATCHES = 256  # of rows, used in turn: with one batch no row would ever have a step to catch up


class Run(object):
    """Steps of one optimizer on variables of its own.

    first: CPU seconds that the first step took, with building. nodes: nodes of its graph for each variable, or None.
    warm: steps before the measurement. window: steps that belong together; a round measures whole windows.
    """

    shapes, first, nodes, warm, window = (), None, None, 2, 1

    def run(self, steps):
        """Takes steps, and waits for them."""
        raise NotImplementedError

    def seconds(self, steps):
        """Takes steps. Returns the CPU seconds of one."""
        start = time.process_time()
        self.run(steps)
        return (time.process_time() - start) / steps

    def weights(self):
        """Returns the variables' values as arrays."""
        raise NotImplementedError


class DiffGrad(everstep.Definition):
    """A rule for which no framework has a kernel."""

    learning_rate = everstep.hyper(1e-3)
    m = everstep.slot()
    v = everstep.slot()
    previous_grad = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = 0.9 * slots.m + 0.1 * grad
        v = 0.999 * slots.v + 0.001 * grad * grad
        friction = ops.sigmoid(ops.abs(slots.previous_grad - grad))
        rate = hyper.learning_rate * ops.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        return rate * friction * m / (ops.sqrt(v) + 1e-7), {"m": m, "v": v, "previous_grad": grad}


def gradients(shapes, look_ups, random):
    """Yields (values, rows of each batch or None) for each variable. Without look-ups, gradients are dense."""
    for shape in shapes:
        if look_ups:
            rows = random.zipf(1.2, (BATCHES, look_ups)) % shape[0]
            yield random.normal(0, 1, (look_ups,) + shape[1:]).astype("float32"), rows.astype("int64")
        else:
            yield random.normal(0, 1, shape).astype("float32"), None


def interleaved(runs, rounds=ROUNDS):
    """Returns ({label: median seconds}, {label: median ratio of a round to the first label})."""
    steps = {label: _steps(run) for label, run in runs.items()}
    if not all(run.warm for run in runs.values()):
        rounds = min(rounds, 3)  # each builds anew, which takes seconds
    taken = [{label: run.seconds(steps[label]) for label, run in runs.items()} for _ in range(rounds)]
    first = next(iter(runs))
    return (
        {label: float(np.median([each[label] for each in taken])) for label in runs},
        {label: float(np.median([each[label] / each[first] for each in taken])) for label in runs},
    )


def _steps(run):
    """Warms up. Returns how many steps a round takes, in whole windows."""
    if not run.warm:
        return run.window
    run.run(run.warm * run.window)
    windows = SECONDS / max(run.window * run.seconds(2 * run.window), 1e-6)
    return run.window * max(1, min(200, int(windows)))


def temporaries(run):
    """Returns the peak memory of a step in bytes, beyond the memory between steps; None if the system hides it."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the peak
        before = _memory("VmRSS")
        run.run(run.window)
        return max(0, _memory("VmHWM") - before)
    except (OSError, IOError):
        return None


def _memory(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))
