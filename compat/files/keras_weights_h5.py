"""`.weights.h5` of Keras 3 and tf.keras 2.12 and newer, which is also a part of `.keras`: a tree of groups."""
from __future__ import absolute_import, division, print_function

import re

from everstep.compat.files import hdf5 as access
from everstep.compat.files.contents import Contents, Numbered, Weight
from everstep.compat.files.keras_config import MAX_DEPTH
from everstep.errors import FileError

_LISTS = ("layers", "_layer_checkpoint_dependencies", "_functional")  # groups of a model that hold its layers
_COMPILED = ("optimizer", "metrics")  # groups of a compiled model, also inside of another one, that hold no layers
# The layers inside of Keras's own layers, Bidirectional and attention, in their order. HDF5 sorts names.
_PARTS = (("forward_layer", "backward_layer"), ("query_dense", "key_dense", "value_dense", "output_dense"))
# {group of a layer: how many of its last arrays are statistics}; all of them if they are so many.
_STATISTICS = {"batch_normalization": 2, "sync_batch_normalization": 2, "normalization": 3}


def read_open(hdf5):
    """Returns the Contents of an open HDF5 file."""
    groups = _groups(hdf5)
    weights = [weight for path in sorted(groups) if not any(
        part in _COMPILED and around not in _LISTS for around, part in zip((None,) + path, path))
        for weight in _weights(hdf5, groups, path)]
    optimizer = [path for path in groups if path[:1] == ("optimizer",)]
    if not weights and not optimizer and () not in groups:
        raise FileError("{} is an HDF5 file, but not from Keras".format(hdf5.path))
    optimizers, missing = [], []
    for inside in ((), ("inner_optimizer",), ("_optimizer",)):  # of a LossScaleOptimizer; the last up to Keras 2.14
        group = groups.get(("optimizer",) + inside)
        if group is not None:
            optimizers.append(Numbered("/".join(("optimizer",) + inside), _numbered(group, hdf5)))
    if not optimizers:
        missing.append("weights alone: the model was saved without its optimizer, or with a legacy optimizer, whose "
                       "state this format never keeps")
    elif not optimizers[-1].entries:
        missing.append("an optimizer without variables: it never trained")
    return Contents(hdf5.path, "keras-weights-h5", "Keras 3, or tf.keras 2.12 or newer", weights=weights,
                    optimizers=optimizers, missing=missing)


def _groups(hdf5):
    """Returns {path of an object of Keras: the group of its arrays}. A path is a tuple: ("layers", "dense_1").

    On Windows, tf.keras writes `layers\\dense_1` as the name of one group.
    """
    found, waiting = {}, [((), hdf5.file)]  # type: dict, list
    while waiting:
        path, group = waiting.pop()
        if len(path) > MAX_DEPTH or len(found) + len(waiting) > access.MAX_ENTRIES:
            raise FileError("{} has groups nested deeper, or more of them, than a model can have".format(hdf5.path))
        for name in group:
            inner = hdf5.find(group, name)
            if hasattr(inner, "keys"):
                if name == "vars":
                    found[path] = hdf5.group(group, name)
                else:
                    waiting.append((path + tuple(str(name).split("\\")), inner))
    return found


def _weights(hdf5, groups, path):
    """Yields the Weights in a group. See `Weight.place`."""
    names, place, around = [], [], ""
    for depth, part in enumerate(path):
        if part not in _LISTS:
            names.append(part)
        if part in _LISTS or not around and path[: depth + 1] not in groups:
            around = part + "/"  # a list: it has no arrays of its own
            continue
        parts = [each for each in _PARTS if part in each and all(path[:depth] + (name,) in groups for name in each)]
        kind, number = kind_of(part) if around else ("", parts[0].index(part)) if parts else (part, 0)
        place.append((around + kind, number))
        around = ""
    kept = sorted(groups[path], key=lambda number: (len(number), number))
    statistics = _STATISTICS.get(kind_of(path[-1])[0], 0) if path else 0
    has_own = any(path[:depth] + ("optimizer",) in groups for depth in range(1, len(path) + 1))
    for index, number in enumerate(kept):
        trains = not has_own if index < len(kept) - statistics else None
        yield Weight("/".join(names + [number]), hdf5.array(groups[path], number), trains, tuple(place))


def kind_of(name):
    """Returns (kind, number) of a group of a list: ("dense", 2) for `dense_2`, and ("dense", 0) for `dense`."""
    kind, number = re.match(r"(.*?)(?:_([0-9]{1,9}))?\Z", name, re.DOTALL).groups()
    return kind, int(number or 0)


def _numbered(group, hdf5):
    """Returns [("", handle)] of the arrays that are stored under the numbers 0, 1, ..."""
    count = len(group)
    if count > access.MAX_ENTRIES or set(group.keys()) != set(map(str, range(count))):
        raise FileError("{}: variables are numbered 0, 1, ...; the file has {}".format(
            hdf5.path, ", ".join(sorted(group.keys())[:8])))
    return [("", hdf5.array(group, str(number))) for number in range(count)]
