"""dm-sonnet 1.36 (TF 1.15): an embedding, a recurrent core and a linear module, trained by tf.train and by ours."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf
from train_runs import Run, resumed_apart, same_maths

import everstep

SONNET = "dm-sonnet", "{}, TF {}".format(snt.__version__, tf.__version__)
OPTIMIZERS = {
    "AdamOptimizer": lambda: tf.train.AdamOptimizer(1e-2),
    "MomentumOptimizer": lambda: tf.train.MomentumOptimizer(0.5, 0.9, use_nesterov=True),
    "AdagradOptimizer": lambda: tf.train.AdagradOptimizer(0.2),
}
STEPS, WORDS, BATCH, LENGTH = 60, 30, 16, 6


def next_word(step):
    """Returns the loss of a model of sequences that count upwards."""
    first = np.random.RandomState(0).randint(0, WORDS, (10, BATCH, 1))
    sequences = tf.constant((first + np.arange(LENGTH + 1)) % WORDS, tf.int32)[tf.cast(step % 10, tf.int32)]
    embedded = snt.Embed(WORDS, 8)(sequences[:, :-1])  # its gradients are sparse
    core = snt.LSTM(16)
    outputs, _ = tf.nn.dynamic_rnn(core, embedded, initial_state=core.initial_state(BATCH))
    logits = snt.BatchApply(snt.nets.MLP([16, WORDS], activation=tf.tanh))(outputs)
    return tf.losses.sparse_softmax_cross_entropy(sequences[:, 1:], logits)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_recurrent_model(name, tmp_path):
    same_maths(SONNET, next_word, OPTIMIZERS[name], "Embed, LSTM and MLP, " + name, STEPS,
               str(tmp_path / "model"))


def test_another_rule(tmp_path):
    def make():
        return everstep.accumulate(everstep.optimizers.DiffGrad(0.05), 2).bind(tf.train)

    run = Run(next_word, make)
    losses = run.train(STEPS)
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    assert isinstance(run.optimizer.definition, everstep.Definition)
    assert resumed_apart(run, next_word, make, STEPS, str(tmp_path / "model")) < 1e-6
