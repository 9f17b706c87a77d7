"""Files as people make them, with stock optimizers of Keras 1.0 to 3.15 and TensorFlow 1.4 to 2.21, are read right.

tests/make/people_files.py wrote the files and the truth about each: what its live optimizer held, and one more step
that it made. Each file is in tests/files/people.zip, in a folder of its name.

How names correspond. A state calls a variable by the end of one of these names, of at least two parts if it has them:
- the name that the framework gives: `dense_1/kernel` in tf.keras, `sequential/dense/kernel` in Keras 3;
- the place of its weight in the file, without the parts that only name groups (`layers`, `vars`, ...): the weight in
  `layers/dense/vars/0` is `dense/0`, or with the last part of the framework's name `dense/kernel`.
A number may follow (`kernel_1`) where a file has a name twice. No name of a state is of two variables, and each
variable with slots has one. Where a name fits several variables, the weight in the state decides, bit for bit.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import re
import warnings
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import everstep
from crafted_files import h5py, optional, tensorflow
from everstep.errors import EverstepError

keras = optional("keras")
ZIP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files", "people.zip")
GROUPS = ("layers", "vars", "_layer_checkpoint_dependencies", "_functional", "model_weights", ".ATTRIBUTES",
          "VARIABLE_VALUE")
NEAR = 1e-6  # of the largest weight
FIRST, SECOND = {"updates": "beta1_power"}, {"updates": "beta1_power_1"}

# What a person must say where the file leaves it open: {name: [for each optimizer {argument: value}]}. A scope is the
# name that an optimizer has in its slots, or else the one that all its variables begin with.
OPEN = {
    # Two optimizers. Their powers are in no scope: nothing in the file says which ones are whose.
    "tf1.4-gan-named": [dict(FIRST, scope="D_opt"), dict(SECOND, scope="G_opt")],
    "tf1.15-gan-unnamed": [dict(FIRST, scope="discriminator"), dict(SECOND, scope="generator")],
    "tf1.15-three-adams": [dict(FIRST, scope="discriminator"), dict(SECOND, scope="generator"),
                           {"scope": "encoder", "updates": "beta1_power_2"}],
    # Two optimizers, and all is in scopes.
    "tf1.15-gan-scopes": [{"scope": "train_discriminator"}, {"scope": "train_generator"}],
    "tf2.10-gan-named-scopes": [{"scope": "train_discriminator"}, {"scope": "train_generator"}],
    "tf1.15-wide-and-deep": [{"scope": "linear"}, {"scope": "dnn"}],
    "tf.keras2.10-two-objects": [{"scope": "encoder_opt"}, {"scope": "decoder_opt"}],
}
# Layers of one shape, one of which did not train; the flags in the file are those after it trained, and its slots have
# no names. (In .h5 files of tf.keras and Keras 3 they have.)
TRAINED = [{"variables": ["B/kernel", "B/bias", "C/kernel", "C/bias"]}]
OPEN.update({"keras2.3.1-thawed": TRAINED, "tf.keras2.15-thawed-keras": TRAINED,
             "keras3.0-tensorflow-thawed-keras": TRAINED})
# Weights alone, without a config: which of three like layers did not train, or which of a Dense and a TimeDistributed
# of one shape comes first, nothing in the file says. The variables are named by their places.
BY_PLACE = [{"variables": "by place"}]
OPEN.update({"keras3.0-tensorflow-nested-weights.h5": BY_PLACE, "keras3.5-jax-bidirectional-weights.h5": BY_PLACE,
             "tf.keras2.15-bidirectional-weights.h5": BY_PLACE})


def native(value):
    """Returns a value of JSON with `str` for text on Python 2 as well."""
    if isinstance(value, dict):
        return {str(key): native(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [native(inner) for inner in value]
    return str(value) if hasattr(value, "encode") else value


class People(object):
    """A file in the zip, with its truth."""

    def __init__(self, archive, name):
        self.name, self.facts = name, native(json.loads(archive.read(name + "/truth.json").decode("utf-8")))
        self.members = [each for each in archive.namelist()
                        if each.startswith(name + "/") and "/truth." not in each]
        self.is_hdf5 = self.facts["path"].endswith((".h5", ".keras"))
        self.optimizers, self.refused = self.facts["optimizers"], self.facts.get("refused")
        values, place = np.load(io.BytesIO(archive.read(name + "/truth.npy"))), 0
        for optimizer in self.optimizers:
            for variable in optimizer["variables"]:
                shape, slots = variable["shape"], variable["slots"]
                size = int(np.prod(shape))
                arrays = [values[start : start + size].reshape(shape)
                          for start in range(place, place + size * (len(slots) + 3), size)]
                variable["weight"], variable["gradient"], variable["after"] = arrays[0], arrays[-2], arrays[-1]
                variable["slots"] = dict(zip(slots, arrays[1:]))
                place += size * (len(slots) + 3)
        assert place == values.size

    def extract(self, folder):
        """Writes the file into a folder. Returns its path as a person gives it."""
        with zipfile.ZipFile(ZIP) as archive:
            archive.extractall(str(folder), self.members)
        return os.path.join(str(folder), self.name, *self.facts["path"].split("/"))

    def how(self, number):
        """Returns what a person says to `read_checkpoint` of an optimizer in the file."""
        how = dict(self.optimizers[number]["how"], **OPEN.get(self.name, {number: {}})[number])
        if how.get("variables") == "by place":
            how["variables"] = ["/".join(parts_of(each["places"][0])) for each in self.optimizers[number]["variables"]]
        return how

    def read(self, number, folder):
        return everstep.read_checkpoint(self.extract(folder), **self.how(number))


def people():
    with zipfile.ZipFile(ZIP) as archive:
        return [People(archive, name) for name in sorted({each.split("/")[0] for each in archive.namelist()})]


def name_of(value):
    """Returns the name of a case; of pytest's placeholder too, where a list of cases is empty."""
    return getattr(value, "name", str(value))


