"""Finds whether an original reads its counter before or after the increment, where its graph leaves that open."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.port.reading import built
from everstep.compat.port.setting import Setting, gradients

GRAPHS, STEPS = 5, 6
SHAPES = (4, 3), (6,)
CLOSE = 1e-5


def settle(kind, arguments):
    """Sets the order of a `Kind`: the one that its own fresh graphs show most. Says what they show."""
    if kind.order is not None:
        return
    kind.order = "before"
    if not kind.in_graph:
        return
    original = _started(kind, arguments, "open")
    is_open = original.counter_pairs()
    original.close()
    if not is_open:
        return
    before, after = _weights(kind, arguments, "before"), _weights(kind, arguments, "after")
    apart = _distance(before, after)
    runs = [_weights(kind, arguments, "open") for _ in range(GRAPHS)]
    nearer = ["before" if _distance(run, before) <= _distance(run, after) else "after" for run in runs]
    kind.order = max(("before", "after"), key=nearer.count)
    far = max(min(_distance(run, before), _distance(run, after)) for run in runs)
    text = "the original leaves open whether its counter is read before or after its increment: "
    if apart <= CLOSE:
        text += "it makes no difference here"
    elif far <= CLOSE and len(set(nearer)) == 1:
        text += "in {} of {} fresh graphs it is read {}, as here; the other order is {:.0e} away".format(
            GRAPHS, GRAPHS, kind.order, apart)
    else:
        size = max(_distance(run, runs[0]) for run in runs + [before, after])
        text += "a race, in {} of {} fresh graphs it is rather read {}, as here; runs are up to {:.0e} apart".format(
            nearer.count(kind.order), GRAPHS, kind.order, size)
    kind.order_note = text


def _started(kind, arguments, order):
    chosen, kind.order = kind.order, order
    try:
        original = built(kind, Setting(arguments, SHAPES))
        original.start_running()
    finally:
        kind.order = chosen
    return original


def _weights(kind, arguments, order):
    """Returns the weights after some steps in a fresh graph."""
    original = _started(kind, arguments, order)
    for batch in gradients(original.setting, STEPS):
        original.step(batch)
    weights = np.concatenate([each.ravel() for each in original.weights()])
    original.close()
    return weights


def _distance(one, two):
    """Returns how far two runs are apart, relative to how far the first one is from its start."""
    start = np.concatenate([each.ravel() for each in Setting({}, SHAPES).start()])
    return float(np.abs(one - two).max() / max(np.abs(one - start).max(), 1e-30))
