"""The verbs of every backend (compat/backends/base.py): they compute the same numbers as NumPy."""
from __future__ import absolute_import, division, print_function

import ast
import functools
import os
import re

import numpy as np
import pytest

import everstep
import harness
from everstep.compat.backends import base, on_numpy
from everstep.compat.rules import operations as ops
from everstep.compat.rules.expressions import Tracer
from everstep.compat.rules.shapes import result_shape
from everstep.errors import RuleError, StateError, UnsupportedError
from everstep.optimizers import SGD

COMPAT = os.path.join(os.path.dirname(os.path.abspath(everstep.__file__)), "compat")
VERBS = [name for name in vars(base.Backend) if not name.startswith("_")]
MODULES = {"tf", "keras", "torch"}  # attributes that are framework modules, not verbs, for targets of one framework


class Here(object):
    """The backend of one mode of an API, in its world, on small arrays.

    Args:
        way: of arrays; of tf.train, whose modes are all those of TensorFlow; or of Keras 3.
    """

    def __init__(self, way, world):
        self.world, self.session, self.variable = world, world.session, world.variable
        self.backend, self.is_ref = harness.bound(SGD().bind(way.module)).backend, way.name == "tf_train ref"

    def value(self, value):
        return value if np.isscalar(value) else self.backend.tensor(np.asarray(value))

    def numbers(self, values):
        """Returns NumPy arrays of a value or of nested lists of values."""
        if isinstance(values, (list, tuple)):
            return [self.numbers(value) for value in values]
        return values if np.isscalar(values) else self.world.read(values)

    def value_after(self, variable, operation):
        """Returns the variable's value after an operation."""
        if self.session is not None:
            self.world.run(operation)
        return self.value_of(variable)

    def value_of(self, variable):
        return self.backend.values([variable], self.session)[0]


EVERYWHERE = [way for way in harness.all_ways() if way.target in ("arrays", "tf_train")
              or way.target == "keras3" and not way.sparse and way.name.endswith("eager")]


@pytest.fixture(params=EVERYWHERE, ids=harness.way_name)
def here(request):
    way = request.param
    with way.world(way.module) as world, harness.bound(SGD().bind(way.module)).backend.computing():
        yield Here(way, world)


@pytest.fixture
def backend(here):
    return here.backend


@pytest.fixture
def rows(here):
    """Skips if gradients cannot be sparse here."""
    if not here.backend.moves_rows:
        pytest.skip("gradients are dense here")
    return here


def same(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-6)


# Members of a backend.


def test_each_required_verb_is_defined_or_declared_unsupported(backend):
    left = [verb for verb in base.REQUIRED if getattr(type(backend), verb) == getattr(base.Backend, verb)]
    refused = []
    for verb in base.REQUIRED:
        if verb in backend.unsupported:
            arguments = {"concat_flat": [None], "split": [None, None]}.get(verb, [])  # torch has these, JAX does not
            with pytest.raises(UnsupportedError, match="the {} backend has no {}$".format(backend.name, verb)):
                getattr(backend, verb)(*arguments)
            refused.append(verb)
    assert set(left) <= set(refused) == set(backend.unsupported)


def test_a_backend_has_no_verb_that_base_lacks(backend):
    public = {name for name in dir(backend) if not name.startswith("_")}
    assert public - set(VERBS) <= MODULES | {"variable", "use_locking"}
    assert backend.name and set(VERBS) <= public


def test_base_has_every_verb_that_is_asked_for():
    asked = set()
    pattern = re.compile(r"(?<![\w.])(?:(?:self|host|optimizer|access|step|model)\.)*backend\.(\w+)")
    for room in ("engine", "targets", "state", "stock"):
        for name in sorted(os.listdir(os.path.join(COMPAT, room))):
            if name.endswith(".py"):
                with open(os.path.join(COMPAT, room, name)) as file:
                    asked.update(pattern.findall(file.read()))
    assert len(asked) > 50
    assert asked - set(VERBS) <= MODULES


