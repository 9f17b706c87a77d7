"""keras-bert 0.81 (Keras 2.3.1): pretraining of a tiny model with its AdamWarmup and with a rule of ours."""
from __future__ import absolute_import, division, print_function

import contextlib

import keras
import keras_bert
import numpy as np
import tensorflow as tf
from compare import apart, shown
from keras_runs import seeded, start

import everstep

BERT = "keras-bert", "0.81.1, Keras {}, TF {}".format(keras.__version__, tf.__version__)
WORDS = ["word{}".format(number) for number in range(20)]
TOKENS = dict(keras_bert.get_base_dict(), **{word: 5 + number for number, word in enumerate(WORDS)})
LENGTH, USED, STEPS, MORE = 16, 13, 40, 10  # [CLS], twice five words and [SEP]
SETTINGS = dict(weight_decay=0.01, decay_steps=100, warmup_steps=10, learning_rate=2e-3)


class WarmupAndLine(everstep.Schedule):
    """The learning rate of AdamWarmup: after the warmup it is on a line that began at the first update."""

    rate = everstep.option(1e-3)
    warmup_steps = everstep.option(1.0)
    decay_steps = everstep.option(1.0)
    ahead = everstep.option(0.0)

    def value(self, ops, updates):
        t = updates + 1 + self.ahead
        line = self.rate * (1 - ops.minimum(t, self.decay_steps) / self.decay_steps)
        return ops.where(t <= self.warmup_steps, self.rate * t / self.warmup_steps, line)


class WarmedAdam(everstep.Definition):
    """Adam whose decay follows its corrected rate, on variables with a part of a name, as AdamWarmup.

    It has a name of its own: among keras-bert's custom objects AdamWarmup is keras-bert's. Nothing orders AdamWarmup's
    reads of `iterations` before their update; with one thread they come after it, a step ahead.
    """

    learning_rate = everstep.hyper(1e-3)
    weight_decay = everstep.hyper(0.01)
    decayed = everstep.option("")
    ahead = everstep.option(0.0)
    decays = everstep.option(True)
    m, v = everstep.slot(), everstep.slot()

    def specialize(self, variable):
        return self.replace(decays=any(part in variable.name for part in self.decayed.split()))

    def update(self, ops, grad, var, slots, hyper, t):
        m, v = 0.9 * slots.m + 0.1 * grad, 0.999 * slots.v + 0.001 * ops.square(grad)
        t = t + self.ahead
        rate = hyper.learning_rate * ops.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        change = m / (ops.sqrt(v) + 1e-7)
        if self.decays:
            change = change + hyper.weight_decay * var
        return rate * change, {"m": m, "v": v}


def same_maths(ahead):
    def make(decay_steps, warmup_steps, learning_rate, weight_decay, weight_decay_pattern):
        rate = WarmupAndLine(learning_rate, warmup_steps, decay_steps, ahead)
        return WarmedAdam(rate, weight_decay, " ".join(weight_decay_pattern), ahead)

    return make


def batches(seed):
    """Returns an endless generator of keras-bert's batches: the second sentence repeats the first."""
    seeded(seed)
    made = []
    for _ in range(10):
        firsts = [list(np.random.choice(WORDS, 5)) for _ in range(8)]
        made.append(keras_bert.gen_batch_inputs(
            [(first, first) for first in firsts], TOKENS, list(TOKENS), seq_len=LENGTH, mask_rate=0.3))
    while True:
        for batch in made:
            yield batch


def fit(model, steps, seed=1):
    losses = []
    kept = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: losses.append(float(logs["loss"])))
    model.fit_generator(batches(seed), steps_per_epoch=steps, epochs=1, verbose=0, callbacks=[kept])
    return losses


def compiled(replacement=None):
    """Returns keras-bert's model, compiled by it, with a replacement of its optimizer or with its own (None)."""
    start(keras)
    model = keras_bert.get_model(token_num=len(TOKENS), pos_num=LENGTH, seq_len=LENGTH, embed_dim=16, head_num=2,
                                 transformer_num=2, feed_forward_dim=32, dropout_rate=0.0)
    with everstep.patched(keras_bert.bert, AdamWarmup=replacement) if replacement else contextlib.nullcontext():
        keras_bert.compile_model(model, **SETTINGS)
    return model


def resumed_apart(model, path):
    """Returns how far a run that was saved and loaded is from one that was not."""
    model.save(path)
    expected = fit(model, MORE, seed=2)
    weights = model.get_weights()
    start(keras, seed=3)
    model = keras.models.load_model(path, custom_objects=keras_bert.get_custom_objects())
    assert hasattr(model.optimizer, "definition"), "it was not loaded with ours"
    return max(apart(expected, fit(model, MORE, seed=2)), apart(weights, model.get_weights()))


def test_pretraining(tmp_path):
    runs = []
    for replacement in (None, None, same_maths(ahead=1), same_maths(ahead=0)):
        if len(runs) == 3 and apart(runs[0][0], runs[2][0]) < 1e-4:
            break
        model = compiled(replacement)
        losses = fit(model, STEPS)
        # The gradients of the keys' biases and of unused positions are 0 but for rounding, of which Adam makes steps.
        weights = {weight.name: value for value, weight in zip(model.get_weights(), model.weights)}
        weights["Embedding-Position/embeddings:0"] = weights["Embedding-Position/embeddings:0"][:USED]
        runs.append((losses, {name: value for name, value in weights.items() if "_bk" not in name}))
    (losses, weights), again, ours = runs[0], runs[1], runs[-1]
    resumed = resumed_apart(model, str(tmp_path / "model.h5"))
    shown(*BERT, "pretraining, AdamWarmup", STEPS, apart(losses, ours[0]), apart(losses, again[0]),
          apart(weights, ours[1]), apart(weights, again[1]), "model.save, load_model: {:.1e}".format(resumed))
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
    assert max(apart(losses, ours[0]), apart(weights, ours[1])) < 1e-5
    assert resumed < 1e-5


def test_another_rule(tmp_path):
    model = compiled(everstep.accumulate(everstep.optimizers.DiffGrad(1e-2), 2))
    losses = fit(model, STEPS)
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
    assert resumed_apart(model, str(tmp_path / "model.h5")) < 1e-5
