"""Definitions made of others: what wrappers and partitions have in common."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract.configured import once
from everstep.optimizers.contract.declarations import child
from everstep.optimizers.contract.definition import Definition


class Composite(Definition):
    """A definition made of others: every verb but `update` and `applies` goes to each of them.

    Class attributes:
        passes_on: the verbs that it overrides only to give the definitions inside something else, as a clipped
            gradient: it has them where those have.
        gathers: whether those have a part in steps that update alone, and what they measure is nobody's before.
    """

    family = "wrappers"
    passes_on = frozenset()  # type: frozenset[str]
    gathers = False

    def _check(self):
        for inside in self.children().values():
            if inside.stages > 1:
                raise DefinitionError(
                    "{} takes {} gradients to an update, of which {} would take each for one; put what it should do "
                    "inside".format(inside._short(), inside.stages, type(self).__name__)
                )
        super(Composite, self)._check()

    def _default(self, name, values):
        if name not in self.keyword_only:
            return super(Composite, self)._default(name, values)
        found = {getattr(value, name) for value in values.values() if isinstance(value, Definition)}
        if len(found) > 1:
            raise DefinitionError(
                "the definitions in {0} differ in {1}; give {0} a {1}".format(type(self).__name__, name)
            )
        return found.pop()

    @property
    def locality(self):  # type: ignore[override]  # derived here, a plain attribute in a base rule
        widest = ("element", "row", "variable")
        return max((child.locality for child in self.active().values()), key=widest.index)

    @property
    def still(self):  # type: ignore[override]
        return once(self, "still", lambda: all(child.still for child in self.active().values()))

    @property
    def replays(self):  # type: ignore[override]
        return max(child.replays for child in self.active().values())

    @property
    def tried(self):  # type: ignore[override]
        return all(child.tried for child in self.children().values())

    def check_variables(self, records):
        for inside in self.children().values():
            inside.check_variables(records)

    def specialize(self, variable):
        special = {name: inside.specialize(variable) for name, inside in self.children().items()}
        changed = {name: inside for name, inside in special.items() if inside is not self.children()[name]}
        return self.replace(**changed) if changed else self

    def measure(self, ops, grad, var, slots, hyper):
        return self._each(lambda child, slots, hyper: child.measure(ops, grad, var, slots, hyper), slots, hyper)

    def collect(self, ops, grad, slots, hyper):
        return self._each(lambda child, slots, hyper: child.collect(ops, grad, slots, hyper), slots, hyper)

    def advance(self, ops, scalars, hyper, t):
        advance = lambda child, scalars, hyper: child.advance(ops, scalars, hyper, t)  # noqa: E731
        return self._each(advance, scalars, hyper, self.children())

    def reject(self, ops, scalars, hyper):
        return self._each(lambda child, *state: child.reject(ops, *state), scalars, hyper, self.children())

    def at_evaluation(self, ops, var, slots, hyper):
        for name, inside in self.active().items():
            var = inside.at_evaluation(ops, var, getattr(slots, name), getattr(hyper, name))
        return var

    def _each(self, verb, state, hyper, children=None):
        children = self.active() if children is None else children
        return {key: verb(child, getattr(state, key), getattr(hyper, key)) for key, child in children.items()}


class Wrapper(Composite):
    """A definition made of another one, `inner`. Every verb is passed on; a wrapper overrides what it changes.

    One that declares more children writes `update` and `applies` for them; the other verbs go to each.
    """

    prefix = "wrapper"
    inner = child()

    @property
    def resting(self):  # type: ignore[override]
        inner = self.inner.resting
        return self if inner is self.inner else self.replace(inner=inner)

    def loss_scale(self, ops, hyper):
        return self.inner.loss_scale(ops, hyper.inner)

    def accepts(self, ops, hyper):
        return self.inner.accepts(ops, hyper.inner)

    def applies(self, ops, hyper):
        return self.inner.applies(ops, hyper.inner)

    def update(self, ops, grad, var, slots, hyper, t):
        change, inner = self.inner.update(ops, grad, var, slots.inner, hyper.inner, t)
        return change, {"inner": inner}

    def coast(self, ops, var, slots, hyper, steps):
        change, inner = self.inner.coast(ops, var, slots.inner, hyper.inner, steps)
        return change, {"inner": inner}
