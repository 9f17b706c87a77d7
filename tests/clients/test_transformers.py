"""Transformers 4.26 (TF 2.10): fit of a tiny BERT with the optimizer of create_optimizer, and with ours."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import tensorflow as tf
import transformers
from compare import apart, one_thread, shown
from transformers import optimization_tf

import everstep

TRANSFORMERS = "transformers", "{}, TF {}".format(transformers.__version__, tf.__version__)
CONFIG = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
              max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
RATE, WARMUP, BATCHES, EPOCHS = 2e-3, 10, 5, 12
STEPS = BATCHES * EPOCHS
one_thread(tf)


def own():
    """Returns AdamWeightDecay with WarmUp."""
    return transformers.create_optimizer(RATE, STEPS, WARMUP, weight_decay_rate=0.01)[0]


def same_maths(rate=None):
    rate = rate or everstep.Warmup(everstep.PolynomialDecay(RATE, STEPS - WARMUP, end=0.0), WARMUP, shift=True)
    return everstep.decoupled_weight_decay(
        everstep.optimizers.Adam(rate, epsilon=1e-8), 0.01, exclude=["LayerNorm", "layer_norm", "bias"])


def ours():
    return same_maths().bind(tf.keras)


def patched():
    """Returns what create_optimizer makes if its class is replaced: ours, with its own WarmUp."""
    with everstep.patched(optimization_tf, AdamWeightDecay=lambda learning_rate, **others: same_maths(learning_rate)):
        return own()


def compiled(optimizer):
    tf.keras.utils.set_random_seed(1)
    model = transformers.TFBertForSequenceClassification(transformers.BertConfig(**CONFIG))
    model(model.dummy_inputs)
    model.compile(optimizer)  # without a loss: the model's own
    return model


def fitted(model, epochs=EPOCHS):
    """Returns the losses of the epochs. The ids of a text tell its label."""
    random = np.random.RandomState(0)
    ids = random.randint(0, CONFIG["vocab_size"], (16 * BATCHES, 12))
    data = dict(input_ids=ids, attention_mask=np.ones_like(ids), labels=(ids[:, 3] > 31) * 1)
    return model.fit(tf.data.Dataset.from_tensor_slices(data).batch(16), epochs=epochs, verbose=0).history["loss"]


def weights(model):
    """Returns {variable: value}, without the biases of keys: softmax cancels them, so their gradients are rounding."""
    named = {variable.name.split("/", 1)[1]: variable.numpy() for variable in model.trainable_variables}
    return {name: value for name, value in named.items() if "key/bias" not in name}


@pytest.fixture(scope="module")
def trained():
    """Returns (losses, weights) of its own optimizer."""
    model = compiled(own())
    return fitted(model), weights(model)


@pytest.mark.parametrize("make", [ours, patched])
def test_fit(trained, make):
    losses, trained_weights = trained
    again, with_ours = compiled(own()), compiled(make())
    start = weights(with_ours)
    noise, difference = apart(losses, fitted(again)), apart(losses, fitted(with_ours))
    own_weights, our_weights = (apart(trained_weights, weights(model)) for model in (again, with_ours))
    name = "fit of BERT, create_optimizer" + (" by everstep.patched" if make is patched else "")
    shown(*TRANSFORMERS, name, STEPS, difference, noise, our_weights, own_weights)
    assert with_ours.optimizer.definition.inner.family == "Adam" and int(with_ours.optimizer.iterations) == STEPS
    assert losses[-1] < 0.5 * losses[0] and apart(trained_weights, start) > 0.1
    assert difference < 1e-5 and our_weights < 1e-3


def test_from_native():
    """The definition that from_native reads is that of a user who knows both."""
    assert everstep.from_native(own()) == same_maths()
    plain = transformers.create_optimizer(RATE, STEPS, WARMUP)[0]  # without a weight decay it is Keras's own Adam
    assert everstep.from_native(plain) == same_maths().inner
    state = everstep.capture(trained_by(own()), VARIABLES)
    assert state.updates == 3 and [sorted(slots) for slots in state.slots.values()] == [["m", "v"]] * 2


VARIABLES = [tf.Variable([1.0, -2.0], name="encoder/kernel"), tf.Variable([0.5], name="encoder/bias")]


def trained_by(optimizer):
    for step in range(3):
        optimizer.apply_gradients([(tf.ones_like(each) * (step + 1), each) for each in VARIABLES])
    return optimizer


def test_from_native_with_inclusions():
    def make():
        return optimization_tf.AdamWeightDecay(
            0.1, weight_decay_rate=0.1, include_in_weight_decay=["kernel"], exclude_from_weight_decay=["encoder"])

    values = []
    for optimizer in (make(), everstep.from_native(make()).bind(tf.keras)):
        for each, value in zip(VARIABLES, ([1.0, -2.0], [0.5])):
            each.assign(value)
        trained_by(optimizer)
        values.append([each.numpy() for each in VARIABLES])
    assert apart(*values) < 4e-6


def test_resumed_from_its_own_checkpoint(tmp_path):
    """The checkpoint of PushToHubCallback: weights, and the optimizer's get_weights in a pickle."""
    whole, first = compiled(ours()), compiled(ours())
    expected = fitted(whole)
    losses = fitted(first, EPOCHS // 2)
    first._save_checkpoint(str(tmp_path / "checkpoint"), EPOCHS // 2)
    second = compiled(ours())
    second.optimizer._create_all_weights(second.trainable_variables)  # load_repo_checkpoint expects the slots
    assert second.load_repo_checkpoint(str(tmp_path))["epoch"] == EPOCHS // 2
    losses += fitted(second, EPOCHS - EPOCHS // 2)
    difference = apart(weights(whole), weights(second))
    shown(*TRANSFORMERS, "fit of BERT resumed", STEPS, apart(expected, losses), weights=difference,
          saved="load_repo_checkpoint")
    assert int(second.optimizer.iterations) == STEPS and difference < 1e-5


def test_its_own_run_continued(trained, tmp_path):
    """Trains with its AdamWeightDecay for half of the steps, then with ours from its slots."""
    losses, trained_weights = trained
    first = compiled(own())
    fitted(first, EPOCHS // 2)
    first.save_weights(str(tmp_path / "half"))
    state = everstep.read_checkpoint(str(tmp_path / "half"), same_maths())
    second = compiled(ours())
    everstep.restore(second.optimizer, state, second.trainable_variables, weights=True)
    rest = fitted(second, EPOCHS - EPOCHS // 2)
    difference = apart(trained_weights, weights(second))
    shown(*TRANSFORMERS, "AdamWeightDecay continued by ours", STEPS, apart(losses[EPOCHS // 2:], rest),
          weights=difference, saved="save_weights, everstep.read_checkpoint")
    assert difference < 1e-3


def test_a_rule_that_it_lacks(tmp_path):
    rule = everstep.accumulate(everstep.optimizers.DiffGrad(2e-3), 2)
    model = compiled(rule.bind(tf.keras))
    losses = fitted(model, 2 * EPOCHS)
    model.save_pretrained(str(tmp_path))
    loaded = transformers.TFBertForSequenceClassification.from_pretrained(str(tmp_path))
    assert apart(model.get_weights(), loaded.get_weights()) == 0
    assert losses[-1] < 0.7 * losses[0] and int(model.optimizer.iterations) == STEPS
    assert model.optimizer.get_slot_names().count("previous_grad") == 1
    shown(*TRANSFORMERS, "accumulate(DiffGrad, 2): loss {:.2f} to {:.2f}".format(losses[0], losses[-1]), 2 * STEPS)
