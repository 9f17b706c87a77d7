"""Files that an older everstep wrote load, and training goes on as in the run that wrote them.

tests/make/old_files.py wrote tests/files/old.zip with the package of commit 9782681: for each API a folder with each
kind of file that its users save, a State, and the weights after three more steps. The folders of NumPy have pickles and
configs of all definitions of that time. `after` is what the old package computed.
"""
from __future__ import absolute_import, division, print_function

import base64
import json
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
from packaging.version import Version

import everstep
import keras_suite
from crafted_files import h5py, optional, tensorflow, tf1
from everstep.testing import oracle
from old_run import START, compiled, train, train_in, train_model

ZIP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files", "old.zip")
NEAR = 2e-6
WITH_TENSORFLOW = ("Saver", "exported graph", "Checkpoint", "load_weights, TF format", "load_model, SavedModel")


def folders():
    with zipfile.ZipFile(ZIP) as archive:
        names = sorted({name.split("/")[0] for name in archive.namelist()})
        return {name: json.loads(archive.read(name + "/facts.json").decode("ascii")) for name in names}


FOLDERS = folders()
CASES = [(name, case) for name in sorted(FOLDERS) for case in FOLDERS[name]["cases"]]
CONFIGURED = [(name, number) for name in sorted(FOLDERS)
              for number in range(len(FOLDERS[name].get("configured", ())))]


def case_ids(value):
    return "{}, {}".format(value["case"], value["loader"]) if isinstance(value, dict) else str(value)


def extracted(folder, place):
    """Returns the place of a folder's files."""
    with zipfile.ZipFile(ZIP) as archive:
        archive.extractall(str(place), [name for name in archive.namelist() if name.startswith(folder + "/")])
    return os.path.join(str(place), folder)


def unpickled(text):
    """Returns what a pickle holds. Arrays of Python 2 need the encoding, which any Python 3 has to be told."""
    return pickle.loads(base64.b64decode(text), **({} if sys.version_info < (3,) else {"encoding": "latin1"}))


def check_after(weights, case):
    for actual, expected in zip(weights, case["after"]):
        assert oracle.distance(np.asarray(actual), np.asarray(expected, np.float32)) <= NEAR


# Definitions


def lost(old, new):
    """Returns the keys of a config that a newer one lacks or that have another value there."""
    return [key for key in old if key not in new or (
        lost(old[key], new[key]) if isinstance(old[key], dict) and isinstance(new[key], dict)
        else json.dumps(old[key]) != json.dumps(new[key]))]


@pytest.mark.shared
@pytest.mark.parametrize("folder, number", CONFIGURED)
def test_a_definition(folder, number):
    facts = FOLDERS[folder]["configured"][number]
    definition = everstep.Definition.from_config(facts["config"])
    assert unpickled(facts["pickle"]) == definition
    assert lost(facts["config"], json.loads(json.dumps(definition.get_config()))) == []
    if facts["after"] is not None:
        weights = [value.copy() for value in START]
        train(definition.bind(np), weights)
        check_after(weights, facts)


def test_the_older_ones_are_there():
    assert len(CASES) > 60 and len(CONFIGURED) > 100
    assert {FOLDERS[name]["target"] for name in FOLDERS} == {
        "arrays", "get_updates", "keras3", "optimizer_v2", "tf_train", "update_step"}


# Files, which go on with arrays


@pytest.mark.shared
@pytest.mark.parametrize("folder, case", CASES, ids=case_ids)
def test_a_file_goes_on_with_arrays(folder, case, tmp_path):
    if case["file"].endswith((".h5", ".keras")) and h5py is None:
        pytest.skip("h5py reads HDF5")
    if case["loader"] in WITH_TENSORFLOW and tensorflow is None:
        pytest.skip("TensorFlow reads its checkpoints")
    place = extracted(folder, tmp_path)
    saved = everstep.State.load(os.path.join(place, case["case"] + ".npz"))
    definition = everstep.Definition.from_config(saved.definition)
    path = os.path.join(place, case["file"])
    states = [saved] if path.endswith(".npz") else [everstep.read_checkpoint(path, definition=definition)]
    for state in states:
        assert (state.updates, state.steps) == (saved.updates, saved.steps)
        names = sorted(state.slots, key=lambda name: -np.ndim(state.variables[name]))
        weights = {name: np.array(state.variables[name]) for name in names}
        optimizer = definition.bind(np)
        everstep.restore(optimizer, state, weights)
        weights = [weights[name] for name in names]
        train(optimizer, weights)
        check_after(weights, case)


# Files, which go on on their API


def kerases():
    """Returns {target: (module, package)} of this environment, one of each target."""
    return {target: (module, module if module.__name__ == "keras" else keras_suite.package_of(name, module))
            for target, modules in keras_suite.available_modules().items() for name, module in modules[:1]
            if target in ("get_updates", "optimizer_v2", "update_step", "keras3")}


KERASES = kerases()


