"""The contract, on NumPy: what a definition declares, what each verb sees, and which mistakes raise at once."""
from __future__ import absolute_import, division, print_function

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

import everstep
from everstep import errors, hyper, option, scalar, slot
from everstep.optimizers import SGD, Adam
from everstep.optimizers.contract.declared import Declared
from everstep.optimizers.contract.trees import flat
from everstep.optimizers.wrappers.accumulate import Accumulate
from runs import steps


class Momentum(everstep.Definition):
    learning_rate = hyper(0.1, minimum=0)
    mu = hyper(0.9)
    dampened = option(False)
    m = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.mu * slots.m + (1 - hyper.mu) * grad if self.dampened else hyper.mu * slots.m + grad
        return hyper.learning_rate * m, {"m": m}


class Halving(everstep.Schedule):
    start = option(1.0)

    def value(self, ops, updates):
        return self.start * 0.5**updates


def subclass(called, base, **body):
    return type(str(called), (base,), dict(body, __module__=__name__))


def definition(**body):
    """Returns a definition class. Its rule subtracts the gradient, unless another is given."""
    body = dict({"update": lambda self, ops, grad, var, slots, hyper, t: (grad, {})}, **body)
    return subclass("Made", body.pop("base", everstep.Definition), **body)


def rule(update, **body):
    """Returns a definition class with a learning rate and the rule `update(self, ops, grad, var, slots, hyper, t)`."""
    return definition(update=update, learning_rate=hyper(0.1), **body)


# Declared on the class


def test_arguments_keep_the_order_of_the_class_body():
    names = "zeta alpha mu beta omega gamma kappa eta theta iota".split()
    source = "class Ordered(Base):\n" + "".join("    {} = hyper({})\n".format(n, i) for i, n in enumerate(names))
    scope = {"Base": definition(), "hyper": everstep.hyper}
    exec(source, scope)
    assert list(scope["Ordered"].argument_names()) == names + ["sparse", "dense_ok"]
    momentum = scope["Ordered"](*range(10, 20))
    assert [getattr(momentum, name) for name in names] == list(range(10, 20))


def test_a_subclass_overrides_and_adds_and_keeps_positions():
    class Heavier(Momentum):
        extra = hyper(7.0)
        mu = hyper(0.99)
        n = slot()

        def update(self, ops, grad, var, slots, hyper, t):
            change, new = super(Heavier, self).update(ops, grad, var, slots, hyper, t)
            return change, dict(new, n=grad)

    assert Heavier.argument_names()[:4] == ["learning_rate", "mu", "dampened", "extra"]
    momentum = Heavier(0.5)
    assert (momentum.learning_rate, momentum.mu, momentum.extra) == (0.5, 0.99, 7.0)
    assert Momentum().mu == 0.9  # the base class has not changed
    assert list(flat(momentum, "slot")) == ["m", "n"]
    weights = np.zeros(2)
    optimizer = steps(momentum, weights, np.array([1.0, 2.0]))
    assert optimizer.get_slot(weights, "n").tolist() == [1.0, 2.0]


def test_construction_by_position_and_by_keyword():
    assert Momentum(0.2, 0.5) == Momentum(mu=0.5, learning_rate=0.2)
    for wrong, needle in [
        (lambda: Momentum(0.1, 0.9, False, "rows"), "at most 3 positional"),
        (lambda: Momentum(0.1, learning_rate=0.2), "learning_rate twice"),
        (lambda: Momentum(rate=0.2), "has no argument rate; it takes learning_rate, mu, dampened, sparse, dense_ok"),
        (lambda: Accumulate(), "needs inner"),
    ]:
        with pytest.raises(errors.DefinitionError, match=needle):
            wrong()


def test_a_declaration_without_default_must_be_given():
    definition_class = definition(rate=hyper(), mode=option(), maybe=option(None))
    assert definition_class(0.5, "a").maybe is None
    assert definition_class(0.5, "a", maybe=3).maybe == 3
    with pytest.raises(errors.DefinitionError, match="needs mode"):
        definition_class(0.5)


def test_repr_says_that_it_must_be_bound():
    assert repr(Momentum()) == ("<everstep definition Momentum(learning_rate=0.1, mu=0.9, dampened=False): "
                                "bind(module) makes an optimizer of it>")
    assert "Accumulate(inner=Momentum(learning_rate=0.1, mu=0.9, dampened=False, sparse='rows'), steps=4" in repr(
        everstep.accumulate(Momentum(sparse="rows"), 4))
    for name in ("minimize", "apply_gradients", "get_updates", "lr", "weights"):
        with pytest.raises(errors.NotBoundError, match="bind"):
            getattr(Momentum(), name)
    assert not hasattr(Momentum(), "nonsense")


SAMPLES = [Momentum(0.3, dampened=True), Momentum(Halving(0.25), sparse="rows"),
           everstep.accumulate(Adam(1e-2, amsgrad=True), 4, "sum"),
           Accumulate(everstep.accumulate(Momentum(everstep.InverseTimeDecay(0.1, 0.5)), 2).inner, 3)]


@pytest.mark.parametrize("value", SAMPLES + [Halving(0.5)], ids=lambda value: value._short())
def test_equal_copied_pickled_configured(value):
    assert copy.copy(value) == value == copy.deepcopy(value) == value.replace()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value
    config = value.get_config()
    base = everstep.Schedule if isinstance(value, everstep.Schedule) else everstep.Definition
    assert base.from_config(config) == value == base.from_config(json.loads(json.dumps(config)))
    assert type(value).from_config(config) == value
    assert hash(value) == hash(value.replace()) and len({value, value.replace()}) == 1


def test_what_is_not_equal():
    assert Momentum(0.1) != Momentum(0.2)
    assert Momentum(0.1) != Adam(0.1)
    assert everstep.accumulate(Momentum(), 2) != everstep.accumulate(Momentum(), 3)
    assert Momentum(sparse="rows") != Momentum()
    rate = lambda: 0.1  # noqa: E731
    assert Momentum(rate) == Momentum(rate) != Momentum(lambda: 0.1)
    once = Momentum(rate)
    other = once.replace(sparse="rows")
    assert hash(once) == hash(Momentum(rate)) and once == once
    assert other != once and other.replace(sparse="exact") == once  # copies share no cached values


