# -*- coding: utf-8 -*-
# not run: demo.py starts it in many environments; tests/test_examples.py trains a few steps of it in every cell
"""Trains every task with everstep on every API of the Python that runs this file. examples/demo.py calls it:

    python worker.py prepare FOLDER        draws the initial weights and all batches once
    python worker.py oracle FOLDER         trains in NumPy float64, with gradients derived by hand
    python worker.py train FOLDER CELL     trains on all APIs installed here

Results go to FOLDER/results/. Lines that begin with "@" are JSON for demo.py.
"""
from __future__ import absolute_import, division, print_function

import importlib
import json
import os
import platform
import sys
import time
import traceback
from collections import OrderedDict

import numpy as np

import digits
import words
from everstep.errors import TargetError
from everstep.optimizers import AdagradDecay, Adam, DiffGrad


class Own(object):
    """The API's own Adam, for comparison."""

    def __init__(self, adam):
        self.adam = adam

    def bind(self, module):
        stock = getattr(module, "AdamOptimizer", None) or getattr(module, "optimizers", module).Adam
        return stock(self.adam.learning_rate, epsilon=self.adam.epsilon)


class ByHand(object):
    """A task whose gradients are derived by hand instead of by differentiation."""

    def __init__(self, task):
        self.task = task

    def __getattr__(self, name):
        return getattr(self.task, name)

    def native(self, tf, batch):
        """Returns the `gradients` keyword of `bind`. `batch` is a function that returns the inputs and the target."""
        def gradients(loss, variables):
            by_name = sorted(variables, key=lambda variable: variable.name)  # a model has its own order
            found = dict(zip(map(id, by_name), self.task.graph_gradients(tf, by_name, *batch())))
            return [found[id(variable)] for variable in variables]

        return {"gradients": gradients}


# The runs. Nothing below depends on which definition it trains.
ADAM = Adam(3e-3)
# Only rows change, except on JAX and torch, where gradients are dense. The result is the same (see AdagradDecay).
ADAGRAD = AdagradDecay(0.1, decay_rate=0.5, decay_steps=300, initial_accumulator_value=1e-8,
                       sparse="rows", dense_ok=True)
RUNS = OrderedDict([
    ("digits, Adam", (digits, ADAM)),
    ("digits, the API's own Adam", (digits, Own(ADAM))),
    ("digits, DiffGrad", (digits, DiffGrad(5e-3))),
    ("words, AdagradDecay", (words, ADAGRAD)),
    ("words, by hand", (ByHand(words), ADAGRAD)),
])


def train_numpy(module, package, task, definition, weights, data, report):
    definition = getattr(definition, "adam", definition)
    numbers = {name: value for name, value in definition.get_config().items() if isinstance(value, float)}
    # Every other API stores hypers in float32.
    optimizer = definition.replace(**{name: float(np.float32(numbers[name])) for name in numbers}).bind(module)
    weights = OrderedDict((name, value.astype("float64")) for name, value in weights.items())
    for step in range(task.steps(data)):
        loss, gradients = task.loss_and_gradients(weights, *task.batch(data, step))
        report(loss)
        optimizer.apply_gradients([(gradients[name], weights[name]) for name in weights])
    return weights


def train_graph(module, tf, task, definition, weights, data, report):
    """Trains with TF 1: a graph, a session and `minimize`."""
    with tf.Graph().as_default(), tf.Session() as session:
        variables = OrderedDict((name, tf.Variable(value, name=name)) for name, value in weights.items())
        inputs, target = task.batch(data, 0)
        feeds = [tf.placeholder(array.dtype, array.shape) for array in inputs + [target]]
        loss = task.graph_loss(tf, variables, feeds[:-1], feeds[-1])
        native = task.native(tf, lambda: (feeds[:-1], feeds[-1])) if isinstance(task, ByHand) else {}
        step_op = definition.bind(module, **native).minimize(loss)
        session.run(tf.global_variables_initializer())
        for step in range(task.steps(data)):
            inputs, target = task.batch(data, step)
            report(session.run([loss, step_op], dict(zip(feeds, inputs + [target])))[0])
        return session.run(variables)


