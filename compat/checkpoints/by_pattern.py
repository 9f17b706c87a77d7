"""Finds the slots of optimizers that people wrote by hand, by the patterns of their names."""
from __future__ import absolute_import, division, print_function

import difflib
import re
from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.conversions import first_few
from everstep.compat.checkpoints.layouts import slots_of_rank
from everstep.errors import FileError, StateError
from everstep.optimizers.contract.checks import TEXT
from everstep.optimizers.contract.trees import flat
from everstep.optimizers.wrappers.partition import Partition

VARIABLE = "{var}"


def by_pattern(native, definition, patterns):
    """Returns (slots, optimizer-wide values, None) of a file of tf.train.Saver.

    Args:
        patterns: {slot of the definition: name in the file, with `{var}` for the variable's name}.

    Raises:
        StateError: the patterns do not fit the definition or the format.
        FileError: a pattern fits no name in the file; the message lists near ones.
    """
    if native.format != "tf-saver":
        raise StateError("slots= is for checkpoints of tf.train.Saver, which name their arrays; {} is of format "
                         "{}".format(native.path, native.format))
    needed = list(flat(definition, "slot"))
    if not isinstance(patterns, dict) or set(patterns) != set(needed):
        raise StateError("slots= is {{slot: name}} for the slots {} of {}; got {!r}".format(
            ", ".join(needed) or "none", definition._short(), patterns))
    keys, slots = dict(native.entries), OrderedDict()
    for slot in needed:
        pattern = patterns[slot]
        if not isinstance(pattern, TEXT) or pattern.count(VARIABLE) != 1:
            raise StateError("the pattern of {} is a name with {} once, such as {}/{}; got {!r}".format(
                slot, VARIABLE, VARIABLE, slot, pattern))
        expression = re.compile("(.+)".join(map(re.escape, pattern.split(VARIABLE))) + "\\Z")
        matches = [(expression.match(key), handle) for key, handle in native.entries]
        found = [(match.group(1), handle) for match, handle in matches if match and match.group(1) in keys]
        if isinstance(definition.base, Partition):
            found = [(name, handle) for name, handle in found if slot in slots_of_rank(
                definition, len(keys[name].shape) or 1, name)]
        if not found:
            raise FileError("{} has no variable with a slot {}; near names are {}".format(
                native.path, pattern, first_few(near(pattern, keys))))
        for name, handle in found:
            slots.setdefault(name, OrderedDict())[slot] = handle
    native.variables = OrderedDict((name, keys[name]) for name in slots)
    steps = [handle for key, handle in native.entries if key == "global_step" and handle.shape == ()]
    return slots, OrderedDict(("global_step", handle) for handle in steps), None


def count_in(native, name):
    """Returns the count that an array of a file of tf.train.Saver holds, such as global_step."""
    handle = dict(native.entries).get(name) if native.format == "tf-saver" else None
    if handle is None:
        raise FileError("{} has no {} to read the number of updates from; near names are {}".format(
            native.path, name, first_few(near(name, [key for key, _ in native.entries]))))
    value = np.asarray(handle)
    if value.shape != () or value.dtype.kind not in "iuf" or value != np.floor(value) or value < 0:
        raise FileError("{}: {} is {}, not a number of updates".format(native.path, name, first_few([str(value)])))
    return int(value)


def near(pattern, keys):
    """Returns the names whose last parts are most like that of a pattern; all names if none is."""
    keys = sorted(key for key in keys if key)
    last = pattern.replace(VARIABLE, "").split("/")[-1]
    endings = difflib.get_close_matches(last, sorted(set(key.split("/")[-1] for key in keys)), 4, 0.5)
    return [key for key in keys if key.split("/")[-1] in endings] or keys