def test_members_stand_in_the_order_of_base():
    folder = os.path.join(COMPAT, "backends")
    order, seen = None, 0
    for name in ["base.py"] + sorted(set(os.listdir(folder)) - {"base.py"}):
        if not name.endswith(".py"):
            continue
        with open(os.path.join(folder, name)) as file:
            tree = ast.parse(file.read())
        for node in tree.body:
            of_backend = isinstance(node, ast.ClassDef) and (node.name == "Backend" or node.bases[0].id != "object")
            if of_backend:
                members = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
                order = members if node.name == "Backend" else order
                places = [order.index(member) for member in members if member in (order or ())]
                assert places == sorted(places), node.name
                seen += len(places) > 5
    assert seen == 9


def test_the_table_of_ops_has_the_same_names_everywhere(backend):
    assert set(backend.ops) - set(ops.LINALG) == ops.NAMES | ops.OPERATORS
    assert not ops.NAMES & ops.OPERATORS


# Values and dtypes.

X = np.array([[1.5, -2.0], [0.25, 4.0], [-3.5, 0.5]], np.float32)
Y = np.array([[2.0, 3.0], [-1.0, 0.5], [4.0, -2.0]], np.float32)
POSITIVE = np.abs(X)
CALLS = [(op, (X,), {}) for op in "abs square exp sin cos sign floor tanh sigmoid negative".split()]
CALLS += [(op, (X,), {}) for op in ("zeros_like", "ones_like")]
CALLS += [(op, (POSITIVE,), {}) for op in "sqrt rsqrt log".split()]
CALLS += [(op, (X, Y), {}) for op in "maximum minimum add subtract multiply divide floor_divide remainder".split()]
CALLS += [(op, (X, X.copy()), {}) for op in "less less_equal greater greater_equal equal".split()]
CALLS += [(op, (X > 0, Y > 0), {}) for op in "logical_and logical_or".split()] + [("logical_not", (X > 0,), {})]
CALLS += [(op, (X,), dict(axis=axis, keepdims=keep)) for op in "sum mean max min".split()
          for axis, keep in ((None, False), (0, True), (1, False))]
CALLS += [(op, (X > 0,), dict(axis=1)) for op in ("any", "all")]
CALLS += [("pow", (POSITIVE, Y), {}), ("clip", (X, np.float32(-1), np.float32(1)), {}), ("where", (X > 0, X, Y), {})]
CALLS += [("isfinite", (np.array([1, np.inf, np.nan], np.float32),), {})]
CALLS += [("matmul", (X, Y.T.copy()), {}), ("matmul", (np.stack([X, Y]), np.stack([Y.T, X.T])), {})]
CALLS += [("transpose", (X,), {}), ("transpose", (np.stack([X, Y]),), dict(axes=(1, 2, 0)))]
CALLS += [("part", (X,), dict(index=((0, 2), 1))), ("part", (X,), dict(index=((0, None), (1, 2))))]
CALLS += [("concat", (X, Y), dict(axis=axis)) for axis in (0, 1)]
CALLS += [("einsum", (X, Y), dict(equation="ij,kj->ik")), ("einsum", (X,), dict(equation="ij->ji"))]
CALLS += [("eye", (), dict(size=3, dtype="float32")), ("arange", (), dict(size=4, dtype="int32"))]
CALLS += [("cast", (X,), dict(to="int32")), ("reshape", (X,), dict(to=(2, -1)))]


def test_ops_compute_numpys_numbers(here):
    assert {op for op, _, _ in CALLS} == ops.NAMES | ops.OPERATORS
    with harness.tensorflow_log() as said:  # such as that an operation is deprecated
        results = [here.backend.ops[op](*map(here.value, args), **options) for op, args, options in CALLS]
    assert not said
    for (op, args, options), actual in zip(CALLS, here.numbers(results)):
        expected = on_numpy.NUMPY[op](*args, **options)
        np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-7, err_msg=op)
        assert np.asarray(actual).dtype == np.asarray(expected).dtype, op


