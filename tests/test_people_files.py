"""Files as people made them, with stock optimizers of Keras 1.0 to 3.15 and TensorFlow 1.4 to 2.21, are read right.

tests/make/people_files.py wrote the files and the truth about each: what its live optimizer held, and one more step
that it made. Each file is in tests/files/people.zip, in a folder of its name.

How names correspond. A variable of a state has one of these names:
- the name that the framework gives (`dense_1/kernel` in tf.keras, `sequential/dense/kernel` in Keras 3), without `:0`;
- the place of its weight in the file, without the parts that only name groups (`layers`, `vars`, ...), where the last
  part may be the number of the weight in its layer or the weight's own name: `layers/dense/vars/0` is `dense/0` or
  `dense/kernel`; or the last two parts of that.
All names of a state are of different variables, and all variables are there. Where a state has weights, they are those
of the variable, bit for bit, so a name that fits two variables cannot hide one in place of the other.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import re
import zipfile

import numpy as np
import pytest

import everstep
from crafted_files import h5py, tensorflow
from everstep.errors import EverstepError

try:
    import keras
except ImportError:
    keras = None

ZIP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files", "people.zip")
GROUPS = ("layers", "vars", "_layer_checkpoint_dependencies", "_functional", "model_weights", ".ATTRIBUTES",
          "VARIABLE_VALUE")
NEAR = 1e-6  # of the largest weight


class People(object):
    """A file in the zip, with its truth."""

    def __init__(self, archive, name):
        self.name, self.facts = name, json.loads(archive.read(name + "/truth.json").decode("utf-8"))
        self.members = [each for each in archive.namelist() if each.startswith(name + "/")
                        and not each.endswith(("truth.json", "truth.npy"))]
        self.is_hdf5 = self.facts["path"].endswith((".h5", ".keras", ".hdf5"))

    def extract(self, folder):
        """Writes the file into a folder. Returns its path as a person gives it."""
        with zipfile.ZipFile(ZIP) as archive:
            for member in self.members:
                archive.extract(member, folder)
        return os.path.join(folder, self.name, *self.facts["path"].split("/"))

    def optimizers(self):
        """Returns the truth of each optimizer, with its arrays in place."""
        with zipfile.ZipFile(ZIP) as archive:
            flat = np.load(io.BytesIO(archive.read(self.name + "/truth.npy")))
        start = 0

        def take(shape):
            nonlocal_start[0] += int(np.prod(shape))
            return flat[nonlocal_start[0] - int(np.prod(shape)) : nonlocal_start[0]].reshape(shape)

        nonlocal_start = [start]
        for optimizer in self.facts["optimizers"]:
            for variable in optimizer["variables"]:
                shape = variable["shape"]
                variable["weight"] = take(shape)
                variable["slots"] = {slot: take(shape) for slot in variable["slots"]}
                variable["gradient"], variable["after"] = take(shape), take(shape)
        assert nonlocal_start[0] == flat.size
        return self.facts["optimizers"]


def people():
    with zipfile.ZipFile(ZIP) as archive:
        names = sorted({name.split("/")[0] for name in archive.namelist()})
        return [People(archive, name) for name in names]


ALL = people()
HERE = [each for each in ALL if (h5py if each.is_hdf5 else tensorflow) is not None]
CASES = [(each, number) for each in HERE for number in range(len(each.facts["optimizers"]))]


def ids(value):
    return value.name if isinstance(value, People) else str(value)


def test_there_are_enough_files():
    assert len(ALL) >= 70 and os.path.getsize(ZIP) < 600000


def short(place):
    """Returns the place of an array in a file without the parts that only name groups."""
    parts = re.split(r"[/\\]", place.replace(":0", ""))
    return [part for part in parts if part not in GROUPS]


def spellings(variable):
    """Returns the names that a state may have for a variable. See the top."""
    names = {variable["name"]}
    for place in variable["places"]:
        parts = short(place)
        names.add("/".join(parts))
        names.add("/".join(parts[-2:]))
        names.add("/".join(parts[1:]))
        names.add("/".join(parts[:-1] + [variable["name"].split("/")[-1]]))
    return names


def matched(state, truth):
    """Returns {name in the state: the truth about its variable}."""
    found = {}
    for name, slots in state.slots.items():
        fitting = [variable for variable in truth["variables"]
                   if name in spellings(variable) or re.sub(r"_\d+$", "", name) in spellings(variable)]
        if len(fitting) > 1 and name in state.variables:
            fitting = [each for each in fitting if np.array_equal(np.asarray(state.variables[name]), each["weight"])]
        assert len(fitting) == 1, "{} is the name of {} of {}".format(
            name, [each["name"] for each in fitting], [each["name"] for each in truth["variables"]])
        found[name] = fitting[0]
    expected = [each["name"] for each in truth["variables"] if each["slots"]] or list()
    assert sorted(each["name"] for each in found.values() if each["slots"]) == sorted(expected)
    return found


def read(file, number, folder):
    truth = file.optimizers()[number]
    how = dict(truth["how"])
    if "definition" in how:
        how["definition"] = everstep.Definition.from_config(how["definition"])
    return everstep.read_checkpoint(file.extract(str(folder)), **how), truth


@pytest.mark.parametrize("file, number", CASES, ids=ids)
def test_reads_what_the_optimizer_held(file, number, tmp_path):
    if "refused" in file.facts:
        with pytest.raises(EverstepError) as info:
            read(file, number, tmp_path)
        assert [word for word in file.facts["refused"] if word not in str(info.value)] == [], info.value
        return
    state, truth = read(file, number, tmp_path)
    assert state.updates == (truth["updates"] if truth["counted"] else truth["how"].get("updates", 0))
    names = matched(state, truth)
    for name, variable in names.items():
        if name in state.variables:
            np.testing.assert_array_equal(np.asarray(state.variables[name]), variable["weight"], name)
        slots = {slot: np.asarray(value) for slot, value in state.slots[name].items()}
        unused = set(variable["slots"]) - set(slots)  # a velocity without momentum
        assert unused <= {"velocity"} and set(slots) <= set(variable["slots"]), name
        for slot, value in slots.items():
            np.testing.assert_array_equal(value, variable["slots"][slot], "{} of {}".format(slot, name))
    if state.ordered:
        assert [each["name"] for each in names.values()] == [each["name"] for each in truth["variables"]]


def far(truth, names, arrays):
    largest = max(np.abs(each["weight"]).max() for each in truth["variables"])
    return max(np.abs(np.asarray(arrays[name]) - each["after"]).max() for name, each in names.items()) / largest


def counts(state, truth):
    """Returns the counts that the next step may see: stock get_updates reads its counter before or after moving it."""
    return [state.updates + late for late in ((0, 1) if truth["api"] == "get_updates" else (0,))]


@pytest.mark.parametrize("file, number", [case for case in CASES if "refused" not in case[0].facts], ids=ids)
def test_goes_on_as_the_framework_did(file, number, tmp_path):
    """The next step on NumPy is the framework's own."""
    state, truth = read(file, number, tmp_path)
    names, distances = matched(state, truth), []
    for state.updates in counts(state, truth):
        optimizer = everstep.Definition.from_config(state.definition).bind(np)
        arrays = {name: np.array(each["weight"]) for name, each in names.items()}
        everstep.restore(optimizer, state, arrays)
        optimizer.apply_gradients([(each["gradient"], arrays[name]) for name, each in names.items()])
        distances.append(far(truth, names, arrays))
    assert min(distances) < file.facts.get("near", NEAR)


@pytest.mark.skipif(keras is None or not keras.__version__.startswith("3."), reason="needs Keras 3")
@pytest.mark.parametrize("file, number", [case for case in CASES if "refused" not in case[0].facts], ids=ids)
def test_goes_on_with_keras_3(file, number, tmp_path):
    state, truth = read(file, number, tmp_path)
    names, distances = matched(state, truth), []
    for state.updates in counts(state, truth):
        optimizer = everstep.Definition.from_config(state.definition).bind(keras)
        variables = {name: keras.Variable(each["weight"], name="v{}".format(index))
                     for index, (name, each) in enumerate(names.items())}
        everstep.restore(optimizer, state, variables)
        optimizer.apply([keras.ops.convert_to_tensor(each["gradient"]) for each in names.values()],
                        list(variables.values()))
        arrays = {name: keras.ops.convert_to_numpy(variable) for name, variable in variables.items()}
        distances.append(far(truth, names, arrays))
    assert min(distances) < file.facts.get("near", NEAR)
