"""Which optimizer a checkpoint of tf.train.Saver is read as: the claim that explains most, and errors that name rivals.

Files of real programs are in tests/test_people_files.py. The files here combine what one program rarely has at once.
"""
from __future__ import absolute_import, division, print_function

import functools
import os
from collections import OrderedDict

import numpy as np
import pytest

import crafted_files as crafted
import everstep
from crafted_files import inspect, tensorflow, tf1
from everstep.errors import FileError, StateError
from everstep.optimizers import SGD, Adam

pytestmark = [pytest.mark.shared, crafted.TENSORFLOW]
RATE = 0.1


class Program(object):
    """A program of TF 1 with some optimizers, each on variables of its own."""

    def __init__(self, optimizers, counters=()):
        """Takes {name of two variables: a function that makes the optimizer}, and names of counters of the program."""
        self.graph, self.steps = tf1.Graph(), OrderedDict()
        with self.graph.as_default():
            self.session = tf1.Session()
            for name, make in sorted(optimizers.items()):
                with tf1.variable_scope(name):
                    both = [tf1.get_variable(each, initializer=np.full((2, 3), 0.5, "float32")) for each in "wb"]
                self.steps[name] = make().minimize(sum(tf1.reduce_sum(each * each) for each in both), var_list=both)
            for name in counters:
                tf1.get_variable(name, initializer=np.int64(7), trainable=False)
            self.session.run(tf1.global_variables_initializer())

    def run(self, **times):
        for name, count in times.items():
            for _ in range(count):
                self.session.run(self.steps[name])
        return self

    def set(self, **values):
        with self.graph.as_default():
            for variable in tf1.global_variables():
                if variable.op.name in values:
                    self.session.run(tf1.assign(variable, values[variable.op.name]))
        return self

    def save(self, folder, names=str, **saver):
        """Saves all variables; `names` says under which name. Returns the path."""
        with self.graph.as_default():
            variables = {names(variable.op.name): variable for variable in tf1.global_variables()}
            return tf1.train.Saver(variables, **saver).save(self.session, os.path.join(str(folder), "model"))

    def value(self, name):
        with self.graph.as_default():
            return self.session.run([each for each in tf1.global_variables() if each.op.name == name][0])


def adam(**arguments):
    return lambda: tf1.train.AdamOptimizer(RATE, **arguments)


def momentum():
    return tf1.train.MomentumOptimizer(RATE, 0.9)


OURS = Adam(RATE, epsilon=1e-8)
MOMENTUM = "MomentumOptimizer(learning_rate=0.1, momentum=0.9)"
COUNTERS = ["agent/updates", "x/iter", "x/iterations", "agent/steps", "a/b/pending"]


def test_a_rule_without_slots_does_not_explain_slots(tmp_path):
    path = Program({"net": adam()}).run(net=3).save(tmp_path)
    with pytest.raises(FileError, match="of AdamOptimizer with slots of 2 variables.*SGD.* leaves .* unexplained"):
        everstep.read_checkpoint(path, SGD(RATE))
    with pytest.raises(FileError, match="leaves .* unexplained"):
        everstep.read_checkpoint(path, optimizer="GradientDescentOptimizer(learning_rate=0.1)")
    path = Program({"net": lambda: tf1.train.MomentumOptimizer(RATE, 0.0)}).run(net=1).save(tmp_path)
    state = everstep.read_checkpoint(path, optimizer="MomentumOptimizer(learning_rate=0.1, momentum=0.0)")
    assert list(state.slots) == ["net/b", "net/w"]  # its slots are in the file, but mean nothing
    facts = inspect(path)
    assert facts["optimizer"] == "MomentumOptimizer" and sorted(facts["variables"]) == ["net/b", "net/w"]


def test_counters_of_the_program_are_no_optimizer(tmp_path):
    path = Program({"net": adam()}, COUNTERS).run(net=3).save(tmp_path)
    state = everstep.read_checkpoint(path, OURS)
    assert state.updates == 3 and list(state.slots) == ["net/b", "net/w"]
    path = Program({"net": lambda: tf1.train.GradientDescentOptimizer(RATE)}, COUNTERS).run(net=3).save(tmp_path)
    assert everstep.read_checkpoint(path, SGD(RATE)).updates == 0
    path = Program({"net": momentum}, COUNTERS + ["global_step"]).run(net=3).save(tmp_path)
    assert everstep.read_checkpoint(path, optimizer=MOMENTUM).updates == 7
    for definition in (OURS, SGD(RATE)):
        program = Program({"net": functools.partial(definition.bind, tf1.train)}, COUNTERS).run(net=2)
        with program.graph.as_default():
            counts = any(each.op.name.endswith("/SGD/updates") or each.op.name in ("SGD/updates", "Adam/updates")
                         for each in tf1.global_variables())  # a plain SGD on ref variables needs no count
        assert everstep.read_checkpoint(program.save(tmp_path), definition).updates == (2 if counts else 0)