def test_it_is_fixed_once_made():
    momentum = Momentum()
    assert momentum.replace(mu=0.5).mu == 0.5 and momentum.mu == 0.9
    for name in ("mu", "learning_rate", "anything"):
        with pytest.raises(errors.HyperValueError, match=r"replace\({}=".format(name)):
            setattr(momentum, name, 0.5)


# Config


def test_a_config_that_does_not_fit_is_an_error():
    config = everstep.accumulate(Momentum(), 4).get_config()
    for wrong, needle in [
        (None, "dictionary with the key 'definition'"),
        ({"class_name": "Adam"}, "dictionary with the key 'definition'"),
        (dict(config, definition="Nonesuch", module="some.module"),
         "no definition called 'Nonesuch'.*import some.module first"),
        (dict(config, colour=1), "has no argument 'colour'; it takes inner, steps"),
        (dict(config, inner=dict(config["inner"], definition="Nonesuch")), "no definition called 'Nonesuch'"),
    ]:
        with pytest.raises(errors.ConfigError, match=needle):
            everstep.Definition.from_config(wrong)


def test_what_is_not_plain_is_not_written_to_a_config():
    momentum = Momentum(lambda: 0.1)
    with pytest.raises(errors.ConfigError, match="learning_rate is <function"):
        momentum.get_config()
    assert "learning_rate" not in momentum.get_config(strict=False)


def test_the_module_decides_between_classes_of_one_name():
    def twin(module, rate):
        class Twin(everstep.Definition):
            __module__ = module
            learning_rate = hyper(rate)

            def update(self, ops, grad, var, slots, hyper, t):
                return grad, {}

        return Twin

    first, second = twin("one", 1.0), twin("two", 2.0)
    for definition_class in (first, second):
        assert type(everstep.Definition.from_config(definition_class().get_config())) is definition_class
    config = dict(first().get_config(), module="three")
    with pytest.raises(errors.ConfigError, match="ambiguous.*one and two.*three"):
        everstep.Definition.from_config(config)
    again = twin("one", 3.0)  # as when a notebook cell runs again
    assert type(everstep.Definition.from_config(first().get_config())) is again


def test_from_config_imports_nothing():
    before = set(sys.modules)
    with pytest.raises(errors.ConfigError):
        everstep.Definition.from_config({"definition": "Antigravity", "module": "antigravity"})
    assert set(sys.modules) == before


# Slots, scalars and sums


def test_when_says_which_slots_there_are():
    definition_class = rule(
        lambda self, ops, grad, var, slots, hyper, t: (grad, {n: getattr(slots, n) for n in "abc" if self.has_slot(n)}),
        flag=option(False), a=slot(when="flag"), b=slot(when="learning_rate"),
        c=slot(when=lambda self: self.flag and self.learning_rate > 0.5))
    assert list(flat(definition_class(), "slot")) == ["b"]
    assert list(flat(definition_class(learning_rate=0), "slot")) == []
    assert list(flat(definition_class(learning_rate=0.7, flag=True), "slot")) == ["a", "b", "c"]
    assert list(flat(definition_class(learning_rate=lambda: 0), "slot")) == ["b"]


def test_where_slots_start_and_which_shape_and_dtype_they_have():
    names = ("option", "number", "variable", "row", "tuple", "function", "wide", "whole")
    definition_class = rule(
        lambda self, ops, grad, var, slots, hyper, t: (0 * grad, {n: getattr(slots, n) for n in names}),
        start=option(0.25), option=slot(init="start"), number=slot(init=2), variable=slot(init=everstep.VARIABLE),
        row=slot(init=1.0, shape="row"), tuple=slot(shape=(5,)), wide=slot(dtype="float64"),
        function=slot(shape=lambda variable: variable.shape[1:] + (variable.index,)), whole=slot(dtype="int32"))
    first, second = np.ones((4, 3), np.float32), np.full((2, 3), 7, np.float32)
    optimizer = definition_class(start=0.5).bind(np)
    optimizer.apply_gradients([(first, first), (second, second)])
    values = {name: optimizer.get_slot(second, name) for name in names}
    assert (values["option"] == 0.5).all() and (values["number"] == 2).all() and (values["variable"] == 7).all()
    assert values["row"].shape == (2, 1) and values["tuple"].shape == (5,) and values["function"].shape == (3, 1)
    assert values["option"].dtype == np.float32
    assert values["wide"].dtype == np.float64 and values["whole"].dtype == np.int32
    assert not np.shares_memory(values["variable"], second)


class Nadamlike(everstep.Definition):
    """Has a scalar that is a product over updates, like Nadam's momentum schedule."""

    learning_rate = hyper(0.1)
    mu = hyper(0.9)
    product = scalar(1.0)
    m = slot()

    def advance(self, ops, scalars, hyper, t):
        return {"product": scalars.product * hyper.mu * (1 - 0.5 * 0.96**t)}

    def update(self, ops, grad, var, slots, hyper, t):
        m = hyper.mu * slots.m + (1 - hyper.mu) * grad
        return hyper.learning_rate * m / (1 - hyper.product), {"m": m}


def test_scalars_advance_once_for_all_variables():
    first, second = np.ones(2), np.ones((2, 2), np.float32)
    optimizer = Nadamlike().bind(np)
    product, m, weight = 1.0, 0.0, 1.0
    for t in (1, 2, 3):
        optimizer.apply_gradients([(np.full(2, 0.5), first), (np.full((2, 2), 0.5), second)])
        product *= 0.9 * (1 - 0.5 * 0.96**t)
        m = 0.9 * m + 0.1 * 0.5
        weight -= 0.1 * m / (1 - product)
    np.testing.assert_allclose(first, weight, rtol=1e-6)
    np.testing.assert_allclose(second, weight, rtol=1e-6)
    np.testing.assert_allclose(everstep.capture(optimizer, [first, second]).scalars["product"], product, rtol=1e-6)