ALL = people()
HERE = [file for file in ALL if (h5py if file.is_hdf5 else tensorflow) is not None]
READ = [(file, number) for file in HERE if not file.refused for number in range(len(file.optimizers))]
cases = pytest.mark.parametrize("file, number", READ, ids=name_of)


def test_there_are_enough_files():
    assert len(ALL) >= 70 and os.path.getsize(ZIP) < 600000
    assert {name for name in OPEN} <= {file.name for file in ALL}


def parts_of(place):
    """Returns the parts of a place in a file that do not only name groups."""
    return [part for part in re.split(r"[/\\]", place.replace(":0", "")) if part not in GROUPS]


def ends(parts):
    return {"/".join(parts[start:]) for start in range(max(len(parts) - 1, 1))}


def spellings(variable):
    """Returns the names that a state may have for a variable. See the top."""
    own = variable["name"].split("/")
    names = ends(own)
    for place in variable["places"]:
        parts = parts_of(place)
        names |= ends(parts) | ends(parts[:-1] + own[-1:])
    return names


def matched(state, truth):
    """Returns {name in the state: the truth about its variable}."""
    found = OrderedDict()
    for name in state.slots:
        fitting = [variable for variable in truth["variables"]
                   if {name, re.sub(r"_\d+$", "", name)} & spellings(variable)]
        if len(fitting) > 1 and name in state.variables:
            fitting = [each for each in fitting if np.array_equal(np.asarray(state.variables[name]), each["weight"])]
        assert len(fitting) == 1, "{} is the name of {} of {}".format(
            name, [each["name"] for each in fitting], [each["name"] for each in truth["variables"]])
        found[name] = fitting[0]
    names = [each["name"] for each in found.values()]
    assert len(set(names)) == len(names)
    assert {each["name"] for each in truth["variables"] if each["slots"]} <= set(names)
    return found


def next_step(definition, state, truth, names):
    """Makes the next step on NumPy. Returns how far the weights are from the framework's."""
    optimizer = definition.bind(np)
    arrays = {name: np.array(each["weight"]) for name, each in names.items()}
    everstep.restore(optimizer, state, arrays)
    optimizer.apply_gradients([(each["gradient"], arrays[name]) for name, each in names.items()])
    return far(arrays, truth, names)


