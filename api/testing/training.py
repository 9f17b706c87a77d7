"""Trains a definition in a way and in the float64 oracle on the same gradients, and measures the differences."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.targets.fit_multistage import enable_multistage
from everstep.compat.ways.runs import DENSE, NONE, SPARSE
from everstep.errors import CheckError
from everstep.testing.oracle import Oracle, distance, trajectory

STEPS = 100
BOUNDS = {"float32": 1e-5, "float64": 1e-6, "float16": 2e-2}
START = (0.2, 0.8)  # the lowest and highest start value
# The variables, and the kinds of their gradients.
SHAPES = {
    "dense": (4, 3),
    "bias": (3,),
    "single": (),
    "unique": (6, 3),
    "duplicates": (6, 3),
    "missing": (2, 2),
}
KINDS = {
    "dense": DENSE,
    "bias": DENSE,
    "single": DENSE,
    "unique": SPARSE,
    "duplicates": SPARSE,
    "missing": NONE,
}
# Variables of several names and sizes, as models have them.
MODEL = {
    "dense_kernel": (160, 40), "dense_bias": (40,), "LayerNorm_gamma": (48,), "embeddings": (1100, 4),
    "recurrent_kernel": (12, 48), "conv2d_kernel": (3, 3, 2, 4),
}
# slot: its name, None for the variable itself; distance: max|difference| / max|expected|
Difference = namedtuple("Difference", "variable slot distance")


def start_values(dtype, shapes=SHAPES, between=START):
    """Returns {name: array} of random values."""
    random = np.random.RandomState(1)
    return {name: np.asarray(random.uniform(between[0], between[1], shapes[name])).astype(dtype)
            for name in sorted(shapes)}


def make_batches(dtype, steps=STEPS, shapes=SHAPES, kinds=KINDS, away=False):
    """Returns gradients with a positive mean, so that every variable moves by more than its own size.

    Args:
        away: whether sparse gradients have two of the rows alone, but for the first and the last 10 steps.
    """
    random = np.random.RandomState(2)
    batches = []
    for step in range(steps):
        batch = {}
        for name in sorted(shapes):
            shape = shapes[name]
            if kinds[name] == DENSE:
                batch[name] = np.asarray(random.normal(0.7, 1.0, shape)).astype(dtype)
            elif kinds[name] == NONE:
                batch[name] = None
            else:
                count = shape[0]
                rows = random.permutation(count)[:4] if name == "unique" else random.randint(0, count, 5)
                if away and 10 <= step < steps - 10:
                    rows = rows[:2] % 2
                values = random.normal(0.7, 1.0, (len(rows),) + shape[1:]).astype(dtype)
                batch[name] = values, rows.astype(np.int64)
        batches.append(batch)
    return batches


class MovedTooLittle(CheckError):
    """A variable moved by less than its own size, so that rounding would hide mistakes."""


def bound(definition, module, **native):
    """Returns an optimizer of a definition that is passed every gradient of a batch, if it takes several."""
    optimizer = definition.bind(module, **native)
    if definition.stages > 1:
        enable_multistage(optimizer)
    return optimizer


class Trial(object):
    """A definition in one way, to be compared with the oracle.

    Args:
        way: of `everstep.compat.ways.known`.
        definition: what is bound.
        inner: what the oracle runs, by default `definition`.
        dtype: of the variables.
        rates: {step: learning rate set before that step}.
        accumulate: number of steps whose mean gradient makes one update of `inner`.
        shapes, kinds: {name: shape} of the variables, {name: kind} of their gradients.
        between: the lowest and highest start value.
        native: keywords of `bind`.
        bounds: {dtype: the largest difference}, in place of those of `BOUNDS`.
        away: of `make_batches`.
    """

    def __init__(self, way, definition, inner=None, dtype="float32", rates=None, accumulate=1, shapes=SHAPES,
                 kinds=KINDS, steps=STEPS, between=START, native=None, bounds=None, away=False):
        self.away, self.bound = away, dict(BOUNDS, **(bounds or {}))[dtype]
        self.way, self.definition, self.inner = way, definition, inner or definition
        self.rates, self.accumulate, self.kinds, self.native = rates or {}, accumulate, kinds, native or {}
        self.start = start_values(dtype, shapes, between)
        self.batches = make_batches(dtype, steps, shapes, kinds, away)

    def run(self):
        """Returns a new run that has not trained."""
        def make(**more):  # torch.optim gets its parameters
            return bound(self.definition, self.way.module, **dict(self.native, **more))

        return self.way.run(make, self.start, self.kinds)

    def train(self, run, begin=0, end=None):
        """Trains a run on a part of the batches, and returns it."""
        for place, batch in list(enumerate(self.batches))[begin:end]:
            if place in self.rates:
                run.set_rate(self.rates[place])
            run.step(batch)
        return run

    def expected(self):
        """Returns the oracle's ({name: weights}, {name: {slot: array}}) after all steps.

        Raises:
            MovedTooLittle: a variable moved by less than its own size.
            CheckError: a weight is not finite.
        """
        with np.errstate(all="ignore"):  # of branches that `where` does not choose
            weights, slots = trajectory(self.inner, self.start, self.batches, self.rates, self.accumulate)
        for name, before in self.start.items():
            if not np.isfinite(weights[name]).all():
                raise CheckError("{} is not finite in float64: {}".format(name, weights[name].ravel()[:3]))
            moved, size = np.abs(weights[name] - before).max(), np.abs(before).max()
            if self.kinds[name] != NONE and moved < size:
                text = "{} moved too little to tell: by {:.1e} in {} steps, and its size is {:.1e}. Give a larger rate"
                raise MovedTooLittle((text + ", such as base={{\"learning_rate\": 1.0}}").format(
                    name, moved, len(self.batches), size))
        return weights, slots

    def differences(self):
        """Trains in both, and returns [Difference] of every trained variable and its slots.

        Raises:
            CheckError: a variable without a gradient changed, or see `expected`.
        """
        run = self.run()
        try:
            self.train(run)
            if self.definition.sparse == "catch_up":
                run.flush()
            return self.apart(run, *self.expected())
        finally:
            run.close()

    def apart(self, run, expected, slots):
        """Returns [Difference] of a run from the expected weights and slots."""
        weights, differences = run.weights(), []
        for name in sorted(self.start):
            if self.kinds[name] == NONE:
                if not np.array_equal(weights[name], self.start[name]):
                    raise CheckError("{} has no gradient, and changed".format(name))
                continue
            differences.append(Difference(name, None, _number(distance(weights[name], expected[name]))))
            for slot, value in sorted(slots[name].items()):
                differences.append(Difference(name, slot, _number(distance(run.slot(name, slot), value))))
        return differences

    def first_step(self, bound):
        """Trains in both again, and returns the first step after which they differ by more than a bound, or None."""
        run, oracle = self.run(), Oracle(self.inner, self.start, self.accumulate)
        try:
            for place, batch in enumerate(self.batches):
                self.train(run, place, place + 1)
                if self.definition.sparse == "catch_up":
                    run.flush()
                if place in self.rates:
                    oracle.set_rate(self.rates[place])
                with np.errstate(all="ignore"):
                    oracle.step(batch)
                slots = {name: oracle.slots_of(name) for name in oracle.weights}
                if any(each.distance > bound for each in self.apart(run, oracle.weights, slots)):
                    return place + 1
            return None
        finally:
            run.close()


def _number(difference):
    return difference if np.isfinite(difference) else float("inf")


def of_variables(differences):
    """Returns {variable: its largest difference, its slots included}."""
    largest = OrderedDict()
    for each in differences:
        largest[each.variable] = max(each.distance, largest.get(each.variable, 0.0))
    return largest


def configurations(definition_class, more=()):
    """Returns the default configuration, one with each boolean option inverted, and `more`."""
    configs = [{}]
    for name, declaration in sorted(definition_class.declarations.items()):
        if declaration.kind == "option" and isinstance(declaration.default, bool) and name != "dense_ok":
            configs.append({name: not declaration.default})
    return configs + [extra for place, extra in enumerate(more) if extra not in configs + list(more)[:place]]
