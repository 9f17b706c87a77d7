"""The names in files of tf.train.Saver: which belong together. A slot's name begins with that of its variable."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

import numpy as np

POWERS = OrderedDict([("beta1_power", "beta_1"), ("beta2_power", "beta_2")])
_POWER = re.compile(r"((?:.*/)?)(beta[12]_power)((?:_\d+)?)$")


def plain_names(contents):
    """Returns {name: handle} of a file's arrays, without the `:0` of a Saver that got {variable.name: variable}."""
    arrays = OrderedDict()
    for key, handle in contents.arrays.items():
        name = key[:-2] if key.endswith(":0") else key
        arrays[key if name in arrays or name != key and name in contents.arrays else name] = handle
    return arrays


def slots_of(arrays, op):
    """Returns {variable: {number: handle}} of the slots whose names end with `op` or `op_<number>`."""
    slots = OrderedDict()
    for (_, variable), handles in slots_by_scope(arrays, op).items():
        slots.setdefault(variable, {}).update(handles)
    return slots


def slots_by_scope(arrays, op):
    """Returns {(scope, variable): {number: handle}} of the same. In the scope, the optimizer was called."""
    slots = OrderedDict()
    pattern = re.compile(r"^(.+)/{}(?:_(\d+))?$".format(re.escape(op)))
    for key, handle in arrays.items():
        match = pattern.match(key)
        if match:
            path = match.group(1)
            variable = variable_of(path, arrays, handle.shape) or path
            scope = path[: -len(variable)].rstrip("/")
            slots.setdefault((scope, variable), {})[int(match.group(2) or 0)] = handle
    return slots


def variable_of(path, arrays, shape=None):
    """Returns the variable in a slot's path, without the scopes around the optimizer; None if none fits."""
    parts = path.split("/")
    for start in range(len(parts)):
        name = "/".join(parts[start:])
        if name in arrays and (shape is None or arrays[name].shape == shape):
            return name
    return None


def beside(arrays):
    """Returns {NAME: the same without a number at its end} of the arrays that are called VARIABLE/NAME.

    They have the shape and the dtype of the variable, as slots have.
    """
    names = OrderedDict()
    for key, handle in arrays.items():
        path, _, name = key.rpartition("/")
        variable = variable_of(path, arrays, handle.shape) if path else None
        if variable and np.dtype(handle.dtype).kind in "fV" and arrays[variable].dtype == handle.dtype:
            names[name] = re.sub(r"_\d+$", "", name)
    return names


def has_weights_alone(arrays):
    """Returns True if nothing in a file can be an optimizer's: no slots, no powers, no counts."""
    is_count = re.compile(r"(.*/)?(updates|iter|iterations)(_\d+)?$")
    return not beside(arrays) and not any(is_power(name) or is_count.match(name) for name in arrays)


def ops_beside(arrays, count, known):
    """Returns the names, besides known ones, that optimizers with so many slots may have."""
    names, found = beside(arrays), []
    for name, stem in names.items():
        if name not in known and stem not in known and (stem == name or stem not in names):
            numbers = slots_of(arrays, name)
            if all(variable in arrays and sorted(handles) == list(range(count))
                   for variable, handles in numbers.items()):
                found.append(name)
    return found


def powers_in(arrays):
    """Returns {name of the first of its arrays: {"beta1_power": handle, "beta2_power": handle}} of each optimizer."""
    found = OrderedDict()
    for key, handle in sorted(arrays.items()):
        match = _POWER.match(key)
        if match and handle.shape == ():
            found.setdefault((match.group(1), match.group(3)), OrderedDict())[match.group(2)] = handle
    return OrderedDict((scope + next(iter(powers)) + number, powers) for (scope, number), powers in found.items())


def is_power(name):
    return _POWER.match(name) is not None
