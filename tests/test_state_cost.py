"""What capture, save, load and restore cost: runs of a session, bytes read, memory. Counts, since times depend."""
from __future__ import absolute_import, division, print_function

import importlib
import os
from collections import OrderedDict

import numpy as np
import pytest

import everstep
import harness
from crafted_files import optional
from crafted_files import tf1 as tf
from everstep import errors
from everstep.compat.backends import arrays_in_memory, tensorflow_values
from everstep.compat.checkpoints import values
from everstep.compat.files import npz_archive, open_file
from everstep.optimizers import SGD, Adam
from harness import in_graphs, ways_where

tracemalloc = optional("tracemalloc")  # not in Python 2.7
MANY = 12
LARGE = MIB = 1 << 20  # so many float32 numbers has a large variable: 4 MiB

measures_memory = pytest.mark.skipif(tracemalloc is None, reason="Python 2.7 counts no memory")


def trained(way, definition, count=MANY, size=5):
    """Returns a run with several variables after two steps, with other values in each."""
    random = np.random.RandomState(count)
    start = {name: random.uniform(1, 2, size).astype("float32") for name in map("v{:02}".format, range(count))}
    run = harness.new_run(way, definition, start, dict.fromkeys(start, harness.DENSE))
    for _ in range(2):
        step(run, size)
    return run


def step(run, size=5):
    run.step({name: np.full(size, 0.1 + number, "float32") for number, name in enumerate(run.names)})


def assert_equal(state, other):
    assert state.updates == other.updates
    harness.assert_same_arrays(state, other)


# Runs of a session


class Runs(object):
    """Counts the runs of sessions."""

    def __init__(self, monkeypatch, tf):
        self.count, run = 0, tf.Session.run

        def counted(session, *arguments, **more):
            self.count += 1
            return run(session, *arguments, **more)

        monkeypatch.setattr(tf.Session, "run", counted)

    def of(self, function, *arguments, **more):
        """Returns (result of a call, runs that it took)."""
        before = self.count
        return function(*arguments, **more), self.count - before


@ways_where(in_graphs)
def test_runs_of_a_session_do_not_grow_with_the_variables(way, monkeypatch):
    counts = []
    for count in (3, MANY):
        run = trained(way, everstep.moving_average(Adam(0.1), 0.9), count)
        runs = Runs(monkeypatch, run.tf)
        state, capturing = runs.of(run.captured, weights=True)
        step(run)
        _, restoring = runs.of(run.restored, state, weights=True)
        again = run.captured(weights=True)
        assert_equal(again, state)
        _, averaging = runs.of(everstep.assign_averages, run.optimizer, run.variables, session=run.session)
        for name, slots in state.slots.items():
            np.testing.assert_array_equal(run.captured(weights=True).variables[name], slots["moving_average/average"])
        counts.append((capturing, restoring, averaging))
    assert counts[0] == counts[1]
    capturing, restoring, averaging = counts[0]
    assert capturing <= 3  # counters; hypers; slots and weights
    assert restoring <= 3  # new variables; all variables; those that share the initial value of another one
    assert averaging <= 4  # as capture, and the averages


@ways_where(lambda way: in_graphs(way) and way.target == "tf_train")
def test_a_stock_optimizer_is_read_in_few_runs(way, monkeypatch):
    counts = []
    for count in (3, MANY):
        run = trained(way, SGD(0.1), count)
        tf = run.tf
        with run.graph.as_default():
            stock, before = tf.train.AdamOptimizer(), len(tf.global_variables())
            stock.minimize(sum(map(tf.reduce_sum, run.variables.values())))
            run.session.run([variable.initializer for variable in tf.global_variables()[before:]])
        counts.append(Runs(monkeypatch, tf).of(everstep.capture, stock, run.variables, session=run.session)[1])
    assert counts[0] == counts[1] <= 2


@ways_where(in_graphs)
def test_batches_are_bounded_in_bytes(way, monkeypatch):
    run = trained(way, Adam(0.1))
    state = run.captured(weights=True)
    monkeypatch.setattr(tensorflow_values, "RUN_BYTES", 50)  # two variables of 20 bytes
    runs = Runs(monkeypatch, run.tf)
    again, reading = runs.of(run.captured, weights=True)
    assert_equal(again, state)
    step(run)
    _, writing = runs.of(run.restored, state, weights=True)
    assert_equal(run.captured(weights=True), state)
    assert MANY * 3 / 2 <= reading <= MANY * 3 and MANY * 3 / 2 <= writing <= MANY * 3


@ways_where(in_graphs)
def test_the_variable_without_a_value_is_named(way):
    run = trained(way, Adam(0.1))
    with run.graph.as_default(), run.tf.Session(graph=run.graph) as session:
        others = [each for each in run.tf.global_variables() if each is not run.variables["v07"]]
        session.run([variable.initializer for variable in others])
        with pytest.raises(errors.StateError, match="v07:0 has no value"):
            everstep.capture(run.optimizer, run.variables, session=session, weights=True)


