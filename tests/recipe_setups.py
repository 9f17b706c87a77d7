"""The set-ups of api/recipes.md. `block_setups` tells what a set-up is."""
from __future__ import absolute_import, division, print_function

import glob
import io
import json
import math
import os
import shutil

import numpy as np

import everstep
import harness
import small_model
from block_setups import KERAS, ROOT, X, Y, dense_model, model_of_rows, setup, tf, v1
from everstep.optimizers import Adam
from everstep.optimizers.contract import tree, walk

ONE_BATCH = X[:32], Y[:32]  # so that shuffling changes nothing


def layered(keras, *layers):
    """Returns a model of 4 inputs and these layers."""
    outputs = inputs = keras.layers.Input((4,))
    for layer in layers:
        outputs = layer(outputs)
    return keras.models.Model(inputs, outputs)


def named(model):
    """Returns {name: value} of the weights: the variable's name, without its model and `:0`."""
    names = [getattr(each, "path", each.name).split(":")[0] for each in model.trainable_weights]
    return dict(zip(names, model.get_weights()))


@setup
def transformer(run):
    """A model with a normalization. After the block: the rate is in its warm-up, and kernels alone decay."""
    layers = KERAS.layers
    model = layered(KERAS, layers.Dense(3), layers.LayerNormalization(), layers.Dense(1))
    before = named(model)
    run.names.update(keras=KERAS, model=model, x=ONE_BATCH[0], y=ONE_BATCH[1])
    yield
    assert abs(everstep.current_rate(model.optimizer) - 5e-5 * 5 / 10) < 1e-11
    decayed = {}
    for variable in model.trainable_weights:
        rule = harness.bound(model.optimizer).rule(variable)
        decay, = [node.definition for node in walk(tree(rule)) if hasattr(node.definition, "times_rate")]
        decayed[getattr(variable, "path", variable.name)] = decay.otherwise
    assert len(decayed) == 6 and all(factor == float("kernel" in name) for name, factor in decayed.items()), decayed
    assert all((before[name] != value).any() for name, value in named(model).items())


@setup
def bert_pretraining(run):
    """A `loss` of a kernel and a bias. After the block: twelve steps are three updates, as BERT's formulas say."""
    values = {"layer/kernel": np.linspace(0.5, 1, 6).reshape(2, 3), "layer/bias": np.full(3, 0.25)}
    with v1.Graph().as_default(), v1.Session() as session:
        kernel, bias = [v1.get_variable(name, initializer=values[name].astype("float32")) for name in sorted(
            values, reverse=True)]
        run.names.update(tf=v1, loss=1.5 * tf.reduce_sum(kernel * kernel) + tf.reduce_sum(bias))
        yield
        session.run(v1.global_variables_initializer())
        for _ in range(12):
            session.run(run.names["train_op"])
        assert session.run(v1.train.get_global_step()) == 12
        trained = {"layer/kernel": session.run(kernel), "layer/bias": session.run(bias)}
    m = v = {name: 0.0 for name in values}
    for step in range(3):
        grads = {"layer/kernel": 3 * values["layer/kernel"], "layer/bias": np.ones(3)}
        norm = math.sqrt(sum((grad ** 2).sum() for grad in grads.values()))
        rate = 1e-2 * step / 2 if step < 2 else 1e-2 * (1 - step / 20.0)
        m = {name: 0.9 * m[name] + 0.1 * grad / norm for name, grad in grads.items()}
        v = {name: 0.999 * v[name] + 0.001 * (grad / norm) ** 2 for name, grad in grads.items()}
        for name in values:
            decay = 0.01 * values[name] if "bias" not in name else 0.0
            values[name] = values[name] - rate * (m[name] / (np.sqrt(v[name]) + 1e-6) + decay)
    for name, value in values.items():
        np.testing.assert_allclose(trained[name], value, rtol=1e-5)


@setup
def large_batches(run):
    """After the block: LAMB's first update of a kernel has the norm of the kernel, that of a bias is Adam's."""
    model = layered(KERAS, KERAS.layers.Dense(3, name="hidden"), KERAS.layers.Dense(1, name="top"))
    before = named(model)
    run.names.update(keras=KERAS, model=model, x=ONE_BATCH[0], y=ONE_BATCH[1])
    yield
    rate = 1e-3 * 4 / 50
    for name, value in named(model).items():
        change = np.linalg.norm(value - before[name])
        size = np.linalg.norm(before[name]) if "kernel" in name else math.sqrt(value.size)
        assert abs(change / (rate * size) - 1) < 1e-2, name
    other = dense_model(KERAS)
    other.compile(run.names["lars"].bind(KERAS), "mse")
    other.train_on_batch(*ONE_BATCH)
    assert abs(everstep.current_rate(other.optimizer) - 2 * 1.6 / 50) < 1e-6