SYMMETRIC = np.array([[4.0, 1.0, -2.0], [1.0, 3.0, 0.5], [-2.0, 0.5, -1.0]], np.float32)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)], ids=str)
def test_qr_gives_factors_that_are_unique(here, backend, shape):
    """q has orthonormal columns, r is triangular with a diagonal that is not negative: only one such pair exists."""
    x = np.random.RandomState(3).normal(size=shape).astype("float32")
    q, r = here.numbers(list(backend.ops["qr"](here.value(x))))
    assert q.shape == (shape[0], min(shape)) and r.shape == (min(shape), shape[1])
    assert np.abs(q.T.dot(q) - np.eye(min(shape))).max() <= 2e-6
    assert np.abs(q.dot(r) - x).max() <= 5e-6
    assert np.abs(np.tril(r, -1)).max() <= 1e-6 and (np.diagonal(r) > 0).all()


def test_eigh_gives_vectors_that_are_unique(here, backend):
    """Ascending values. The element of a vector with the largest absolute value is positive."""
    if "eigh" not in backend.ops:
        pytest.skip("Keras 3.0 has none: https://github.com/keras-team/keras/issues/19062")
    for signs in ((1, 1, 1), (-1, 1, 1), (1, -1, 1), (1, 1, -1)):  # libraries choose the signs of these differently
        symmetric = SYMMETRIC * np.outer(signs, signs).astype("float32")
        values, vectors = here.numbers(list(backend.ops["eigh"](here.value(symmetric))))
        assert np.abs(symmetric.dot(vectors) - vectors * values).max() <= 5e-6
        assert np.abs(vectors.T.dot(vectors) - np.eye(3)).max() <= 2e-6
        assert list(values) == sorted(values)
        assert (vectors.max(axis=0) > -vectors.min(axis=0)).all()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)], ids=str)
def test_svd_gives_factors_that_are_unique(here, backend, shape):
    x = np.random.RandomState(3).normal(size=shape).astype("float32")
    left, values, right = here.numbers(list(backend.ops["svd"](here.value(x))))
    assert left.shape == (shape[0], min(shape)) and right.shape == (min(shape), shape[1])
    assert np.abs((left * values).dot(right) - x).max() <= 5e-6
    assert np.abs(left.T.dot(left) - np.eye(min(shape))).max() <= 2e-6
    assert list(values) == sorted(values, reverse=True) and (left.max(axis=0) > -left.min(axis=0)).all()


def test_cholesky_and_solve(here, backend):
    positive = SYMMETRIC.dot(SYMMETRIC) + np.eye(3, dtype="float32")
    lower, solved = here.numbers([backend.ops["cholesky"](here.value(positive)),
                                  backend.ops["solve"](here.value(positive), here.value(X))])
    assert np.abs(lower.dot(lower.T) - positive).max() <= 1e-5 and not np.triu(lower, 1).any()
    assert np.abs(positive.dot(solved) - X).max() <= 1e-5


def test_sums_of_squares(here, backend):
    same(here.numbers(backend.sum_of_squares(here.value(X))), np.square(X).sum())


def test_values_and_dtypes(here, backend):
    x = here.value(X)
    assert backend.dtype(x) == "float32" and tuple(backend.shape(x)) == (3, 2)
    assert backend.dtype(backend.constant(2, "float32")) == "float32"
    same(here.numbers(backend.constant(2, "float32")), 2)
    assert backend.cast(x, "float32") is x
    assert backend.dtype(backend.cast(x, "int32")) == "int32"
    assert backend.dtype(backend.cast(x, "int64")) == backend.stored("int64")
    assert backend.stored("float32") == "float32"


# Reading and writing variables.


