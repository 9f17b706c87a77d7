"""Compares definitions with originals, step by step."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.backends.on_numpy import IndexedSlices
from everstep.compat.port.originals import Original
from everstep.compat.port.setting import REAL, Setting, gradients
from everstep.errors import EverstepError, PortError, PortSparseError
from everstep.optimizers.contract.trees import flat
from everstep.optimizers.wrappers.loss_scale import LossScale

LOOKS = (1, 2, 3, 6, 10, 20, 50, 100, 200)  # the steps after which weights are compared
TOLERANCE = 1e-4
DTYPE_TOLERANCES, DTYPE_STEPS = {"float64": TOLERANCE, "float16": 2e-2}, 6  # rules compute float16 in float32
MODES = ("exact", "rows", "variable_rows")
ROWS = (6, 3)  # the shape of the variable with sparse gradients
# A comparison. what: the case; steps: how many; distance: of weights, relative to how far they moved; slots: of slots,
# relative to their size, None if there are none.
Comparison = namedtuple("Comparison", "what steps distance slots")


def bound_to_numpy(definition):
    import numpy

    return definition.bind(numpy)


def compare(what, reading, definition, steps, duplicates=True):
    """Trains the original of a reading and a definition on the same gradients. Returns a Comparison.

    Raises:
        PortError: the original's values are not finite.
    """
    original, setting = reading.original, reading.setting
    weights = setting.start()
    start, optimizer = [each.copy() for each in weights], bound_to_numpy(definition)
    if setting.is_real:  # variables have the names that they have in the original
        adapter = optimizer._bound.adapter
        adapter.variable_name = lambda variable: setting.names[len(adapter.bound.rules)]
    # among many elements, a few differ only by rounding
    size = _root_mean_square if setting.is_real else _largest
    distance, farthest = 0.0, 0
    for number, batch in enumerate(gradients(setting, steps, duplicates), 1):
        original.step(batch)
        if isinstance(definition, LossScale):
            scale = np.float32(optimizer.scale_loss(1.0))
            batch = [(each[0] * scale, each[1]) if setting.sparse else each * scale for each in batch]
        rows = zip([IndexedSlices(*each) if setting.sparse else each for each in batch], weights)
        with np.errstate(all="ignore"):  # of branches that `where` does not choose
            optimizer.apply_gradients(list(rows))
        if number in LOOKS or number == steps:
            expected = [each.astype(np.float64) for each in original.weights()] if setting.dtype == "float16" else (
                original.weights())
            if not all(np.isfinite(each).all() for each in expected):
                raise PortError("the original's weights are not finite after {} steps ({})".format(number, what))
            for place, (before, mine, theirs) in enumerate(zip(start, weights, expected)):
                scale = max(size(theirs - before), 0.01 * size(theirs), 1e-30)
                far = _finite(float(size(mine - theirs) / scale))
                if far > distance:
                    distance, farthest = far, place
    if setting.is_real and distance > TOLERANCE:
        what = "{}, of which {} of shape {} is farthest".format(
            what, setting.names[farthest], setting.shapes[farthest])
    return Comparison(what, steps, distance, _slots(reading, definition, optimizer, weights[0]))


def _largest(array):
    return np.abs(array).max()


def _root_mean_square(array):
    return np.sqrt(np.mean(np.square(array.astype(np.float64))))


def compare_real(kind, arguments, definition, steps, moves_counter=True, without=()):
    """Compares on variables with the names and sizes that models have. without: ranks that are not ported."""
    real = [each for each in REAL if not {len(each[1]), min(len(each[1]), 3)}.intersection(without)]
    names, shapes = zip(*real)
    original = Original.of(kind, Setting(arguments, shapes, names))
    original.start_running(moves_counter)
    comparison = compare("{} variables of models".format(len(real)), Unread(original), definition, steps)
    original.close()
    return comparison


def _slots(reading, definition, optimizer, variable):
    """Returns the largest distance of the first variable's slots; None if the definition has none."""
    names, farthest = flat(definition, "slot"), None
    if reading.setting.sparse:
        return None
    if hasattr(reading, "arrays"):  # of a wrapper
        return _slots_among(reading.arrays(), [optimizer.get_slot(variable, name) for name in names])
    for name, value in reading.values("slot").items():
        if name in names:
            mine = optimizer.get_slot(variable, name)
            scale = max(float(np.abs(value).max()), 1e-30)
            distance = float(np.abs(np.reshape(mine, value.shape) - value).max() / scale)
            farthest = max(farthest or 0.0, _finite(distance))
    return farthest