def test_scalars_wait_while_steps_accumulate():
    weights = np.ones(1)
    optimizer = steps(everstep.accumulate(Nadamlike(), 3), weights, *[np.ones(1)] * 5)
    np.testing.assert_allclose(everstep.capture(optimizer, [weights]).scalars["product"], 0.9 * (1 - 0.48), rtol=1e-6)


class GlobalNorm(everstep.Definition):
    """Divides by the norm of all gradients, and multiplies by the norm of each variable's gradient."""

    learning_rate = hyper(1.0)

    def measure(self, ops, grad, var, slots, hyper):
        squares = ops.sum(grad * grad)
        return {"all_squares": everstep.total(squares), "own_squares": squares, "rows": ops.sum(var * 0 + 1)}

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad * ops.sqrt(hyper.own_squares / hyper.all_squares) / hyper.rows, {}


def test_measured_sums_are_for_each_variable_or_for_all():
    first, second = np.zeros(2), np.zeros((3, 1))
    optimizer = GlobalNorm().bind(np)
    sparse = everstep.IndexedSlices([[1.0], [1.0], [6.0]], [0, 0, 2])  # squares: (1 + 1)^2 + 6^2 = 40
    optimizer.apply_gradients([(np.array([3.0, 4.0]), first), (sparse, second)])
    np.testing.assert_allclose(first, -np.array([3.0, 4.0]) * np.sqrt(25 / 65) / 2, rtol=1e-6)
    np.testing.assert_allclose(second[:, 0], -np.array([2.0, 0.0, 6.0]) * np.sqrt(40 / 65) / 2, rtol=1e-6)


def test_specialize_gives_a_variable_a_rule_of_its_own():
    seen = []

    class ByName(Adam):
        exempt = option("")

        def specialize(self, variable):
            seen.append(variable)
            return self.replace(amsgrad=True) if variable.shape == (2,) else self

    first, second = np.ones(3), np.ones(2)
    optimizer = ByName(0.1).bind(np)
    for _ in range(2):
        optimizer.apply_gradients([(first, first), (second, second)])
    seen = [each for each in seen if each.name != "kernel"]  # of the dry run
    assert [tuple(each)[:4] for each in seen] == [("array_0", (3,), "float64", 0), ("array_1", (2,), "float64", 1)]
    assert seen[1].native is second
    assert optimizer.get_slot(second, "v_hat").any()
    with pytest.raises(errors.SlotError):
        optimizer.get_slot(first, "v_hat")


def test_assign_gives_the_variable_its_value():
    clipped = rule(lambda self, ops, grad, var, slots, hyper, t: (everstep.assign(ops.maximum(var - grad, 0.0)), {}))
    weights = np.array([1.0, 1.0])
    steps(clipped(), weights, np.array([0.5, 3.0]))
    assert weights.tolist() == [0.5, 0.0]
    rows = np.array([[1.0], [2.0], [-3.0]])
    steps(clipped(sparse="rows"), rows, everstep.IndexedSlices([[0.5]], [1]))
    assert rows.tolist() == [[1.0], [1.5], [-3.0]]


def test_a_rule_by_rows_sees_rows_and_one_by_variables_sees_the_whole():
    def normed(axis):
        def update(self, ops, grad, var, slots, hyper, t):
            return grad / ops.sqrt(ops.sum(grad * grad, axis=axis, keepdims=True)), {}

        return update

    grad = everstep.IndexedSlices([[3.0, 4.0], [0.0, 12.0]], [0, 2])
    by_rows = np.zeros((3, 2))
    steps(rule(normed(1), locality="row")(sparse="rows"), by_rows, grad)
    np.testing.assert_allclose(by_rows, [[-0.6, -0.8], [0.0, 0.0], [0.0, -1.0]])
    whole = np.zeros((3, 2))
    steps(rule(normed((0, 1)), locality="variable")(sparse="rows"), whole, grad)
    np.testing.assert_allclose(whole, -np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 12.0]]) / 13)


# Verbs


class Recorder(everstep.Definition):
    """Records which verb is called, and checks that each sees the values that the contract promises."""

    learning_rate = hyper(1.0)
    count = scalar(0.0)
    m = slot()
    calls = []  # on the class: a definition itself cannot change

    def specialize(self, variable):
        self.calls.append("specialize")
        return self

    def measure(self, ops, grad, var, slots, hyper):
        assert hyper.count is not None
        self.calls.append("measure")
        return {"size": ops.sum(grad)}

    def collect(self, ops, grad, slots, hyper):
        assert hyper.size is not None
        self.calls.append("collect")
        return {"m": slots.m + hyper.count}

    def should_update(self, ops, hyper):
        self.calls.append("should_update")
        return hyper.pending >= 2

    def advance(self, ops, scalars, hyper, t):
        self.calls.append("advance")
        return {"count": scalars.count + 1}

    def update(self, ops, grad, var, slots, hyper, t):
        self.calls.append("update")
        return hyper.count + 0 * grad, {"m": slots.m}


def test_the_order_and_number_of_calls():
    recorder = Recorder()
    first, second = np.zeros(1), np.zeros(2)
    optimizer = recorder.bind(np)
    del Recorder.calls[:]
    optimizer.apply_gradients([(first, first), (second, second)])
    calls = list(Recorder.calls)
    assert sorted(calls) == sorted(["specialize", "measure", "collect", "update"] * 2 + ["should_update", "advance"])
    assert calls.index("measure") < calls.index("should_update") < calls.index("advance") < calls.index("update")
    assert max(i for i, call in enumerate(calls) if call == "measure") < calls.index("should_update")
    del Recorder.calls[:]
    optimizer.apply_gradients([(first, first), (second, second)])
    assert "specialize" not in Recorder.calls
    for _ in range(2):
        optimizer.apply_gradients([(first, first), (second, second)])
    # Updates come at steps 2 and 4. `update` sees the new count, 1 and 2; `collect` sees the old one, 0, 0, 1, 1.
    assert first.tolist() == [-3.0] and optimizer.get_slot(first, "m").tolist() == [2.0]
    assert optimizer.iterations == 2


