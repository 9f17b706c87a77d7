"""keras-adamw 1.38 (TF 1.15): its AdamW and SGDW of standalone Keras and of tf.keras, and rules of ours.

Nothing orders keras-adamw's reads of eta_t, and in standalone Keras of `iterations`, before their update: they may be a
step ahead, in two runs of one process not alike. So ours trains as of this step or of the next one.
"""
from __future__ import absolute_import, division, print_function

import functools

import keras
import keras_adamw
import numpy as np
import pytest
import tensorflow as tf
from compare import apart, shown
from keras_adamw import optimizers_225tf
from keras_runs import fit, start

import everstep

ADAMW = "keras-adamw", "{}, Keras {}, TF {}".format(keras_adamw.__version__, keras.__version__, tf.__version__)
APIS = {"keras": (keras, keras_adamw), "tf.keras": (tf.keras, optimizers_225tf)}
TOTAL, L2, RATE = 20, 0.2, {"AdamW": 5e-3, "SGDW": 5e-2}


class Annealing(everstep.Schedule):
    """A cosine from `rate` to 0 in `total` updates, then again."""

    rate = everstep.option(1e-3)
    total = everstep.option(20.0)
    ahead = everstep.option(0.0)

    def value(self, ops, updates):
        updates = updates + self.ahead
        place = updates - self.total * ops.floor(updates / self.total)
        return self.rate * 0.5 * (1 + ops.cos(np.pi * place / (self.total - 1)))


class AdamAhead(everstep.optimizers.Adam):
    """Adam with the bias correction of the next step."""

    kernel = None

    def update(self, ops, grad, var, slots, hyper, t):
        return super(AdamAhead, self).update(ops, grad, var, slots, hyper, t + 1)


def own(native, name, annealed):
    momentum = dict(momentum=0.9) if name == "SGDW" else {}
    return getattr(native, name)(
        learning_rate=RATE[name], weight_decays={"hidden/kernel:0": (0, L2)}, lr_multipliers={"out/bias": 0.5},
        total_iterations=TOTAL, use_cosine_annealing=annealed, init_verbose=False, **momentum)


def ours(name, annealed):
    """Returns the definition that DecoupledWeightDecay's docstring has for keras-adamw, with reads now or ahead."""
    for ahead in (0, 1) if annealed else (0,):
        rate = Annealing(RATE[name], TOTAL, ahead) if annealed else RATE[name]
        rules = {"AdamW": [everstep.optimizers.Adam(rate), AdamAhead(rate)],
                 "SGDW": [everstep.optimizers.SGD(rate, momentum=0.9)]}[name]
        scale = dict(base_rate=RATE[name]) if annealed else dict(times_rate=False)
        for rule in rules:
            rule = everstep.learning_rate_multipliers(rule, {"out/bias": 0.5})
            yield everstep.decoupled_weight_decay(
                rule, {"hidden/kernel": L2 * TOTAL**-0.5}, beside=True, **scale)


def data():
    random = np.random.RandomState(0)
    x = random.normal(size=(800, 10)).astype("float32")
    return x, np.tanh(x.dot(random.normal(size=(10, 2)))).astype("float32")


def trained(api, optimizer):
    """Returns the model, its losses and weights after 50 steps of 16 rows."""
    start(api)
    model = api.models.Sequential([
        api.layers.Dense(16, activation="tanh", input_shape=(10,), name="hidden"), api.layers.Dense(2, name="out")])
    model.compile(optimizer(), "mse")
    losses = fit(api, model, *data(), epochs=1, batch_size=16)
    return model, losses, model.get_weights()


def resumed_apart(api, model, path):
    """Returns how far a run that was saved and loaded is from one that was not."""
    model.save(path)
    expected = fit(api, model, *data(), epochs=1, seed=2, batch_size=32)
    weights = model.get_weights()
    start(api, seed=3)
    model = api.models.load_model(path)
    assert hasattr(model.optimizer, "definition"), "it was not loaded with ours"
    return max(apart(expected, fit(api, model, *data(), epochs=1, seed=2, batch_size=32)),
               apart(weights, model.get_weights()))


@pytest.mark.parametrize("annealed", [False, True], ids=["constant", "annealed"])
@pytest.mark.parametrize("name", sorted(RATE))
@pytest.mark.parametrize("where", sorted(APIS))
def test_training(where, name, annealed, tmp_path):
    api, native = APIS[where]
    _, losses, weights = trained(api, lambda: own(native, name, annealed))
    _, losses_again, weights_again = trained(api, lambda: own(native, name, annealed))
    for definition in ours(name, annealed):
        model, our_losses, our_weights = trained(api, functools.partial(definition.bind, api))
        if apart(losses, our_losses) < 1e-5:
            break
    resumed = resumed_apart(api, model, str(tmp_path / "model.h5"))
    shown(*ADAMW, "{}, its {}{}".format(where, name, ", cosine annealing" if annealed else ""), len(losses),
          apart(losses, our_losses), apart(losses, losses_again), apart(weights, our_weights),
          apart(weights, weights_again), "model.save, load_model: {:.1e}".format(resumed))
    assert np.mean(our_losses[-5:]) < 0.7 * np.mean(our_losses[:5])
    assert max(apart(losses, our_losses), apart(weights, our_weights)) < 1e-5
    assert resumed < 1e-6


@pytest.mark.parametrize("where", sorted(APIS))
def test_another_rule(where, tmp_path):
    api, _ = APIS[where]
    model, losses, _ = trained(api, lambda: everstep.accumulate(everstep.optimizers.DiffGrad(0.02), 2).bind(api))
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
    assert resumed_apart(api, model, str(tmp_path / "model.h5")) < 1e-6
