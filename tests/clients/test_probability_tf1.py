"""tensorflow-probability 0.8 (TF 1.15): a variational posterior, trained by tf.train and by rules of ours."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from train_runs import Run, resumed_apart, same_maths

import everstep

PROBABILITY = "tensorflow-probability", "{}, TF {}".format(tfp.__version__, tf.__version__)
OPTIMIZERS = {
    "AdamOptimizer": lambda: tf.train.AdamOptimizer(0.05),
    "RMSPropOptimizer": lambda: tf.train.RMSPropOptimizer(0.02, momentum=0.5, centered=True),
}
STEPS, SAMPLES, FEATURES = 60, 8, 5


def negative_elbo(step):
    """Returns the loss of Bayesian logistic regression, with noise that follows from the step."""
    random = np.random.RandomState(0)
    x = random.normal(size=(100, FEATURES)).astype("float32")
    y = (x.dot(random.normal(size=FEATURES)) > 0).astype("float32")
    location = tf.get_variable("location", [FEATURES], initializer=tf.zeros_initializer())
    scale = tf.nn.softplus(tf.get_variable("scale", [FEATURES], initializer=tf.zeros_initializer()))
    posterior = tfp.distributions.MultivariateNormalDiag(location, scale)
    prior = tfp.distributions.MultivariateNormalDiag(tf.zeros(FEATURES), tf.ones(FEATURES))
    noise = tf.random.stateless_normal([SAMPLES, FEATURES], tf.stack([step, 1]))
    weights = location + scale * noise
    likelihood = tfp.distributions.Bernoulli(logits=tf.matmul(weights, x.T)).log_prob(y)
    return tfp.distributions.kl_divergence(posterior, prior) - tf.reduce_mean(tf.reduce_sum(likelihood, 1))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_variational_posterior(name, tmp_path):
    same_maths(PROBABILITY, negative_elbo, OPTIMIZERS[name], "variational posterior, " + name, STEPS,
               str(tmp_path / "model"))


def test_another_rule(tmp_path):
    def make():
        return everstep.accumulate(everstep.optimizers.DiffGrad(0.1), 2).bind(tf.train)

    run = Run(negative_elbo, make)
    losses = run.train(STEPS)
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    assert isinstance(run.optimizer.definition, everstep.Definition)
    assert resumed_apart(run, negative_elbo, make, STEPS, str(tmp_path / "model")) < 1e-6
