"""TensorFlow Privacy 0.5 (TF 1.15): the classes that it makes of ours of tf.train, and of tf.keras in a graph."""
from __future__ import absolute_import, division, print_function

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_privacy
from compare import apart, shown
from tensorflow_privacy.privacy.optimizers import dp_optimizer, dp_optimizer_keras
from train_runs import Run, resumed_apart

import everstep

PRIVACY = "tensorflow-privacy", "{}, TF {}".format(tensorflow_privacy.__version__, tf.__version__)
STEPS, BATCH = 30, 8
STOCK = {
    "tf.train AdamOptimizer": lambda: tf.train.AdamOptimizer(0.02),
    "tf.train AdagradOptimizer": lambda: tf.train.AdagradOptimizer(0.1),
    "tf.keras SGD": lambda: tf.keras.optimizers.SGD(0.2, 0.9),
}


class InAGraph(object):
    """An optimizer of tf.keras with the `minimize` of tf.train: Privacy blurs in its `get_gradients`."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def minimize(self, loss, step):
        updates = self.optimizer.get_updates(loss, tf.trainable_variables())
        with tf.control_dependencies(updates):
            return step.assign_add(1)


def made(name, with_ours, noise):
    """Returns an optimizer of a class that Privacy makes of stock's or of ours."""
    stock, given = STOCK[name](), dict(l2_norm_clip=1.0, noise_multiplier=noise, num_microbatches=4)
    is_keras = "keras" in name
    rule = everstep.from_native(stock)
    if with_ours:
        base, arguments = type(rule.bind(tf.keras if is_keras else tf.train)), dict(definition=rule)
    else:
        base = type(stock)
        arguments = dict(learning_rate=rule.learning_rate, **({"momentum": rule.momentum} if is_keras else {}))
    if is_keras:
        return InAGraph(dp_optimizer_keras.make_keras_optimizer_class(base)(**dict(given, **arguments)))
    return dp_optimizer.make_gaussian_optimizer_class(base)(**dict(given, **arguments))


def losses_of(step):
    """Returns the loss of each example, as Privacy takes it."""
    random = np.random.RandomState(0)
    x = tf.gather(tf.constant(random.normal(size=(2 * STEPS, BATCH, 4)).astype("float32")), step % (2 * STEPS))
    y = tf.cast(x[:, :1] + x[:, 1:2] > 0, tf.float32)
    start = tf.random_uniform_initializer(-0.5, 0.5, seed=1)
    hidden, top = (tf.get_variable(name, shape, initializer=start, use_resource=True)
                   for name, shape in (("hidden", (4, 8)), ("top", (8, 1))))
    logits = tf.matmul(tf.tanh(tf.matmul(x, hidden)), top)
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)[:, 0]


@pytest.mark.parametrize("name", sorted(STOCK))
def test_minimize(name, tmp_path):
    own, again, ours = [Run(losses_of, functools.partial(made, name, each, 0.05)) for each in (False, False, True)]
    start = own.weights()
    losses, losses_again, our_losses = [[loss.mean() for loss in run.train(STEPS)] for run in (own, again, ours)]
    difference, noise = apart(losses, our_losses), apart(losses, losses_again)
    weights, own_weights = apart(own.weights(), ours.weights()), apart(own.weights(), again.weights())
    resumed = []
    for with_ours in (False, True):  # without noise, which begins anew in a session
        make = functools.partial(made, name, with_ours, 0.0)
        run = Run(losses_of, make)
        run.train(STEPS)
        resumed.append(resumed_apart(run, losses_of, make, STEPS, str(tmp_path / str(with_ours))))
    shown(*PRIVACY, "minimize, " + name, STEPS, difference, noise, weights, own_weights,
          "tf.train.Saver: {:.1e} (its own: {:.1e})".format(resumed[1], resumed[0]))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) and apart(start, own.weights()) > 0.1
    assert max(difference, weights) < 1e-5 and resumed[1] <= max(1e-6, resumed[0])