def release(version):
    """Returns (major, minor). Some call themselves "2.2.4-tf"."""
    return Version(version.split("-")[0]).release[:2]


def version_of(package):
    return release(getattr(optional(package), "__version__", "0"))


def here(folder):
    """Returns whether the Keras is here that wrote a folder: others need not load its models, nor its pickles."""
    facts = FOLDERS[folder]
    wrote = {name: release(version) for name, version in facts["versions"].items()}
    if facts["target"] == "keras3":
        backend = KERASES["keras3"][1].backend.backend() if "keras3" in KERASES else ""
        return folder.endswith(backend) and backend != "" and wrote["keras"] <= version_of("keras")
    packages = ("keras", "tensorflow") if facts["target"] == "get_updates" else ("tensorflow",)
    return facts["target"] in KERASES and all(wrote[name] == version_of(name) for name in packages)


def loaded(folder, loader, path, definition):
    """Returns the model that a loader of Keras makes of a file."""
    module, keras = KERASES[FOLDERS[folder]["target"]]
    keras.backend.clear_session()
    if loader.startswith("load_model"):
        return keras.models.load_model(path, custom_objects=everstep.custom_objects(module))
    model = compiled(keras, definition.bind(module))
    if loader == "Checkpoint":
        tensorflow.train.Checkpoint(model=model, optimizer=model.optimizer).restore(path).expect_partial()
    else:
        model.load_weights(path)
    return model


@pytest.mark.parametrize("folder, case", [  # Keras loads a SavedModel without the state, and says so: docs/loaders.md
    (folder, case) for folder, case in CASES if here(folder) and "SavedModel" not in case["loader"]], ids=case_ids)
def test_a_loader_of_the_api(folder, case, tmp_path):
    place = extracted(folder, tmp_path)
    definition = everstep.Definition.from_config(
        everstep.State.load(os.path.join(place, case["case"] + ".npz")).definition)
    module, _ = KERASES[FOLDERS[folder]["target"]]
    assert type(definition.bind(module)).from_config(case["config"]).definition == definition
    model = loaded(folder, case["loader"], os.path.join(place, case["file"]), definition)
    check_after(train_model(model), case)


def is_for_this_numpy(folder):
    """Returns whether NumPy finds the arrays of a pickle: those of NumPy 2 name a module that NumPy 1 lacks."""
    return version_of("numpy") >= release(FOLDERS[folder]["versions"]["numpy"])[:1]


@pytest.mark.parametrize("folder, case", [
    (folder, case) for folder, case in CASES
    if "pickle" in case and (here(folder) or folder.startswith("numpy") and is_for_this_numpy(folder))], ids=case_ids)
def test_a_pickled_optimizer(folder, case, tmp_path):
    saved = everstep.State.load(os.path.join(extracted(folder, tmp_path), case["case"] + ".npz"))
    optimizer = unpickled(case["pickle"])
    assert json.loads(json.dumps(optimizer.definition.get_config())) == json.loads(json.dumps(
        everstep.Definition.from_config(saved.definition).get_config()))
    start = [np.array(value) for _, value in sorted(saved.variables.items(), key=lambda each: -np.ndim(each[1]))]
    if folder.startswith("numpy"):
        train(optimizer, start)
        return check_after(start, case)
    model = compiled(KERASES[FOLDERS[folder]["target"]][1], optimizer)
    model.set_weights(start)
    check_after(train_model(model), case)


def wrote_before(folder):
    """Returns whether TensorFlow has all operations of a graph that was exported, by an older one."""
    return tensorflow and version_of("tensorflow") >= release(FOLDERS[folder]["versions"]["tensorflow"])


@pytest.mark.skipif(not hasattr(tf1, "placeholder"), reason="needs tf.train")
@pytest.mark.parametrize("folder, case", [
    (folder, case) for folder, case in CASES if case["loader"] == "Saver"
    or case["loader"] == "exported graph" and wrote_before(folder)], ids=case_ids)
def test_tf_train(folder, case, tmp_path):
    place = extracted(folder, tmp_path)
    saved = everstep.State.load(os.path.join(place, case["case"] + ".npz"))
    path = os.path.join(place, case["file"])
    with tf1.Graph().as_default(), tf1.Session() as session:
        if case["loader"] == "exported graph":
            tf1.saved_model.loader.load(session, ["serve"], path)
            fed, step, variables = ["Placeholder:0", "Placeholder_1:0"], "Adam", tf1.global_variables()[:2]
        else:
            uses_resource = FOLDERS[folder]["uses_resource"]
            variables = [tf1.get_variable(name, initializer=tf1.constant(value), use_resource=uses_resource)
                         for name, value in zip(("kernel", "bias"), START)]
            fed = [tf1.placeholder(tf1.float32, value.shape) for value in START]
            optimizer = everstep.Definition.from_config(saved.definition).bind(tf1.train)
            step = optimizer.apply_gradients(list(zip(fed, variables)))
            tf1.train.Saver().restore(session, path)
        check_after(train_in(session, step, fed, variables), case)
