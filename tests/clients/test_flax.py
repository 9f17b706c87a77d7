"""flax 0.12 (linen's TrainState, nnx's Optimizer), stopped and resumed by orbax and by flax's own bytes."""
from __future__ import absolute_import, division, print_function

import flax
import jax
import numpy as np
import optax
import orbax.checkpoint
import pytest
from compare import apart, shown
from flax import linen, nnx, serialization
from flax.training.train_state import TrainState

import everstep
from everstep.optimizers import SGD, Adam, DiffGrad

FLAX = "flax", "{}, JAX {}, optax {}".format(flax.__version__, jax.__version__, optax.__version__)
STEPS = 40
X = np.random.RandomState(0).normal(size=(STEPS, 16, 4)).astype("float32")
Y = (X[..., :1] + X[..., 1:2] > 0) * np.float32(1)


class Model(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(1)(linen.LayerNorm()(linen.relu(linen.Dense(16)(x))))


class Model2(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = nnx.Linear(4, 16, rngs=rngs), nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))


def started(transform):
    params = Model().init(jax.random.key(0), X[0])["params"]
    return TrainState.create(apply_fn=Model().apply, params=params, tx=transform)


@jax.jit
def step(state, x, y):
    def loss_of(params):
        return optax.sigmoid_binary_cross_entropy(state.apply_fn({"params": params}, x), y).mean()

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), loss


def trained(state, first=0, last=STEPS):
    losses = []
    for x, y in zip(X[first:last], Y[first:last]):
        state, loss = step(state, x, y)
        losses.append(float(loss))
    return state, losses


def leaves(tree):
    return [np.array(leaf) for leaf in jax.tree.leaves(tree)]


PAIRS = {"SGD, momentum": (optax.sgd(0.1, 0.9), SGD(0.1, momentum=0.9)),
         "Adam": (optax.adam(1e-2), Adam(1e-2, epsilon=1e-8))}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_beside_optax(name):
    stock, ours = PAIRS[name]
    (own, own_losses), (again, _), (other, losses) = (
        trained(started(transform)) for transform in (stock, stock, ours.bind(optax)))
    weights, noise = (apart(leaves(own.params), leaves(each.params)) for each in (other, again))
    shown(*FLAX, "TrainState, " + name, STEPS, apart(own_losses, losses), weights=weights, own_weights=noise)
    assert losses[-1] < 0.8 * losses[0] and weights < 1e-3


RULE = everstep.moving_average(everstep.accumulate(everstep.decoupled_weight_decay(
    DiffGrad(1e-2), 0.01, exclude=["bias", "LayerNorm"]), 2), 0.9)


@pytest.mark.parametrize("how", ["orbax", "flax", "everstep"])
def test_stopped_and_resumed(how, tmp_path):
    whole, _ = trained(started(RULE.bind(optax)))
    half, _ = trained(started(RULE.bind(optax)), 0, 19)  # in the middle of a window
    fresh = started(RULE.bind(optax))
    kept, template = ({"params": each.params, "opt": each.opt_state} for each in (half, fresh))
    if how == "orbax":
        checkpointer = orbax.checkpoint.StandardCheckpointer()
        checkpointer.save(str(tmp_path / "half"), kept)
        checkpointer.wait_until_finished()
        loaded = checkpointer.restore(str(tmp_path / "half"), template)
    elif how == "flax":
        loaded = serialization.from_bytes(template, serialization.to_bytes(kept))
    else:
        everstep.capture(half.tx, half.opt_state, half.params, weights=True, path=str(tmp_path / "half.npz"))
        state = everstep.State.load(str(tmp_path / "half.npz"))
        assert sorted(state.slots)[:3] == ["Dense_0/bias", "Dense_0/kernel", "Dense_1/bias"]
        opt, params = everstep.restore(fresh.tx, state, fresh.params, weights=True)
        loaded = {"opt": opt, "params": params}
    resumed, _ = trained(fresh.replace(params=loaded["params"], opt_state=loaded["opt"]), 19)
    weights = apart(leaves(whole.params), leaves(resumed.params))
    shown(*FLAX, "TrainState, accumulated DiffGrad with decay, averages", STEPS, weights=weights, saved=how)
    assert weights == 0 == apart(leaves(whole.opt_state), leaves(resumed.opt_state))
    averages = everstep.averaged(resumed.tx, resumed.opt_state, resumed.params)
    assert 1e-4 < apart(leaves(resumed.params), leaves(averages)) < 1


def test_nnx():
    ends = []
    for transform in (optax.sgd(0.1, 0.9), SGD(0.1, momentum=0.9).bind(optax)):
        model = Model2(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, transform, wrt=nnx.Param)

        @nnx.jit
        def train(model, optimizer, x, y):
            def loss_of(model):
                return optax.sigmoid_binary_cross_entropy(model(x), y).mean()

            loss, grads = nnx.value_and_grad(loss_of)(model)
            optimizer.update(model, grads)
            return loss

        losses = [float(train(model, optimizer, x, y)) for x, y in zip(X, Y)]
        ends.append((losses, leaves(nnx.state(model, nnx.Param))))
    weights = apart(ends[0][1], ends[1][1])
    shown(*FLAX, "nnx.Optimizer, SGD, momentum", STEPS, apart(ends[0][0], ends[1][0]), weights=weights)
    assert weights < 1e-4
