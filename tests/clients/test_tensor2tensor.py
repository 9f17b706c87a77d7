"""tensor2tensor 1.15 (TF 1.15): a small Transformer by its own `optimize`, with registered optimizers of ours."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
from compare import apart, shown
from tensor2tensor.data_generators import problem_hparams
from tensor2tensor.models import transformer
from tensor2tensor.utils import optimize, registry
from tensorflow.contrib.opt import extend_with_decoupled_weight_decay
from train_runs import Run, resumed_apart

import everstep

T2T = "tensor2tensor", "1.15.7, TF " + tf.__version__
STEPS, WORDS = 12, 10


def same_adam(learning_rate, hparams):
    """The rate is a tensor: its schedule of the step."""
    return everstep.from_native(optimize.true_adam(learning_rate, hparams))


@registry.register_optimizer
def our_true_adam(learning_rate, hparams):
    return same_adam(learning_rate, hparams).bind(tf.train)


@registry.register_optimizer
def our_adam_w(learning_rate, hparams):
    """As its own adam_w: contrib's decay, around a class of ours."""
    rule = same_adam(learning_rate, hparams)
    return extend_with_decoupled_weight_decay(type(rule.bind(tf.train)))(hparams.weight_decay, definition=rule)


class Model(object):
    """What a `Run` builds and minimizes: its model, and its `optimize`."""

    def __init__(self, optimizer):
        self.optimizer, self.model = optimizer, None

    def build(self, step):
        hparams = transformer.transformer_tiny()
        changes = dict(
            num_hidden_layers=1, hidden_size=8, filter_size=16, num_heads=1, layer_prepostprocess_dropout=0.0,
            attention_dropout=0.0, relu_dropout=0.0, clip_grad_norm=2.0, learning_rate_warmup_steps=4,
            learning_rate_constant=0.5, weight_decay=1e-3, optimizer=self.optimizer,
        )
        for name, value in changes.items():
            setattr(hparams, name, value)
        hparams.problem_hparams = problem_hparams.test_problem_hparams(WORDS, WORDS, hparams)
        random = np.random.RandomState(0)
        features = {name: tf.constant(random.randint(1, WORDS, (4, size, 1, 1)), tf.int32)
                    for name, size in (("inputs", 5), ("targets", 6))}
        features["target_space_id"] = tf.constant(1, tf.int32)
        self.model = transformer.Transformer(hparams, tf.estimator.ModeKeys.TRAIN, hparams.problem_hparams)
        return tf.add_n(list(self.model(features)[1].values()))

    def minimize(self, loss, step):
        return self.model.optimize(loss)

    def run(self):
        return Run(self.build, lambda: self)


@pytest.mark.parametrize("name", ["true_adam", "adam_w"])
def test_transformer(name, tmp_path):
    own, again, ours = [Model(each).run() for each in (name, name, "our_" + name)]
    start = own.weights()
    assert apart(start, ours.weights()) == 0
    losses, losses_again, our_losses = [run.train(STEPS) for run in (own, again, ours)]
    difference, noise = apart(losses, our_losses), apart(losses, losses_again)
    weights, own_weights = apart(own.weights(), ours.weights()), apart(own.weights(), again.weights())
    model = Model("our_" + name)
    resumed = resumed_apart(ours, model.build, lambda: model, STEPS, str(tmp_path / "model.ckpt"))
    shown(*T2T, "Transformer, " + name, STEPS, difference, noise, weights, own_weights,
          "tf.train.Saver: {:.1e}".format(resumed))
    # Stock rounds its power of beta_2 in each step, so that one step is 1e-6 apart; twelve steps enlarge a difference
    # in the start of its own run 15 times, too.
    assert losses[-1] < losses[0] and difference < 1e-5 and weights < 1e-4 and resumed < 1e-6