@ways_where(lambda way: way.target == "tf_train")
def test_variables_with_one_initial_value(way):
    with tf.Graph().as_default():
        initial = tf.constant([1.0, 2.0])
        resource = getattr(way.world, "resource", False)  # the eager world has none
        variables = [tf.get_variable(name, initializer=initial, use_resource=resource) for name in "abc"]
        # otherwise this would test nothing
        assert variables[0].initializer.inputs[1] is variables[1].initializer.inputs[1]
        optimizer = Adam(0.1).bind(way.module)
        train_op = optimizer.apply_gradients([(tf.ones(2) * (n + 1), each) for n, each in enumerate(variables)])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train_op)
            state = everstep.capture(optimizer, variables, session=session, weights=True)
            for number, name in enumerate("abc"):
                state.variables[name] = np.array([number, number + 0.5], "float32")
            everstep.restore(optimizer, state, variables, session=session, weights=True)
            assert_equal(everstep.capture(optimizer, variables, session=session, weights=True), state)


# Arrays that are shared or not


def aligned(value):
    """Returns a copy that begins at an address that TensorFlow and JAX like so much that they do not copy it."""
    copy = arrays_in_memory.aligned_empty(value.shape, value.dtype)
    copy[...] = value
    return copy


@pytest.mark.shared
@ways_where()
def test_nobody_holds_the_arrays_of_a_state(way):
    run = trained(way, Adam(0.1), count=2, size=300)
    state = run.captured(weights=True)
    for name in state.variables:
        state.variables[name] = aligned(state.variables[name])
        state.slots[name] = OrderedDict((slot, aligned(array)) for slot, array in state.slots[name].items())
    before = {key: array.copy() for key, array in harness.arrays_of(state).items()}
    step(run, 300)
    run.restored(state, weights=True)
    step(run, 300)  # writes the variables, in place where it can
    harness.assert_same_arrays(harness.arrays_of(state), before)
    run.restored(state, weights=True)
    for array in harness.arrays_of(state).values():
        array[...] = 7
    harness.assert_same_arrays(harness.arrays_of(run.captured(weights=True)), before)


def test_arrays_to_give():
    array = np.arange(6, dtype="float32").reshape(2, 3)
    assert arrays_in_memory.to_give(array, np.dtype("float32"), False) is array
    for given, dtype, is_shared in ((array, "float32", True), (array, "float64", False), (array.T, "float32", False)):
        copy = arrays_in_memory.to_give(given, np.dtype(dtype), is_shared)
        assert not np.may_share_memory(copy, array) and copy.dtype == dtype and copy.flags.c_contiguous
        assert copy.ctypes.data % arrays_in_memory.ALIGNMENT == 0 and (copy == given).all()
    for shape in [(), (0,), (3, 0), (2, 1)] + [(size,) for size in range(1, 40)]:  # memory has many addresses
        empty = arrays_in_memory.aligned_empty(shape, "float64")
        assert empty.shape == shape and (not empty.size or empty.ctypes.data % arrays_in_memory.ALIGNMENT == 0)
    read_only = np.broadcast_to(np.float32(1), (3,))
    assert arrays_in_memory.as_own(read_only).flags.writeable and arrays_in_memory.as_own(array[0]) is not array[0]
    locked, free = np.ones(3), np.ones(3)
    locked.flags.writeable = False
    assert arrays_in_memory.as_own(locked).flags.writeable and arrays_in_memory.as_own(free) is free


def test_values_of_the_right_dtype_are_not_copied():
    array = np.ones(3, "float32")
    assert values.cast_exactly("w", array, "float32") is array
    assert values.cast_exactly("w", array, "float64").dtype == np.float64
    with pytest.raises(errors.StateError, match="does not hold"):
        values.cast_exactly("w", np.array([1.1]), "float32")


# Files


class Training(object):
    """Adam on NumPy arrays: three large and one small."""

    def __init__(self):
        self.variables = OrderedDict((name, np.ones(LARGE, "float32")) for name in "abc")
        self.variables["small"] = np.ones((2, 2), "float32")
        self.optimizer = Adam(0.1).bind(np)
        self.optimizer.apply_gradients([(each * 0.5, each) for each in self.variables.values()])

    def capture(self):
        return everstep.capture(self.optimizer, self.variables, weights=True)

    def restore(self, state):
        everstep.restore(self.optimizer, state, self.variables, weights=True)


SIZE = 3 * 3 * 4 * LARGE  # bytes of the large arrays


def peak_of(function, *arguments):
    """Returns (result, largest memory during a call beyond that before it)."""
    tracemalloc.start()
    try:
        result = function(*arguments)
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def keeps_nothing(monkeypatch):
    """Makes restore treat any file as larger than what it keeps in memory."""
    monkeypatch.setattr(importlib.import_module("everstep.compat.checkpoints.restore"), "KEPT_BYTES", 0)