def test_variables_are_read_and_written(here, backend):
    variable = here.variable(X)
    assert backend.dtype(variable) == "float32" and tuple(backend.shape(variable)) == (3, 2)
    assert backend.is_ref(variable) == (here.is_ref)
    same(here.numbers(backend.read(variable)), X)
    same(here.numbers(backend.start_value(variable, "float32")), X)
    same(here.value_after(variable, backend.write(variable, here.value(Y))), Y)
    same(here.value_after(variable, backend.add(variable, here.value(X))), Y + X)
    same(here.value_after(variable, backend.subtract(variable, here.value(X))), Y)
    kept = backend.copy(backend.read(variable), variable)
    with backend.after([kept]):
        write = backend.write(variable, here.value(X))
    before = here.numbers([kept, write])[0] if here.session else here.numbers(kept)
    same(before, Y)
    assert backend.constrain(np.zeros(2), write) is write


def test_what_is_subtracted_from_a_narrower_variable_is_rounded_once(here, backend):
    variable, change = here.variable(np.array([1024], np.float16)), here.value(np.array([0.2501], np.float32))
    assert here.value_after(variable, backend.subtract(variable, change)) == 1023.5  # 1024 if 0.2501 is rounded first


def test_writes_are_undone_where_the_body_fails():
    backend, variable = on_numpy.NumpyBackend(), X.copy()
    with pytest.raises(ZeroDivisionError):
        with backend.all_or_nothing():
            backend.write(variable, Y)
            backend.write(variable, Y[:1], [2])
            raise ZeroDivisionError
    same(variable, X)


# Rows.

INDICES = np.array([2, 0, 2, 1, 2])
VALUES = np.arange(10, dtype=np.float32).reshape(5, 2)


def test_rows_are_read_and_written(rows):
    backend, variable, place = rows.backend, rows.variable(X), rows.value(np.array([2, 0]))
    same(rows.numbers(backend.gather(variable, place)), X[[2, 0]])
    changed = X.copy()
    changed[[2, 0]] = Y[:2]
    same(rows.value_after(variable, backend.write(variable, rows.value(Y[:2]), place)), changed)
    changed[[2, 0]] -= Y[1:]
    same(rows.value_after(variable, backend.subtract(variable, rows.value(Y[1:]), place)), changed)
    assert backend.rows_of(variable) == 3


def test_duplicates_are_summed(rows):
    backend = rows.backend
    summed, rows_present = rows.numbers(list(backend.sum_duplicates(rows.value(VALUES), rows.value(INDICES))))
    assert sorted(rows_present) == [0, 1, 2]
    for row, value in zip(rows_present, summed):
        same(value, VALUES[INDICES == row].sum(axis=0))
    assert sorted(rows.numbers(backend.unique(rows.value(INDICES)))) == [0, 1, 2]


def test_sparse_gradients_are_told_from_dense_ones(here, backend):
    assert backend.slices(here.value(X)) is None
    if backend.moves_rows:
        variable = here.variable(X)
        values, indices = here.numbers(list(backend.slices(backend.no_rows(variable))))
        assert values.shape == (0, 2) and values.dtype == np.float32 and indices.shape == (0,)


def test_rows_and_marks(rows):
    backend = rows.backend
    whole = backend.scatter_to_dense(rows.value(VALUES[:2]), rows.value(np.array([3, 1])), 4)
    same(rows.numbers(whole), [[0, 0], VALUES[1], [0, 0], VALUES[0]])
    marks = rows.value(np.array([[7], [3], [7], [1]]))
    same(rows.numbers(backend.rows_equal(marks, backend.constant(7, "int64"))), [0, 2])
    assert rows.numbers(backend.largest(rows.value(np.array([3, 9, 4])))) == 9
    assert rows.numbers(backend.largest(rows.value(np.zeros(0, np.int64)))) == 0
    same(rows.numbers(backend.stack([backend.constant(each, "float32") for each in (3, 1, 2)])), [3, 1, 2])


def test_rows_are_numbered(here, backend):
    same(here.numbers(backend.iota(4)), [0, 1, 2, 3])
    assert backend.dtype(backend.iota(4)) == "int32"


@pytest.mark.parametrize("count", [0, 3])
def test_repeat(rows, count):
    def body(step, values):
        return [values[0] * 2, values[1] + rows.backend.cast(rows.backend.tensor(step), "float32")]

    times = rows.backend.largest(rows.value(np.array([count])))
    start = [rows.value(X), rows.backend.constant(10, "float32")]
    doubled, added = rows.numbers(rows.backend.repeat(times, body, start))
    same(doubled, X * 2**count)
    same(added, 10 + sum(range(count)))


