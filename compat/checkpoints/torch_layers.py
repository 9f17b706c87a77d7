"""How the variables of a layer of Keras are those of a module of torch: names, axes and the order of gates."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.checkpoints.conversions import first_few
from everstep.compat.checkpoints.moving import lazily, moved, shape_of
from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.errors import StateError
from everstep.optimizers.contract.checks import TEXT

_Part = namedtuple("_Part", "value slots")  # None where the state has none


def _by_axes(axes):
    """Returns (to torch, to Keras) for an array whose axes are in another order; for one that is the same if None."""
    if axes is None:
        return (lambda name, part: part,) * 2
    back = tuple(int(axis) for axis in np.argsort(axes))
    return (lambda name, part: _Part(*moved(name, part.value, part.slots, axes)),
            lambda name, part: _Part(*moved(name, part.value, part.slots, back)))


def _by_function(to_torch, to_keras):
    return (lambda name, part: _applied(name, [part], to_torch), lambda name, part: _applied(name, [part], to_keras))


def _applied(name, parts, function):
    """Returns a _Part made by a function of the arrays of others, which have equal shapes and slots."""
    shape = shape_of(name, parts[0].value, parts[0].slots or {})
    for slot, array in (parts[0].slots or {}).items():
        if slot in ENGINE_SLOTS or tuple(array.shape) != shape:
            raise StateError("{} of {} has the shape {}, and the variable {}: everstep does not know what it is in the "
                             "other framework".format(slot, name, tuple(array.shape), shape))
    values = [part.value for part in parts]
    slots = None if parts[0].slots is None else OrderedDict(
        (slot, lazily([part.slots[slot] for part in parts], function)) for slot in parts[0].slots)
    return _Part(None if values[0] is None else lazily(values, function), slots)


def _gates(array):
    """Puts the gates z, r, h of Keras's GRU in torch's order, r, z, h, or back: the last axis has one after another."""
    z, r, h = np.split(array, 3, axis=-1)
    return np.concatenate([r, z, h], axis=-1)


def _depthwise(array):
    """Returns (size, size, channels, multiplier) as torch's (channels * multiplier, 1, size, size)."""
    array = np.moveaxis(array, (-2, -1), (0, 1))
    return array.reshape((array.shape[0] * array.shape[1], 1) + array.shape[2:])


