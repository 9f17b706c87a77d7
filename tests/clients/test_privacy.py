"""TensorFlow Privacy 0.8 (TF 2.10): its optimizers that clip and blur gradients, made of our classes."""
from __future__ import absolute_import, division, print_function

import pytest
import tensorflow as tf
import tensorflow_privacy
from compare import apart, fitted, one_thread, shown
from tensorflow_privacy.privacy.optimizers import dp_optimizer_keras, dp_optimizer_keras_vectorized

import everstep

PRIVACY = "tensorflow-privacy", "{}, TF {}".format(tensorflow_privacy.__version__, tf.__version__)
one_thread(tf)
BATCH, BATCHES, EPOCHS = 8, 8, 4
STEPS = BATCH * EPOCHS
STOCK = {
    "Adam": lambda: tf.keras.optimizers.Adam(2e-2), "SGD": lambda: tf.keras.optimizers.SGD(0.3, 0.9),
    "Adagrad": lambda: tf.keras.optimizers.Adagrad(0.1),
}
MAKERS = {
    "generic": lambda base: dp_optimizer_keras.make_gaussian_query_optimizer_class(
        dp_optimizer_keras.make_keras_generic_optimizer_class(base)),
    "vectorized": dp_optimizer_keras_vectorized.make_vectorized_keras_optimizer_class,
}


def its_optimizer(name, maker, accumulated, with_ours):
    """Returns an optimizer of a class that Privacy makes of stock's or of ours."""
    stock = STOCK[name]()
    base, arguments = type(stock), {key: value for key, value in stock.get_config().items() if key != "name"}
    if with_ours:
        rule = everstep.from_native(stock)
        base, arguments = type(rule.bind(tf.keras)), dict(definition=rule)
    if accumulated > 1:
        arguments["gradient_accumulation_steps"] = accumulated
    return MAKERS[maker](base)(l2_norm_clip=1.0, noise_multiplier=0.05, num_microbatches=4, **arguments)


def compiled(*case):
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(1)  # of the start, and of the noise
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(8, "tanh", input_shape=(4,)), tf.keras.layers.Dense(1, "sigmoid")])
    loss = tf.keras.losses.BinaryCrossentropy(reduction=tf.losses.Reduction.NONE)  # one for each example
    model.compile(its_optimizer(*case), loss)
    return model


@pytest.mark.parametrize(
    "name, maker, accumulated", [("Adam", "generic", 1), ("SGD", "generic", 4), ("Adagrad", "vectorized", 1)])
def test_fit(name, maker, accumulated, tmp_path):
    own, again, ours = [compiled(name, maker, accumulated, each) for each in (False, False, True)]
    start, half, losses = own.get_weights(), EPOCHS // 2, {}
    for who, model in (("own", own), ("again", again), ("ours", ours)):
        tf.keras.utils.set_random_seed(1)
        losses[who] = fitted(model, half, BATCH, BATCHES)
        model.save_weights(str(tmp_path / who))
        tf.keras.utils.set_random_seed(1)
        losses[who] += fitted(model, half, BATCH, BATCHES)
    difference, noise = apart(losses["own"], losses["ours"]), apart(losses["own"], losses["again"])
    weights, own_weights = (apart(own.get_weights(), each.get_weights()) for each in (ours, again))
    resumed = {}
    for who, model in (("own", own), ("ours", ours)):
        loaded = compiled(name, maker, accumulated, who == "ours")
        loaded.load_weights(str(tmp_path / who))
        tf.keras.utils.set_random_seed(1)
        resumed[who] = max(apart(losses[who][half:], fitted(loaded, half, BATCH, BATCHES)),
                           apart(model.get_weights(), loaded.get_weights()))
    text = "fit, {}, {}{}".format(name, maker, ", gradient_accumulation_steps=4" if accumulated > 1 else "")
    shown(*PRIVACY, text, STEPS, difference, noise, weights, own_weights,
          "save_weights, load_weights: {:.1e} (its own: {:.1e})".format(resumed["ours"], resumed["own"]))
    assert losses["own"][-1] < losses["own"][0] and apart(start, own.get_weights()) > 0.1
    assert int(ours.optimizer.iterations) == int(own.optimizer.iterations) == STEPS
    assert max(difference, weights) < 1e-5 and resumed["ours"] <= max(1e-5, resumed["own"])
    if accumulated > 1:
        assert "grad_acc" in ours.optimizer.get_slot_names()
