"""Base classes of definitions that contain other definitions: wrappers and partitions."""
from __future__ import absolute_import, division, print_function

from everstep.errors import DefinitionError
from everstep.optimizers.contract.configured import once
from everstep.optimizers.contract.declarations import child
from everstep.optimizers.contract.definition import Definition
from everstep.optimizers.contract.signature import OF_INNER


class Composite(Definition):
    """A definition that contains others, its children. It passes every verb but `update` and `should_update` to each.

    Class attributes:
        forwarded_verbs: verbs overridden only to change what children receive, such as a clipped gradient. They count
            as defined only if a child defines them.
        measures_on_update: True if children run only on update steps, so their measures are not needed earlier.
            `should_update` then runs before `measure`, and sees no totals.
    """

    family = "wrappers"
    forwarded_verbs = frozenset()  # type: frozenset[str]
    measures_on_update = False

    def _check(self):
        for inside in self.children().values():
            if inside.stages > 1:
                raise DefinitionError(
                    "{0} takes {1} gradients for one update, but {2} would count each gradient as an update; put {2} "
                    "inside of it".format(inside._short(), inside.stages, type(self).__name__)
                )
        super(Composite, self)._check()

    def _default(self, name, values):
        if name not in self.keyword_only:
            return super(Composite, self)._default(name, values)
        settings = {getattr(value, name) for value in values.values() if isinstance(value, Definition)}
        if len(settings) > 1:
            raise DefinitionError(
                "the definitions in {0} differ in {1}; give {0} a {1}".format(type(self).__name__, name)
            )
        return settings.pop()

    def _with_settings(self, changes):
        settings = {name: changes[name] for name in Definition.keyword_only if name in changes}
        inside = {name: dict(settings) for name in self.children()} if settings else {}
        for name in sorted(set(changes).difference(self._values)):  # the wrapper itself has no such argument
            holders = [key for key, child in self.children().items() if key not in changes
                       for _ in range(_holders(child, name))]
            if len(holders) > 1:
                key = holders[0]
                raise DefinitionError(
                    "{0} definitions inside of {1} have the argument {2}. Say which one: "
                    "definition.replace({3}=definition.{4}.replace({2}=...))".format(
                        len(holders), type(self).__name__, name, key,
                        key if key in self.declarations else "children()[{!r}]".format(key)
                    )
                )
            if holders:
                inside.setdefault(holders[0], {})[name] = changes.pop(name)
        changed = {name: self.children()[name].replace(**arguments) for name, arguments in inside.items()}
        return dict(changed, **changes)

    @classmethod
    def _shown_default(cls, name):
        return OF_INNER if name in Definition.keyword_only else super(Composite, cls)._shown_default(name)

    @property
    def locality(self):  # type: ignore[override]  # a property here, a plain attribute in a base rule
        widest = ("element", "row", "variable")
        return max((child.locality for child in self.active().values()), key=widest.index)

    @property
    def zero_grad_is_noop(self):  # type: ignore[override]
        return once(self, "zero_grad_is_noop", lambda: all(child.zero_grad_is_noop for child in self.active().values()))

    @property
    def max_replay_steps(self):  # type: ignore[override]
        return max(child.max_replay_steps for child in self.active().values())

    @property
    def dry_run(self):  # type: ignore[override]
        return all(child.dry_run for child in self.children().values())

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

    def evaluation_value(self, ops, var, slots, hyper):
        for name, inside in self.active().items():
            var = inside.evaluation_value(ops, var, getattr(slots, name), getattr(hyper, name))
        return var

    def _each(self, verb, state, hyper, children=None):
        """Returns `{key: result}` of a verb called for each child with the child's own state and hypers."""
        children = self.active() if children is None else children
        return {key: verb(child, getattr(state, key), self._hypers_of(key, hyper)) for key, child in children.items()}

    def _hypers_of(self, key, hyper):
        return getattr(hyper, key)


def _holders(definition, name):
    """Returns how many definitions have an argument: the definition, and all inside of it."""
    return (name in definition._values) + sum([_holders(child, name) for child in definition.children().values()])


class Wrapper(Composite):
    """Base class of definitions around another one, `inner`. It passes on every verb; override those to change.

    Inside a verb the state of `inner` is `slots.inner` and `hyper.inner`, and its results are returned as
    `{"inner": {...}}`. A wrapper that declares more children defines `update` and `should_update`; the other verbs go
    to every child. `prefix` names the wrapper in the flat names of its slots, hypers and scalars: `PREFIX/NAME`.

    Call `super().update`, not `self.inner.update`: then a fused kernel can compute the update of `inner`. It does if
    the wrapper changes the gradient or the hypers before, subtracts from the variable, or uses `var - change` after.

    >>> import everstep
    >>> class Signed(everstep.Wrapper):
    ...     prefix = "signed"
    ...     def update(self, ops, grad, var, slots, hyper, t):
    ...         return super(Signed, self).update(ops, ops.sign(grad), var, slots, hyper, t)
    >>> Signed(everstep.optimizers.SGD(0.5)).inner.learning_rate
    0.5

    Args:
        inner: the definition inside, such as `everstep.optimizers.Adam()`.
        sparse, dense_ok: see `everstep.Definition`. Default: those of `inner`.
    """

    prefix = "wrapper"
    inner = child()

    @property
    def without_grad(self):  # type: ignore[override]
        inner = self.inner.without_grad
        return self if inner is self.inner else self.replace(inner=inner)

    def loss_scale(self, ops, hyper):
        return self.inner.loss_scale(ops, hyper.inner)

    def should_accept(self, ops, hyper):
        return self.inner.should_accept(ops, hyper.inner)

    def should_update(self, ops, hyper):
        return self.inner.should_update(ops, hyper.inner)

    def update(self, ops, grad, var, slots, hyper, t):
        change, inner = ops.update_of(self.inner, grad, var, slots.inner, hyper.inner, t)
        return change, {"inner": inner}

    def fast_forward(self, ops, var, slots, hyper, steps):
        change, inner = self.inner.fast_forward(ops, var, slots.inner, hyper.inner, steps)
        return change, {"inner": inner}
