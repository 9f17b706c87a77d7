"""TensorFlow's verbs for values in and out: variables as NumPy arrays, in eager code and through a session."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.backends.arrays_in_memory import as_own, to_give
from everstep.compat.backends.base import Backend
from everstep.errors import StateError

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# Bytes that one run of a session reads or writes. TensorFlow plans the graph anew for each set of variables, which
# takes longer than to read most; but a session on another machine carries at most 2 GiB at once.
RUN_BYTES = 1 << 26


class TensorFlowValues(Backend):
    """The verbs of TensorFlowBackend for capture and restore."""

    tf = None  # type: Any  # TensorFlowBackend sets it

    def session_for(self, variables, session, default):
        graph_variables = [variable for variable in variables if self._in_graph(variable)]
        if not graph_variables:
            if variables and not self.eager:
                raise StateError("values are read and written between steps, not inside of a tf.function")
            return None
        session = session or self.tf.get_default_session() or default(graph_variables)
        if session is None:
            raise StateError(
                "the variables live in a graph, and only a session has their values: give session=, or call this "
                "where one is the default (with session.as_default())"
            )
        raw_session = getattr(session, "_tf_sess", None)  # of a MonitoredSession, whose hooks would count these runs
        session = raw_session() if raw_session else session
        if getattr(session, "graph", None) is not graph_variables[0].graph:
            raise StateError("{!r} is not a session of the graph of {}".format(session, graph_variables[0].name))
        return session

    def values(self, variables, session):
        values = []
        for batch in self._batches(variables) if session else [variables]:
            try:
                values.extend(self._run(batch, session))
            except Exception:  # one of them has no value; find out which
                for variable in batch:
                    values.extend(self._value(variable, session))
        return [as_own(value) for value in values]

    def _batches(self, variables):
        """Yields lists of variables of about RUN_BYTES."""
        batch, room = [], RUN_BYTES
        for variable in variables:
            shape = self.shape(variable)
            size = variable.dtype.base_dtype.size * int(np.prod(shape)) if shape and None not in shape else 1
            if batch and size > room:
                yield batch
                batch, room = [], RUN_BYTES
            batch.append(variable)
            room -= size
        yield batch

    def _run(self, variables, session):
        graph_variables = [variable for variable in variables if session and self._in_graph(variable)]
        from_graph = iter(session.run(graph_variables) if graph_variables else ())
        return [next(from_graph) if session and self._in_graph(variable) else self._eager_value(variable)
                for variable in variables]

    def _value(self, variable, session):
        try:
            return self._run([variable], session)
        except Exception as error:  # not initialized, a closed session, or a placeholder without a value
            raise StateError("{} has no value: {}".format(variable.name, str(error).split("\n")[0]))

    def _eager_value(self, variable):
        if hasattr(variable, "read_value") and not self._in_graph(variable):
            return self.tf.convert_to_tensor(variable.read_value()).numpy()
        return variable.numpy()

    def start(self, variables, session):
        if session:
            session.run([variable.initializer for variable in variables])

    def put(self, writes, session):
        batches, room = [], RUN_BYTES
        for variable, value, is_shared in writes:
            value = to_give(value, variable.dtype.base_dtype.as_numpy_dtype, is_shared)
            if self._in_graph(variable):
                if value.nbytes > room:
                    self._initialize(batches, session)
                    batches, room = [], RUN_BYTES
                initial = variable.initializer.inputs[1].name
                batch = next((each for each in batches if initial not in each), None)
                if batch is None:  # there is no batch yet, or the variables share their initial value
                    batch = {}
                    batches.append(batch)
                batch[initial] = variable, value
                room -= value.nbytes
            else:
                variable.assign(value)
            del value  # before the next one is read
        self._initialize(batches, session)

    def _initialize(self, batches, session):
        """Runs initializers with other values, which works in a finalized graph too.

        Args:
            batches: [{name of the initial value: (variable, new value)}], one for each run.
        """
        for batch in batches:
            variables = [variable for variable, _ in batch.values()]
            feeds = {initial: value for initial, (_, value) in batch.items()}
            session.run([variable.initializer for variable in variables], feeds)
            for variable in variables:
                variable._keras_initialized = True  # Keras 2.0.8 initializes all others at its next run

    @staticmethod
    def _in_graph(variable):
        return getattr(variable, "_in_graph_mode", True)