@pytest.mark.parametrize("powers, updates", [
    ({"beta1_power": 0.0}, 3), ({"beta2_power": 0.9 * 0.999 ** 3}, None), ({"beta1_power": 6e-45}, None),
    ({"beta1_power": 0.0, "beta2_power": 0.0}, 17321), ({"beta1_power": 6e-45, "beta2_power": 7e-43}, 17321)])
def test_beta_powers_that_are_gone(powers, updates, tmp_path):
    """A power that has underflowed at a count too small for these betas belongs to other betas."""
    long_ago = {"beta1_power": 0.0, "beta2_power": np.float32(0.999 ** 4001)}
    program = Program({"net": adam()}).run(net=3)
    if updates == 3:
        with pytest.raises(FileError, match="beta1_power has underflowed, which 3 updates do not do"):
            everstep.read_checkpoint(program.set(**powers).save(tmp_path), OURS)
        assert everstep.read_checkpoint(program.set(**long_ago).save(tmp_path), OURS).updates == 4000
        assert everstep.read_checkpoint(program.save(tmp_path), OURS, updates="beta1_power").updates == 4000
        return
    path = program.set(**powers).save(tmp_path)
    if updates is None:
        with pytest.raises(FileError, match="beta[12]_power"):
            everstep.read_checkpoint(path, OURS)
        return
    state = everstep.read_checkpoint(path, OURS)
    assert state.updates == updates
    assert "its beta powers have underflowed" in inspect(path, OURS)["notes"][0]
    # From there on the correction is 1 to rounding, and not one update before.
    corrections = [np.float32(1) - np.float32(0.999) ** np.float32(count) for count in (updates - 40, updates)]
    assert corrections[0] < 1 and corrections[1] == 1


def test_an_optimizer_that_has_a_name(tmp_path):
    path = Program({"net": adam(name="D_opt")}).run(net=4).save(tmp_path)
    for how in ({"definition": OURS}, {"optimizer": "AdamOptimizer(learning_rate=0.1)"},
                {"definition": OURS, "scope": "D_opt"},
                {"optimizer": 'AdamOptimizer(learning_rate=0.1, name="D_opt", use_locking=True)'}):
        state = everstep.read_checkpoint(path, **how)
        assert state.updates == 4 and list(state.slots) == ["net/b", "net/w"], how
    slots = {"m": "{var}/D_opt", "v": "{var}/D_opt_1"}
    assert everstep.read_checkpoint(path, OURS, slots=slots).updates == 4
    with pytest.raises(StateError, match="no optimizer in 'G_opt', .*; there is AdamOptimizer in D_opt"):
        everstep.read_checkpoint(path, OURS, scope="G_opt")
    assert "AdamOptimizer" in inspect(path)["optimizer"] and inspect(path)["updates"] == 4


def test_names_of_variables_with_their_output(tmp_path):
    """The program saved with `Saver({variable.name: variable})`."""
    program = Program({"net": adam()}).run(net=3)
    path = program.save(tmp_path, lambda name: name + ":0")
    state = everstep.read_checkpoint(path, OURS)
    assert state.updates == 3 and list(state.slots) == ["net/b", "net/w"]
    np.testing.assert_array_equal(np.asarray(state.slots["net/w"]["v"]), program.value("net/w/Adam_1"))
    slots = {"m": "{var}/Adam:0", "v": "{var}/Adam_1:0"}
    for count in ({}, {"updates": "beta2_power:0"}):
        assert everstep.read_checkpoint(path, OURS, slots=slots, **count).updates == 3


def test_optimizers_that_counted_by_themselves(tmp_path):
    """A partition gets a branch for each optimizer, which goes on from its own count."""
    program = Program({"one": adam(), "three": adam(), "two": adam()}).run(one=6, three=2)
    path = program.save(tmp_path)
    with pytest.raises(FileError, match="3 optimizers: 6 by beta1_power, 2 by beta1_power_1, 0 by .*partition"):
        everstep.read_checkpoint(path, OURS)
    branches = {"one": ("one/", OURS), "two": ("two/", OURS)}
    with pytest.raises(FileError, match="how many updates the branch one has made: 6 by beta1_power, 2 by .*updates="):
        everstep.read_checkpoint(path, everstep.partition(branches, OURS))
    state = everstep.read_checkpoint(path, everstep.partition(branches, OURS), updates={"one": "beta1_power"})
    assert state.updates == 0 and dict(state.definition["starts"]) == {"default": 2, "one": 6}
    program.run(one=1, two=1, three=1)
    with tf1.Graph().as_default(), tf1.Session() as session:
        variables = OrderedDict((name, tf1.get_variable(name, (2, 3))) for name in state.slots)
        loss = sum(tf1.reduce_sum(each * each) for each in variables.values())
        optimizer = everstep.Definition.from_config(state.definition).bind(tf1.train)
        step = optimizer.minimize(loss)
        session.run(tf1.global_variables_initializer())
        everstep.restore(optimizer, state, variables, weights=True)
        session.run(step)
        for name, variable in variables.items():
            np.testing.assert_allclose(session.run(variable), program.value(name), rtol=1e-5)
    state = everstep.read_checkpoint(path, OURS, scope="three", updates="beta1_power_1")
    assert state.updates == 2 and list(state.slots) == ["three/b", "three/w"]
    names = ["three/w", "three/b"]
    state = everstep.read_checkpoint(path, OURS, updates="beta1_power_1", variables=names)
    assert state.updates == 2 and list(state.slots) == names
    with pytest.raises(StateError, match="no slots of three/x; AdamOptimizer in Adam with"):
        everstep.read_checkpoint(path, OURS, variables=["three/x"])
    with pytest.raises(StateError, match="updates= has the branch four"):
        everstep.read_checkpoint(path, everstep.partition(branches, OURS), updates={"four": 1})


