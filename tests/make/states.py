"""Writes tests/states, for test_grid and test_continue: captured states after half of a run, and the final weights.

    python tests/make/states.py [FOLDER]    # in a cell; writes its frameworks' folders, below tests/states or FOLDER

Definitions, start values and gradients come from tests/test_grid.py. `numpy.random.RandomState` gives the same numbers
in every NumPy. Runs on Python 2.7 and newer.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in (os.path.join(os.path.dirname(TESTS), ".dev"), TESTS):
    sys.path.insert(0, folder)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy  # noqa: E402

import harness  # noqa: E402
import stock  # noqa: E402
import test_continue  # noqa: E402
import test_grid  # noqa: E402
from crafted_files import spelled  # noqa: E402
from everstep import cli  # noqa: E402
from small_model import stock_optimizer  # noqa: E402

STATES = sys.argv[1] if sys.argv[1:] else test_grid.STATES

# (folder, way of compat/ways, {package: prefix of its version}, Python)
GRID = [
    ("tf_train-tf1.4", "tf_train ref", {"tensorflow": "1.4."}, "2.7"),
    ("tf_train-tf1.15", "tf_train ref", {"tensorflow": "1.15."}, "3.7"),
    ("get_updates-keras2.1", "get_updates keras", {"keras": "2.1."}, "2.7"),
    ("get_updates-keras2.3", "get_updates keras", {"keras": "2.3.", "tensorflow": "1.15."}, "3.7"),
    ("optimizer_v2-tf1.15", "optimizer_v2 session", {"tensorflow": "1.15."}, "3.7"),
    ("optimizer_v2-tf2.10", "optimizer_v2 function", {"tensorflow": "2.10."}, "3.9"),
    ("update_step-tf2.15", "update_step function", {"tensorflow": "2.15."}, "3.11"),
    ("keras3-tf2.21", "keras3 tensorflow function", {"tensorflow": "2.21."}, "3.13"),
    ("keras3-jax", "keras3 jax jit", {"keras": "3.15."}, "3.13"),
]
STOCK = {"tf_train-tf1.4": test_continue.TRAIN, "tf_train-tf1.15": test_continue.DEFAULTS}


def is_here(packages, python):
    versions = test_grid.versions()
    return versions["python"] == python and all(versions.get(name, "").startswith(packages[name]) for name in packages)


def folder_of(name):
    path = os.path.join(STATES, name)
    if not os.path.isdir(path):
        os.makedirs(path)
    return path


def write_json(path, facts):
    text = json.dumps(facts, sort_keys=True, indent=0)
    with io.open(path, "w", encoding="ascii", newline="\n") as file:
        file.write(u"".join(line + ("\n" if line.endswith(("{", "},")) else "") for line in text.splitlines()) + u"\n")
    print(os.path.relpath(path, STATES))


def write_grid(name, way):
    folder, ends = folder_of(name), {}
    for definition in sorted(test_grid.DEFINITIONS):
        run = test_grid.new_run(way, test_grid.DEFINITIONS[definition])
        test_grid.halfway(run).save(os.path.join(folder, definition + ".npz"))
        ends[definition] = {each: value.tolist() for each, value in test_grid.end(run).items()}
        run.close()
    facts = {"way": way.name, "versions": test_grid.versions(), "weights": ends}
    write_json(os.path.join(folder, "ends.json"), facts)


# Stock optimizers


def stock_run(way, optimizer, arguments):
    settings = dict(arguments)
    rate = settings.pop("learning_rate")
    return way.run(lambda: stock.make_stock(way, optimizer, rate, settings), test_continue.start(), test_grid.KINDS)


def write_train(name, way, runs):
    folder, cases = folder_of(os.path.join("stock", name)), {}
    for case, optimizer, arguments in runs:
        path, text = os.path.join(folder, case), spelled(optimizer, arguments)
        run = stock_run(way, optimizer, arguments)
        for batch in test_grid.BATCHES[: test_grid.HALF]:
            run.step(batch)
        run.saver.save(run.session, path + ".ckpt", write_meta_graph=False, write_state=False)
        cli.main(["convert", path + ".ckpt", path + ".npz", "--to", "everstep", "--optimizer", text])
        cases[case] = {"optimizer": text, "weights": {n: value.tolist() for n, value in test_grid.end(run).items()}}
        run.close()
    write_json(os.path.join(folder, "ends.json"), cases)


def keras_model(keras, optimizer):
    """Returns a model with a linear loss, so that its inputs and targets are its gradients."""
    layers = keras.layers
    rows, inputs = layers.Input((1,), dtype="int32"), layers.Input((4,))
    outputs = layers.Flatten()(layers.Embedding(6, 3, input_length=1, name="unique")(rows))
    model = keras.models.Model([rows, inputs], [outputs, layers.Dense(3, name="dense")(inputs)])
    model.compile(optimizer, lambda expected, outputs: keras.backend.sum(expected * outputs, axis=-1))
    start = test_continue.start()
    model.set_weights([start[name] for name in names_of(model)])
    return model


def names_of(model):
    return [test_continue.NAMES[variable.name.split(":")[0]] for variable in model.trainable_weights]


def train(model, batches):
    """Returns the weights after some steps. Losses are means over the 4 rows of a batch."""
    for batch in batches:
        values, indices = batch["unique"]
        fed = [indices.reshape(4, 1), 4 * numpy.eye(4, dtype="float32")]
        model.train_on_batch(fed, [4 * values, batch["dense"]])
    return {name: value.tolist() for name, value in zip(names_of(model), model.get_weights())}


def write_keras(name, keras):
    folder, cases, batches = folder_of(os.path.join("stock", name)), {}, test_grid.BATCHES
    for case, optimizer, arguments in test_continue.KERAS:
        keras.backend.clear_session()
        model = keras_model(keras, stock_optimizer(keras.optimizers, optimizer, arguments))
        train(model, batches[: test_grid.HALF])
        model.save(os.path.join(folder, case + ".h5"))
        cases[case] = {"optimizer": optimizer, "weights": train(model, batches[test_grid.HALF :])}
    write_json(os.path.join(folder, "ends.json"), cases)


def main():
    ways = {way.name: way for way in harness.all_ways()}
    for name, way, packages, python in GRID:
        if is_here(packages, python) and way in ways:
            write_grid(name, ways[way])
            if name in STOCK:
                write_train(name, ways[way], STOCK[name])
            if way == "get_updates keras":
                write_keras(name, ways[way].module)


if __name__ == "__main__":
    main()