@setup
def embedding_recipe(run):
    model = model_of_rows(run)
    yield
    optimizer, table = model.optimizer, model.layers[1].embeddings
    slots = [name for name in harness.bound(optimizer).slot_names(table) if name.endswith("catch_up/updates")]
    assert len(slots) == 1 and not optimizer.get_slot(table, slots[0]).numpy()
    assert not any("catch_up" in name for name in harness.bound(optimizer).slot_names(model.layers[-1].kernel))


@setup
def gan(run):
    """After the block: a step moves both models, and each optimizer has trained its own."""
    keras = tf.keras
    generator, discriminator = dense_model(keras, 4), dense_model(keras)
    before = [model.get_weights() for model in (generator, discriminator)]
    run.names.update(tf=tf, generator=generator, discriminator=discriminator)
    yield
    run.names["step"](X[:8], X[8:16])
    for name, model, old in zip(("of_generator", "of_discriminator"), (generator, discriminator), before):
        assert any((mine != theirs).any() for mine, theirs in zip(model.get_weights(), old))
        assert everstep.capture(run.names[name], model.trainable_variables).updates == 1


@setup
def one_for_two(run):
    """After the block: both models have made Adam's first and second step."""
    first, second = dense_model(KERAS), dense_model(KERAS)
    before = [model.get_weights() for model in (first, second)]
    run.names.update(everstep=everstep, keras=KERAS, first=first, second=second,
                     gradients_of=lambda model: [variable * 0 + 1 for variable in model.trainable_variables])
    yield
    # With equal gradients Adam moves by the rate. The moments of the second model start at its step, which is the
    # second of the optimizer: (0.1 / 0.19) / sqrt(0.001 / 0.001999).
    for model, old, change in zip((first, second), before, (1e-3, 1e-3 * 0.1 / 0.19 / (0.001 / 0.001999) ** 0.5)):
        for mine, theirs in zip(old, model.get_weights()):
            np.testing.assert_allclose(mine - theirs, change, rtol=1e-3)


OLD_RUN = os.path.join(ROOT, "tests", "files", "tf1.4", "adam.ckpt")


@setup
def old_checkpoint(run):
    """The checkpoint that stock Adam of TF 1.4 wrote after three steps of tests/small_model.py."""
    os.mkdir("old_run")
    for path in glob.glob(OLD_RUN + "*"):
        shutil.copy(path, "old_run")
        os.rename(os.path.join("old_run", os.path.basename(path)),
                  os.path.join("old_run", os.path.basename(path).replace("adam.ckpt", "model.ckpt")))
    yield


@setup
def old_run_on_keras_3(run):
    """run.npz if no block made it, and a model. After the block: the weights are those of stock's own next step."""
    with io.open(OLD_RUN + ".json", encoding="ascii") as file:
        recorded = json.load(file)
    if not os.path.exists("run.npz"):  # TensorFlow would read it from the checkpoint; these are the same numbers
        arrays = lambda values: {name: np.float32(value) for name, value in values.items()}  # noqa: E731  # of JSON
        everstep.State(
            Adam(0.1, epsilon=1e-8).get_config(), recorded["updates"], variables=arrays(recorded["variables"]),
            slots={name: arrays(slots) for name, slots in recorded["slots"].items()},
        ).save("run.npz")
    model = small_model.build(KERAS, "sgd")
    run.names.update(keras=KERAS, model=model, x=small_model.IDS, y=small_model.TARGETS)
    yield
    for value, name in zip(model.get_weights(), ("embeddings", "kernel")):
        np.testing.assert_allclose(value, recorded["next"][name], rtol=1e-5, atol=1e-6)
    assert everstep.capture(model.optimizer, model.trainable_variables).updates == recorded["updates"] + 1


