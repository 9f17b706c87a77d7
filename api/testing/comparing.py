"""`compare`: trains two optimizers on the same gradients, and says what differs, from which step, in which variable."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.targets import detect
from everstep.compat.ways.known import all_ways
from everstep.compat.ways.runs import DENSE, NONE, EagerRun, TrainResourceRun
from everstep.errors import EverstepError, TargetError
from everstep.optimizers.contract.definition import Definition
from everstep.testing.oracle import distance
from everstep.testing.training import BOUNDS, KINDS, SHAPES, make_batches, start_values

STEPS = 20
PREFERRED = (EagerRun, TrainResourceRun)  # an object that exists already is not of a new graph
# name: of the variable; what: "weights" or a slot; distance: the largest max|a - b| / max|b|; step: the first one after
# which that is more than the tolerance, None if it never is. Slots are compared at the end
Row = namedtuple("Row", "name what distance step")


class Comparison(object):
    """What `compare` found.

    Attributes:
        same: True if nothing differs by more than the tolerance.
        rows: [Row] of each variable, and of the slots that both optimizers have, at the end.
        ways: the names of the two modes of training.
        notes: texts about what was not compared.
    """

    def __init__(self, rows, ways, notes):
        self.rows, self.ways, self.notes = rows, ways, notes
        self.same = all(row.step is None for row in rows)

    def table(self):
        """Returns the rows as text."""
        lines = [("variable", "what", "differs by", "from step")]
        lines += [(row.name, row.what, "{:.1e}".format(row.distance),
                   "never" if row.step is None else str(row.step) if row.what == "weights" else "at the end")
                  for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*lines)]
        texts = ["  ".join(text.ljust(wide) for text, wide in zip(line, widths)).rstrip() for line in lines]
        return "\n".join(["{} and {}: {}".format(*(self.ways + ("the same" if self.same else "different",)))]
                         + texts + ["note: " + note for note in self.notes])


def compare(first, second, steps=STEPS, sparse=True, rates=None, tolerance=BOUNDS["float32"], echo=print):
    """Trains two optimizers, of the same API or of two, stock or yours, on the same gradients from the same start.

    There are dense variables, one whose gradient has some rows ("unique"), and one whose gradient has rows twice
    ("duplicates"). JAX and torch get these gradients as dense ones, with zeros elsewhere.

    Args:
        first, second: native optimizers; definitions, which are trained on NumPy; or functions without arguments that
            return one. Keras optimizers are copied by their config. One of tf.train is trained in a new graph: give a
            function if it holds tensors.
        steps: number of steps.
        sparse: False if one of them takes no sparse gradients.
        rates: {step: learning rate that is set before that step}, as a scheduler would. Not on tf.train.
        tolerance: the largest difference that counts as rounding, relative to the variable's largest value.
        echo: a function that prints the result; None to print nothing.

    Returns:
        A `Comparison`. `compare(...).same` is True if both do the same.

    Raises:
        TargetError: one is no optimizer of an API that is installed here.

    >>> from everstep.optimizers import SGD
    >>> result = compare(SGD(0.1, momentum=0.9), SGD(0.1, momentum=0.9), rates={1: 0.05}, steps=3)
    numpy and numpy: the same
    variable    what      differs by  from step
    bias        weights   0.0e+00     never
    dense       weights   0.0e+00     never
    duplicates  weights   0.0e+00     never
    single      weights   0.0e+00     never
    unique      weights   0.0e+00     never
    bias        velocity  0.0e+00     never
    dense       velocity  0.0e+00     never
    duplicates  velocity  0.0e+00     never
    single      velocity  0.0e+00     never
    unique      velocity  0.0e+00     never
    >>> compare(SGD(0.1), SGD(0.1, momentum=0.9), echo=None).rows[0]
    Row(name='bias', what='weights', distance=..., step=2)
    """
    kinds = {name: kind if sparse else DENSE for name, kind in KINDS.items() if kind != NONE}
    shapes = {name: SHAPES[name] for name in kinds}
    start, batches = start_values("float32", shapes), make_batches("float32", steps, shapes, kinds)
    makers, runs = [_maker_and_way(optimizer) for optimizer in (first, second)], []
    try:
        # In turn, not side by side: Keras before TF 2 has one session, and a new run clears it.
        ends, paths, names = [], [], []
        for make, way in makers:
            run = way.run(make, start, kinds)
            runs.append(run)
            names.append(way.name)
            paths.append(_path(run, batches, rates or {}))
            ends.append(_slots(run))
    finally:
        for run in runs:
            run.close()
    rows = []
    for name in sorted(start):
        far = [distance(one[name], other[name]) for one, other in zip(*paths)]
        rows.append(Row(name, "weights", max(far), _first(far, tolerance)))
    notes = ["the slots of {} cannot be read by name".format(name) for name, slots in zip(names, ends) if slots is None]
    ends = [slots or {} for slots in ends]
    for slot in sorted(set(key[1] for key in ends[0]).intersection(key[1] for key in ends[1])):
        for name in sorted(start):
            pair = [slots.get((name, slot)) for slots in ends]
            if all(each is not None and each.shape == pair[0].shape for each in pair):
                far = distance(*pair)
                rows.append(Row(name, slot, far, None if far <= 10 * tolerance else steps))
    comparison = Comparison(rows, tuple(names), notes)
    if echo:
        echo(comparison.table())
    return comparison


def _path(run, batches, rates):
    """Trains, and returns the weights after each step."""
    path = []
    for place, batch in enumerate(batches):
        if place in rates:
            run.set_rate(rates[place])
        run.step(batch)
        path.append({name: np.array(value) for name, value in run.weights().items()})
    return path


def _first(distances, tolerance):
    steps = [step for step, far in enumerate(distances, 1) if not far <= tolerance]
    return steps[0] if steps else None


def _slots(run):
    """Returns {(variable, slot): array}, None if everstep does not know the optimizer's slots."""
    try:
        state = run.captured()
        return OrderedDict(((name, slot), np.array(value)) for name, slots in state.slots.items()
                           for slot, value in slots.items())
    except (EverstepError, AttributeError):
        return None


def _maker_and_way(given):
    """Returns (a function that makes the optimizer, the way in which it is trained)."""
    is_function = callable(given) and not isinstance(given, Definition) and not _ways_of(given)
    optimizer = given() if is_function else given
    if isinstance(optimizer, Definition):
        numpy_way = next(way for way in all_ways() if way.target == "arrays")
        return (lambda: optimizer.bind(numpy_way.module)), numpy_way
    ways = _ways_of(optimizer)
    if not ways:
        raise TargetError("{!r} is no optimizer of an API that is installed here. Give an optimizer, a definition, or "
                          "a function without arguments that returns one".format(optimizer))
    way = next((way for kind in PREFERRED for way in ways if issubclass(way.run, kind)), ways[0])
    if is_function:
        return given, way
    if hasattr(type(optimizer), "from_config"):
        config = optimizer.get_config()  # now: of Keras before TF 2, only its first session reads its values
        return (lambda: type(optimizer).from_config(config)), way
    return (lambda: optimizer), way


def _ways_of(optimizer):
    """Returns the ways to train a native optimizer; none for anything else."""
    return [way for way in all_ways() if isinstance(optimizer, detect.find(way.module).base)]
