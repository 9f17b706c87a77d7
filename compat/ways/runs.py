"""Trains an optimizer of any API on gradients that are passed in, so that every API gets the same ones.

`Run(make, start, kinds)`, then `step`, `weights`, `slot`, `resumed`.
"""
from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile
from collections import OrderedDict

from everstep.compat.checkpoints.capture import capture
from everstep.compat.checkpoints.restore import restore
from everstep.compat.ways.keras_worlds import GetUpdates, Keras3, Keras3Function, Keras3Jit
from everstep.compat.ways.worlds import Arrays, Eager, Function, Graph, KerasGraph, RefGraph, World

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

DENSE, SPARSE, NONE = "dense", "sparse", "none"
_KINDS = {DENSE: object, SPARSE: tuple, NONE: None}


class Run(object):
    """One model in training.

    Args:
        make: a function that returns the bound optimizer.
        start: {name: array}, the start values of the variables.
        kinds: {name: DENSE, SPARSE or NONE}, the kinds of their gradients.
    """

    module = None  # type: Any  # what `bind` takes
    makes_world = World
    optimizer = None  # type: Any

    def __init__(self, make, start, kinds):
        self.make, self.kinds, self.names = make, kinds, sorted(start)
        self.start, self._catching_up = start, {}
        self.world = self.makes_world(self.module)
        self.build()

    def build(self):
        """Creates the variables, the optimizer, and what takes a step."""
        with self.inside():
            self.variables = {name: self.world.variable(self.start[name], name=name) for name in self.names}
        with self.inside():
            self.optimizer = self.make()
        self.begin()

    def begin(self):
        """Builds what takes a step with `optimizer`."""
        if self.makes_world is Arrays:  # an array has no name, which variables of all other APIs have
            names = {id(value): name for name, value in self.variables.items()}
            self.bound.adapter.variable_name = lambda variable: names[id(variable)]
        variables, kinds = [self.variables[name] for name in self.names], [_KINDS[self.kinds[n]] for n in self.names]
        with self.inside():
            self._step = self.world.stepper(self.optimizer, variables, kinds)

    @property
    def bound(self):
        """The `Bound` of the optimizer: all that belongs to it, and its adapter."""
        return self.optimizer._bound

    def inside(self):
        """Returns a context in which the graph and the session of the run, if it has any, are the default ones."""
        return self.world.inside()

    def trained(self):
        return [name for name in self.names if self.kinds[name] != NONE]

    def step(self, grads):
        self._step([grads[name] for name in self.names])

    def flush(self):
        """Applies all deferred updates of all rows."""
        with self.inside():
            self.world.run(self.optimizer.flush())

    def catch_up(self, name, rows):
        """Applies the deferred updates of the rows that are read next."""
        if self.world.session is None:
            self.optimizer.catch_up(self.variables[name], rows)
            return
        if name not in self._catching_up:
            with self.inside():
                holder = self.world.tf.placeholder("int64")
                self._catching_up[name] = holder, self.optimizer.catch_up(self.variables[name], holder)
        holder, operation = self._catching_up[name]
        self.world.run(operation, {holder: rows})

    def weights(self):
        return {name: self.world.read(value) for name, value in self.variables.items()}

    def slot(self, name, slot):
        with self.inside():
            return self.world.read(self.optimizer.get_slot(self.variables[name], slot))

    def set_rate(self, rate):
        self.world.set_hyper(self.optimizer, "learning_rate", rate)

    def captured(self, **more):
        """Returns the `everstep.State` of the optimizer."""
        return capture(self.optimizer, self.variables, session=self.world.session, **more)

    def restored(self, state, **more):
        return restore(self.optimizer, state, self.variables, session=self.world.session, **more)

    def resumed(self):
        """Returns a new run that goes on with all that this one has learned, by the API's own means."""
        raise NotImplementedError

    def close(self):
        self.world.close()


class ArraysRun(Run):
    makes_world = Arrays

    def in_order(self):
        """Returns the trained variables in order: a state names arrays by the order in which steps first saw them."""
        return OrderedDict((name, self.variables[name]) for name in self.trained())

    def resumed(self):
        state = capture(self.optimizer, self.in_order())
        other = type(self)(self.make, self.weights(), self.kinds)
        restore(other.optimizer, state, other.in_order())
        return other


class GraphRun(Run):
    """A TF 1 graph and its session."""

    makes_world = Graph

    def build(self):
        self.tf, self.graph, self.session = self.world.tf, self.world.graph, self.world.session
        super(GraphRun, self).build()

    def begin(self):
        super(GraphRun, self).begin()
        with self.inside():
            self.saver = self.tf.train.Saver(max_to_keep=None)

    def weights(self):
        return self.world.read(self.variables)

    def resumed(self):
        folder = tempfile.mkdtemp()
        try:
            with self.inside():
                path = self.saver.save(self.session, os.path.join(folder, "model"), write_meta_graph=False)
            other = type(self)(self.make, self.start, self.kinds)
            with other.inside():
                other.saver.restore(other.session, path)
        finally:
            shutil.rmtree(folder)
        return other


class TrainResourceRun(GraphRun):
    pass


class TrainRefRun(TrainResourceRun):
    makes_world = RefGraph


class V2SessionRun(GraphRun):
    makes_world = KerasGraph


class EagerRun(Run):
    """TF 2 in eager mode."""

    makes_world = Eager
    folder = None

    def build(self):
        self.tf = self.world.tf
        super(EagerRun, self).build()

    def resumed(self):
        # Slots are restored when they are created, so the file has to stay until the run is closed.
        self.folder = tempfile.mkdtemp()
        path = self.checkpoint().write(os.path.join(self.folder, "model"))
        other = type(self)(self.make, self.start, self.kinds)
        other.checkpoint().restore(path)
        return other

    def checkpoint(self):
        return self.tf.train.Checkpoint(optimizer=self.optimizer, **self.variables)

    def close(self):
        if self.folder:
            shutil.rmtree(self.folder)
            self.folder = None


class FunctionRun(EagerRun):
    makes_world = Function


class GetUpdatesRun(Run):
    makes_world = GetUpdates

    def build(self):
        self.keras = self.module
        super(GetUpdatesRun, self).build()

    def resumed(self):
        weights, state = self.weights(), self.optimizer.get_weights()
        other = type(self)(self.make, weights, self.kinds)
        other.optimizer.set_weights(state)
        return other


class KerasRun(Run):
    """Keras 3 on any backend, in eager mode."""

    makes_world = Keras3

    def build(self):
        self.keras = self.world.keras
        super(KerasRun, self).build()

    def resumed(self):
        store = {}
        self.optimizer.save_own_variables(store)
        other = type(self)(self.make, self.weights(), self.kinds)
        other.optimizer.load_own_variables(store)
        return other


class KerasFunctionRun(KerasRun):
    makes_world = Keras3Function


class KerasJitRun(KerasRun):
    makes_world = Keras3Jit
