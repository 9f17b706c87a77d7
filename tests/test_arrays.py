"""The NumPy target: arrays updated in place, state captured and restored."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
from everstep import errors
from everstep.optimizers import SGD, AdagradDecay, Adam

pytestmark = pytest.mark.shared
DEFINITIONS = [
    SGD(0.1), SGD(0.1, momentum=0.9, nesterov=True), Adam(0.1, amsgrad=True),
    Adam(everstep.InverseTimeDecay(0.1, rate=0.5), sparse="rows"), AdagradDecay(0.1, decay_steps=3),
]
DEFINITIONS += [everstep.accumulate(definition, 4) for definition in DEFINITIONS]


def by_name(definition):
    return definition._short()


def sparse(seed, rows, width, count=5):
    random = np.random.RandomState(seed)
    return everstep.IndexedSlices(random.randn(count, width), random.randint(0, rows, count))


def dense(grad, rows):
    whole = np.zeros((rows,) + grad.values.shape[1:])
    np.add.at(whole, grad.indices, grad.values)
    return whole


class Training(object):
    """A matrix with dense and a table with sparse gradients. Step n always gets the same gradients."""

    def __init__(self, definition, dtype="float64"):
        random = np.random.RandomState(7)
        self.variables = {"matrix": random.randn(3, 2).astype(dtype), "table": random.randn(6, 2).astype(dtype)}
        self.optimizer = definition.bind(np)

    def run(self, start, end):
        for number in range(start, end):
            grad = np.random.RandomState(number).randn(3, 2)
            pairs = [(grad, self.variables["matrix"]), (sparse(number, 6, 2), self.variables["table"])]
            self.optimizer.apply_gradients(pairs)
        return self

    def everything(self):
        values = dict(self.variables)
        for name, variable in self.variables.items():
            for slot in self.optimizer.get_slot_names():
                values["{}/{}".format(name, slot)] = self.optimizer.get_slot(variable, slot)
        return {name: array.tobytes() for name, array in values.items()}


# In place


@pytest.mark.parametrize("dtype, tolerance", [("float16", 2e-3), ("float32", 1e-6), ("float64", 1e-15)])
@pytest.mark.parametrize("definition", DEFINITIONS, ids=by_name)
def test_arrays_change_in_place_and_keep_their_dtype(definition, dtype, tolerance):
    training = Training(definition, dtype)
    before = dict(training.variables)
    exact = Training(definition).run(0, 8)
    training.run(0, 8)
    for name, variable in training.variables.items():
        assert variable is before[name] and variable.dtype == dtype
        scale = np.abs(exact.variables[name]).max()
        assert np.abs(variable - exact.variables[name]).max() <= 20 * tolerance * scale


@pytest.mark.parametrize(
    "definition", [SGD(0.1), SGD(0.1, momentum=0.9), Adam(0.1), AdagradDecay(0.1, decay_steps=2)], ids=by_name
)
def test_duplicate_rows_add_up_and_absent_rows_do_what_zeros_would(definition):
    table, twin = np.ones((6, 2)), np.ones((6, 2))
    by_slices, by_array = definition.bind(np), definition.bind(np)
    for number in range(6):
        grad = sparse(number, 6, 2)
        assert len(set(grad.indices)) < len(grad.indices) or number
        by_slices.apply_gradients([(grad, table)])
        by_array.apply_gradients([(dense(grad, 6), twin)])
    np.testing.assert_allclose(table, twin, rtol=1e-14)


def test_rows_changes_only_the_rows_present():
    table = np.ones((5, 2))
    optimizer = Adam(0.1, sparse="rows").bind(np)
    optimizer.apply_gradients([(everstep.IndexedSlices(np.ones((2, 2)), [1, 3]), table)])
    optimizer.apply_gradients([(everstep.IndexedSlices(np.ones((2, 2)), [3, 3]), table)])
    assert (table[[0, 2, 4]] == 1).all() and (table[1] != table[3]).all()
    assert not optimizer.get_slot(table, "m")[[0, 2, 4]].any()


def test_views_are_changed_where_they_look():
    whole = np.arange(24.0).reshape(4, 6)
    grads = np.ones((3, 2))
    expected = np.array(whole[1:, ::3])
    optimizer, other = Adam(0.5).bind(np), Adam(0.5).bind(np)
    for _ in range(3):
        optimizer.apply_gradients([(grads, whole[1:, ::3])])  # each call has a new view of the same memory
        other.apply_gradients([(grads, expected)])
    assert (whole[1:, ::3] == expected).all()
    untouched = np.ones(whole.shape, bool)
    untouched[1:, ::3] = False
    assert (whole[untouched] == np.arange(24.0).reshape(4, 6)[untouched]).all()
    fortran = np.asfortranarray(np.ones((3, 2)))
    optimizer = Adam(0.5, sparse="rows").bind(np)
    optimizer.apply_gradients([(everstep.IndexedSlices(np.ones((1, 2)), [1]), fortran)])
    np.testing.assert_allclose(fortran, [[1, 1], [0.5, 0.5], [1, 1]], rtol=1e-5)


def test_single_numbers_and_other_ranks():
    for shape in ((), (3,), (2, 3, 4), (1, 1), (0, 2)):
        variable, grad = np.ones(shape), np.full(shape, 2.0)
        optimizer = everstep.accumulate(Adam(0.5), 1).bind(np)
        optimizer.apply_gradients([(grad, variable)])
        np.testing.assert_allclose(variable, np.full(shape, 0.5), rtol=1e-5)
    variable = np.ones(())
    SGD(0.5, momentum=0.9).bind(np).apply_gradients([(2, variable)])
    assert variable == 0.0


def test_gradients_may_be_of_another_dtype_and_none():
    weights, bias = np.ones(2, np.float32), np.ones(1, np.float32)
    optimizer = SGD(1.0).bind(np)
    optimizer.apply_gradients([(np.array([1, 0]), weights), (None, bias)])
    optimizer.apply_gradients([([0.5, 0.5], weights)])
    assert weights.tolist() == [-0.5, 0.5] and bias.tolist() == [1.0]


class Keeps(everstep.Definition):
    last = everstep.slot()
    older = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        return grad, {"last": grad, "older": slots.last}


def test_the_gradient_is_left_alone():
    weights, grad = np.ones(3), np.array([1.0, 2.0, 3.0])
    optimizer = Keeps().bind(np)
    optimizer.apply_gradients([(grad, weights)])
    grad[:] = 0
    assert optimizer.get_slot(weights, "last").tolist() == [1.0, 2.0, 3.0]
    before = optimizer.get_slot(weights, "older")
    optimizer.apply_gradients([(grad, weights)])
    assert optimizer.get_slot(weights, "older").tolist() == [1.0, 2.0, 3.0]  # swapping slots must copy their old values
    assert before is optimizer.get_slot(weights, "older")


# Hypers


def test_hypers_are_read_and_set():
    weights = np.zeros(1)
    optimizer = SGD(1.0).bind(np)
    assert optimizer.lr == optimizer.learning_rate == 1.0
    optimizer.apply_gradients([(np.ones(1), weights)])
    optimizer.lr = 0.5
    optimizer.apply_gradients([(np.ones(1), weights)])
    optimizer.learning_rate = np.float32(0.25)
    optimizer.apply_gradients([(np.ones(1), weights)])
    assert weights.tolist() == [-1.75]
    assert optimizer.definition.learning_rate == 1.0


def test_a_callable_hyper_is_asked_at_each_step():
    rates = iter([1.0, np.float32(0.5), np.array(0.25), 2])
    weights = np.zeros(1)
    optimizer = SGD(lambda: next(rates)).bind(np)
    for _ in range(4):
        optimizer.apply_gradients([(np.ones(1), weights)])
    assert weights.tolist() == [-3.75]


def test_config_makes_an_equal_optimizer():
    optimizer = everstep.accumulate(Adam(everstep.InverseTimeDecay(0.1, 0.5)), 2).bind(np, name="mine")
    optimizer.beta_1 = 0.5
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.definition == everstep.accumulate(Adam(everstep.InverseTimeDecay(0.1, 0.5), beta_1=0.5), 2)
    assert again.name == "mine"


def test_a_keyword_that_the_target_does_not_take_is_named():
    for make in (lambda: Adam(0.1).bind(np, clipnorms=1.0), lambda: Adam.native_class(np)(0.1, clipnorms=1.0)):
        with pytest.raises(errors.DefinitionError, match="Adam on arrays: it takes no keyword clipnorms; .*name"):
            make()


# Accumulation


@pytest.mark.parametrize("definition", [SGD(0.1), SGD(0.1, 0.9), Adam(0.1), Adam(0.1, sparse="rows")], ids=by_name)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_sixteen_small_steps_are_four_of_the_joined_batches(definition, reduction):
    training, big = Training(everstep.accumulate(definition, 4, reduction)), Training(definition)
    changes = 0
    for number in range(16):
        before = {name: variable.copy() for name, variable in training.variables.items()}
        training.run(number, number + 1)
        changed = {name for name in before if not np.array_equal(before[name], training.variables[name])}
        assert changed in (set(), {"matrix", "table"})
        changes += bool(changed)
    assert changes == 4 == training.optimizer.iterations
    scale = 4 if reduction == "mean" else 1
    for window in range(4):
        numbers = range(4 * window, 4 * window + 4)
        matrix = sum(np.random.RandomState(number).randn(3, 2) for number in numbers) / scale
        parts = [sparse(number, 6, 2) for number in numbers]
        values, rows = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "indices"))
        joined = everstep.IndexedSlices(values / scale, rows)
        assert len(set(joined.indices)) < len(joined.indices)
        big.optimizer.apply_gradients([(matrix, big.variables["matrix"]), (joined, big.variables["table"])])
    for name in training.variables:
        np.testing.assert_allclose(training.variables[name], big.variables[name], rtol=1e-12)


def test_accumulation_by_rows_remembers_the_rows_of_its_window_only():
    table = np.ones((4, 1))
    optimizer = everstep.accumulate(Adam(0.1, sparse="rows"), 2).bind(np)
    for rows in ([0], [1], [2], [2]):
        optimizer.apply_gradients([(everstep.IndexedSlices(np.ones((1, 1)), rows), table)])
    np.testing.assert_allclose(table[:, 0], [0.9, 0.9, table[2, 0], 1.0], rtol=1e-5)
    assert table[2, 0] != 1 and optimizer.get_slot(table, "m")[3] == 0


def test_schedules_and_bias_correction_count_updates():
    weights, plain = np.zeros(1), np.zeros(1)
    definition = Adam(everstep.InverseTimeDecay(0.1, rate=1.0))
    accumulated, optimizer = everstep.accumulate(definition, 3).bind(np), definition.bind(np)
    for _ in range(4):
        optimizer.apply_gradients([(np.ones(1), plain)])
        for _ in range(3):
            accumulated.apply_gradients([(np.ones(1), weights)])
    np.testing.assert_allclose(weights, plain, rtol=1e-12)


# State


@pytest.mark.parametrize("definition", DEFINITIONS, ids=by_name)
def test_ten_and_ten_are_twenty_steps_bit_for_bit(definition):
    through = Training(definition).run(0, 20)
    first = Training(definition).run(0, 10)
    state = everstep.capture(first.optimizer, first.variables)
    second = Training(definition)
    for name, variable in second.variables.items():
        variable[:] = first.variables[name]
    first.run(10, 12)  # the state is a copy
    everstep.restore(second.optimizer, state, second.variables)
    second.run(10, 20)
    assert second.everything() == through.everything()
    assert second.optimizer.iterations == through.optimizer.iterations


def test_a_state_holds_the_hypers_as_they_were():
    weights = np.ones(1)
    optimizer = Adam(0.1).bind(np)
    optimizer.apply_gradients([(weights, weights)])
    optimizer.learning_rate = 0.5
    state = everstep.capture(optimizer, [weights])
    assert everstep.Definition.from_config(state.definition) == Adam(0.5)
    assert repr(state) == "<everstep state of Adam: 1 updates, 1 variables>"
    of_callable = everstep.capture(Adam(lambda: 0.25).bind(np), [weights])
    assert everstep.Definition.from_config(of_callable.definition) == Adam(0.25)


def test_a_list_is_named_by_place():
    first, second = np.ones(1), np.ones((2, 2))
    optimizer = Adam().bind(np)
    optimizer.apply_gradients([(first, first), (second, second)])
    state = everstep.capture(optimizer, [first, second])
    assert {name: sorted(slots) for name, slots in state.slots.items()} == {"0": ["m", "v"], "1": ["m", "v"]}
    assert (state.updates, state.steps, state.pending) == (1, None, 0)


BROKEN_STATES = {
    "no state": (lambda state: {"m": 1}, "takes an everstep.State"),
    "a variable more": (lambda state: state.slots.update(other={}), "the variables other, w; you gave w"),
    "a slot less": (lambda state: state.slots["w"].pop("v"),
                    "the slots of w accumulate/sum, m; Accumulate needs accumulate/sum, m, v"),
    "another shape": (lambda state: state.slots["w"].update(v=np.ones(3)),
                      r"w/v: the state has shape \(3,\); needed is \(2,\)"),
    "text in a slot": (lambda state: state.slots["w"].update(v=["a", "b"]),
                       "w/v: the state has values of .*needed are numbers"),
    "no steps": (lambda state: vars(state).update(steps=None), "steps = None; Accumulate needs a count"),
    "a negative count": (lambda state: vars(state).update(pending=-1), "pending = -1"),
    "half an update": (lambda state: vars(state).update(updates=1.5), "updates = 1.5"),
    "a scalar less": (lambda state: state.scalars.clear(), "the scalars none; Accumulate needs product"),
    "text in a scalar": (lambda state: state.scalars.update(product="one"), "product: the state has values of"),
}


class WithScalar(Adam):
    product = everstep.scalar(1.0)

    def advance(self, ops, scalars, hyper, t):
        return {"product": scalars.product * hyper.beta_1}


@pytest.mark.parametrize("name", sorted(BROKEN_STATES))
def test_a_restore_that_fails_changes_nothing(name):
    weights = np.ones(2)
    optimizer = everstep.accumulate(WithScalar(0.1), 2).bind(np)
    for _ in range(3):
        optimizer.apply_gradients([(np.ones(2), weights)])

    def everything():
        state = everstep.capture(optimizer, {"w": weights})
        slots = {slot: array.tolist() for slot, array in state.slots["w"].items()}
        return weights.tolist(), slots, state.updates, state.steps, state.pending, state.scalars

    state = everstep.capture(optimizer, {"w": weights})
    state.updates, state.slots["w"]["m"][:] = 99, 99
    before = everything()
    breaks, needle = BROKEN_STATES[name]
    broken = breaks(state)
    with pytest.raises(errors.StateError, match=needle):
        everstep.restore(optimizer, broken if name == "no state" else state, {"w": weights})
    assert everything() == before


def test_a_step_that_fails_changes_nothing():
    table, weights = np.ones((3, 2)), np.ones(2)
    optimizer = everstep.accumulate(Adam(0.1, sparse="rows"), 2).bind(np)
    grad = everstep.IndexedSlices(np.ones((2, 2)), [0, 1])
    optimizer.apply_gradients([(grad, table), (np.ones(2), weights)])
    before = everstep.capture(optimizer, [table, weights])

    def interrupted(*unused):
        raise KeyboardInterrupt

    backend = harness.bound(optimizer).backend
    choose, backend.branch = backend.branch, interrupted
    with pytest.raises(KeyboardInterrupt):
        optimizer.apply_gradients([(grad, table), (np.ones(2), weights)])
    backend.branch = choose
    after = everstep.capture(optimizer, [table, weights])
    assert (table == 1).all() and (weights == 1).all() and after.pending == before.pending == 1
    for name in before.slots:
        for slot in before.slots[name]:
            assert (before.slots[name][slot] == after.slots[name][slot]).all()


def test_numbers_of_a_hyper_are_not_traced_anew():
    weights = np.ones(3, np.float32)
    optimizer = Adam(1e-3).bind(np)
    sizes = []
    for step in range(60):
        optimizer.learning_rate = 1e-3 / (1 + step)
        optimizer.apply_gradients([(np.ones(3, np.float32), weights)])
        tracers = optimizer._bound.lowerings._tracers.values()
        sizes.append(sum(len(tracer.updated) + len(tracer._kept) for tracer in tracers))
    assert sizes[-1] == sizes[5]
