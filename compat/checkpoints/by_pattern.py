"""Finds the slots of optimizers that people wrote by hand, by the patterns of their names."""
from __future__ import absolute_import, division, print_function

import difflib
import re
from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints.conversions import count_of_powers, first_few
from everstep.compat.checkpoints.layouts import slots_of_rank
from everstep.compat.checkpoints.saver_names import is_power, powers_in
from everstep.errors import FileError, StateError
from everstep.optimizers.contract.checks import TEXT
from everstep.optimizers.contract.trees import flat
from everstep.optimizers.wrappers.partition import Partition

VARIABLE = "{var}"


def by_pattern(claim, definition, patterns):
    """Returns the claim as one of a definition, on a file of tf.train.Saver.

    Args:
        patterns: {slot of the definition: name in the file, with `{var}` for the variable's name}.

    Raises:
        StateError: the patterns do not fit the definition or the format.
        FileError: a pattern fits no name in the file; the message lists near ones.
    """
    if claim.contents.format != "tf-saver":
        raise StateError("slots= is for checkpoints of tf.train.Saver, which name their arrays; {} is of format "
                         "{}".format(claim.path, claim.contents.format))
    needed = list(flat(definition, "slot"))
    if not isinstance(patterns, dict) or set(patterns) != set(needed):
        raise StateError("slots= is {{slot: name}} for the slots {} of {}; got {!r}".format(
            ", ".join(needed) or "none", definition._short(), patterns))
    arrays, slots = claim.variables, OrderedDict()
    for slot in needed:
        pattern = patterns[slot]
        if not isinstance(pattern, TEXT) or pattern.count(VARIABLE) != 1:
            raise StateError("the pattern of {} is a name with {} once, such as {}/{}; got {!r}".format(
                slot, VARIABLE, VARIABLE, slot, pattern))
        pattern = pattern[:-2] if pattern.endswith(":0") else pattern
        expression = re.compile("(.+)".join(map(re.escape, pattern.split(VARIABLE))) + "\\Z")
        matches = [(expression.match(key), handle) for key, handle in arrays.items()]
        found = [(match.group(1), handle) for match, handle in matches if match and match.group(1) in arrays]
        if isinstance(definition.base, Partition):
            found = [(name, handle) for name, handle in found if slot in slots_of_rank(
                definition, len(arrays[name].shape) or 1, name)]
        if not found:
            raise FileError("{} has no variable with a slot {}; near names are {}".format(
                claim.path, pattern, first_few(near(pattern, arrays))))
        for name, handle in found:
            slots.setdefault(name, OrderedDict())[slot] = handle
    return claim._replace(definition=definition, slots=slots)


def count_in(claim, definition, updates):
    """Returns (a number of updates, a note or None).

    Args:
        updates: the number, or the name of an array of a file of tf.train.Saver that holds it, such as global_step, or
            that implies it: a power of beta.
    """
    if not isinstance(updates, TEXT):
        if isinstance(updates, (bool, float)) or not hasattr(updates, "__index__"):
            raise StateError("updates is a number, or the name of one in the file; got {!r}".format(updates))
        return updates, None
    arrays = claim.variables if claim.contents.format == "tf-saver" else {}
    updates = updates[:-2] if updates.endswith(":0") else updates
    handle = arrays.get(updates)
    if handle is None:
        raise FileError("{} has no {} to read the number of updates from; near names are {}".format(
            claim.path, updates, first_few(near(updates, arrays))))
    if is_power(updates):
        powers = next(each for each in powers_in(arrays).values() if handle in each.values())
        return count_of_powers(claim.path, definition, powers)
    value = np.asarray(handle)
    if value.shape != () or value.dtype.kind not in "iuf" or value != np.floor(value) or value < 0:
        raise FileError("{}: {} is {}, not a number of updates".format(claim.path, updates, first_few([str(value)])))
    return int(value), None


def near(pattern, keys):
    """Returns the names whose last parts are most like that of a pattern; all names if none is."""
    keys = sorted(key for key in keys if key)
    last = pattern.replace(VARIABLE, "").split("/")[-1]
    endings = difflib.get_close_matches(last, sorted(set(key.split("/")[-1] for key in keys)), 4, 0.5)
    return [key for key in keys if key.split("/")[-1] in endings] or keys
