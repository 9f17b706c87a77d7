"""Factors of matrices, parts, sums by Einstein and the like in rules: on every API, as NumPy computes them."""

from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
import harness
import runs
from everstep.errors import DefinitionError, RuleError, UnsupportedError
from everstep.testing import oracle
from test_battery import ids

pytestmark = pytest.mark.shared
ONE_EACH = harness.one_of_each_target(harness.all_ways())
START = {"kernel": np.zeros((5, 3), "float32")}
GRAD = np.random.RandomState(4).normal(size=(5, 3)).astype("float32")


class Factors(everstep.Definition):
    """Keeps the factors of its gradient."""

    learning_rate = everstep.hyper(1.0)
    locality = "variable"
    values = everstep.slot(shape=lambda variable: variable.shape[1:])
    vectors = everstep.slot(shape=lambda variable: variable.shape[1:] * 2)
    r = everstep.slot(shape=lambda variable: variable.shape[1:] * 2)

    def update(self, ops, grad, var, slots, hyper, t):
        q, r = ops.qr(grad)
        values, vectors = ops.eigh(ops.matmul(ops.transpose(grad), grad))
        return hyper.learning_rate * q, {"values": values, "vectors": vectors, "r": r}


def signed(vectors, by):
    return vectors * np.where(by < 0, -1, 1)


@pytest.mark.parametrize("lowering", [None, {"compiled": True}], ids=["plain", "compiled"])
@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_rules_factor_matrices(way, lowering):
    backend = harness.bound(Factors().bind(way.module)).backend
    if lowering and not backend.lowers("compiled"):
        pytest.skip("XLA compiles nothing here, or all")
    if "eigh" not in backend.ops:
        pytest.skip("Keras 3.0 has no eigh: https://github.com/keras-team/keras/issues/19062")
    run = way.run(lambda: Factors().bind(way.module, **({"lowering": lowering} if lowering else {})), START,
                  {"kernel": harness.DENSE})
    run.step({"kernel": GRAD})
    most = 3e-4 if lowering and not backend.is_since("2.4") else 2e-5  # XLA's eigh was less accurate before
    q, r = np.linalg.qr(GRAD.astype("float64"))
    assert np.abs(run.weights()["kernel"] + signed(q, np.diagonal(r))).max() <= 2e-6
    assert np.abs(run.slot("kernel", "r") - signed(r.T, np.diagonal(r)).T).max() <= 5e-6
    values, vectors = np.linalg.eigh(GRAD.astype("float64").T.dot(GRAD))
    assert np.abs(run.slot("kernel", "values") / values - 1).max() <= 2e-5
    largest = vectors[np.abs(vectors).argmax(axis=0), range(3)]
    assert np.abs(run.slot("kernel", "vectors") - signed(vectors, largest)).max() <= most
    run.close()


@pytest.mark.parametrize("way", ONE_EACH, ids=ids)
def test_a_backend_that_lacks_one_is_named(way):
    def make():
        optimizer = Factors().bind(way.module)
        backend = harness.bound(optimizer).backend
        backend.ops = {op: function for op, function in backend.ops.items() if op != "eigh"}
        return optimizer

    message = "ops.eigh does not exist on {}".format(harness.bound(make()).backend.name)
    with pytest.raises(UnsupportedError, match=message):
        way.run(make, START, {"kernel": harness.DENSE}).step({"kernel": GRAD})


class Solved(everstep.Definition):
    """Divides its gradient by the sum of its squares, in a roundabout way."""

    learning_rate = everstep.hyper(0.1)
    ranks = everstep.option(2)
    start = everstep.option(0.25)
    locality = "variable"
    left = everstep.slot(init=lambda variable: 0.5 * np.eye(variable.shape[0]),
                         shape=lambda variable: variable.shape[:1] * 2)
    history = everstep.slot(shape=lambda variable, definition: (definition.ranks,) + tuple(variable.shape))
    total = everstep.scalar(init="start")

    def advance(self, ops, scalars, hyper, t):
        return {"total": scalars.total + 1}

    def update(self, ops, grad, var, slots, hyper, t):
        left = slots.left + ops.einsum("ij,kj->ik", grad, grad)
        lower = ops.cholesky(left + ops.eye(grad.shape[0]))
        solved = ops.solve(ops.matmul(lower, ops.transpose(lower)), grad)
        turned = ops.concat([solved[1:], solved[:1]])
        places = ops.reshape(ops.cast(ops.arange(grad.shape[1]), grad.dtype), (1, -1))
        history = ops.concat([slots.history[1:], ops.reshape(grad, (1,) + grad.shape)])
        u, s, v = ops.svd(grad)
        low = ops.matmul(u[:, : self.ranks] * s[: self.ranks], v[: self.ranks])
        change = solved + turned * places + 0.1 * low + slots.history[0] / hyper.total
        return hyper.learning_rate * change, {"left": left, "history": history}


@pytest.mark.parametrize("way", harness.all_ways(), ids=ids)
def test_rules_solve_join_and_take_parts(way):
    start, random = {"kernel": START["kernel"] + 1}, np.random.RandomState(5)
    batches = [{"kernel": random.normal(size=(5, 3)).astype("float32")} for _ in range(6)]
    run = way.run(lambda: Solved(ranks=2).bind(way.module), start, {"kernel": harness.DENSE})
    for batch in batches:
        run.step(batch)
    expected, slots = oracle.trajectory(Solved(ranks=2), start, batches)
    assert np.abs(run.weights()["kernel"] - expected["kernel"]).max() <= 1e-5
    for slot in ("left", "history"):
        assert np.abs(run.slot("kernel", slot) - slots["kernel"][slot]).max() <= 1e-5
    run.close()


@runs.numpy_cells
@pytest.mark.parametrize("init, needle", [
    (lambda variable: np.ones(3), "it returned an array of shape .3,"), (lambda variable: 1 / 0, "ZeroDivisionError"),
    (lambda variable: "one", "ValueError")], ids=["shape", "error", "text"])
def test_a_start_that_fails_is_named(init, needle):
    rule = type("Started", (Factors,), {"more": everstep.slot(init=init), "update": lambda self, ops, grad, var, slots,
                                        hyper, t: (grad, {"more": slots.more, "r": slots.r, "values": slots.values,
                                                          "vectors": slots.vectors})})
    with pytest.raises(DefinitionError, match="initial value of slot more fails for .*" + needle):
        runs.steps(rule(), np.ones((5, 3)), np.ones((5, 3)))


def test_mistakes_are_found_at_construction():
    class Stacked(Factors):
        def update(self, ops, grad, var, slots, hyper, t):
            q, r = ops.qr(ops.reshape(grad, (1,) + grad.shape))
            return grad, {"values": slots.values, "vectors": slots.vectors, "r": slots.r + ops.sum(q)}

    with pytest.raises(RuleError, match="ops.qr cannot take values of shapes .1, 3, 2.: it takes a matrix"):
        Stacked()

    class Oblong(Factors):
        def update(self, ops, grad, var, slots, hyper, t):
            values, vectors = ops.eigh(grad)
            return grad, {"values": slots.values, "vectors": slots.vectors, "r": slots.r + ops.sum(vectors)}

    with pytest.raises(RuleError, match="ops.eigh cannot take values of shapes .3, 2."):
        Oblong()
    with pytest.raises(RuleError, match="ops.qr takes one value; got 2"):
        type("Two", (Factors,), {"update": lambda self, ops, *args: ops.qr(args[0], args[1])})()