def test_a_branch_whose_gradients_were_all_zero(tmp_path):
    """Its slots look as if it had made no update, but each of the optimizers has made some."""
    program = Program({"one": adam(), "two": adam()}).run(one=3, two=2)
    program.set(**{"two/{}/{}".format(name, slot): np.zeros((2, 3)) for name in "wb" for slot in ("Adam", "Adam_1")})
    definition = everstep.partition({"one": ("one/", OURS)}, OURS)
    path = program.save(tmp_path)
    with pytest.raises(FileError, match="how many updates the branch one has made: 3 by beta1_power, 2 by "):
        everstep.read_checkpoint(path, definition)
    state = everstep.read_checkpoint(path, definition, updates={"one": "beta1_power"})
    assert state.updates == 2 and dict(state.definition["starts"]) == {"one": 1}


def test_optimizers_of_several_kinds(tmp_path):
    program = Program({"deep": adam(), "wide": momentum}).run(deep=3, wide=3)
    path = program.save(tmp_path)
    assert list(everstep.read_checkpoint(path, OURS).slots) == ["deep/b", "deep/w"]
    assert list(everstep.read_checkpoint(path, optimizer=MOMENTUM).slots) == ["wide/b", "wide/w"]
    path = Program({"one": adam(name="A_opt"), "two": adam(name="B_opt")}).run(one=2, two=2).save(tmp_path)
    with pytest.raises(StateError, match="AdamOptimizer in A_opt with .* and AdamOptimizer in B_opt with .*scope="):
        everstep.read_checkpoint(path, OURS)
    assert list(everstep.read_checkpoint(path, OURS, scope="B_opt").slots) == ["two/b", "two/w"]
    rivals = inspect(path, OURS, scope="A_opt", updates=2)["rivals"]
    assert rivals == ["AdamOptimizer in B_opt with slots of 2 variables (4 arrays)"]
    assert everstep.read_checkpoint(path, everstep.partition({"one": OURS}, OURS)).updates == 2


def test_shards_of_the_first_version(tmp_path):
    program = Program({"net": adam()}).run(net=3)
    with program.graph.as_default():
        for number, variable in enumerate(tf1.global_variables()):
            variable.op._set_device("/cpu:0" if number % 2 else "/job:localhost/cpu:0")
    path = program.save(tmp_path, write_version=tf1.train.SaverDef.V1, sharded=True)
    assert path.endswith("model-?????-of-00001") or "?????" in path
    shard = path.replace("?????", "00000")
    for given in (path, shard, str(tmp_path / "model"), str(tmp_path)):
        assert everstep.read_checkpoint(given, OURS).updates == 3, given
    os.rename(shard, shard + ".away")
    with pytest.raises(FileError, match="there is no file or checkpoint|only 1 of"):
        everstep.read_checkpoint(path, OURS)


def test_parts_of_a_checkpoint_name_what_to_give(tmp_path):
    path = Program({"net": adam()}).run(net=3).save(tmp_path)
    for given, words in ((path + ".meta", "the graph of a checkpoint, without values: give " + path),
                         (str(tmp_path / "checkpoint"), "the list of a folder's checkpoints, without values: give ")):
        with pytest.raises(FileError) as raised:
            everstep.read_checkpoint(given, OURS)
        assert words in str(raised.value) and str(tmp_path) in str(raised.value)
    with pytest.raises(FileError, match="files of this computer. Copy it first"):
        everstep.read_checkpoint("gs://bucket/model.ckpt-3", OURS)
    with pytest.raises(FileError, match="there are model.data-"):
        everstep.read_checkpoint(str(tmp_path / "mod"), OURS)
    crafted.write_tensors(str(tmp_path / "weights"), {"net/w": np.ones((2, 3), "float32")})
    for how in ({}, {"definition": OURS}):
        with pytest.raises(FileError, match="has weights alone"):
            everstep.read_checkpoint(str(tmp_path / "weights"), **how)
    assert tensorflow is not None