def test_t_counts_updates_from_one_and_hypers_are_float32():
    seen = rule(lambda self, ops, grad, var, slots, hyper, t: (everstep.assign(var * 0 + t + hyper.learning_rate), {}))
    weights = np.zeros(1)
    optimizer = steps(seen(), weights, weights)
    rate = float(np.float32(0.1))
    assert weights[0] == 1.0 + rate
    optimizer.apply_gradients([(weights, weights)])
    assert weights[0] == 2.0 + rate


def test_an_array_gets_its_own_compute_dtype():
    seen = []

    def update(self, ops, grad, var, slots, hyper, t):
        seen.append({value.dtype for value in (grad, var, slots.m, hyper.learning_rate, t)})
        return grad, {"m": grad}

    instance = rule(update, m=slot())()
    del seen[:]
    for dtype, compute in (("float16", "float32"), ("float32", "float32"), ("float64", "float64")):
        steps(instance, np.ones(2, dtype), np.ones(2, dtype))
        assert seen.pop() == {compute}


# Trees


class Shift(everstep.Wrapper):
    """Adds its own rate to the update of `inner`, and stores the gradient."""

    prefix = "shift"
    rate = hyper(1.0)
    last = slot()

    def update(self, ops, grad, var, slots, hyper, t):
        change, inner = self.inner.update(ops, grad, var, slots.inner, hyper.inner, t)
        return change + hyper.rate, {"inner": inner, "last": grad}


class Both(everstep.Wrapper):
    """Adds the updates of two definitions."""

    prefix = "both"
    other = everstep.child()

    def update(self, ops, grad, var, slots, hyper, t):
        change, inner = self.inner.update(ops, grad, var, slots.inner, hyper.inner, t)
        second, other = self.other.update(ops, grad, var, slots.other, hyper.other, t)
        return change + second, {"inner": inner, "other": other}


def test_names_in_a_tree_are_flat():
    wrapped = Shift(Shift(everstep.accumulate(Momentum(), 2), 3.0), 4.0)
    assert list(flat(wrapped, "slot")) == ["m", "accumulate/sum", "shift_1/last", "shift/last"]
    assert list(flat(wrapped, "hyper")) == ["learning_rate", "mu", "shift_1/rate", "shift/rate"]
    weights = np.zeros(1)
    optimizer = steps(wrapped, weights, np.ones(1), np.ones(1))
    np.testing.assert_allclose(weights, [-7.1])
    assert optimizer.get_slot(weights, "m").tolist() == [1.0]
    assert (optimizer.learning_rate, optimizer.shift_rate, optimizer.shift_1_rate) == (0.1, 4.0, 3.0)
    optimizer.shift_rate = 0.0
    assert optimizer.get_config()["shift_rate"] == 0.0


def test_several_children_are_named_by_their_key():
    wrapped = Both(Momentum(0.1), Shift(Nadamlike(0.2)))
    assert list(flat(wrapped, "slot")) == ["inner/m", "other/m", "other/shift/last"]
    assert list(flat(wrapped, "scalar")) == ["other/product"]
    assert list(flat(wrapped, "hyper")) == [
        "inner/learning_rate", "inner/mu", "other/learning_rate", "other/mu", "other/shift/rate",
    ]
    weights, separate = np.zeros(1), np.zeros(1)
    optimizer = steps(wrapped, weights, np.ones(1), np.ones(1))
    for single in (Momentum(0.1), Shift(Nadamlike(0.2))):
        steps(single, separate, np.ones(1), np.ones(1))
    np.testing.assert_allclose(weights, separate, rtol=1e-6)
    assert optimizer.inner_learning_rate == 0.1
    assert wrapped.base is wrapped and everstep.accumulate(Momentum(), 2).base == Momentum()


def test_a_wrapper_takes_what_it_is_not_given_from_inside():
    wrapped = everstep.accumulate(Momentum(sparse="rows"), 2)
    assert wrapped.sparse == "rows" and wrapped.locality == "element" and not wrapped.zero_grad_is_noop
    assert wrapped.replace(inner=Momentum()).sparse == "exact"
    assert everstep.accumulate(SGD(), 2).zero_grad_is_noop
    assert Shift(Momentum(sparse="rows"), sparse="exact").replace(inner=Momentum()).sparse == "exact"
    with pytest.raises(errors.DefinitionError, match="differ in sparse"):
        Both(Momentum(), Momentum(sparse="rows"))
    assert Both(Momentum(), Momentum(sparse="rows"), sparse="rows").sparse == "rows"


def test_replace_reaches_the_one_rule_inside_that_has_an_argument():
    wrapped = everstep.rate_decay(Momentum(0.1), 0.5)
    assert wrapped.replace(learning_rate=0.2, rate=0.3) == everstep.rate_decay(Momentum(0.2), 0.3)
    around = everstep.accumulate(wrapped, 2)
    assert around.replace(mu=0.5, sparse="rows") == everstep.accumulate(
        everstep.rate_decay(Momentum(0.1, mu=0.5, sparse="rows"), 0.5), 2)
    split = everstep.accumulate(everstep.partition({"a": Momentum(0.1)}, default=SGD(0.1)), 2)
    assert split.replace(mu=0.5) == everstep.accumulate(
        everstep.partition({"a": Momentum(0.1, mu=0.5)}, default=SGD(0.1)), 2)
    with pytest.raises(errors.HyperTypeError, match="Momentum.learning_rate takes a number"):
        wrapped.replace(learning_rate="x")