def train_keras(module, keras, task, definition, weights, data, report):
    """Trains with any Keras: `compile`, and `fit` or `train_on_batch`."""
    native = {}
    if isinstance(task, ByHand):
        tf = find("tf")
        target = definition.native_class(module).adapter_class.target
        in_graph = target == "get_updates" or tf and not tf.executing_eagerly()
        if not in_graph:  # `fit` does not ask the optimizer for gradients there
            return train_loop(module, keras, tf, task, definition, weights, data, report)
        native = task.native(tf, lambda: (model.inputs, (getattr(model, "targets", None) or model._targets)[0]))
    model, loss = task.keras_model(keras, weights)
    layers = OrderedDict()
    for name, value in weights.items():
        layers.setdefault(model.get_layer(name.split("/")[0]), []).append(value)
    for layer, values in layers.items():
        layer.set_weights(values)
    model.compile(definition.bind(module, **native), loss)
    batches = (task.batch(data, step) for step in range(task.steps(data)))
    batches = [(inputs if len(inputs) > 1 else inputs[0], target) for inputs, target in batches]
    on_jax = hasattr(keras, "ops") and keras.backend.backend() == "jax"
    if hasattr(model, "train_step") and not on_jax:
        fit(model, keras, batches, report)
    else:
        for inputs, target in batches:
            if on_jax:
                model.reset_metrics()  # otherwise the loss is the mean of all batches; `fit` resets nothing there
            report(model.train_on_batch(inputs, target))
    return OrderedDict(zip(weights, [value for layer in layers for value in layer.get_weights()]))


def train_loop(module, keras, tf, task, definition, weights, data, report):
    """Trains with a custom loop in a tf.function that passes gradients to the optimizer. None on JAX and torch."""
    if tf is None:
        return None
    keras3 = hasattr(keras, "ops")
    trained = [(keras if keras3 else tf).Variable(value) for value in weights.values()]
    variables = OrderedDict(zip(weights, [variable.value if keras3 else variable for variable in trained]))
    optimizer = definition.bind(module)

    @tf.function
    def step(inputs, target):
        loss = task.graph_loss(tf, variables, inputs, target)
        optimizer.apply_gradients(zip(task.graph_gradients(tf, list(variables.values()), inputs, target), trained))
        return loss

    for place in range(task.steps(data)):
        inputs, target = task.batch(data, place)
        report(step([tf.constant(array) for array in inputs], tf.constant(target)))
    return OrderedDict((name, variable.numpy()) for name, variable in variables.items())