def _slots_among(arrays, slots):
    """Returns the largest distance of slots from the array of the original that is nearest; None if there is none."""
    farthest = None
    for mine in slots:
        near = [float("inf")]
        for value in arrays:
            if value.dtype.kind == "f" and value.size == np.size(mine):
                scale = max(float(np.abs(value).max()), 1e-30)
                near.append(_finite(float(np.abs(np.reshape(mine, value.shape) - value).max() / scale)))
        farthest = max(farthest or 0.0, min(near))
    return farthest


def _finite(distance):
    return distance if np.isfinite(distance) else float("inf")


def is_close(comparison, tolerance=TOLERANCE):
    return comparison.distance <= tolerance and (comparison.slots is None or comparison.slots <= 10 * tolerance)


def check_close(kind, comparison, tolerance=TOLERANCE):
    """Raises PortError if a definition computes something else than its original."""
    if not is_close(comparison, tolerance):
        slots = "" if comparison.slots is None else ", of slots {:.1e}".format(comparison.slots)
        raise PortError(
            "the definition that was read computes something else than {} ({}): after {} steps the distance of "
            "weights is {:.1e}{}; at most {:g} is allowed".format(
                kind.cls.__name__, comparison.what, comparison.steps, comparison.distance, slots, tolerance))


class Unread(object):
    """An original that is run, and not read."""

    def __init__(self, original):
        self.original, self.setting = original, original.setting

    def values(self, kind):
        return {}


# Sparse gradients.


def sparse_mode(kind, arguments, make, dense, given, steps, moves_counter, more=()):
    """Finds what an original does with sparse gradients.

    Args:
        make: a function of a mode that returns the definition in it, or None if it has none.
        dense: the comparisons with dense gradients.
        given: the mode to use, if the user has chosen one.
        moves_counter: whether the original counts its steps.
        more: shapes of further variables, whose rule is another one.

    Returns:
        (a mode, "none" or "other"; [Comparison]; [note]).

    Raises:
        PortSparseError: it is of no mode, and the user has chosen none.
    """
    distances = OrderedDict()  # type: OrderedDict[str, float]
    for duplicates in (True, False):
        for mode in MODES:
            definition = make(mode)
            if definition is None:
                continue
            title = "sparse, {}{}".format(mode, "" if duplicates else ", without duplicate rows")
            try:
                original = Original.of(kind, Setting(arguments, (ROWS,) + tuple(more), sparse=True))
                original.start_running(moves_counter)
                comparison = compare(title, Unread(original), definition, steps, duplicates)
            except EverstepError:
                raise
            except Exception as error:
                why = "{}: {}".format(type(error).__name__, (str(error).strip().splitlines() or [""])[0][:200])
                return "none", [], ["it fails on sparse gradients: " + why]
            distances.setdefault(mode, comparison.distance)
            if is_close(comparison) and given in (None, mode):
                notes = [] if duplicates else [
                    "the original does not add up duplicate rows of a sparse gradient; the definition does, "
                    "which makes a distance of {:.0e}".format(distances[mode])]
                return mode, [comparison], notes
    text = ", ".join("{} ({:.0e})".format(*item) for item in distances.items())
    if given is not None:
        return "other", [], ["with sparse gradients it is used as {}, though the original does something else: "
                             "{}".format(given, text)]
    raise PortSparseError(
        "{}: its dense update is ported ({:.0e}), but with sparse gradients it does none of {}. Give "
        "sparse=\"exact\" (--sparse exact) or another to use that instead".format(
            kind.cls.__name__, max(each.distance for each in dense), text))
