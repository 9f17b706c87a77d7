"""TensorFlow Probability 0.18 (TF 2.10) and 0.25 (tf_keras): minimize, inference and fit, with stock and ours."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from compare import apart, one_thread, shown

import everstep
from everstep.optimizers import SGD, Adam, DiffGrad

PROBABILITY = "tensorflow-probability", "{}, TF {}".format(tfp.__version__, tf.__version__)
one_thread(tf)
STEPS, MORE = 60, 30
OPTIMIZERS = {
    "Adam": (lambda: tf.optimizers.Adam(0.05), lambda: Adam(0.05).bind(tf.keras)),
    "SGD": (lambda: tf.optimizers.SGD(0.02, 0.9), lambda: SGD(0.02, momentum=0.9).bind(tf.keras)),
}
tfd = tfp.distributions


class Likelihood(object):
    """A robust regression by maximum likelihood, with a constrained variable."""

    def __init__(self, optimizer):
        random = np.random.RandomState(0)
        self.x = random.randn(100, 3).astype("float32")
        self.y = self.x.dot([1.0, -2.0, 0.5]).astype("float32") + random.standard_t(3, 100).astype("float32")
        self.weights = tf.Variable(tf.zeros(3), name="weights")
        self.scale = tfp.util.TransformedVariable(3.0, tfp.bijectors.Softplus(), name="scale")
        self.variables = [self.weights, self.scale.trainable_variables[0]]
        self.optimizer = optimizer

    def loss(self):
        likelihood = tfd.StudentT(3.0, tf.linalg.matvec(self.x, self.weights), self.scale)
        return -tf.reduce_mean(likelihood.log_prob(self.y))

    def train(self, steps=STEPS, **arguments):
        return tfp.math.minimize(self.loss, steps, self.optimizer, **arguments).numpy()


class Inference(object):
    """Variational inference: a hierarchical model with a factored normal posterior, by seeded samples."""

    def __init__(self, optimizer):
        model = tfd.JointDistributionSequentialAutoBatched([
            tfd.Normal(0.0, 5.0), tfd.LogNormal(0.0, 1.0),
            lambda spread, mean: tfd.Sample(tfd.Normal(mean, spread), 8),
            lambda effects: tfd.Independent(tfd.Normal(effects, tf.constant([15.0, 10, 16, 11, 9, 11, 10, 18])), 1),
        ])
        outcomes = tf.constant([28.0, 8, -3, 7, -1, 1, 18, 12])
        self.target = lambda *parts: model.log_prob(list(parts) + [outcomes])
        self.posterior = tfp.experimental.vi.build_factored_surrogate_posterior(
            [[], [], [8]], [None, tfp.bijectors.Softplus(), None], seed=(1, 2))
        self.variables = list(self.posterior.trainable_variables)
        self.optimizer = optimizer

    def train(self, steps=STEPS, **arguments):
        return tfp.vi.fit_surrogate_posterior(
            self.target, self.posterior, optimizer=self.optimizer, num_steps=steps, sample_size=4, seed=(3, 4),
            **arguments).numpy()


def values(run):
    return [variable.numpy() for variable in run.variables]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("task, name", [(Likelihood, "SGD"), (Likelihood, "Adam"), (Inference, "Adam")])
def test_training(task, name, jit):
    own, ours = OPTIMIZERS[name]
    runs = [task(make()) for make in (own, own, ours)]
    start = values(runs[0])
    losses = [run.train(jit_compile=jit) for run in runs]
    noise, difference = (apart(losses[0], each) for each in losses[1:])
    own_weights, weights = (apart(values(runs[0]), values(run)) for run in runs[1:])
    trained = {Likelihood: "math.minimize", Inference: "vi.fit_surrogate_posterior"}[task]
    shown(*PROBABILITY, "{}{}, {}".format(trained, " by XLA" if jit else "", name), STEPS, difference, noise, weights,
          own_weights)
    assert losses[0][-1] < losses[0][0] - 0.1 and apart(start, values(runs[0])) > 0.05
    assert difference < 1e-4 and weights < 1e-4


def regression(optimizer):
    """Returns a Keras model whose output is a distribution."""
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(8, "tanh", input_shape=(3,)),
        tf.keras.layers.Dense(2),
        tfp.layers.DistributionLambda(lambda out: tfd.Normal(out[..., :1], 1e-2 + tf.nn.softplus(out[..., 1:]))),
    ])
    model.compile(optimizer, lambda y, distribution: -distribution.log_prob(y))
    return model


def fitted(model, epochs=12):
    random = np.random.RandomState(0)
    x = random.randn(160, 3).astype("float32")
    y = (x.sum(1) + random.randn(160) * np.abs(x[:, 0])).astype("float32")
    return model.fit(x, y[:, None], 32, epochs, shuffle=False, verbose=0).history["loss"]


def test_fit():
    own, again, ours = (regression(OPTIMIZERS["Adam"][which]()) for which in (0, 0, 1))
    losses = [fitted(model) for model in (own, again, ours)]
    noise, difference = (apart(losses[0], each) for each in losses[1:])
    own_weights, weights = (apart(own.get_weights(), model.get_weights()) for model in (again, ours))
    shown(*PROBABILITY, "fit of a DistributionLambda, Adam", STEPS, difference, noise, weights, own_weights)
    assert losses[0][-1] < losses[0][0] - 0.3 and difference < 1e-4 and weights < 1e-3


def test_resumed_from_a_checkpoint(tmp_path):
    whole, second = (Inference(OPTIMIZERS["Adam"][1]()) for _ in range(2))
    whole.train()
    path = tf.train.Checkpoint(posterior=whole.posterior, optimizer=whole.optimizer).save(str(tmp_path / "half"))
    tf.train.Checkpoint(posterior=second.posterior, optimizer=second.optimizer).restore(path)
    expected, losses = whole.train(MORE), second.train(MORE)
    weights = apart(values(whole), values(second))
    shown(*PROBABILITY, "vi.fit_surrogate_posterior resumed", MORE, apart(expected, losses), weights=weights,
          saved="tf.train.Checkpoint")
    assert int(second.optimizer.iterations) == STEPS + MORE and weights < 1e-5


def test_its_own_run_continued():
    whole, second = (Likelihood(OPTIMIZERS["Adam"][which]()) for which in (0, 1))
    whole.train()
    state = everstep.capture(whole.optimizer, whole.variables, weights=True)
    everstep.restore(second.optimizer, state, second.variables, weights=True)
    expected, losses = whole.train(MORE), second.train(MORE)
    weights = apart(values(whole), values(second))
    shown(*PROBABILITY, "math.minimize, Adam continued by ours", MORE, apart(expected, losses), weights=weights,
          saved="everstep.State")
    assert weights < 1e-5


@pytest.mark.parametrize("jit", [False, True])
def test_a_rule_that_it_lacks(jit):
    rule = everstep.moving_average(everstep.accumulate(DiffGrad(0.1), 2), 0.9)
    run = Inference(rule.bind(tf.keras))
    losses = run.train(jit_compile=jit)
    raw = values(run)
    with everstep.averaged(run.optimizer, run.variables):
        averages = values(run)
    assert losses[-10:].mean() < losses[0] - 0.1 and apart(raw, averages) > 1e-3
    assert int(run.optimizer.iterations) == STEPS // 2
    shown(*PROBABILITY, "vi, accumulate(DiffGrad, 2){}: loss {:.2f} to {:.2f}".format(
        " by XLA" if jit else "", losses[0], losses[-1]), STEPS)
