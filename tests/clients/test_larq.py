"""Larq 0.13 (TF 2.10): its CaseOptimizer trains binary weights by its own class, and the others by ours."""
from __future__ import absolute_import, division, print_function

import larq
import numpy as np
import tensorflow as tf
from compare import apart, fitted, one_thread, shown

import everstep

LARQ = "larq", "{}, TF {}".format(larq.__version__, tf.__version__)
one_thread(tf)
BATCH, BATCHES, EPOCHS = 16, 6, 4
STEPS = BATCHES * EPOCHS


def stock():
    return tf.keras.optimizers.Adam(0.02)


def ours():
    return everstep.from_native(stock()).bind(tf.keras)


def compiled(make):
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(1)
    binary = larq.quantizers.NoOp(precision=1)
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(8, "tanh", input_shape=(4,)),
        larq.layers.QuantDense(8, kernel_quantizer=binary, kernel_constraint="weight_clip", use_bias=False),
        tf.keras.layers.BatchNormalization(), tf.keras.layers.Dense(1, "sigmoid"),
    ])
    optimizer = larq.optimizers.CaseOptimizer(
        (larq.optimizers.Bop.is_binary_variable, larq.optimizers.Bop(1e-4, 0.1)), default_optimizer=make())
    model.compile(optimizer, "binary_crossentropy")
    return model


def run(make, folder):
    """Returns losses and weights of a run, of one resumed from a checkpoint, and of one that went on from HDF5."""
    model, half = compiled(make), EPOCHS // 2
    losses = fitted(model, half, BATCH, BATCHES)
    model.save_weights(str(folder / "checkpoint"))
    model.save(str(folder / "model.h5"))
    loaded = compiled(make)
    loaded.load_weights(str(folder / "checkpoint"))
    resumed = fitted(loaded, half, BATCH, BATCHES), loaded.get_weights()
    from_file = tf.keras.models.load_model(str(folder / "model.h5"))
    assert type(from_file.optimizer.default) is type(make())
    assert apart(model.get_weights(), from_file.get_weights()) == 0
    went_on = fitted(from_file, half, BATCH, BATCHES), from_file.get_weights()
    rest = fitted(model, half, BATCH, BATCHES), model.get_weights()
    return losses, rest, resumed, went_on


def test_fit(tmp_path):
    """Larq writes class names of its own making, `config["name"]`, and variables are made by `_create_slots`."""
    runs = []
    for name, make in (("own", stock), ("again", stock), ("ours", ours)):
        (tmp_path / name).mkdir()
        runs.append(run(make, tmp_path / name))
    (losses, (rest, weights), own_resumed, went_on), again, with_ours = runs
    curves = [one[0] + one[1][0] for one in runs]
    difference, noise = apart(curves[0], curves[2]), apart(curves[0], curves[1])
    our_weights, own_weights = apart(weights, with_ours[1][1]), apart(weights, again[1][1])
    resumed = max(map(apart, with_ours[1], with_ours[2]))
    from_file = max(map(apart, went_on, with_ours[3]))
    shown(*LARQ, "CaseOptimizer, Bop and Adam", STEPS, difference, noise, our_weights, own_weights,
          "save_weights: {:.1e} (its own: {:.1e}); HDF5, beside its own: {:.1e}".format(
              resumed, max(map(apart, (rest, weights), own_resumed)), from_file))
    assert curves[0][-1] < curves[0][0]
    assert max(difference, our_weights, resumed, from_file) < 1e-5


def test_two_of_ours():
    """Each has variables with names of its own, so that an HDF5 file takes both."""
    optimizer = larq.optimizers.CaseOptimizer(
        (lambda variable: variable.shape.rank == 1, everstep.optimizers.SGD(0.1, momentum=0.9).bind(tf.keras)),
        default_optimizer=everstep.optimizers.SGD(0.2, momentum=0.9).bind(tf.keras, name="Other"))
    variables = [tf.Variable([[1.0, 2.0]]), tf.Variable([1.0])]
    optimizer.apply_gradients([(tf.ones_like(each), each) for each in variables])
    names = [each.name for each in optimizer.weights]
    assert len(set(names)) == len(names) == 4 and sum(name.startswith("Other/") for name in names) == 2
    np.testing.assert_allclose(variables[0], [[0.8, 1.8]])