def far(arrays, truth, names):
    """Returns the largest difference from the weights after the framework's step, by the largest weight."""
    return max(np.abs(arrays[name] - each["after"]).max() for name, each in names.items()) / max(
        np.abs(each["weight"]).max() for each in truth["variables"])


def counts(state, truth):
    """Returns the counts that a step may see. Stock get_updates reads its counter before or after it moves it."""
    return [state.updates + late for late in ((0, 1) if truth["api"] == "get_updates" else (0,))]


@pytest.mark.shared
@pytest.mark.parametrize("file, number", [(file, number) for file in ALL if not file.refused
                                          for number in range(len(file.optimizers))],
                         ids=name_of)
def test_the_truth_holds_together(file, number):
    """Slots, gradients and weights of the truth are of one step of the stock optimizer. No file is read."""
    truth = file.optimizers[number]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "stock ")  # of what it does for other gradients
        definition = everstep.from_native({"class_name": truth["class"], "config": truth["arguments"]}, truth["api"])
    names, scalars = {str(index): each for index, each in enumerate(truth["variables"])}, {}
    if truth["class"] == "Nadam":
        steps = np.arange(1, truth["updates"] + 1)
        scheduled = definition.beta_1 * (1 - 0.5 * 0.96 ** (steps * truth["arguments"]["schedule_decay"]))
        scalars = {"momentum_product": float(np.prod(scheduled))}
    needed = [slot for slot in truth["variables"][0]["slots"]
              if slot != "velocity" or truth["arguments"].get("momentum")]
    state = everstep.State(definition.get_config(), int(truth["updates"]), scalars=scalars, slots=[
        (name, {slot: each["slots"][slot] for slot in needed}) for name, each in names.items()])
    distances = []
    for count in counts(state, truth):
        distances.append(next_step(definition, state.replace(updates=count), truth, names))
    assert min(distances) < NEAR


@pytest.mark.shared
@cases
def test_reads_what_the_optimizer_held(file, number, tmp_path):
    state, truth = file.read(number, tmp_path), file.optimizers[number]
    powers = file.facts.get("powers")
    if powers and not any(powers):  # both powers are 0, so any count is right from which on the step is the same
        assert 0 < state.updates <= truth["updates"]
    else:
        assert state.updates == (truth["updates"] if truth["counted"] else truth["how"].get("updates", 0))
    names = matched(state, truth)
    for name, variable in names.items():
        if name in state.variables:
            np.testing.assert_array_equal(np.asarray(state.variables[name]), variable["weight"], name)
        slots = {slot: np.asarray(value) for slot, value in state.slots[name].items()}
        unused = set(variable["slots"]) - set(slots)  # stock may keep a velocity without momentum
        assert unused <= {"velocity"} and set(slots) <= set(variable["slots"]), name
        for slot, value in slots.items():
            np.testing.assert_array_equal(value, variable["slots"][slot], "{} of {}".format(slot, name))
    assert set(names) == set(state.variables) or not state.variables
    if state.ordered:
        assert [each["name"] for each in names.values()] == [each["name"] for each in truth["variables"]]


@pytest.mark.shared
@cases
def test_goes_on_as_the_framework_did(file, number, tmp_path):
    """The next step on NumPy is the framework's own."""
    state, truth = file.read(number, tmp_path), file.optimizers[number]
    definition = everstep.Definition.from_config(state.definition)
    distances = [next_step(definition, state.replace(updates=count), truth, matched(state, truth))
                 for count in counts(state, truth)]
    assert min(distances) < NEAR


