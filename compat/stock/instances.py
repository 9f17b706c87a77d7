"""Reads an instance of a stock optimizer for `everstep.from_native`: its class, and its arguments as a config."""
from __future__ import absolute_import, division, print_function

import math

from everstep.compat.stock.lookup import entry_of_class
from everstep.compat.targets.detect import TARGETS
from everstep.errors import UnsupportedError
from everstep.optimizers.contract import is_tensor


def of_instance(optimizer, entry=None):
    """Returns (entry, config, the optimizer) of a stock optimizer."""
    stock = type(optimizer)
    for target in [each for each in TARGETS if each.speaks(stock)]:
        entry = entry or entry_of_class(stock, target.name)
        if target.name == "tf_train":
            return entry, _attributes(optimizer, entry), optimizer
        try:
            return entry, dict(_config(optimizer), **_functions(optimizer, entry)), optimizer
        except AttributeError:  # get_config of Ftrl fails in TF 1.14; when 1.15 is the minimum, this can go
            attributes = dict({name[1:]: value for name, value in vars(optimizer).items()}, **optimizer._hyper)
            return entry, attributes, optimizer
    what = "a class; give an optimizer" if isinstance(optimizer, type) else (
        "of no API that everstep knows; from_native takes a stock optimizer or its config")
    raise UnsupportedError("{!r} is {}".format(optimizer, what))


def native_schedule(optimizer, config):
    """Returns the schedule that a stock optimizer has, or None. `config`: its own, for the error without an optimizer.

    Raises:
        UnsupportedError: there is no optimizer.
    """
    if optimizer is None:
        raise UnsupportedError(
            "everstep knows no schedule {}; give the optimizer itself, whose schedule can be kept on its own "
            "API".format(config.get("class_name"))
        )
    hypers = getattr(optimizer, "_hyper", None)  # OptimizerV2
    return hypers.get("learning_rate") if hypers else getattr(optimizer, "_learning_rate", None)


def _config(optimizer):
    """Returns the config of a stock optimizer. Its schedule needs no `get_config`, which Keras calls."""
    try:
        return optimizer.get_config()
    except NotImplementedError:
        attributes = getattr(native_schedule(optimizer, {}), "__dict__", {"get_config": None})
        if "get_config" in attributes:  # or there is no schedule
            raise
        attributes["get_config"] = dict
        try:
            return optimizer.get_config()
        finally:
            del attributes["get_config"]


def _functions(optimizer, entry):
    """Returns `{stock argument: value}` of callables, tensors and variables. A config has their present numbers."""
    given = getattr(optimizer, "_hyper", None) or {"learning_rate": getattr(optimizer, "_learning_rate", None)}
    functions = {}
    for name in set(given).intersection(entry.names):
        value = given[name]
        if not is_tensor(value):
            is_function = callable(value) and not hasattr(value, "get_config")
        elif hasattr(value, "assign"):
            is_function = _is_followed(optimizer, value)
        else:  # An eager tensor is a number. But stock treats a tensor of 0 as a momentum, and the number 0 as none.
            is_function = not (hasattr(value, "numpy") and value.numpy())
        if is_function:
            functions[name] = value
    return functions


def _is_followed(optimizer, variable):
    """Returns whether a variable is the user's, which an OptimizerV2 reads at each step. Its own are of numbers."""
    create = getattr(type(optimizer), "_create_hypers", None)
    if create is None or "Variable" not in create.__code__.co_names:  # TF 1.14 copies the number
        return False
    return getattr(variable.aggregation, "name", None) != "ONLY_FIRST_REPLICA"


def _attributes(optimizer, entry):
    """Returns the arguments of a tf.train optimizer, which has no config, as a config."""
    config = {}
    if hasattr(optimizer, "_logbase"):  # PowerSign keeps the logarithm of its base
        config["base"] = math.exp(optimizer._logbase)
    for theirs in list(entry.names) + ["skip_list"] + list(entry.refused):
        for attribute in ("_" + theirs, "_lr") if theirs == "learning_rate" else ("_" + theirs,):
            if getattr(optimizer, attribute, None) is not None:
                config[theirs] = getattr(optimizer, attribute)
    return config
