"""Checkpoints of TensorFlow that other people's programs wrote, in the folder that EVERSTEP_REAL_FILES names.

TensorFlow reads the arrays here, and stock optimizers take the step that everstep's are compared with.
"""
from __future__ import absolute_import, division, print_function

import os
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import crafted_files as crafted
import everstep
from crafted_files import tf1
from everstep.optimizers import Adam

try:
    import keras
except ImportError:
    keras = None

FOLDER = os.environ.get("EVERSTEP_REAL_FILES", "")
pytestmark = [pytest.mark.shared, crafted.TENSORFLOW, pytest.mark.skipif(
    not os.path.isdir(FOLDER), reason="EVERSTEP_REAL_FILES names no folder of real files")]
RATE = 1e-3

# op: what the slots are called beside a variable; powers: the names of both beta powers; updates: what they imply, or
# the least count that makes the same step where they have underflowed; variables: how many.
Row = namedtuple("Row", "file op powers updates variables")
ROWS = [
    Row("tf1-rnn", "Adam", "{}", 1481, 4),
    Row("tf1-tflearn", "Adam", "Adam/{}", 53000, 6),  # its Global_Step is 53000, too
    Row("tf1-adam-named.ckpt", "Adam_optimizer", "{}", 10920, 10),
    Row("tf1-saver-v1-power-zero.ckpt", "Adam", "{}", 17321, 4),
    Row("tf1-saver-v1-powers-gone.ckpt", "Adam", "{}", 17321, 4),
]
NETS = 5  # of tf1-five-adams.ckpt: each Adam trained the variables of a net
DEFINITION = Adam(RATE, epsilon=1e-8)


def path_of(name):
    return os.path.join(FOLDER, name)


def variables_of(net):
    """Returns the names of the variables of a net in tf1-five-adams.ckpt."""
    number = "_%d" % net if net else ""
    first = ["Variable_%d" % (2 * net) if net else "Variable", "Variable_%d" % (2 * net + 1)]
    return first + [name + number for name in ("hidden_layer_1", "hidden_layer_2", "hidden_layer_bias_1",
                                               "hidden_layer_bias_2")]


def gradients(shapes):
    random = np.random.RandomState(0)
    return OrderedDict((name, random.normal(0, 0.1, shape).astype("float32")) for name, shape in sorted(shapes.items()))


def stock_step(arrays, groups, grads):
    """Returns {name: value} after a step of stock AdamOptimizers that begin with what a checkpoint has.

    Args:
        arrays: a reader of the checkpoint.
        groups: [(names of variables, what slots are called, names of the powers)], one for each optimizer.
    """
    with tf1.Graph().as_default(), tf1.Session() as session:
        variables, assigned, steps = {}, [], []
        for names, op, powers in groups:
            optimizer = tf1.train.AdamOptimizer(RATE, name=op)
            for name in names:
                variables[name] = tf1.get_variable(name, initializer=arrays.get_tensor(name))
            steps.append(optimizer.apply_gradients([(tf1.constant(grads[name]), variables[name]) for name in names]))
            for name in names:
                assigned += [(optimizer.get_slot(variables[name], slot), arrays.get_tensor(name + "/" + op + number))
                             for slot, number in (("m", ""), ("v", "_1"))]
            assigned += list(zip(optimizer._get_beta_accumulators() if hasattr(optimizer, "_get_beta_accumulators") else
                                 (optimizer._beta1_power, optimizer._beta2_power), map(arrays.get_tensor, powers)))
        session.run(tf1.global_variables_initializer())
        session.run([tf1.assign(variable, value) for variable, value in assigned])
        session.run(steps)
        return session.run(variables)


def own_step(state, grads):
    """Returns the same of a bound optimizer of tf.train."""
    with tf1.Graph().as_default(), tf1.Session() as session:
        variables = {name: tf1.get_variable(name, initializer=np.asarray(value))
                     for name, value in state.variables.items()}
        optimizer = everstep.Definition.from_config(state.definition).bind(tf1.train)
        step = optimizer.apply_gradients([(tf1.constant(grads[name]), variables[name]) for name in sorted(variables)])
        session.run(tf1.global_variables_initializer())
        everstep.restore(optimizer, state, variables)
        session.run(step)
        return session.run(variables)


def step_of_keras_3(state, grads):
    """Returns the same of a bound optimizer of Keras 3, whose variables cannot have / in their names."""
    optimizer = everstep.Definition.from_config(state.definition).bind(keras)
    variables = OrderedDict((name, keras.Variable(np.asarray(value), name=name.replace("/", "_")))
                            for name, value in sorted(state.variables.items()))
    everstep.restore(optimizer, state, variables)
    optimizer.apply([keras.ops.convert_to_tensor(grads[name]) for name in variables], list(variables.values()))
    return {name: keras.ops.convert_to_numpy(variable) for name, variable in variables.items()}