@setup
def layer_rates(run):
    """After the block: Adam's first update of a bias is its layer's rate."""
    dense = KERAS.layers.Dense
    model = layered(KERAS, dense(3, name="embeddings"), dense(3, name="hidden"), dense(1, name="top"))
    run.names.update(keras=KERAS, model=model, x=ONE_BATCH[0], y=ONE_BATCH[1])
    yield
    for name, value in named(model).items():
        if "bias" in name:
            factor = {"embeddings": 0.25, "hidden": 0.5, "top": 1.0}[name.split("/")[-2]]
            np.testing.assert_allclose(np.abs(value), factor * 1e-3, rtol=1e-2)
    assert abs(everstep.current_rate(model.optimizer) - 1e-4) < 1e-10


@setup
def averages_saved(run):
    """After the block: the file has the averages, which the model now has too."""
    model, other = dense_model(KERAS), dense_model(KERAS)
    run.names.update(keras=KERAS, model=model, x=X, y=Y)
    yield
    assert os.path.exists("averages.weights.h5")
    other.load_weights("averages.weights.h5")
    for mine, theirs in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(mine, theirs)
    assert abs(model.evaluate(X, Y, verbose=0) - run.names["loss"]) < 1e-6


@setup
def logged(run):
    run.names.update(keras=KERAS, model=dense_model(KERAS), x=X, y=Y)
    yield
    batches = -(-len(X) // 32)
    expected = [0.5e-2 * (1 + math.cos(math.pi * min(epoch * batches, 6) / 6)) for epoch in (1, 2, 3)]
    np.testing.assert_allclose(run.names["rates"], expected, atol=1e-9)
    assert len(run.names["changes"]) == 3 and run.names["changes"][0] > 0 and len(glob.glob("logs/events*")) == 1


@setup
def logged_session(run):
    with v1.Graph().as_default():
        weights = v1.get_variable("weights", initializer=np.float32([3.0, 4.0]))
        run.names.update(tf=v1, loss=tf.reduce_sum(weights))
        yield
    records = run.names["hook"].records
    assert [record["step"] for record in records] == [10, 20, 30] and "'update_norm'" in run.printed()
    # With equal gradients Adam moves each weight by the rate.
    assert all(abs(record["update_norm"] - 0.1 * 2 ** 0.5) < 1e-4 for record in records)


@setup
def frozen(run):
    """After the block: the layer that was frozen trains, and the others have gone on."""
    model = dense_model(KERAS, names=("hidden", "top"))
    run.names.update(keras=KERAS, model=model, x=X, y=Y)
    before = model.layers[1].get_weights()
    yield
    assert len(run.names["state"].slots) == 2 and len(run.names["report"].restored) == 2
    assert "hidden" in run.printed()
    state = everstep.capture(model.optimizer, model.trainable_weights)
    assert state.updates == 4 and len(state.slots) == 4
    moved = np.abs(model.layers[1].get_weights()[0] - before[0]).max()
    assert 0 < moved < 1e-3  # by two updates of 1e-4


@setup
def addons_names(run):
    """After the block: the rate is that of the formula in RectifiedAdam, and all of them train."""
    yield
    rate, low, total, warmup = 1e-3, 1e-5, 1000, 100
    schedule = run.names["rectified"].learning_rate
    for updates in (0, 1, 50, 98, 99, 100, 101, 500, 998, 999, 1500):
        step = updates + 1.0
        expected = rate * step / warmup
        if step > warmup:
            expected = rate + (low - rate) / (total - warmup) * min(step - warmup, total - warmup)
        assert abs(schedule(updates) - expected) < 1e-12, updates
    for name in ("rectified", "ranger", "averaged", "swa"):
        weights = np.ones(3)
        run.names[name].bind(np).apply_gradients([(np.ones(3), weights)])
        assert (weights < 1).all()


@setup
def keras_adamw(run):
    model = dense_model(KERAS, names=("hidden", "output"))
    before = named(model)
    run.names.update(keras=KERAS, model=model, x=ONE_BATCH[0], y=ONE_BATCH[1])
    yield
    assert abs(everstep.current_rate(model.optimizer) - 1e-3 * 0.5 * (1 + math.cos(math.pi / 23))) < 1e-9
    for name, value in named(model).items():  # Adam's first update, and the decay
        rate, l2 = (5e-4, 1e-3) if "output" in name else (1e-3, 1e-2)
        decay = l2 * 24 ** -0.5 * before[name] * (rate / 1e-3) if "kernel" in name else 0.0
        np.testing.assert_allclose(np.abs(value - before[name] + decay), rate, rtol=1e-2)