def test_replace_of_an_argument_that_several_rules_have_is_an_error():
    split = everstep.partition({"a": Momentum(0.1)}, default=SGD(0.1))
    with pytest.raises(errors.DefinitionError, match="2 definitions inside of Accumulate have the argument "
                       r"learning_rate.*replace\(inner=definition.inner.replace\(learning_rate=...\)\)"):
        everstep.accumulate(split, 2).replace(learning_rate=1.0)
    with pytest.raises(errors.DefinitionError, match=r"a=definition.children\(\)\['a'\].replace"):
        split.replace(learning_rate=1.0)
    for changes in ({"foo": 1}, {"inner": SGD(), "learning_rate": 1.0}):
        with pytest.raises(errors.DefinitionError, match="Accumulate has no argument (foo|learning_rate)"):
            everstep.accumulate(Momentum(), 2).replace(**changes)


def test_specialize_reaches_into_wrappers():
    class RowsForTables(Momentum):
        def specialize(self, variable):
            return self.replace(sparse="rows") if len(variable.shape) == 2 else self

    table = np.ones((3, 1))
    steps(everstep.accumulate(RowsForTables(1.0), 1), table, np.ones((3, 1)), everstep.IndexedSlices([[1.0]], [0]))
    assert table[0, 0] != table[1, 0] == 0.0  # momentum did not move the absent row


# Schedules


def test_a_schedule_counts_updates_from_zero():
    assert [Halving(4.0)(n) for n in range(3)] == [4.0, 2.0, 1.0]
    weights = np.zeros(1)
    steps(SGD(Halving()), weights, *[np.ones(1)] * 3)
    assert weights.tolist() == [-1.75]
    weights = np.zeros(1)
    optimizer = steps(everstep.accumulate(SGD(Halving()), 2), weights, *[np.ones(1)] * 6)
    assert weights.tolist() == [-1.75]
    with pytest.raises(errors.HyperValueError, match="given as an everstep schedule"):
        optimizer.learning_rate = 0.1


def test_a_schedule_may_use_the_table_of_ops():
    class Warmup(everstep.Schedule):
        peak = option(1.0)

        def value(self, ops, updates):
            return ops.where(updates < 2, self.peak * (updates + 1) / 3, self.peak)

    assert [round(Warmup(3.0)(n), 6) for n in range(4)] == [1.0, 2.0, 3.0, 3.0]
    weights = np.zeros(1)
    steps(SGD(Warmup(3.0)), weights, *[np.ones(1)] * 3)
    np.testing.assert_allclose(weights, [-6.0], rtol=1e-6)
    with pytest.raises(errors.RuleError, match="must define value"):
        everstep.Schedule()(0)


class Axes(object):
    """Takes what a schedule draws."""

    def plot(self, places, values, **line):
        self.points, self.line = dict(zip(places, values)), line

    def set_xlabel(self, text):
        self.label = text


def test_a_schedule_draws_itself(monkeypatch):
    axes = Axes()
    assert Halving(4.0).plot(3, axes, color="red") is axes
    assert axes.points == {0: 4.0, 1: 2.0, 2: 1.0, 3: 0.5} and axes.label == "updates"
    assert axes.line == {"label": repr(Halving(4.0)), "color": "red"}
    Halving(4.0).plot(100000, axes)
    assert len(axes.points) == 1001 and max(axes.points) == 100000
    with pytest.raises(errors.HyperValueError, match="at least 1"):
        Halving(4.0).plot(0)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(errors.UnsupportedError, match="pip install matplotlib"):
        Halving(4.0).plot()


