"""KerasHub 0.32 (Keras 3): fit of tiny models with stock optimizers and with ours."""
from __future__ import absolute_import, division, print_function

import keras
import keras_hub
import numpy as np
import pytest
from compare import apart, one_thread, shown

import everstep

HUB = "keras-hub", "{}, Keras {} on {}".format(keras_hub.__version__, keras.__version__, keras.config.backend())
WORDS, LENGTH, BATCH, BATCHES, EPOCHS = 32, 12, 16, 5, 6
STEPS = BATCHES * EPOCHS
SIZES = dict(vocabulary_size=WORDS, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32, dropout=0.0,
             max_sequence_length=LENGTH)
if HUB[1].endswith("tensorflow"):
    import tensorflow as tf

    one_thread(tf)


def classifier():
    """Returns (model, inputs, labels): BERT tells two kinds of texts apart."""
    backbone = keras_hub.models.BertBackbone(num_segments=2, **SIZES)
    words = np.random.RandomState(0).randint(0, WORDS, (BATCH * BATCHES, LENGTH))
    inputs = dict(token_ids=words, padding_mask=np.ones_like(words), segment_ids=np.zeros_like(words))
    return keras_hub.models.BertTextClassifier(backbone, 2, dropout=0.0), inputs, (words[:, 3] > 15) * 1


def language_model(lora=False):
    """Returns (model, inputs, labels): GPT-2 tells the next word."""
    backbone = keras_hub.models.GPT2Backbone(**SIZES)
    if lora:
        backbone.enable_lora(4)
    words = (np.random.RandomState(0).randint(0, WORDS, (BATCH * BATCHES, 1)) + 3 * np.arange(LENGTH + 1)) % WORDS
    inputs = dict(token_ids=words[:, :-1], padding_mask=np.ones_like(words[:, 1:]))
    return keras_hub.models.GPT2CausalLM(backbone), inputs, words[:, 1:]


def decayed():
    """Returns the AdamW that KerasHub's examples train BERT with."""
    schedule = keras.optimizers.schedules.PolynomialDecay(5e-3, STEPS, end_learning_rate=0.0)
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.01, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "layernorm", "layer_norm"])
    return optimizer


RUNS = {  # a model, the stock optimizer; "auto" is what the model's own compile chooses
    "BERT, AdamW with decay and clipping": (classifier, decayed),
    "GPT-2, compile's own Adam": (language_model, lambda: "auto"),
    "GPT-2 with LoRA, Adam": (lambda: language_model(True), lambda: keras.optimizers.Adam(1e-2)),
    "GPT-2, accumulated Lion": (
        language_model, lambda: keras.optimizers.Lion(1e-3, gradient_accumulation_steps=2, weight_decay=0.1)),
}


def _sum_duplicate_rows(optimizer):
    """Makes gradients dense: Keras squares duplicate rows one by one. See docs/records/from_native_accuracy.md."""
    apply = optimizer.apply
    optimizer.apply = lambda grads, variables=None: apply([tf.convert_to_tensor(grad) for grad in grads], variables)


class Run(object):
    def __init__(self, make, optimizer, is_ours=False):
        keras.utils.set_random_seed(1)
        self.model, self.inputs, self.labels = make()
        self.model.compile(optimizer)
        if is_ours:
            self.model.compile(everstep.from_native(self.model.optimizer).bind(keras))
        elif keras.config.backend() == "tensorflow":
            _sum_duplicate_rows(self.model.optimizer)
        self.start = self.weights()

    def fit(self, epochs=EPOCHS):
        data = dict(x=self.inputs, y=self.labels, batch_size=BATCH, shuffle=False, verbose=0)
        return self.model.fit(epochs=epochs, **data).history["loss"]

    def weights(self):
        """Returns the weights without the biases of keys: softmax cancels them, so their gradients are rounding."""
        variables = [variable for variable in self.model.trainable_variables if "key/bias" not in variable.path]
        return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


@pytest.mark.parametrize("name", sorted(RUNS))
def test_fit(name):
    make, optimizer = RUNS[name]
    own, again, ours = Run(make, optimizer()), Run(make, optimizer()), Run(make, optimizer(), is_ours=True)
    losses = [run.fit() for run in (own, again, ours)]
    weights = [run.weights() for run in (own, again, ours)]
    noise, difference = (apart(losses[0], other) for other in losses[1:])
    own_weights, our_weights = (apart(weights[0], other) for other in weights[1:])
    shown(*HUB, "fit, " + name, STEPS, difference, noise, our_weights, own_weights)
    assert type(ours.model.optimizer).__module__.startswith("everstep")
    assert losses[0][-1] < losses[0][0] and apart(weights[0], own.start) > 1e-3
    assert difference < 1e-4 and our_weights < 1e-3


@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("name", ["BERT, AdamW with decay and clipping", "GPT-2, accumulated Lion"])
def test_continued_from_a_saved_model(name, is_ours, tmp_path):
    """KerasHub's file has the optimizer, but loading compiles anew, stock or not: ours reads the file."""
    make, optimizer = RUNS[name]
    whole, first, second = (Run(make, optimizer(), is_ours) for _ in range(3))
    expected = whole.fit()
    losses = first.fit(EPOCHS // 2)
    path = str(tmp_path / "half.keras")
    first.model.save(path)
    second.model = model = keras.models.load_model(path)
    assert type(model).__module__.startswith("keras_hub") and type(model.optimizer).__name__ == "Adam"
    definition = everstep.from_native(first.model.optimizer)
    model.compile(definition.bind(keras))
    state = everstep.read_checkpoint(path, definition, variables=[each.path for each in model.trainable_variables])
    everstep.restore(model.optimizer, state, model.trainable_variables)
    losses += second.fit(EPOCHS - EPOCHS // 2)
    weights = apart(whole.weights(), second.weights())
    shown(*HUB, "continued{}, {}".format("" if is_ours else " by ours", name), STEPS, apart(expected, losses),
          weights=weights, saved=".keras, everstep.read_checkpoint")
    assert weights < (1e-5 if is_ours else 1e-3)


def test_a_rule_that_it_lacks(tmp_path):
    rule = everstep.moving_average(everstep.accumulate(everstep.optimizers.DiffGrad(1e-2), 2), 0.9)
    run = Run(language_model, rule.bind(keras))
    losses = run.fit()
    assert losses[-1] < 0.8 * losses[0]
    slots = {variable.path.rsplit("/", 1)[-1] for variable in run.model.optimizer.variables}
    assert any("previous_grad" in slot for slot in slots), slots
    with everstep.averaged(run.model.optimizer, run.model.trainable_variables):
        averages = run.model.get_weights()
        run.model.save_to_preset(str(tmp_path))
    loaded = keras_hub.models.GPT2CausalLM.from_preset(str(tmp_path), preprocessor=None)
    assert apart(averages, loaded.get_weights()) == 0 < apart(averages, run.model.get_weights())
    shown(*HUB, "averages of accumulate(DiffGrad, 2): loss {:.2f} to {:.2f}".format(losses[0], losses[-1]), STEPS,
          saved="save_to_preset in everstep.averaged")
