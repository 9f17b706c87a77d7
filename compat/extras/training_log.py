"""`everstep.log_training` and `everstep.log_hook`: the learning rate and norms of a run, of any optimizer."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.checkpoints.stock_live import names_of
from everstep.compat.checkpoints.unwrapping import unwrapped
from everstep.compat.extras.event_file import EventFile
from everstep.compat.extras.rate import current_rate, imported_tensorflow, updates_so_far
from everstep.errors import HyperValueError, NotBoundError, TargetError, UnsupportedError

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any, Dict, List, Optional  # noqa: F401  # used in type comments


def log_training(module, log_dir=None, every=None, each_variable=False):
    # type: (Any, Optional[str], Optional[int], bool) -> Any
    """Returns a callback of Keras that logs the learning rate, and norms of the weights and of their change.

        model.fit(x, y, callbacks=[everstep.log_training(keras, log_dir="logs")])

    At the end of each epoch it adds these to the `logs`, so that `History` and later callbacks have them, as
    `CSVLogger`:

        learning_rate: that of the next update, as `everstep.current_rate` reads it. A partition has one for each
            branch, `learning_rate/BRANCH`. Left out if the optimizer has none.
        weight_norm: the Euclidean norm of all trained weights as one vector.
        update_norm: the norm of their change over the epoch. Divided by weight_norm it tells if a rate is too high or
            low.

    A record reads all weights of the model. Callbacks see no gradients. `callback.records` is a list of all records,
    `{"step": updates so far, "learning_rate": ..., ...}`.

    Args:
        module: the Keras that you train with, as for `bind`: tf.keras, keras or tf_keras.
        log_dir: a folder for TensorBoard. Each record is written there, its step is the number of updates. This needs
            no TensorFlow, so it works on JAX and torch too. Default None: no files.
        every: also make a record every so many batches, with the change since the last of these. Default None: only
            at the end of epochs.
        each_variable: True to add both norms of each variable: `weight_norm/NAME`, `update_norm/NAME`. Default False.

    Returns:
        An instance of the module's own `Callback`. It works with stock optimizers too.

    Raises:
        TargetError: the module has no callbacks.
        HyperValueError: `every` is no positive int.
    """
    _check_every(every)
    keras_callback = member(module, "callbacks", "Callback")

    class TrainingLog(keras_callback):  # type: ignore[misc, valid-type]  # a class of the module given
        _supports_tf_logs = True  # otherwise TF 2.2 to 2.15 pass a copy of the logs

        def __init__(self):
            keras_callback.__init__(self)
            self.log = Log(log_dir, each_variable)
            self.records, self._batches = self.log.records, 0

        def on_train_begin(self, logs=None):
            optimizer = getattr(self.model, "optimizer", None)
            if optimizer is None:
                raise NotBoundError("log_training needs a compiled model; {!r} has no optimizer".format(self.model))
            self.log.start(self._weights())

        def on_epoch_end(self, epoch, logs=None):
            figures = self._record("epoch")
            if logs is not None:
                logs.update(figures)

        def on_train_end(self, logs=None):
            self.log.finish()

        def _record(self, period):
            optimizer = self.model.optimizer
            step = int(updates_so_far(unwrapped(optimizer), None))
            return self.log.record(optimizer, self._weights(), None, step, period)

        def _weights(self):
            model = self.model
            values = dict(zip(map(id, model.weights), model.get_weights()))
            trained = model.trainable_weights
            return list(zip(names_of(trained), [values[id(weight)] for weight in trained]))

    if every is None:
        return TrainingLog()
    batches = every

    class TrainingLogOfBatches(TrainingLog):
        def on_batch_end(self, batch, logs=None):
            self._batches += 1
            if self._batches % batches == 0:
                self._record("batches")

    return TrainingLogOfBatches()


def log_hook(module, optimizer, log_dir=None, every=100, each_variable=False):
    # type: (Any, Any, Optional[str], int, bool) -> Any
    """Returns a hook for sessions of TensorFlow 1 that logs what `log_training` logs.

        optimizer = Adam(1e-3).bind(tf.train)
        hook = everstep.log_hook(tf.train, optimizer, log_dir="logs")
        with tf.train.MonitoredTrainingSession(hooks=[hook]) as session: ...
        tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])

    Changes are those since the last record. Nothing is added to the graph: a record reads its trainable variables.
    `hook.records` is a list of all records.

    Args:
        module: `tf.train`, or `tf.compat.v1.train`.
        optimizer: the optimizer that trains: of `bind(module)`, or stock.
        log_dir: a folder for TensorBoard, as for `log_training`. The step is the global step, or without one the number
            of runs.
        every: make a record every so many runs of the session. Default 100.
        each_variable: as for `log_training`.

    Returns:
        An instance of the module's own `SessionRunHook`.

    Raises:
        TargetError: the module has no `SessionRunHook`.
        HyperValueError: `every` is no positive int.
    """
    _check_every(every)
    session_hook = member(module, "SessionRunHook")

    class TrainingHook(session_hook):  # type: ignore[misc, valid-type]  # a class of the module given
        def __init__(self):
            self.log = Log(log_dir, each_variable)
            self.records, self._runs = self.log.records, 0

        def begin(self):
            tf = imported_tensorflow()
            self._variables, self._global_step = tf.trainable_variables(), tf.train.get_global_step()

        def after_create_session(self, session, coord):
            self.log.start(self._weights(session))

        def after_run(self, run_context, run_values):
            self._runs += 1
            if self._runs % every:
                return
            session = run_context.session
            step = self._runs if self._global_step is None else int(session.run(self._global_step))
            self.log.record(optimizer, self._weights(session), session, step, "runs")

        def end(self, session):
            self.log.finish()

        def _weights(self, session):
            return list(zip(names_of(self._variables), session.run(self._variables)))

    return TrainingHook()


class Log(object):
    """The records of a run.

    Attributes:
        records: a list of {"step": int, figure: float}.
    """

    def __init__(self, log_dir, each_variable):
        self._log_dir, self._each_variable, self._file = log_dir, each_variable, None
        self._start, self._before = {}, {}  # type: Dict[str, Any], Dict[str, Dict[str, Any]]
        self.records = []  # type: List[Dict[str, Any]]

    def start(self, weights):
        """Keeps [(name, array)] for the first norm of a change, and makes the file."""
        self._start, self._before = _copies(weights), {}
        if self._log_dir is not None and self._file is None:
            self._file = EventFile(self._log_dir)

    def finish(self):
        if self._file is not None:
            self._file.close()
            self._file = None

    def record(self, optimizer, weights, session, step, period):
        """Returns {figure: float}, and adds them to the records and the file.

        Args:
            weights: [(name, array)].
            period: changes are those since the last record with the same text.
        """
        figures = _rates(optimizer, session)
        values, before = _copies(weights), self._before.get(period, self._start)
        squares = {"weight_norm": {name: _square(value) for name, value in values.items()}}
        squares["update_norm"] = {
            name: _square(value - before[name]) for name, value in values.items() if name in before}
        for figure, by_name in squares.items():
            figures[figure] = float(np.sqrt(sum(by_name.values())))
            if self._each_variable:
                figures.update(("{}/{}".format(figure, name), float(np.sqrt(by_name[name]))) for name in by_name)
        self._before[period] = values
        self.records.append(dict(figures, step=step))
        if self._file is not None:
            self._file.add(step, figures)
        return figures


def _copies(weights):
    return {name: np.array(value, np.float64) for name, value in weights}


def _square(value):
    return float((value * value).sum())


def _rates(optimizer, session):
    try:
        rate = current_rate(optimizer, session)
    except UnsupportedError:  # a rule without one
        return {}
    branches = rate if isinstance(rate, dict) else {None: rate}
    return {"learning_rate" if name is None else "learning_rate/" + name: value for name, value in branches.items()}


def _check_every(every):
    if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise HyperValueError("every is a number of batches or steps, an int of at least 1; got {!r}".format(every))


def member(module, *names):
    """Returns module.NAME.NAME... Raises TargetError."""
    value = module
    for name in names:
        value = getattr(value, name, None)
    if value is None:
        modules = "tf.keras, keras or tf_keras" if len(names) > 1 else "tf.train or tf.compat.v1.train"
        raise TargetError("{} has no {}; give {}".format(
            getattr(module, "__name__", repr(module)), ".".join(names), modules))
    return value