def test_a_schedule_draws_with_matplotlib(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    line = Halving(4.0).plot(3).get_lines()[0]
    assert line.get_xydata().tolist() == [[0, 4.0], [1, 2.0], [2, 1.0], [3, 0.5]]
    pyplot.close("all")


# zero_grad_is_noop


def forms_of(definition_class):
    """Returns a registered definition with each value of its options."""
    try:
        base = definition_class()
    except errors.DefinitionError:  # a wrapper needs a child
        return [definition_class(inner, steps=2) for inner in (SGD(), Adam())] if definition_class is Accumulate else []
    forms = [base]
    for name, declaration in definition_class.declarations.items():
        if declaration.kind == "option" and isinstance(declaration.default, bool):
            forms.append(definition_class(**{name: True}))
        elif declaration.kind == "hyper" and declaration.default == 0:
            forms.append(definition_class(**{name: 0.5}))
    return forms


SHIPPED = [getattr(everstep.optimizers, name) for name in everstep.optimizers.__all__]


@pytest.mark.parametrize("value", [form for value in SHIPPED for form in forms_of(value) if form.zero_grad_is_noop],
                         ids=lambda value: value._short())
def test_a_zero_grad_that_is_declared_a_noop_is_one(value):
    """After two windows of gradients, a window of zeros changes nothing."""
    random = np.random.RandomState(0)
    weights = random.randn(4, 3)
    window = getattr(value, "steps", 1)
    optimizer = steps(value, weights, *random.randn(2 * window, 4, 3))

    def everything():
        slots = {name: optimizer.get_slot(weights, name).copy() for name in optimizer.get_slot_names()}
        return dict(slots, weights=weights.copy())

    before = everything()
    for _ in range(window):
        optimizer.apply_gradients([(np.zeros((4, 3)), weights)])
    after = everything()
    moved = [name for name in before if not np.array_equal(before[name], after[name])]
    assert moved == []


def test_a_zero_grad_is_a_noop_for_some_shipped_definitions():
    noop = {shipped.__name__ for shipped in SHIPPED for form in forms_of(shipped) if form.zero_grad_is_noop}
    assert {"SGD", "Accumulate"}.issubset(noop) and "Adam" not in noop
    assert not SGD(momentum=0.9).zero_grad_is_noop and SGD(momentum=0).zero_grad_is_noop


# Mistakes at class creation


def returns(*names):
    return lambda self, ops, grad, var, slots, hyper, t: (grad, {name: getattr(slots, name) for name in names})


CLASS_MISTAKES = {  # {name: (what a class is made of, what the error says)}
    "a reserved name": (dict(pending=slot()), "Made.pending clashes.*Reserved are: .*updates"),
    "a verb's name": (dict(should_update=hyper(1)), "clashes.*Inherited are: .*update"),
    "lr": (dict(lr=hyper(1)), "clashes.*Reserved are: .*lr"),
    "a private name": (dict(_m=slot()), "no leading or double underscore"),
    "a plain value over a hyper": (dict(base=Momentum, mu=0.5), "Made.mu overrides the hyper of a base class with 0.5; "
                                                                "write `mu = everstep.hyper"),
    "another kind": (dict(base=Momentum, mu=slot()), "as a slot, but it is a hyper"),
    "a constructor": (dict(__init__=lambda self, rate: None), "__init__ is not yours to write"),
    "one declaration, two names": (dict.fromkeys(["one", "two"], hyper(1)), "(one|two) are one hyper: declare each"),
    "a verb with other arguments": (dict(update=lambda self, grad, var: grad),
                                    r"update\(self, grad, var\) must take \(self, ops, grad, var, slots, hyper, t\)"),
    "a default out of bounds": (dict(a=hyper(2, maximum=1)), "the default does not fit.*at most 1"),
    "a default of text": (dict(a=hyper("0.1")), "the default does not fit"),
    "a slot's init": (dict(m=slot(init=None)), "`init` is a number, an option's name, a function or"),
    "a slot's init by a wrong name": (dict(m=slot(init="start")), "names 'start', which is no option"),
    "a slot's when": (dict(m=slot(when="amsgrd")), "names 'amsgrd', which is no option or hyper"),
    "a slot's shape": (lambda: dict(m=slot(shape="rows")), 'the shape of a slot is None .* "row"'),
    "a slot's dtype": (lambda: dict(m=slot(dtype="float")), "one of float16, float32"),
    "a scalar's init": (lambda: dict(p=scalar(None)), "`init` is a number or an option's name"),
    "a scalar's init by a wrong name": (dict(p=scalar("one")), "names 'one', which is no option"),
    "a scalar's when": (dict(p=scalar(when="never")), "names 'never', which is no"),
}


@pytest.mark.parametrize("name", sorted(CLASS_MISTAKES))
def test_mistakes_at_class_creation(name):
    body, needle = CLASS_MISTAKES[name]
    with pytest.raises(errors.DefinitionError, match=needle):
        definition(**(body() if callable(body) else body))


def test_every_reserved_name_is_refused_and_listed():
    for name in Declared.reserved.difference(["sparse", "dense_ok"]):  # a subclass may give those another default
        with pytest.raises(errors.DefinitionError) as caught:
            definition(**{name: option(False)})
        assert all(reserved in str(caught.value) for reserved in Declared.reserved)


# Mistakes that the dry run finds at construction


def body(source):
    """Returns a rule whose update is one expression."""
    return eval("lambda self, ops, grad, var, slots, hyper, t: (" + source + ", {})", {"np": np, "everstep": everstep})


RULE_MISTAKES = {  # {name: (the change that a rule computes, or what a class is made of; what the error says)}
    "a slot never returned": (dict(m=slot()), "declares the slot m, which neither update nor collect returns"),
    "a slot not declared": (dict(update=lambda self, ops, grad, *rest: (grad, {"n": grad})),
                            "returned 'n', which is no slot"),
    "a slot of the wrong shape": (dict(m=slot(shape=(7,)), update=lambda self, ops, grad, *rest: (grad, {"m": grad})),
                                  r"gave slot m shape \(3, 2\) for array_0, which needs \(7,\)"),
    "a change of the wrong shape": ("ops.reshape(grad, (6,))", r"gave the change shape \(6,\)"),
    "shapes that do not fit": ("grad + ops.reshape(grad, (2, 3))", r"ops.add cannot take.*\(3, 2\) and \(2, 3\)"),
    "a hyper read through self": ("self.learning_rate * grad", "read through `self`.*use `hyper.learning_rate`"),
    "a slot read through self": (dict(m=slot(), update=body("self.m")), "m is a slot: it has no value outside a step"),
    "an if": ("grad if grad > 0 else var", "cannot look at a number.*ops.where"),
    "a float": ("float(t) * grad", "cannot look at a number"),
    "a loop": ("sum(row for row in grad)", "cannot look at a number"),
    "a NumPy ufunc": ("np.sqrt(grad)", "cannot look at a number.*numpy functions"),
    "a NumPy function": ("np.where(grad > 0, grad, var)", "cannot look at a number"),
    "a NumPy array": ("grad * np.ones(2)", "ops.multiply got array"),
    "==": ("grad * (grad == 0)", "ops.equal"),
    "a part by value": ("grad[grad]", "a part of a value of shape .* whole numbers and slices"),
    "a part with steps": ("grad[::2]", "slices without steps"),
    "a part that is not there": ("grad[7]", "a part of a value of shape"),
    "a part of too many axes": ("grad[0, 0, 0, 0, 0, 0]", "has no part"),
    "parts of elements": ("0 * grad + ops.sum(grad[:1])", "mixes elements"),
    "a comparison as a number": ("grad * (grad > 0)", "ops.cast"),
    "a number as a comparison": ("ops.where(grad, 1, 2)", "give it a comparison"),
    "values of two dtypes": ("grad + ops.cast(grad, 'int32')", "float32 and int32.*ops.cast"),
    "an equation that is none": ("ops.einsum(grad)", "takes an equation, .* and values"),
    "an equation of other values": ("ops.einsum('ij,jk->ik', grad)", "a letter for each axis"),
    "a wrong keyword": ("ops.sum(grad, axes=0)", "ops.sum takes one value and axis, keepdims; got 1 and axes"),
    "too few values": ("ops.maximum(grad)", "takes 2 values; got 1"),
    "a wrong dtype": ("ops.cast(grad, 'floaty')", "takes the name of a dtype.*floaty"),
    "None": ("None", "returned None; a rule computes"),
    "no pair": (dict(update=lambda self, ops, grad, *rest: grad),
                r"update must return \(change, slots\); it returned <a value"),
    "no slots": (dict(update=lambda self, ops, grad, *rest: (grad, [grad])), "must return a dict of slots"),
    "an unknown hyper": ("hyper.rate * grad", "has no 'rate' here; there are: learning_rate, pending"),
    "an unknown slot": ("slots.v", "has no 'v' here; there are: pending|none"),
    "a scalar never advanced": (dict(p=scalar(1.0)), "declares the scalar p, which advance does not return"),
    "a sum with a declared name": (dict(measure=lambda self, *rest: {"learning_rate": 1.0}),
                                   "declared or reserved name"),
    "a reduction in a rule by elements": ("grad / ops.sum(grad)", 'locality is "element".*`measure`'),
    "a reduction over rows": (dict(locality="row", update=body("grad / ops.sum(grad, 0, True)")), "axis 0 is the rows"),
    "zero_grad_is_noop, and it is not": (dict(
        zero_grad_is_noop=True, m=slot(),
        update=lambda self, ops, grad, var, slots, *rest: (slots.m, {"m": slots.m + 1}),
    ), "declares zero_grad_is_noop, but a zero gradient changed (m|the variable)"),
}


@pytest.mark.parametrize("name", sorted(RULE_MISTAKES))
def test_mistakes_in_a_rule_show_at_construction(name):
    members, needle = RULE_MISTAKES[name]
    members = members if isinstance(members, dict) else {"update": body(members)}
    faulty = definition(learning_rate=hyper(0.1), **members)
    with pytest.raises(errors.RuleError, match=needle):
        faulty()


@pytest.mark.parametrize("source, expected", [
    ("ops.outer(ops.sum(grad, 1), ops.sum(grad, 0))", [[21, 112], [0, 0], [36, 192]]),  # of (7, 0, 12) and (3, 16)
    ("grad * ops.norm(grad)", [[39, 52], [0, 0], [0, 156]]),
    ("grad * ops.norm(grad, keepdims=True)", [[39, 52], [0, 0], [0, 156]]),
    ("grad * ops.norm(grad, 1, True)", [[15, 20], [0, 0], [0, 144]]),
])
def test_ops_that_are_made_of_others(source, expected):
    start = np.zeros((3, 2))
    steps(rule(body(source), locality="variable")(), start, np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 12.0]]))
    assert (-start == expected).all()


