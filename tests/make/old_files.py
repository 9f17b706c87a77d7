"""Writes files that an older everstep makes, for test_old_files: what a user has on disk before an upgrade.

    PYTHONPATH=OLD/.dev python tests/make/old_files.py FOLDER NAME   # in a cell, with the package of an old commit
    python tests/make/old_files.py --pack FOLDER                     # the folders as tests/files/old.zip

OLD is a checkout of that commit, after its own `python3 matrix/link_farm.py`. The folder NAME gets each file in each
format of this environment, the State that `capture` gave when it was written, and the weights after more steps. The
folder of NumPy also has pickles and configs of all definitions. Runs on Python 2.7 and newer.
"""
from __future__ import absolute_import, division, print_function

import base64
import importlib
import io
import json
import os
import pickle
import platform
import sys
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)

from old_run import START, STEPS, compiled, train, train_in, train_model  # noqa: E402


def definitions():
    """Returns {case: definition}: a learned scalar, a window that is half full, and what stock has, too."""
    import everstep
    from everstep import optimizers

    return {"nadam": optimizers.Nadam(0.0625),
            "stack": everstep.moving_average(everstep.accumulate(optimizers.Adam(0.0625, amsgrad=True), 2)),
            "momentum": optimizers.SGD(0.125, momentum=0.75)}


class Folder(object):
    """A folder of files, with facts.json."""

    def __init__(self, parent, name, **versions):
        self.path, self.cases = os.path.join(parent, name), []
        os.makedirs(self.path)
        self.versions = dict(versions, python=platform.python_version(), numpy=np.__version__)

    def add(self, case, loader, name, after, **facts):
        after = [np.asarray(value).tolist() for value in after]
        self.cases.append(dict(facts, case=case, loader=loader, file=name, after=after))

    def close(self, **facts):
        facts.update(versions=self.versions, cases=self.cases)
        with io.open(os.path.join(self.path, "facts.json"), "w", encoding="ascii", newline="\n") as file:
            file.write(u"" + json.dumps(facts, sort_keys=True, indent=0))


# NumPy


def all_configured():
    """Returns every definition, made so that hardly an argument has its default, and some stacks and schedules."""
    import everstep
    from everstep import optimizers

    names = sorted(name for name in optimizers.__all__ if isinstance(getattr(optimizers, name), type))
    found = []
    for name in names:
        kind = getattr(optimizers, name)
        if ".wrappers." not in kind.__module__:
            try:
                found.append(kind(0.03125))
            except Exception:  # a rule without a rate, or with a bound on it
                found.append(kind())
    adam = optimizers.Adam(everstep.CosineDecay(0.25, 10), amsgrad=True, epsilon=1e-3)
    e = everstep
    found += [
        adam, optimizers.Adam(e.Warmup(e.PolynomialDecay(0.5, 8), 4), sparse="catch_up"), e.accumulate(adam, 3),
        e.cautious(adam), e.centralize(adam), e.clip(adam, global_norm=1.0), e.decoupled_weight_decay(adam, 0.01),
        e.gradient_noise(adam), e.grokfast(adam), e.learning_rate_multipliers(adam, {"0": 2.0}), e.lookahead(adam),
        e.loss_scale(adam), e.master_copies(adam), e.moving_average(adam), e.sharpness_aware(adam),
        e.stochastic_weight_averaging(adam, 1, 1), optimizers.SGD(e.PiecewiseConstantDecay([2, 4], [0.5, 0.25, 0.125])),
        optimizers.SGD(e.ExponentialDecay(0.5, 4, 0.5), momentum=0.5, nesterov=True),
        optimizers.SGD(e.InverseTimeDecay(0.5, 0.5)), optimizers.SGD(e.CosineDecayRestarts(0.5, 4)),
        e.partition({"first": ("0", optimizers.SGD(0.5))}, default=optimizers.Lion(0.25)),
    ]
    return found


def write_numpy(parent, name):
    import everstep

    folder, configured = Folder(parent, name), []
    for definition in all_configured():
        weights = [value.copy() for value in START]
        try:
            train(definition.bind(np), weights)
            after = [weight.tolist() for weight in weights]
        except everstep.errors.EverstepError:  # several gradients a step
            after = None
        pickled = base64.b64encode(pickle.dumps(definition, 2)).decode("ascii")
        configured.append({"config": definition.get_config(), "pickle": pickled, "after": after})
    for case, definition in definitions().items():
        optimizer, weights = definition.bind(np), [value.copy() for value in START]
        train(optimizer, weights, STEPS)
        everstep.capture(optimizer, weights, weights=True).save(os.path.join(folder.path, case + ".npz"))
        pickled = base64.b64encode(pickle.dumps(optimizer, 2)).decode("ascii")
        train(optimizer, weights)
        folder.add(case, "State", case + ".npz", weights)
        folder.add(case, "pickle", case + ".npz", weights, pickle=pickled)
    folder.close(target="arrays", configured=configured)