# Branches and order.


@pytest.mark.parametrize("predicate", [True, False])
def test_one_branch_is_taken(here, backend, predicate):
    variable = here.variable(X)
    if not backend.can_branch(variable):
        assert here.is_ref and backend.is_since("1.13")  # TF 1.13 brought branches that are functions
        return
    yes = lambda: [backend.write(variable, here.value(Y))]  # noqa: E731  # a branch
    no = lambda: [backend.add(variable, here.value(Y))]  # noqa: E731  # a branch
    done = backend.operations([backend.branch(backend.constant(predicate, "bool"), yes, no, [variable])])
    same(here.value_after(variable, done), Y if predicate else X + Y)


@pytest.mark.parametrize("predicate", [True, False])
def test_values_that_depend_on_a_predicate(here, backend, predicate):
    condition = backend.constant(predicate, "bool")
    for count in (1, 2):
        numbers = [backend.constant(number, "float32") for number in (3, 4)[:count]]
        twice = functools.partial(lambda numbers: [each * 2 for each in numbers], numbers)
        zeros = functools.partial(lambda count: [backend.constant(0, "float32")] * count, count)
        values = backend.values_if(condition, twice, zeros)
        same(here.numbers(values), [6, 8][:count] if predicate else [0, 0][:count])
    same(here.numbers(backend.choose(condition, here.value(X), here.value(Y))), X if predicate else Y)


def test_order(here, backend):
    variable = here.variable(X)
    first = backend.write(variable, here.value(Y))
    with backend.after([first, None]):
        second = backend.add(variable, here.value(Y))
    gate = backend.barrier([here.value(X)])
    waited = backend.wait(here.value(X), [gate, second])
    assert (gate is None) == (backend.group([second]) is None) == backend.eager
    same(here.numbers(waited), X)
    same(here.value_after(variable, [] if here.session is None else backend.group([waited])), 2 * Y)
    assert len(backend.wait_for_loss([here.value(X), None], here.value(Y))) == 2
    assert backend.operations([[1, None], (2, [3])]) == [1, 2, 3]
    assert backend.plain(len)([1, 2]) == 2


def test_a_failure_waits_until_it_is_run(here, backend):
    if "failure" not in backend.unsupported and here.session is not None:
        failure = backend.failure("so it is")
        with pytest.raises(Exception, match="so it is"):
            here.session.run(failure)


# Scopes, replicas and lowering.


def test_scopes_and_replicas_of_one_place(here, backend):
    variable = here.variable(X)
    for scope in (backend.computing(), backend.at(variable), backend.scope_of(variable), backend.inside([variable])):
        with scope:
            pass
    with backend.at_once(), backend.outside():
        pass
    value = here.value(X)
    assert backend.without_strategy() and backend.replica() == 0
    assert backend.local(value) is backend.mirrored(value) is value and len(backend.in_replicas(value)) == 1
    assert backend.is_here(variable) and not backend.shares_variables()
    assert backend.in_session() == (here.session is not None)
    assert backend.device(variable) == backend.device(variable)


def test_flat_values_are_joined_and_split(here, backend):
    if "concat_flat" in backend.unsupported:
        assert not backend.lowers("flattened") or backend.lists
        return
    values = [X, np.arange(3, dtype=np.float32), np.float32(7)]
    flat = backend.concat_flat([backend.tensor(value) for value in values])
    parts = here.numbers([flat] + backend.split(flat, [(3, 2), (3,), ()]))
    same(parts[0], np.concatenate([np.ravel(value) for value in values]))
    for one, expected in zip(parts[1:], values):
        assert np.shape(one) == np.shape(expected)
        same(one, expected)


