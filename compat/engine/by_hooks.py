"""A step that runs through hooks of the native API which a user's class replaced, one variable after the other.

The user's code stands around each update: it may change the gradient, put the update into a branch, and write the
variable before and after. So a variable is updated right where its hook asks for that, with values of its own. What all
variables share (whether the step updates, scalars, counters) is computed once, before the first hook is called.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.compat.engine.fast_forward import even_rows
from everstep.compat.engine.rehearsal import Rehearsal
from everstep.compat.engine.step import Step, counters
from everstep.errors import UnsupportedError
from everstep.optimizers.contract.verbs import defines

# names: of the hooks that are replaced. update: a function of (variable, gradient) that calls the hooks of a variable
# as stock does; where they reach ours, the engine updates it. finish: a function of the operations before it that calls
# the hook of the end, in which ours counts; None if the API has none.
Hooks = namedtuple("Hooks", "names update finish")


class HookedStep(Step):
    """A step with (gradient, variable) pairs, which `check_pairs` checked. `hooks`: a `Hooks`.

    Raises:
        UnsupportedError: the definition needs all variables at once.
    """

    def __init__(self, host, pairs, hooks, before=()):
        super(HookedStep, self).__init__(host, pairs, before)
        self.hooks = hooks
        why = self._why_not()
        if why:
            raise UnsupportedError(
                "{} updates one variable at a time where a subclass or mixin replaces {}, but {} {}. Change gradients "
                "before the step instead: replace apply_gradients, or write a wrapper around the definition".format(
                    host.owner, hooks.names[0], self.definition._short(), why
                )
            )

    def _why_not(self):
        """Returns why the definition needs all variables of a call; "" if it does not."""
        host = self.host
        if self.definition.stages > 1:
            return "takes several gradients of each batch"
        if defines(self.definition, "should_accept"):
            return "looks at all gradients to accept a step"
        for grad, variable in self.pairs if defines(self.definition, "measure") else ():
            is_sparse = self.backend.slices(self.backend.local(grad)) is not None
            if host.adapter.place(variable) is not None:
                return "measures {} over all its parts".format(host.record(variable).name)
            totals = Rehearsal(host).totals(variable, is_sparse)
            if totals:
                return "measures {} over all variables".format(totals[0])
        return ""

    def run(self):
        """Carries out the step, and counts it. Returns operations; eager code has run them."""
        self.begin()
        for name in set(counters(self.definition)).intersection(self.host.adapter.own_variables()):
            self.count(name)  # read now: a first read could stand in a branch of the user's code
        operations, self.host.hooked_step = [], self
        try:
            for grad, variable in self.pairs:
                operations.extend(self.place(variable, self.hooks.update, grad))
            return operations + (self.hooks.finish or self.end)(operations)
        finally:
            self.host.hooked_step = None

    def measure(self, should_update=None):
        return []  # each variable measures the gradient that its hook gives

    def update_one(self, pair, hypers=()):
        """Updates one variable by the gradient that a hook gives. Returns operations.

        Args:
            hypers: `{name: value}` of the hypers that the hook was given.
        """
        return _OneVariable(self, pair, hypers).run()


class _OneVariable(Step):
    """The part of a `HookedStep` that updates one variable, inside of its hook."""

    def __init__(self, whole, pair, hypers):
        super(_OneVariable, self).__init__(whole.host, [pair], hypers=hypers)
        self.predicate, self.earlier = whole.predicate, list(whole.earlier)
        self.counts.update(whole.counts)
        self.learn(whole.known)

    def run(self):
        self.earlier.extend(self.measure())
        if self.backend.without_strategy():
            self.earlier.extend(even_rows(self.host, self.pairs, self.earlier))
        return self.update_all()

    def place(self, variable, function, grad):
        return function(variable, grad)  # the hook is called there

    def constrain(self, variable, write):
        return write  # after the hook, as in stock