# tf.train


def write_train(parent, name, uses_resource):
    import tensorflow as tf

    import everstep

    v1 = tf if hasattr(tf, "placeholder") else tf.compat.v1
    folder = Folder(parent, name, tensorflow=tf.__version__)
    for case, definition in definitions().items():
        path = os.path.join(folder.path, case)
        with v1.Graph().as_default(), v1.Session() as session:
            variables = [v1.get_variable(variable, initializer=v1.constant(value), use_resource=uses_resource)
                         for variable, value in zip(("kernel", "bias"), START)]
            fed = [v1.placeholder(v1.float32, value.shape) for value in START]
            optimizer = definition.bind(v1.train)
            step = optimizer.apply_gradients(list(zip(fed, variables)))
            session.run(v1.global_variables_initializer())
            train_in(session, step, fed, variables, STEPS)
            everstep.capture(optimizer, variables, session=session, weights=True).save(path + ".npz")
            v1.train.Saver().save(session, path, write_meta_graph=False, write_state=False)
            if case == "stack":
                builder = v1.saved_model.builder.SavedModelBuilder(os.path.join(folder.path, "exported"))
                builder.add_meta_graph_and_variables(session, ["serve"])
                builder.save()
            after = train_in(session, step, fed, variables)
            folder.add(case, "Saver", case, after)
            if case == "stack":
                folder.add(case, "exported graph", "exported", after)
    folder.close(target="tf_train", uses_resource=uses_resource)


# Keras


def save_checkpoint(model, path):
    import tensorflow as tf

    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)


def savers_of(target, case):
    """Returns {loader: (ending of the file, function of a model and a path)}."""
    savers = {"load_model, .h5": (".h5", lambda model, path: model.save(path))}
    if target in ("update_step", "keras3"):
        savers["load_model, .keras"] = ".keras", lambda model, path: model.save(path)
        savers["load_weights, .weights.h5"] = ".weights.h5", lambda model, path: model.save_weights(path)
    if target in ("optimizer_v2", "update_step") and sys.modules["tensorflow"].__version__ > "2":
        savers["Checkpoint"] = ".checkpoint", save_checkpoint
        if case == "stack":
            savers["load_weights, TF format"] = (
                ".weights", lambda model, path: model.save_weights(path, save_format="tf"))
            savers["load_model, SavedModel"] = "-saved", lambda model, path: model.save(path, save_format="tf")
    return savers


def write_keras(parent, name, package):
    import everstep
    from everstep.compat.targets import detect

    keras = importlib.import_module(package)
    keras = keras.keras if package == "tensorflow" else keras
    versions = {"keras": getattr(keras, "__version__", "2")}  # tf.keras 2.15 does not tell
    if "tensorflow" in sys.modules:
        versions["tensorflow"] = sys.modules["tensorflow"].__version__
    folder, target = Folder(parent, name, **versions), detect.find(keras).target.name
    for case, definition in sorted(definitions().items()):
        for loader, (ending, save) in sorted(savers_of(target, case).items()):
            keras.backend.clear_session()
            model = compiled(keras, definition.bind(keras))
            train_model(model, STEPS)
            save(model, os.path.join(folder.path, case + ending))
            facts = {"config": model.optimizer.get_config()}
            if ending == ".h5":
                try:
                    facts["pickle"] = base64.b64encode(pickle.dumps(model.optimizer, 2)).decode("ascii")
                except everstep.errors.UnsupportedError:  # its slots are in a graph
                    pass
                everstep.capture(model.optimizer, model.trainable_weights, weights=True).save(
                    os.path.join(folder.path, case + ".npz"))
            folder.add(case, loader, case + ending, train_model(model), **facts)
    folder.close(target=target)


def pack(parent):
    path = os.path.join(TESTS, "files", "old.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder, folders, files in os.walk(parent):
            folders.sort()
            for name in sorted(files):
                place = os.path.join(folder, name)
                archive.write(place, os.path.relpath(place, parent).replace(os.sep, "/"))
    print("%s: %d bytes" % (path, os.path.getsize(path)))


def main(parent, name):
    if parent == "--pack":
        return pack(name)
    import everstep

    print(everstep.__file__)
    api = name.split("-")[0]
    if api == "numpy":
        write_numpy(parent, name)
    elif api == "tf_train":
        write_train(parent, name, "resource" in name)
    else:
        write_keras(parent, name, "tensorflow" if api == "tf.keras" else "keras")


if __name__ == "__main__":
    main(*sys.argv[1:])
