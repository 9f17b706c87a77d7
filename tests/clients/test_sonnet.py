"""Sonnet 2.0 (TF 2.10): a module trained by snt.optimizers and by ours on OptimizerV2 and tf.compat.v1.train."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from compare import apart, one_thread, shown

import everstep
from everstep.optimizers import SGD, DiffGrad, QHAdam, RMSprop

SONNET = "dm-sonnet", "{}, TF {}".format(snt.__version__, tf.__version__)
one_thread(tf)
WORDS, LENGTH, BATCH, STEPS, MORE = 50, 6, 16, 60, 30
MODULES = {"tf.keras": tf.keras, "tf.compat.v1.train": tf.compat.v1.train}
OPTIMIZERS = {
    # Sonnet updates only the rows present, and adds the paper's epsilon, not "epsilon hat" as every stock Adam.
    "Adam": (lambda: snt.optimizers.Adam(1e-2, epsilon=1e-4),
             lambda: QHAdam(1e-2, nu_1=1.0, nu_2=1.0, epsilon=1e-4, sparse="rows")),
    "RMSProp": (lambda: snt.optimizers.RMSProp(1e-2, decay=0.9, momentum=0.5, epsilon=1e-5),
                lambda: RMSprop(1e-2, rho=0.9, momentum=0.5, epsilon=1e-5, epsilon_in_root=True, sparse="rows")),
    "Momentum": (lambda: snt.optimizers.Momentum(0.1, 0.9, use_nesterov=True),
                 lambda: SGD(0.1, momentum=0.9, nesterov=True, rate_in_velocity=False, sparse="rows")),
    "SGD": (lambda: snt.optimizers.SGD(0.3), lambda: SGD(0.3)),
}


class Applied(snt.Optimizer):
    """An optimizer with Keras's or tf.train's methods as one of Sonnet: all that a user has to write."""

    def __init__(self, optimizer):
        super(Applied, self).__init__()
        self.optimizer = optimizer

    def apply(self, updates, parameters):
        self.optimizer.apply_gradients(zip(updates, parameters))


class Texts(snt.Module):
    def __init__(self):
        super(Texts, self).__init__()
        self.embed = snt.Embed(WORDS, 8)
        self.norm = snt.LayerNorm(-1, True, True)
        self.mlp = snt.nets.MLP([16, 2])
        self.unused = tf.Variable(1.0, name="unused")  # its update is None

    def __call__(self, words):
        return self.mlp(self.norm(snt.flatten(self.embed(words))))


class Run(object):
    def __init__(self, optimizer):
        tf.random.set_seed(1)
        self.module, self.optimizer = Texts(), optimizer
        self.module(tf.zeros([1, LENGTH], tf.int32))
        self.checkpoint = tf.train.Checkpoint(module=self.module, optimizer=self.optimizer)

        @tf.function
        def step(words, labels):
            with tf.GradientTape() as tape:
                logits = self.module(words)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            parameters = self.module.trainable_variables
            self.optimizer.apply(tape.gradient(loss, parameters), parameters)
            return loss

        self.step = step

    def train(self, start=0, steps=STEPS):
        words = np.random.RandomState(0).randint(0, WORDS, (STEPS + MORE, BATCH, LENGTH)).astype("int32")
        return [self.step(*map(tf.constant, (batch, (batch[:, 0] > 24) * 1))).numpy()
                for batch in words[start : start + steps]]

    def weights(self):
        return [variable.numpy() for variable in self.module.trainable_variables]


@pytest.mark.parametrize("api", sorted(MODULES))
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_training(name, api):
    own, ours = OPTIMIZERS[name]
    runs = [Run(own()), Run(own()), Run(Applied(ours().bind(MODULES[api])))]
    start = runs[0].weights()
    losses = [run.train() for run in runs]
    noise, difference = (apart(losses[0], each) for each in losses[1:])
    own_weights, weights = (apart(runs[0].weights(), run.weights()) for run in runs[1:])
    shown(*SONNET, "snt.Module by {}, ours on {}".format(name, api), STEPS, difference, noise, weights, own_weights)
    assert np.mean(losses[0][-10:]) < 0.8 * losses[0][0] and apart(start, runs[0].weights()) > 0.1
    assert difference < 1e-4 and weights < 1e-3


@pytest.mark.parametrize("api", sorted(MODULES))
def test_resumed_from_a_checkpoint(api, tmp_path):
    def make():
        return Run(Applied(OPTIMIZERS["Adam"][1]().bind(MODULES[api])))

    whole, second = make(), make()
    whole.train()
    path = whole.checkpoint.save(str(tmp_path / "model"))
    expected = whole.train(STEPS, MORE)
    status = second.checkpoint.restore(path)
    losses = second.train(STEPS, MORE)
    status.assert_consumed()
    weights = apart(whole.weights(), second.weights())
    shown(*SONNET, "resumed, ours on " + api, MORE, apart(expected, losses), weights=weights,
          saved="tf.train.Checkpoint")
    assert weights < 1e-6


def test_its_own_run_continued():
    """The slots of snt.optimizers.Adam, put into a state."""
    own, ours = OPTIMIZERS["Adam"]
    whole, second = Run(own()), Run(Applied(ours().bind(tf.keras)))
    whole.train()
    adam, bound = whole.optimizer, second.optimizer.optimizer
    state = everstep.capture(bound, second.module.trainable_variables)
    slots = {name: {"m": m.numpy(), "v": v.numpy()} for name, m, v in zip(state.slots, adam.m, adam.v)}
    state = state.replace(slots=slots, updates=int(adam.step))
    everstep.restore(bound, state, second.module.trainable_variables)
    for variable, value in zip(second.module.trainable_variables, whole.weights()):
        variable.assign(value)
    losses = second.train(STEPS, MORE)
    expected = whole.train(STEPS, MORE)
    weights = apart(whole.weights(), second.weights())
    shown(*SONNET, "snt.optimizers.Adam continued by ours", MORE, apart(expected, losses), weights=weights,
          saved="everstep.State.replace")
    assert weights < 1e-4


@pytest.mark.parametrize("api", sorted(MODULES))
def test_a_rule_that_it_lacks(api):
    bound = everstep.accumulate(DiffGrad(3e-2, sparse="rows"), 2).bind(MODULES[api])
    losses = Run(Applied(bound)).train(0, STEPS + MORE)
    assert np.mean(losses[-10:]) < 0.8 * losses[0] and "previous_grad" in bound.get_slot_names()
    shown(*SONNET, "accumulate(DiffGrad, 2) on {}: loss {:.2f} to {:.2f}".format(api, losses[0], losses[-1]),
          STEPS + MORE)