@pytest.mark.shared
@pytest.mark.skipif(not getattr(keras, "__version__", "").startswith("3."), reason="it continues on Keras 3")
@cases
def test_goes_on_with_keras_3(file, number, tmp_path):
    """The next step of a bound optimizer of Keras 3 is the framework's own."""
    state, truth = file.read(number, tmp_path), file.optimizers[number]
    names, distances = matched(state, truth), []
    for count in counts(state, truth):
        optimizer = everstep.Definition.from_config(state.definition).bind(keras)
        variables = {name: keras.Variable(each["weight"], name="v{}".format(index))
                     for index, (name, each) in enumerate(names.items())}
        everstep.restore(optimizer, state.replace(updates=count), variables)
        optimizer.apply([keras.ops.convert_to_tensor(each["gradient"]) for each in names.values()],
                        list(variables.values()))
        arrays = {name: keras.ops.convert_to_numpy(variable) for name, variable in variables.items()}
        distances.append(far(arrays, truth, names))
    assert min(distances) < NEAR


@pytest.mark.shared
@pytest.mark.parametrize("file", [file for file in HERE if len(file.optimizers) > 1], ids=name_of)
def test_several_optimizers_are_a_partition(file, tmp_path):
    """Each branch has the slots and the count of its optimizer."""
    how = [file.how(number) for number in range(len(file.optimizers))]
    branches, given = {}, {}
    for number, truth in enumerate(file.optimizers):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "stock ")
            rule = everstep.from_native({"class_name": truth["class"], "config": truth["arguments"]}, truth["api"])
        names = "|".join(sorted(re.escape(each["name"]) for each in truth["variables"]))
        branches["of_%d" % number] = "^(%s)$" % names, rule
        given.update({"of_%d" % number: how[number]["updates"]} if "updates" in how[number] else {})
    more = {"updates": given} if given else {}
    state = everstep.read_checkpoint(file.extract(tmp_path), everstep.partition(branches), **more)
    starts = dict(state.definition.get("starts", ()))
    for number, truth in enumerate(file.optimizers):
        branch = "of_%d" % number
        if truth["counted"]:
            assert state.updates + starts.get(branch, 0) == truth["updates"]
        for variable in truth["variables"]:
            for slot, value in variable["slots"].items():
                np.testing.assert_array_equal(np.asarray(state.slots[variable["name"]][branch + "/" + slot]), value)


# Refused


def refused(path, words, **how):
    with pytest.raises(EverstepError) as info:
        everstep.read_checkpoint(path, **how)
    assert [word for word in words if word not in str(info.value)] == [], info.value


@pytest.mark.parametrize("file", [file for file in HERE if file.refused], ids=name_of)
def test_is_refused(file, tmp_path):
    refused(file.extract(tmp_path), file.refused, **file.how(0))


@pytest.mark.parametrize("file", [file for file in HERE if "updates" in file.optimizers[0]["how"]],
                         ids=name_of)
def test_a_count_that_the_file_has_not_is_asked_for(file, tmp_path):
    how = file.how(0)
    del how["updates"]
    refused(file.extract(tmp_path), ["no count of updates", "updates="], **how)


@pytest.mark.parametrize("file", [file for file in HERE if OPEN.get(file.name) in (TRAINED, BY_PLACE)],
                         ids=name_of)
def test_variables_that_the_file_leaves_open_are_asked_for(file, tmp_path):
    refused(file.extract(tmp_path), ["variables="], **file.optimizers[0]["how"])


@pytest.mark.parametrize("file", [file for file in HERE if "?" in file.facts["path"]], ids=name_of)
def test_one_shard_stands_for_all(file, tmp_path):
    path, truth = file.extract(tmp_path), file.optimizers[0]
    count = int(path[-5:])
    for number in range(count):
        state = everstep.read_checkpoint(path.replace("?????", "{:05d}".format(number)), **file.how(0))
        assert len(matched(state, truth)) == len(truth["variables"])


@pytest.mark.parametrize("file", [file for file in HERE if len(file.optimizers) == 1 and not file.refused
                                  and file.optimizers[0]["class"].endswith("Optimizer")
                                  and file.optimizers[0]["variables"][0]["slots"]], ids=name_of)
def test_a_rule_without_slots_does_not_take_the_file_of_another(file, tmp_path):
    name = file.optimizers[0]["class"].replace("Optimizer", "")
    refused(file.extract(tmp_path), [name], optimizer="GradientDescentOptimizer(learning_rate=0.1)")