def test_parts_of_variables(here, backend):
    variable = here.variable(X)
    if "part" in backend.unsupported:
        return
    same(here.numbers(backend.part(variable, (0, 2))), X[:2])
    same(here.numbers(backend.part(here.value(X), (2, 3))), X[2:])
    if here.is_ref:
        written = backend.write_part(variable, here.value(Y[:2]), (1, 3))
        same(here.value_after(variable, written), np.concatenate([X[:1], Y[:2]]))


def test_kernels(here, backend):
    if "kernel" in backend.unsupported:
        return
    variable = here.variable(X)
    assert backend.is_since("1.4") and not backend.is_since("99.0")
    assert backend.kernel("apply_nothing", variable, [], False) is None
    run = backend.kernel("apply_gradient_descent", variable, [], False)
    done = run(variable, dict(alpha=backend.constant(2, "float32"), delta=here.value(Y)))
    same(here.value_after(variable, done), X - 2 * Y)


# Values in and out.


def test_values_in_and_out(here, backend):
    variable = here.variable(X)
    assert backend.session_for([variable], None, lambda variables: here.session) is here.session
    backend.start([variable], here.session)
    before = here.value_of(variable)
    backend.put([(variable, Y.astype(np.float64), False)], here.session)
    same(before, X)
    same(here.value_of(variable), Y)
    assert here.value_of(variable).dtype == np.float32
    mine = Y + 1
    backend.put([(variable, mine, True)], here.session)
    mine[:] = 0  # the array is the caller's
    same(here.value_of(variable), Y + 1)


def test_a_variable_without_a_value_says_so(here, backend):
    if here.session is not None:
        variable = here.variable(X)
        here.session.close()
        with pytest.raises(StateError, match="has no value"):
            backend.values([variable], here.session)


# Bounds and shapes, before anything is computed.


def test_the_last_count_is_the_last_that_a_float_tells_from_the_next():
    assert float(ops.END["int64"] - 1) != float(ops.END["int64"]) == float(ops.END["int64"] + 1)
    assert ops.END["int32"] + 2**15 < 2**31  # t + 1 and the like do not overflow


def shape_before(op, *shapes, **options):
    """Returns the shape of an op's result, found before anything is computed."""
    tracer = Tracer("float64")
    leaves = [tracer.leaf(("slot", str(place)), shape=shape) for place, shape in enumerate(shapes)]
    return result_shape(getattr(tracer, op)(*leaves, **options))


@pytest.mark.parametrize("op, options, shapes", [
    ("matmul", {}, [(4, 5), (5, 6)]), ("matmul", {}, [(2, 3, 4, 5), (2, 3, 5, 6)]),
    ("maximum", {}, [(3, 1, 5), (4, 1)]), ("sum", {"axis": (0, -1)}, [(2, 3, 4)]),
    ("sum", {"axis": 1, "keepdims": True}, [(2, 3, 4)]), ("transpose", {"axes": (1, 2, 0)}, [(2, 3, 4)]),
])
def test_shapes_before_anything_is_computed_are_those_of_numpy(op, options, shapes):
    assert shape_before(op, *shapes, **options) == getattr(np, op)(*map(np.ones, shapes), **options).shape


@pytest.mark.parametrize("left, right, expected", [
    ((2, None, 4, 5), (2, 3, 5, 6), (2, 3, 4, 6)), ((None, 3, 4, None), (2, None, 5, 6), (2, 3, 4, 6)),
    ((None, None), (5, None), (None, None)), (None, (5, 6), None),
])
def test_products_of_matrices_whose_sizes_are_not_all_known(left, right, expected):
    assert shape_before("matmul", left, right) == expected


@pytest.mark.parametrize("left, right, needle", [
    ((4, 5), (4, 5), "sizes do not fit"), ((2, 4, 5), (3, 5, 6), "sizes do not fit"),
    ((5,), (5,), "must be matrices"), ((3, 4, 5), (2, 3, 5, 6), "must be matrices, or stacks of as many"),
])
def test_products_that_there_are_not(left, right, needle):
    with pytest.raises(RuleError, match=r"ops.matmul cannot take values of shapes .* and .*" + needle):
        shape_before("matmul", left, right)
