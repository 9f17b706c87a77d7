"""DeepCTR 0.9 (TF 2.10): fit of its DeepFM, DIN and of a model with FTRL, with stock optimizers and with ours."""
from __future__ import absolute_import, division, print_function

import os

import numpy as np
import pytest
import tensorflow as tf
from compare import apart, one_thread, shown

import everstep
from everstep.optimizers import Adagrad, Adam, DiffGrad, RMSprop

os.environ["HTTPS_PROXY"] = "http://127.0.0.1:9"  # DeepCTR asks the index for its newest version, in a thread

import deepctr  # noqa: E402
from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat, get_feature_names  # noqa: E402
from deepctr.models import DIN, DeepFM  # noqa: E402

DEEPCTR = "deepctr", "{}, TF {}".format(deepctr.__version__, tf.__version__)
one_thread(tf)
BATCH, BATCHES, EPOCHS, WORDS = 32, 5, 12, 20
STEPS = BATCHES * EPOCHS


def deep_fm():
    columns = [SparseFeat(name, WORDS, 4) for name in "abc"] + [DenseFeat("d", 1)]
    columns.append(VarLenSparseFeat(SparseFeat("list", WORDS, 4), 4, "mean"))
    return DeepFM(columns, columns, dnn_hidden_units=(8,), seed=1), get_feature_names(columns + columns)


def din():
    columns = [SparseFeat("a", WORDS, 4), SparseFeat("b", WORDS, 4), DenseFeat("d", 1)]
    columns.append(VarLenSparseFeat(SparseFeat("hist_b", WORDS, 4, embedding_name="b"), 4, length_name="length"))
    return DIN(columns, ["b"], dnn_hidden_units=(8,), att_hidden_size=(8,), seed=1), get_feature_names(columns)


RUNS = {
    "DeepFM, adam by name": (deep_fm, lambda: "adam", lambda: Adam(1e-3).bind(tf.keras)),
    "DeepFM, Adagrad": (
        deep_fm, lambda: tf.keras.optimizers.Adagrad(0.05), lambda: Adagrad(0.05).bind(tf.keras)),
    "DIN, RMSprop": (
        din, lambda: tf.keras.optimizers.RMSprop(5e-3, clipnorm=1.0),
        lambda: everstep.clip(RMSprop(5e-3), norm=1.0).bind(tf.keras)),
}


def data(names):
    """Returns (inputs, clicks)."""
    random = np.random.RandomState(0)
    count = BATCH * BATCHES
    inputs = {name: random.randint(1, WORDS, count) for name in "abc"}
    inputs.update(d=random.rand(count), length=np.full(count, 3))
    inputs.update({name: random.randint(1, WORDS, (count, 4)) for name in ("list", "hist_b")})
    return {name: inputs[name] for name in names}, (inputs["a"] + inputs["b"] > WORDS) * 1


class Run(object):
    def __init__(self, make, optimizer):
        tf.keras.utils.set_random_seed(1)
        self.model, self.names = make()
        self.model.compile(optimizer, "binary_crossentropy")

    def fit(self, epochs=EPOCHS):
        inputs, clicks = data(self.names)
        return self.model.fit(inputs, clicks, BATCH, epochs, shuffle=False, verbose=0).history["loss"]


@pytest.mark.parametrize("name", sorted(RUNS))
def test_fit(name):
    make, own, ours = RUNS[name]
    runs = [Run(make, optimizer()) for optimizer in (own, own, ours)]
    start = runs[0].model.get_weights()
    losses = [run.fit() for run in runs]
    noise, difference = (apart(losses[0], each) for each in losses[1:])
    values = [run.model.get_weights() for run in runs]
    own_weights, weights = (apart(values[0], each) for each in values[1:])
    shown(*DEEPCTR, "fit, " + name, STEPS, difference, noise, weights, own_weights)
    assert losses[0][-1] < losses[0][0] and apart(start, values[0]) > 0.1
    assert difference < 1e-4 and weights < 1e-3


def test_the_name_of_an_optimizer():
    """DeepCTR's examples say compile("adam")."""
    with everstep.patched(tf.keras.optimizers, Adam=Adam):
        run = Run(deep_fm, "adam")
    bound = Run(deep_fm, Adam().bind(tf.keras))
    assert type(run.model.optimizer) is type(bound.model.optimizer)
    assert apart(bound.fit(2), run.fit(2)) == 0


@pytest.mark.parametrize("name", ["DeepFM, Adagrad", "DIN, RMSprop"])
def test_resumed_from_a_saved_model(name, tmp_path):
    make, _, ours = RUNS[name]
    whole, first = Run(make, ours()), Run(make, ours())
    expected = whole.fit()
    losses = first.fit(EPOCHS // 2)
    path = str(tmp_path / "model.h5")
    first.model.save(path)
    first.model = tf.keras.models.load_model(path, deepctr.layers.custom_objects)
    losses += first.fit(EPOCHS - EPOCHS // 2)
    weights = apart(whole.model.get_weights(), first.model.get_weights())
    shown(*DEEPCTR, "fit resumed, " + name, STEPS, apart(expected, losses), weights=weights, saved="load_model, HDF5")
    assert int(first.model.optimizer.iterations) == STEPS and weights < 1e-5


def test_its_own_run_continued(tmp_path):
    make, own, ours = RUNS["DeepFM, Adagrad"]
    whole, first, second = Run(make, own()), Run(make, own()), Run(make, ours())
    expected = whole.fit()
    losses = first.fit(EPOCHS // 2)
    path = str(tmp_path / "model.h5")
    first.model.save(path)
    state = everstep.read_checkpoint(path)
    everstep.restore(second.model.optimizer, state, second.model.trainable_variables, weights=True)
    losses += second.fit(EPOCHS - EPOCHS // 2)
    weights = apart(whole.model.get_weights(), second.model.get_weights())
    shown(*DEEPCTR, "DeepFM, Adagrad continued by ours", STEPS, apart(expected, losses), weights=weights,
          saved="HDF5, everstep.read_checkpoint")
    assert weights < 1e-5


def test_a_rule_that_it_lacks():
    parts = everstep.partition({"tables": ("emb", DiffGrad(1e-2, sparse="rows"))}, default=DiffGrad(5e-3))
    rule = everstep.accumulate(parts, 2)
    run = Run(deep_fm, rule.bind(tf.keras))
    losses = run.fit()
    assert losses[-1] < 0.9 * losses[0]
    assert any("previous_grad" in slot for slot in run.model.optimizer.get_slot_names())
    name = "DeepFM, accumulate(partition of DiffGrad, 2): loss {:.2f} to {:.2f}"
    shown(*DEEPCTR, name.format(losses[0], losses[-1]), STEPS)