def fit(model, keras, batches, report):
    """Trains with `fit` on TF 2 and Keras 3, because `train_on_batch` builds a pipeline or a trace for each batch."""
    class Losses(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.reset_metrics()  # otherwise the loss is the mean of all batches

        def on_train_batch_end(self, batch, logs=None):
            report(logs["loss"])

    inputs, target = zip(*batches)
    several = isinstance(inputs[0], list)
    inputs = [np.concatenate(parts) for parts in zip(*inputs)] if several else np.concatenate(inputs)
    model.fit(inputs, np.concatenate(target), batch_size=len(target[0]), shuffle=False, verbose=0, callbacks=[Losses()])


# One line for each API: the module for `bind`, the package of its models, and the trainer.
# APIs that an environment lacks are skipped.
APIS = [
    ("tf.train", "tf", train_graph),
    ("tf.compat.v1.train", "tf.compat.v1", train_graph),
    ("tf.keras", "tf.keras", train_keras),
    ("tf.keras.optimizers.legacy", "tf.keras", train_keras),
    ("keras", "keras", train_keras),
    ("tf_keras", "tf_keras", train_keras),
    ("tf_keras.optimizers.legacy", "tf_keras", train_keras),
]


def find(name):
    """Returns the module called `name`, or None."""
    first, rest = name.split(".")[0], name.split(".")[1:]
    try:
        found = importlib.import_module({"tf": "tensorflow"}.get(first, first))
    except ImportError:
        return None
    for part in rest:
        found = getattr(found, part, None)
    return found


def apis():
    """Yields the APIS that are installed, each once: `keras` is often `tf.keras`."""
    seen = set()
    for name, package, trainer in APIS:
        module, package = find(name), find(package)
        try:
            native = Adam.native_class(module) if module else None
        except TargetError:  # a later version emptied the namespace
            native = None
        if native and native not in seen:
            seen.add(native)
            yield name, module, package, trainer


def tell(**what):
    print("@" + json.dumps(what))
    sys.stdout.flush()


def prepare(folder):
    for task in (digits, words):
        weights, data = task.prepare(np.random.RandomState(0))  # the same numbers on every NumPy
        arrays = {"data/" + name: value for name, value in data.items()}
        for place, (name, value) in enumerate(weights.items()):
            arrays["weights/%d/%s" % (place, name)] = value.astype("float32")
        np.savez(os.path.join(folder, task.__name__ + ".npz"), **arrays)


def prepared(folder, task):
    """Returns the initial weights, in order, and the data that `prepare` drew."""
    with np.load(os.path.join(folder, task.__name__ + ".npz")) as arrays:
        weights = sorted(name for name in arrays.files if name.startswith("weights/"))
        weights = OrderedDict((name.split("/", 2)[2], arrays[name]) for name in weights)
        return weights, {name.split("/", 1)[1]: arrays[name] for name in arrays.files if name.startswith("data/")}


def train(folder, cell, here):
    """Trains every run on every API of `here` and writes all results into one file."""
    results, arrays = [], {}
    for api, module, package, trainer in here:
        started = time.time()
        for run, (task, definition) in RUNS.items():
            weights, data = prepared(folder, task)
            progress = Progress(api, run, task.steps(data))
            try:
                weights = trainer(module, package, task, definition, weights, data, progress)
            except Exception as error:  # one API that fails must not hide the others
                traceback.print_exc()
                tell(event="failed", api=api, run=run, why="%s: %s" % (type(error).__name__, error))
                continue
            if weights is None:  # not possible on this API
                continue
            arrays.update({"%d/%s" % (len(results), name): value for name, value in weights.items()})
            arrays["%d/losses" % len(results)] = progress.losses
            target = Adam.native_class(module).adapter_class.target
            results.append(dict(run=run, task=task.__name__, api=api, target=target,
                                framework=framework(api), cell=cell, python=platform.python_version(),
                                seconds=progress.seconds(), score=float(task.score(weights, data))))
        tell(event="done", api=api, seconds=time.time() - started)
    np.savez(os.path.join(folder, "results", cell + ".npz"), results=json.dumps(results), **arrays)


class Progress(object):
    """Collects losses and reports them five times a second."""

    def __init__(self, api, run, steps):
        self.api, self.run, self.steps = api, run, steps
        self.losses = []
        self.started = self.told = time.time()

    def __call__(self, loss):
        self.losses.append(float(loss))
        if time.time() - self.told > 0.2:
            self.told = time.time()
            tell(event="step", api=self.api, run=self.run, done=len(self.losses) / self.steps, loss=self.losses[-1])

    def seconds(self):
        return time.time() - self.started


def framework(api):
    """Returns name and version of the package of `api`."""
    names = [{"tf": "tensorflow"}.get(api.split(".")[0], api.split(".")[0]), "tensorflow"]
    if names[0] == "keras":
        names[1] = find("keras").backend.backend()
    return ", ".join("%s %s" % (name, find(name).__version__) for name in OrderedDict.fromkeys(names) if find(name))


if __name__ == "__main__":
    command, folder = sys.argv[1:3]
    if command == "prepare":
        prepare(folder)
    elif command == "oracle":
        train(folder, "oracle", [("numpy", np, None, train_numpy)])
    else:
        train(folder, sys.argv[3], apis())
