"""Steps whose variables have different hypers or counts, as the parameter groups of torch have.

A lane is the variables that share hypers, counters and scalars. It stands in the place of the `Bound` for a `Step` on
them; only totals over all variables are added up over lanes. See compat/targets/torch_optim.py.
"""
from __future__ import absolute_import, division, print_function

from everstep.compat.engine.lowering import Lowerings
from everstep.compat.engine.step import Step, skips
from everstep.compat.engine.tracing import asked, measured
from everstep.compat.engine.variable_view import VariableView
from everstep.compat.rules.expressions import leaves_of
from everstep.errors import UnsupportedError
from everstep.optimizers.contract.trees import flat
from everstep.optimizers.contract.verbs import defines

_OF_STEP = ("should_update", "should_accept")


class Lane(object):
    """The host of steps on some variables.

    Args:
        bound: the `Bound`. What the lane does not have is the bound's.
        counters, scalars: {name: native variable}.

    Attributes:
        hypers: {name: value} of the running step, which the caller sets.
    """

    def __init__(self, bound, counters, scalars):
        self.bound, self.counters, self.scalars, self.hypers = bound, counters, scalars, {}  # type: ignore[var-annotated]
        self.adapter = _OfLane(bound.adapter, self)
        self.lowerings = Lowerings(self, bound.arguments.get("lowering"))
        self.lowerings.share(bound.lowerings)

        definition = bound.definition
        # Whether a step only updates each variable, from its gradient, the hypers and the count of updates.
        self._is_plain = definition.sparse != "catch_up" and not (
            skips(definition) or flat(definition, "scalar") or defines(definition, "measure"))

    def __getattr__(self, name):
        return getattr(self.bound, name)

    def read_counter(self, name):
        return self.bound.backend.read(self.counters[name])

    def repeats(self, pairs):
        """Returns whether a step on (gradient, variable) pairs does what the last one did, with other numbers."""
        plans = self.lowerings.plans
        if self.bound.is_averaged or not self._is_plain or plans is None or not plans.can_repeat():
            return False
        are_numbers = all(isinstance(value, float) for value in self.hypers.values())
        are_dense = all(self.bound.backend.slices(grad) is None for grad, _ in pairs)
        return are_numbers and are_dense and plans.stands([variable for _, variable in pairs])

    def repeat(self, pairs):
        """Repeats the last step, and counts it."""
        updates = int(self.counters["updates"])

        def number(leaf):
            kind, name = leaf.leaf
            return self.hypers[name] if kind == "hyper" else 1 if name == "pending" else updates

        self.lowerings.plans.repeat([grad for grad, _ in pairs], number, True)
        self.counters["updates"].add_(1)


class _OfLane(object):
    """The adapter that the engine asks: the bound's, but for what belongs to the lane."""

    def __init__(self, adapter, lane):
        self._adapter, self._lane = adapter, lane

    def __getattr__(self, name):
        return getattr(self._adapter, name)

    def present(self, name):
        # A function, because a number would become a constant of the traced rule, and a schedule sets another at each
        # step.
        return lambda: self._lane.hypers[name]

    def counter(self, name):
        return self._lane.counters[name]

    def scalar(self, name):
        return self._lane.scalars[name]


def take(lanes):
    """Takes one step on [(lane, its (gradient, variable) pairs)]."""
    if all(lane.repeats(pairs) for lane, pairs in lanes):
        for lane, pairs in lanes:
            lane.repeat(pairs)
    else:
        run([Step(lane, pairs) for lane, pairs in lanes])


def run(steps):
    """Takes one step in several lanes: all of them measure before any is updated.

    Args:
        steps: `Step`s, one for each lane.

    Raises:
        UnsupportedError: lanes differ in a hyper that decides for all variables.
    """
    decided = [step.start() for step in steps]
    totals = {}  # type: dict
    for step in steps:
        for name, native in step.known.items():
            totals[name] = totals[name] + native if name in totals else native
    if len(steps) > 1:
        for step in steps:
            step.learn(totals)
        _check_alike(steps)  # after totals are known, which may decide, and before anything is written
    for step, should_update in zip(steps, decided):
        step.decide(should_update)
    for step in steps:
        step.end(step.update_all())


def _check_alike(steps):
    """Raises UnsupportedError if a hyper that differs decides whether a step updates, or is in a total."""
    lanes, definition = [step.host for step in steps], steps[0].definition
    first = lanes[0].hypers
    differing = {name for name in first if any(lane.hypers[name] != first[name] for lane in lanes)}
    if not differing:
        return
    read = [asked(steps[0].scope("float32"), definition, verb) for verb in _OF_STEP if defines(definition, verb)]
    for step in steps if defines(definition, "measure") else ():
        for grad, variable in step.pairs:
            sums = measured(VariableView.of_gradient(step, variable, grad).for_measure())
            read += [value for is_total, value in sums.values() if is_total]
    names = {leaf.leaf[1] for value in read for leaf in leaves_of(value) if leaf.leaf[0] == "hyper"}
    if names & differing:
        raise UnsupportedError(
            "{} uses {} for all variables together, but parameter groups have different values of it; give them the "
            "same".format(definition._short(), ", ".join(sorted(names & differing)))
        )