def test_an_op_outside_the_table_is_an_error_that_lists_it():
    with pytest.raises(errors.UnknownOpError, match="no 'argsort'; it has: abs, all, any, arange, .*zeros_like"):
        rule(body("ops.argsort(grad)"))()
    with pytest.raises(errors.UnknownOpError, match=r"no method 'sum'; write ops.sum\(value\)"):
        rule(body("grad.sum()"))()


def test_a_rule_that_depends_on_shapes_fails_at_its_first_step_and_changes_nothing():
    faulty = rule(
        lambda self, ops, grad, var, slots, hyper, t: (grad / ops.sum(grad, axis=1, keepdims=True), {}), locality="row"
    )()
    matrix, vector = np.ones((2, 2)), np.ones(2)
    optimizer = faulty.bind(np)
    with pytest.raises(errors.RuleError, match=r"ops.sum cannot take values of shapes \(2,\)"):
        optimizer.apply_gradients([(matrix, matrix), (vector, vector)])
    assert (matrix == 1).all() and (vector == 1).all() and optimizer.iterations == 0
    optimizer.apply_gradients([(np.ones((2, 2)), matrix)])
    assert (matrix == 0.5).all()


@pytest.mark.parametrize("make, needle", [
    (lambda: subclass("Empty", everstep.Definition), "Empty must define update"),
    (lambda: rule(returns("m"), m=slot(shape=lambda variable: variable.shape[0] / 2)),
     "must be a tuple of whole numbers; it is 1.5"),
], ids=["no update", "no shape"])
def test_what_shows_when_a_definition_is_made(make, needle):
    with pytest.raises(errors.DefinitionError, match=needle):
        make()()


class DecaysMatrices(everstep.Definition):
    weight_decay = hyper(0.1)

    def specialize(self, variable):
        return self if len(variable.shape) > 1 else self.replace(weight_decay=0.0)

    def update(self, ops, grad, var, slots, hyper, t):
        return grad + hyper.weight_decay * var, {}


@pytest.mark.parametrize("wrap", [lambda rule: rule, lambda rule: everstep.clip(rule, norm=1.0)])
def test_specialize_cannot_change_a_hyper(wrap):
    """It would have no effect: the optimizer has one value of it for all variables."""
    optimizer, matrix, bias = wrap(DecaysMatrices()).bind(np), np.ones((2, 2)), np.ones(2)
    with pytest.raises(errors.RuleError, match="specialize changed .*weight_decay for array_1, but an"):
        optimizer.apply_gradients([(matrix, matrix), (bias, bias)])
    assert (matrix == 1).all() and (bias == 1).all() and optimizer.iterations == 0


@pytest.mark.parametrize("name", ["kernel", "array_0"])  # of the dry run, and of NumPy's variable
@pytest.mark.parametrize("returned, needle", [(None, "must return a definition"), (SGD(), "must keep the hypers")])
def test_specialize_must_return_such_a_definition(returned, needle, name):
    with pytest.raises(errors.RuleError, match=needle):
        faulty = rule(body("grad"), specialize=lambda self, variable: {name: returned}[variable.name])()
        steps(faulty, np.ones(1), np.ones(1))


def test_the_dry_run_calls_nothing_of_the_user():
    class Rate(object):
        """Looks like a framework's tensor."""

        dtype, shape = np.dtype("float32"), ()

        def __float__(self):
            raise AssertionError("the dry run asked a tensor for its value")

        __array__ = __bool__ = __nonzero__ = __float__

    def called():
        raise AssertionError("the dry run called a callable hyper")

    for rate in (called, Rate()):
        assert Adam(rate).learning_rate is rate
        assert everstep.accumulate(Adam(rate), 2).inner.learning_rate is rate


