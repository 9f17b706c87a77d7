"""`everstep.average_checkpoint`: Keras's ModelCheckpoint, but the files have averages."""
from __future__ import absolute_import, division, print_function

from everstep.compat.extras.averaged import assign_averages, averaged, check_averages
from everstep.compat.extras.training_log import member

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments


def average_checkpoint(module, filepath, update_weights=False, **checkpoint):
    # type: (Any, Any, bool, Any) -> Any
    """Returns a callback of Keras that saves the averages of the weights, as AverageModelCheckpoint of TF Addons does.

        model.compile(everstep.moving_average(Adam(1e-3), 0.999).bind(keras), "mse")
        model.fit(x, y, callbacks=[everstep.average_checkpoint(keras, "averages.weights.h5", save_weights_only=True)])

    The optimizer must keep averages, as for `everstep.averaged`: `moving_average`, `stochastic_weight_averaging`,
    `lookahead`, or a rule that averages itself. The saved optimizer state is that of training. `save_best_only`
    compares what Keras measured, and Keras measures with the trained weights, not with the averages.

    Args:
        module: the Keras that you train with, as for `bind`: tf.keras, keras or tf_keras.
        filepath: the path, as for the module's `ModelCheckpoint`.
        update_weights: True to also go on training from the averages after each time, with slots as they are. Default
            False: the model has its own weights again after each file.
        **checkpoint: other arguments of the module's `ModelCheckpoint`: monitor, save_best_only, save_weights_only, ...

    Returns:
        An instance of the module's own `ModelCheckpoint`.

    Raises:
        TargetError: the module has no callbacks.
        StateError: when training begins: the model's optimizer keeps no averages.
    """
    keras_checkpoint = member(module, "callbacks", "ModelCheckpoint")
    # Before TF 1.14, and in Keras 2.3 and older, everything is in on_epoch_end.
    saves = "_save_model" if hasattr(keras_checkpoint, "_save_model") else "on_epoch_end"
    save = getattr(keras_checkpoint, saves)

    def save_averages(self, *arguments, **keywords):
        trained = self.model.optimizer, self.model.trainable_weights
        if update_weights:
            assign_averages(*trained)
            return save(self, *arguments, **keywords)
        with averaged(*trained):
            return save(self, *arguments, **keywords)

    def on_train_begin(self, logs=None):
        check_averages(self.model.optimizer)
        keras_checkpoint.on_train_begin(self, logs)

    members = {"on_train_begin": on_train_begin, saves: save_averages}
    return type(str("AverageModelCheckpoint"), (keras_checkpoint,), members)(filepath, **checkpoint)