@pytest.mark.shared
@measures_memory
@pytest.mark.usefixtures("keeps_nothing")
def test_memory(tmpdir):
    training, path = Training(), str(tmpdir.join("run.npz"))
    state, peak = peak_of(training.capture)
    assert SIZE <= peak < SIZE + MIB  # the copy that capture returns, and no other
    assert peak_of(state.save, path)[1] < MIB
    expected = {key: array.copy() for key, array in harness.arrays_of(state).items()}
    loaded, peak = peak_of(everstep.State.load, path)
    assert peak < MIB
    for variable in training.variables.values():
        variable[...] = 0
    assert peak_of(training.restore, loaded)[1] < 4 * LARGE + MIB  # one array
    harness.assert_same_arrays(harness.arrays_of(training.capture()), expected)
    assert peak_of(training.restore, state)[1] < MIB  # of arrays in memory: no copy


class Reads(object):
    """Counts the bytes that are read from files."""

    def __init__(self, monkeypatch):
        self.sizes, read_at = [], open_file.OpenFile._read_at

        def counted(*arguments):
            self.sizes.append(read_at(*arguments))
            return self.sizes[-1]

        monkeypatch.setattr(open_file.OpenFile, "_read_at", counted)

    def of(self, function, *arguments):
        """Returns (result of a call, bytes that it read)."""
        del self.sizes[:]
        return function(*arguments), sum(self.sizes)


def saved(tmpdir):
    training, path = Training(), str(tmpdir.join("run.npz"))
    training.capture().save(path)
    return training, path, OVERHEAD + os.path.getsize(path) - SIZE


OVERHEAD = 2000  # bytes that are read twice: the archive's first header, and the like


@pytest.mark.shared
def test_a_file_is_read_once(tmpdir, monkeypatch):
    training, path, rest = saved(tmpdir)
    reads = Reads(monkeypatch)
    loaded, size = reads.of(everstep.State.load, path)
    assert size <= rest
    assert SIZE <= reads.of(training.restore, loaded)[1] <= SIZE + rest
    loaded = everstep.State.load(path)
    for array in harness.handles_of(loaded).values():
        assert reads.of(np.asarray, array)[1] == array.dtype.itemsize * np.prod(array.shape)
        assert reads.of(array.verify)[1] == 0  # it was compared


@pytest.mark.shared
@pytest.mark.usefixtures("keeps_nothing")
def test_a_large_file_is_read_twice(tmpdir, monkeypatch):
    training, path, rest = saved(tmpdir)
    reads, loaded = Reads(monkeypatch), everstep.State.load(path)
    # one read to check it, and one to use it
    assert 2 * SIZE <= reads.of(training.restore, loaded)[1] <= 2 * SIZE + rest
    assert reads.of(training.restore, loaded)[1] <= SIZE + rest  # it has been checked
    assert max(reads.sizes) <= open_file.CHUNK_BYTES


@pytest.mark.shared
def test_a_checksum_needs_a_small_buffer(tmpdir, monkeypatch):
    _, path, _ = saved(tmpdir)
    stored, reads = everstep.State.load(path).slots["a"]["m"], Reads(monkeypatch)
    assert reads.of(stored.verify)[1] == 4 * LARGE and max(reads.sizes) <= npz_archive.BLOCK_BYTES
    assert reads.of(stored.verify)[1] == 0
    assert reads.of(lambda: stored[3:5])[1] == 8


@pytest.mark.shared
def test_rows_are_checked_too(tmpdir):
    _, path, _ = saved(tmpdir)
    place, _ = everstep.State.load(path).slots["b"]["v"]._place
    flip(path, place + 100)
    stored = everstep.State.load(path).slots["b"]["v"]
    for read in (lambda: stored[:1], lambda: np.asarray(stored), lambda: stored[5:7], stored.verify):
        with pytest.raises(errors.FileError, match="b/v is damaged"):
            read()


def flip(path, offset):
    """Changes one bit of a byte in a file."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = ord(file.read(1))
        file.seek(offset)
        file.write(bytes(bytearray([byte ^ 1])))


@pytest.mark.shared
@pytest.mark.parametrize("kept", [0, 3 * 4 * LARGE, 1 << 30])
def test_the_last_byte_counts(kept, tmpdir, monkeypatch):
    """Checksums are of blocks: damage anywhere, also where two meet, is found before anything changes."""
    monkeypatch.setattr(importlib.import_module("everstep.compat.checkpoints.restore"), "KEPT_BYTES", kept)
    training, path, _ = saved(tmpdir)
    before = {name: variable.copy() for name, variable in training.variables.items()}
    place, size = everstep.State.load(path).slots["b"]["v"]._place
    for offset in (0, npz_archive.BLOCK_BYTES - 1, npz_archive.BLOCK_BYTES, size - 1):
        flip(path, place + offset)
        with pytest.raises(errors.FileError, match="b/v is damaged"):
            training.restore(everstep.State.load(path))
        flip(path, place + offset)
        harness.assert_same_arrays(training.variables, before)
    training.restore(everstep.State.load(path))