@pytest.mark.parametrize("dtype", ["bool", "complex64", "str"])
def test_a_hyper_refuses_a_tensor_that_is_no_number(dtype):
    tensor = type("Tensor", (object,), {"dtype": np.dtype(dtype), "shape": ()})()
    with pytest.raises(errors.HyperTypeError, match="takes a number; got a tensor of dtype"):
        Adam(tensor)


def test_the_dry_run_puts_a_share_in_place_of_a_callable():
    """It is neither 0 nor 1, by which a rule divides that is right for any other."""

    class Divides(everstep.Definition):
        zero_grad_is_noop = True
        learning_rate = hyper(0.1)
        share = hyper(0.9)

        def update(self, ops, grad, var, slots, hyper, t):
            return hyper.learning_rate * grad / (hyper.share * (1 - hyper.share)), {}

    optimizer, weights = Divides(0.5, share=lambda: 0.5).bind(np), np.ones(2)
    optimizer.apply_gradients([(np.ones(2), weights)])
    assert (weights == -1.0).all()


def test_a_rule_that_cannot_run_on_small_arrays_is_not_run_inside_of_a_wrapper():
    class Large(everstep.Definition):
        dry_run = False
        learning_rate = hyper(0.1)

        def update(self, ops, grad, var, slots, hyper, t):
            raise AssertionError("the dry run ran it")

    for wrap in (lambda inner: everstep.accumulate(inner, 2), everstep.lookahead, everstep.master_copies,
                 everstep.loss_scale, lambda inner: everstep.clip(everstep.centralize(inner), norm=1.0),
                 lambda inner: everstep.partition({"table": inner}, default=SGD())):
        assert not wrap(Large()).dry_run


def test_the_dry_run_is_short_and_not_repeated():
    calls = []

    class Counting(everstep.Definition):
        learning_rate = hyper(0.1)

        def update(self, ops, grad, var, slots, hyper, t):
            calls.append(t)
            return hyper.learning_rate * grad, {}

    counting = Counting()
    assert 1 <= len(calls) <= 8
    del calls[:]
    counting.replace(learning_rate=0.5)  # the dry run of this form was cached
    assert not calls


class Rated(everstep.Definition):
    learning_rate = hyper(0.1)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * grad, {}


def test_a_bad_schedule_is_found_each_time():
    class Bad(everstep.Schedule):
        def value(self, ops, updates):
            return ops.nosuch(updates)

    Rated(0.5)
    for _ in range(2):
        with pytest.raises(errors.UnknownOpError, match="nosuch"):
            Rated(Bad())


def test_the_dry_run_runs_what_specialize_returns():
    class Special(Rated):
        big = everstep.option(False)

        def specialize(self, variable):
            return self.replace(big=True) if variable.name == "kernel" else self

        def update(self, ops, grad, var, slots, hyper, t):
            return (hyper.nosuch if self.big else hyper.learning_rate) * grad, {}

    with pytest.raises(errors.RuleError, match="Special has no 'nosuch'"):
        Special()

    class Nothing(Rated):
        def specialize(self, variable):
            return None

    with pytest.raises(errors.RuleError, match="Nothing.specialize must return a definition"):
        Nothing()

    class Known(Rated):
        def specialize(self, variable):
            return {"of_my_model": self}[variable.name]

    Known()  # it knows names that no dry run has


def test_ops_made_of_others_say_what_they_take():
    class Drawing(Rated):
        def update(self, ops, grad, var, slots, hyper, t):
            return ops.random_normal(shape=(3,)), {}

    with pytest.raises(errors.RuleError, match="ops.random_normal takes seed, count, hyper; got 0 values, shape"):
        Drawing()


@pytest.mark.parametrize("shape", [lambda: (3,), lambda variable: (variable.shape[5],)])
def test_a_shape_function_that_fails_is_named(shape):
    declared = everstep.slot(shape=shape)
    Shaped = type("Shaped", (Rated,), {"m": declared, "__module__": __name__})  # noqa: N806
    with pytest.raises(errors.DefinitionError, match="the shape of slot m fails for array_0 of shape .3, 2.: "):
        Shaped().bind(np)


def test_what_is_made_in_a_subprocess_needs_no_framework():
    code = ("import sys, numpy, everstep; everstep.accumulate(everstep.optimizers.Adam(), 4).bind(numpy); "
            "assert not {'tensorflow', 'keras', 'tf_keras'}.intersection(sys.modules)")
    assert subprocess.call([sys.executable, "-c", code]) == 0


@pytest.mark.parametrize("name", ["exclude_from_weight_decay", "exclude_from_layer_adaptation"])
def test_a_pattern_must_be_a_regular_expression(name):
    for definition_class in (everstep.optimizers.LAMB, everstep.optimizers.LARS):
        if name in definition_class.declarations:
            with pytest.raises(errors.HyperValueError, match=definition_class.__name__ + "." + name + r".*'\(bias'"):
                definition_class(0.1, **{name: "(bias"})
            assert getattr(definition_class(0.1, **{name: "bias|norm"}), name) == "bias|norm"


class _Settings(object):
    """Settings whose text does not say what they hold, as that of many classes."""

    def __init__(self, mixes):
        self.mixes = mixes

    def __repr__(self):
        return "Settings()"


class _ByObject(everstep.Definition):
    learning_rate = hyper(0.1)
    settings = option(None)

    def update(self, ops, grad, var, slots, hyper, t):
        return hyper.learning_rate * (ops.sum(grad) if self.settings.mixes else grad), {}


def test_each_object_of_an_option_is_tried():
    _ByObject(settings=_Settings(False))
    with pytest.raises(errors.RuleError, match="sum"):
        _ByObject(settings=_Settings(True))
    _ByObject(settings=_Settings(False))


def test_a_scalar_is_not_called_steps():
    with pytest.raises(errors.DefinitionError, match="the count of all steps"):
        type(str("Made"), (SGD,), {"steps": scalar(0.0)})
