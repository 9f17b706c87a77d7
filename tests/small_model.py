"""Saves and names the parts of the model of tests/files. tests/make/files.py trains it."""
from __future__ import absolute_import, division, print_function

from harness import small_model

EMBEDDINGS, IDS, KERNEL, TARGETS = small_model.EMBEDDINGS, small_model.IDS, small_model.KERNEL, small_model.TARGETS
build, gradients, keras_major = small_model.build, small_model.gradients, small_model.keras_major
train = small_model.train

try:
    from tensorflow import __version__ as TENSORFLOW
except ImportError:
    TENSORFLOW = ""


def save(model, path):
    """Saves a model, or the weights alone if that is what the path's end says."""
    if path.endswith(".weights.h5"):
        model.save_weights(path)
        return
    is_zip = path.endswith(".keras") and TENSORFLOW.startswith("2.12.")  # there it means HDF5, unless one says so
    model.save(path, **({"save_format": "keras_v3"} if is_zip else {}))


def stock_optimizer(optimizers, name, arguments):
    try:
        return getattr(optimizers, name)(**arguments)
    except (TypeError, ValueError):  # before Keras 2.3
        arguments = dict(arguments, lr=arguments["learning_rate"])
        return getattr(optimizers, name)(**{key: arguments[key] for key in arguments if key != "learning_rate"})


def api_of(optimizer):
    """Returns the target of an optimizer or its class, by the hooks that it has."""
    for name, hook in (("optimizer_v2", "add_slot"), ("keras3", "stateless_apply"), ("update_step", "update_step")):
        if hasattr(optimizer, hook):
            return name
    return "get_updates"
