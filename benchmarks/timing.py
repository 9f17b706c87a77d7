"""Measures optimizers: shared by benchmarks/worker.py and benchmarks/backends.py.

Every figure is a ratio of CPU time (user and system, all threads). Steps of two optimizers, each on its own variables,
alternate in one process, so that other load on the machine affects both. The ratio is the median of the rounds.
Gradients are constant, so only the apply step is measured.
"""
import json
import sys
import time

import numpy as np

import everstep

DENSE = {"A": [(10000000,)], "B": [(100000,)] * 100, "C": [(1000,)] * 300}
ROUNDS, SECONDS = 7, 0.12  # the steps of a round take about this long
BATCHES = 256  # of rows, used in turn: with one batch no row would ever have a step to catch up


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


def gradients(shapes, sparse, random, batch=1024):
    """Yields (values, rows of each batch or None) for each variable."""
    for shape in shapes:
        if sparse:
            rows = random.zipf(1.2, (BATCHES, batch)) % shape[0]
            yield random.normal(0, 1, (batch,) + shape[1:]).astype("float32"), rows.astype("int64")
        else:
            yield random.normal(0, 1, shape).astype("float32"), None


def seconds(case, steps):
    start = time.process_time()
    case.run(steps)
    return (time.process_time() - start) / steps


def interleaved(cases):
    """Returns ({label: median seconds}, {label: median ratio of a round to the first label})."""
    for case in cases.values():
        case.run(2)
    steps = {label: max(1, min(200, int(SECONDS / max(seconds(case, 2), 1e-6)))) for label, case in cases.items()}
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({label: seconds(case, steps[label]) for label, case in cases.items()})
    first = next(iter(cases))
    return (
        {label: float(np.median([each[label] for each in rounds])) for label in cases},
        {label: float(np.median([each[label] / each[first] for each in rounds])) for label in cases},
    )


def temporaries(case):
    """Returns the peak memory of a step in bytes, beyond the memory between steps; None if the system hides it."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the peak
        before = _memory("VmRSS")
        case.run(1)
        return max(0, _memory("VmHWM") - before)
    except (OSError, IOError):
        return None


def _memory(name):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(name))


def selected(names, *parts):
    """Returns whether the user asked for a measure. A name is some of its parts: dense/tf_train/A, sparse/keras3."""
    return not names or any(all(part in parts for part in name.split("/")) for name in names)


def report(measures):
    """Prints a line of JSON for each of (kind, target, case, {label: case to run})."""
    for kind, target, case, cases in measures:
        parameters = sum(int(np.prod(shape)) for shape in next(iter(cases.values())).shapes)
        figures = dict(kind=kind, target=target, case=case, peak={})
        figures["seconds"], figures["ratios"] = interleaved(cases)
        for label, run in cases.items():
            most = temporaries(run)
            figures["peak"][label] = None if most is None else most / parameters
        figures["first"] = {label: run.first for label, run in cases.items()}
        figures["nodes"] = {label: run.nodes for label, run in cases.items()}
        print(json.dumps(figures))
        sys.stdout.flush()
        del cases


def asked():
    return [name for name in sys.argv[1:] if not name.startswith("--")]
