"""GPflow 2.9 (TF 2.10): Gaussian processes in float64, trained by stock optimizers, NaturalGradient and ours."""
from __future__ import absolute_import, division, print_function

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from compare import apart, one_thread, shown

import everstep
from everstep.optimizers import Adam, DiffGrad

GPFLOW = "gpflow", "{}, TF {}".format(gpflow.__version__, tf.__version__)
one_thread(tf)
STEPS, MORE = 60, 30


class WidePowers(tf.compat.v1.train.AdamOptimizer):
    """Adam of tf.train with the powers of its betas in float64. Its own are float32, 1e-5 off in the first rates."""

    def _create_slots(self, var_list):
        for name, beta in (("beta1_power", self._beta1), ("beta2_power", self._beta2)):
            first = min(var_list, key=lambda variable: variable.name)
            self._create_non_slot_variable(np.float64(np.float32(beta)), name, first)
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)
            self._zeros_slot(variable, "v", self._name)

    def _finish(self, update_ops, name_scope):
        betas = np.float32([self._beta1, self._beta2]).astype(np.float64)
        with tf.control_dependencies(update_ops):
            powers = [power.assign(power * beta) for power, beta in zip(self._get_beta_accumulators(), betas)]
        return tf.group(*(list(update_ops) + powers))


def train_adam():
    return everstep.from_native(tf.compat.v1.train.AdamOptimizer(0.02)).bind(tf.compat.v1.train)


ADAM = lambda: tf.optimizers.Adam(0.02), lambda: Adam(0.02).bind(tf.keras)  # noqa: E731
OPTIMIZERS = {
    "Adam": ADAM, "NaturalGradient and Adam": ADAM,
    "Adam of tf.train with powers in float64": (lambda: WidePowers(0.02), train_adam),
}


class Run(object):
    """A sparse variational process on minibatches."""

    def __init__(self, name, optimizer):
        random = np.random.RandomState(0)
        x = random.rand(100, 1)
        y = np.sin(12 * x) + 0.1 * random.randn(100, 1)
        self.model = gpflow.models.SVGP(
            gpflow.kernels.SquaredExponential(lengthscales=0.2), gpflow.likelihoods.Gaussian(0.1), x[:8].copy(),
            num_data=100)
        self.optimizer = optimizer
        natural = gpflow.optimizers.NaturalGradient(0.1) if name.startswith("Natural") else None
        if natural:
            gpflow.set_trainable(self.model.q_mu, False)
            gpflow.set_trainable(self.model.q_sqrt, False)
        data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(25)
        self.batches = iter(data)

        @tf.function
        def step(batch):
            loss = self.model.training_loss_closure(batch, compile=False)
            value = loss()
            if natural:
                natural.minimize(loss, [(self.model.q_mu, self.model.q_sqrt)])
            self.optimizer.minimize(loss, var_list=self.model.trainable_variables)
            return value

        self.step = step

    def train(self, steps=STEPS):
        return [self.step(next(self.batches)).numpy() for _ in range(steps)]

    def values(self):
        return {name: value.numpy() for name, value in gpflow.utilities.parameter_dict(self.model).items()}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_svgp(name):
    own, ours = OPTIMIZERS[name]
    runs = [Run(name, make()) for make in (own, own, ours)]
    start = runs[0].values()
    losses = [run.train() for run in runs]
    noise, difference = (apart(losses[0], each) for each in losses[1:])
    own_weights, weights = (apart(runs[0].values(), run.values()) for run in runs[1:])
    shown(*GPFLOW, "SVGP in float64, " + name, STEPS, difference, noise, weights, own_weights)
    assert losses[0][-1] < 0.9 * losses[0][0] and apart(start, runs[0].values()) > 0.1
    assert difference < 1e-4 and weights < 1e-4


def test_resumed(tmp_path):
    whole, first, second = (Run("Adam", OPTIMIZERS["Adam"][1]()) for _ in range(3))
    whole.train()
    first.train()
    path = tf.train.Checkpoint(model=first.model, optimizer=first.optimizer).save(str(tmp_path / "half"))
    tf.train.Checkpoint(model=second.model, optimizer=second.optimizer).restore(path)
    second.batches = first.batches
    expected, losses = whole.train(MORE), second.train(MORE)
    weights = apart(whole.values(), second.values())
    shown(*GPFLOW, "SVGP resumed", MORE, apart(expected, losses), weights=weights, saved="tf.train.Checkpoint")
    assert weights < 1e-12


def test_its_own_run_continued():
    """Trains with stock Adam, then with ours. GPflow carries the parameters over, everstep the slots."""
    whole, second = (Run("Adam", OPTIMIZERS["Adam"][which]()) for which in (0, 1))
    whole.train()
    state = everstep.capture(whole.optimizer, whole.model.trainable_variables)
    gpflow.utilities.multiple_assign(second.model, gpflow.utilities.parameter_dict(whole.model))
    everstep.restore(second.optimizer, state, second.model.trainable_variables, by_order=True)
    [next(second.batches) for _ in range(STEPS)]
    expected, losses = whole.train(MORE), second.train(MORE)
    weights = apart(whole.values(), second.values())
    shown(*GPFLOW, "SVGP, Adam continued by ours", MORE, apart(expected, losses), weights=weights,
          saved="parameter_dict, everstep.State")
    assert weights < 1e-6


def test_a_rule_that_it_lacks():
    run = Run("", everstep.accumulate(DiffGrad(0.05), 2).bind(tf.keras))
    losses = run.train()
    assert np.mean(losses[-8:]) < 0.9 * losses[0] and "previous_grad" in run.optimizer.get_slot_names()
    assert int(run.optimizer.iterations) == STEPS // 2
    shown(*GPFLOW, "SVGP, accumulate(DiffGrad, 2): loss {:.0f} to {:.0f}".format(losses[0], losses[-1]), STEPS)