def goes_on(state, arrays, groups):
    """Checks that the next step is stock's, on tf.train and, where that is installed, on Keras 3."""
    grads = gradients({name: np.shape(value) for name, value in state.variables.items()})
    expected = stock_step(arrays, groups, grads)
    actual = [own_step(state, grads)]
    if getattr(keras, "__version__", "").startswith("3."):
        actual.append(step_of_keras_3(state, grads))
    for weights in actual:
        for name, value in expected.items():
            np.testing.assert_allclose(weights[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
            assert not np.array_equal(value, arrays.get_tensor(name)), name


@pytest.mark.parametrize("row", ROWS, ids=[row.file for row in ROWS])
def test_a_checkpoint_of_an_adam(row):
    arrays = tf1.train.NewCheckpointReader(path_of(row.file))
    state = everstep.read_checkpoint(path_of(row.file), DEFINITION)
    assert state.updates == row.updates and len(state.slots) == row.variables
    for name, slots in state.slots.items():
        for slot, number in (("m", ""), ("v", "_1")):
            np.testing.assert_array_equal(np.asarray(slots[slot]), arrays.get_tensor(name + "/" + row.op + number))
        np.testing.assert_array_equal(np.asarray(state.variables[name]), arrays.get_tensor(name))
    powers = [row.powers.format(name) for name in ("beta1_power", "beta2_power")]
    goes_on(state, arrays, [(sorted(state.slots), row.op, powers)])


def test_a_checkpoint_of_five_adams():
    path = path_of("tf1-five-adams.ckpt")
    with pytest.raises(everstep.errors.FileError, match="5 optimizers: 0 by beta1_power, .*14310 by beta1_power_4"):
        everstep.read_checkpoint(path, DEFINITION)
    rules = {"net%d" % net: ("^(%s)$" % "|".join(variables_of(net)), DEFINITION) for net in range(NETS)}
    state = everstep.read_checkpoint(path, everstep.partition(rules))
    assert state.updates == 0 and dict(state.definition["starts"]) == {"net4": 14310} and len(state.slots) == 6 * NETS
    arrays = tf1.train.NewCheckpointReader(path)
    groups = [(variables_of(net), "Adam", [power + ("_%d" % net if net else "")
                                           for power in ("beta1_power", "beta2_power")]) for net in range(NETS)]
    goes_on(state, arrays, groups)
    partition = everstep.Definition.from_config(state.definition)
    last = everstep.read_checkpoint(path, DEFINITION, updates="beta1_power_4", variables=variables_of(4))
    assert last.updates == 14310 and list(last.slots) == variables_of(4)
    assert partition.children()["net0"] == DEFINITION


class ByVariable(object):
    """The arrays of a checkpoint of objects, under the names that tf.train gives slots and powers.

    A variable of a State is the one whose slot m is equal.
    """

    def __init__(self, arrays, keys, state):
        self._arrays, self._owners, self._updates = arrays, {}, state.updates
        for key in [key for key in keys if "/m/.ATTRI" in key]:
            [name] = [name for name, slots in state.slots.items()
                      if np.array_equal(np.asarray(slots["m"]), arrays.get_tensor(key))]
            self._owners[name] = key.partition("/.OPTIMIZER_SLOT/")[0]

    def get_tensor(self, name):
        if name in ("beta1_power", "beta2_power"):
            return np.float32({"1": 0.9, "2": 0.999}[name[4]] ** (self._updates + 1))
        variable, _, slot = name.rpartition("/Adam")
        owner = self._owners[variable or name]
        beside = "/.OPTIMIZER_SLOT/optimizer/" + {"": "m", "_1": "v"}[slot] if variable else ""
        return self._arrays.get_tensor(owner + beside + "/.ATTRIBUTES/VARIABLE_VALUE")


def test_a_saved_model_of_keras():
    path = path_of("saved_model-legacy")
    state = everstep.read_checkpoint(path, DEFINITION)
    arrays = tf1.train.NewCheckpointReader(os.path.join(path, "variables", "variables"))
    keys = [key for key in arrays.get_variable_to_shape_map() if "/.OPTIMIZER_SLOT/" in key]
    assert state.updates == 94036 and len(keys) == 2 * len(state.slots) == 16
    stored = {slot: sorted(np.sum(arrays.get_tensor(key), dtype="float64")
                           for key in keys if "/%s/.ATTRI" % slot in key) for slot in "mv"}
    for slot in "mv":  # the names in the file are those of objects
        own = sorted(np.sum(np.asarray(slots[slot]), dtype="float64") for slots in state.slots.values())
        assert own == stored[slot]
    assert set(state.variables) == set(state.slots)
    goes_on(state, ByVariable(arrays, keys, state), [(sorted(state.slots), "Adam", ["beta1_power", "beta2_power"])])