def _depthwise_back(multiplier):
    def to_keras(array):
        array = array.reshape((array.shape[0] // multiplier, multiplier) + array.shape[2:])
        return np.moveaxis(array, (0, 1), (-2, -1))

    return to_keras


_CONVOLUTIONS = {1: (2, 1, 0), 2: (3, 2, 0, 1), 3: (4, 3, 0, 1, 2)}
_BIAS, _NORM = ("bias", "bias", None), [("gamma", "weight", None), ("beta", "bias", None)]
# {class in Keras: [(variable in Keras, in torch, axes of torch's array in Keras's order; None: the same)]}
LAYERS = {  # type: dict[str, list]
    "Dense": [("kernel", "weight", (1, 0)), _BIAS], "Embedding": [("embeddings", "weight", None)],
    "BatchNormalization": _NORM + [("moving_mean", "running_mean", None), ("moving_variance", "running_var", None)],
    "LayerNormalization": _NORM, "GroupNormalization": _NORM,
}
for _rank, _axes in _CONVOLUTIONS.items():  # a transposed one has in and out exchanged on both sides
    for _name in ("Conv{}D", "Conv{}DTranspose"):
        LAYERS[_name.format(_rank)] = [("kernel", "weight", _axes), _BIAS]
DEPTHWISE, RECURRENT = ("DepthwiseConv1D", "DepthwiseConv2D"), ("LSTM", "GRU")
KINDS = sorted(LAYERS) + sorted(DEPTHWISE + RECURRENT)
_OPTIONS = {"depth_multiplier": DEPTHWISE, "suffix": RECURRENT}


def to_torch(state, layers):
    """See `State.to_torch`."""
    return _Move(state, layers, True).result()


def to_keras(state, layers):
    """See `State.to_keras`."""
    return _Move(state, layers, False).result()


class _Move(object):
    """One move of a State from one framework to the other."""

    def __init__(self, state, layers, to_torch):
        self._state, self._to_torch = state, to_torch
        self._layers = [_parsed(name, given) for name, given in dict(layers).items()]
        names = list(state.slots) + [name for name in state.variables if name not in state.slots]
        self._left = OrderedDict((name, _Part(state.variables.get(name), state.slots.get(name))) for name in names)
        self._order = {name: index for index, name in enumerate(names)}
        self._made = []  # type: list  # [(index of the variable that it comes from, name, _Part)]

    def result(self):
        for keras, kind, torch, options in self._layers:
            name, before = (keras if self._to_torch else torch), len(self._left)
            if kind is None:
                for each in [each for each in self._left if each.startswith((keras + "/", keras + "."))]:
                    del self._left[each]
            elif kind in RECURRENT:
                self._recurrent(keras, kind, torch, options.get("suffix", "_l0"))
            else:
                for ours, theirs, moves in _moves_of(kind, options):
                    self._plain(keras + "/" + ours, torch + "." + theirs, moves)
            if len(self._left) == before:
                raise StateError("the state has no variable of {}, a {}; it has {}".format(
                    name, kind or "layer", first_few(self._order)))
        if self._left:
            raise StateError("layers= says nothing of {}. Give {{its layer: (class, name)}}, or {{its layer: None}} to "
                             "leave it out".format(first_few(self._left)))
        made = sorted(self._made, key=lambda each: each[0])
        names = [name for _, name, _ in made]
        if len(set(names)) < len(names):
            raise StateError("two variables would have one name: {}".format(
                first_few(sorted({name for name in names if names.count(name) > 1}))))
        return self._state.replace(
            slots=OrderedDict((name, part.slots) for _, name, part in made if part.slots is not None),
            variables=OrderedDict((name, part.value) for _, name, part in made if part.value is not None))

    def _plain(self, keras, torch, moves):
        source, target = (keras, torch) if self._to_torch else (torch, keras)
        if source in self._left:
            self._put(source, target, moves[0 if self._to_torch else 1](source, self._left.pop(source)))

    def _put(self, source, target, part):
        self._made.append((self._order[source], target, part))

    def _recurrent(self, keras, kind, torch, suffix):
        swap = _gates if kind == "GRU" else lambda array: array
        kernel = _by_function(lambda array: swap(array).T, lambda array: swap(array.T))
        names = {part: "{}/{}".format(keras, part) for part in ("kernel", "recurrent_kernel", "bias")}
        if self._to_torch:
            names = {part: self._of_cell(keras, part) for part in names}
        self._plain(names["kernel"], "{}.weight_ih{}".format(torch, suffix), kernel)
        self._plain(names["recurrent_kernel"], "{}.weight_hh{}".format(torch, suffix), kernel)
        inputs, recurrent = ("{}.bias_{}{}".format(torch, part, suffix) for part in ("ih", "hh"))
        if self._to_torch and names["bias"] in self._left:
            self._bias_to_torch(kind, names["bias"], inputs, recurrent)
        elif not self._to_torch and inputs in self._left and recurrent in self._left:
            self._bias_to_keras(kind, names["bias"], inputs, recurrent)

    def _of_cell(self, keras, part):
        """Returns the name of a variable of a layer: newer versions of Keras put it below the layer's cell."""
        pattern = re.compile(re.escape(keras) + "/([^/]+/)?" + part + r"\Z")
        found = [name for name in self._left if pattern.match(name)]
        return found[0] if len(found) == 1 else "{}/{}".format(keras, part)

    def _bias_to_torch(self, kind, name, inputs, recurrent):
        part = self._left.pop(name)
        if kind == "LSTM":
            self._put(name, inputs, part)
            zeros = None if part.value is None else np.zeros(part.value.shape, part.value.dtype)
            self._put(name, recurrent, _Part(zeros, None))
            return
        if len(shape_of(name, part.value, part.slots or {})) != 2:
            raise StateError("{} is of a GRU with reset_after=False, which torch does not have".format(name))
        for index, target in enumerate((inputs, recurrent)):
            self._put(name, target, _applied(name, [part], lambda array, index=index: _gates(array[index])))

    def _bias_to_keras(self, kind, name, inputs, recurrent):
        first, second = self._left.pop(inputs), self._left.pop(recurrent)
        if kind == "LSTM":
            if first.slots and second.slots:
                raise StateError(
                    "{} and {} were both trained, and Keras's LSTM has one bias: together they move twice as far as it "
                    "would. Drop the slots of one, as in state.replace(slots=...), if that is acceptable".format(
                        inputs, recurrent))
            value = None if first.value is None else lazily([first.value, second.value], np.add)
            self._put(inputs, name, _Part(value, first.slots or second.slots))
        else:
            self._put(inputs, name, _applied(inputs, [first, second], lambda a, b: np.stack([_gates(a), _gates(b)])))


def _moves_of(kind, options):
    """Returns [(variable in Keras, in torch, (to torch, to Keras))] of a class without gates."""
    if kind not in DEPTHWISE:
        return [(keras, torch, _by_axes(axes)) for keras, torch, axes in LAYERS[kind]]
    moves = _by_function(_depthwise, _depthwise_back(options.get("depth_multiplier", 1)))
    return [("kernel", "weight", moves), ("depthwise_kernel", "weight", moves), ("bias", "bias", _by_axes(None))]


def _parsed(name, given):
    """Returns (name in Keras, class, name in torch, options) of one item of `layers`."""
    if given is None:
        return name, None, name, {}
    parts = list(given) if isinstance(given, (tuple, list)) else [given]  # type: list
    options = parts.pop() if len(parts) == 3 and isinstance(parts[2], dict) else {}
    if len(parts) != 2 or not all(isinstance(each, TEXT) for each in [name] + parts):
        raise StateError("layers= is {{layer of Keras: (its class, module of torch)}}, such as {{\"dense\": "
                         "(\"Dense\", \"fc\")}}; got {!r} for {!r}".format(given, name))
    kind, torch = parts
    if kind not in KINDS:
        raise StateError("everstep knows no map for {}; it knows {}. Use state.renamed and state.transposed".format(
            kind, ", ".join(KINDS)))
    wrong = [each for each in options if kind not in _OPTIONS.get(each, ())]
    if wrong:
        raise StateError("{} has no option {}; there are depth_multiplier for {}, and suffix for {}".format(
            kind, wrong[0], " and ".join(DEPTHWISE), " and ".join(RECURRENT)))
    return name, kind, torch, options
