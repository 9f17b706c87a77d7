"""The objects of a checkpoint of `tf.train.Checkpoint`.

They are parsed here, so that versions of TensorFlow without object checkpoints can read them too.
"""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

from everstep.compat.files.bundle_index import fields, last
from everstep.compat.files.native_file import NativeFile, numbered
from everstep.errors import FileError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# Field numbers in the protobuf message TrackableObjectGraph.
_NODES, _CHILDREN, _ATTRIBUTES, _SLOTS = 1, 1, 2, 3
# Names such as `touched/0`: everstep's OptimizerV2 so tracks slots whose shape or dtype differs from the variable's.
_TRACKED = re.compile(r"(.+)/[0-9]+\Z")
_COUNTS = ("_iterations", "iterations")  # children of new-style optimizers, which _variables has too; Keras 3.1 to 3.4
# The children of a LossScaleOptimizer: of Keras 3, and of its `loss_scale` in tf.keras and tf.train.
_SCALE_NAMES = {"dynamic_scale": "scale", "step_counter": "good_steps", "current_loss_scale": "scale",
                "good_steps": "good_steps"}


def read_objects(tensors, path):
    """Returns the NativeFile of a checkpoint of tf.train.Checkpoint.

    Args:
        tensors: its `Tensors`, see bundle.py.
    """
    native = NativeFile(path, "tf-object", "tf.train.Checkpoint")
    graph = _Graph(tensors)
    scale_places = graph.loss_scale()
    native.loss_scale = {name: graph.handle(place) for name, place in scale_places.items()}
    optimizers, wrappers = graph.optimizers()
    if len(optimizers) > 1:
        raise FileError("{} has {} optimizers; save each in a separate checkpoint, or call everstep.capture on the "
                        "live optimizers".format(path, len(optimizers)))
    if not optimizers:
        native.variables = graph.by_name(range(len(graph.nodes)))
        native.missing.append("no optimizer among its objects")
        return native
    node, own_places = optimizers[0], set(scale_places.values())
    for each in optimizers + wrappers:
        own_places.update(graph.places_of(each))
    other_places = [place for place in range(len(graph.nodes)) if place not in own_places]
    native.target = _target(node)
    _read_variables(native, graph, node, other_places)
    _read_slots(native, graph, node, other_places)
    _read_numbered(native, graph, node)
    _read_values(native, graph, node)
    return native


def _read_variables(native, graph, node, other_places):
    """Takes the model's variables: those that the optimizer lists, or all that are not the optimizer's."""
    if "_trainable_variables" in node.children:
        native.ordered = True
        native.variables = graph.by_name(graph.nodes[node.children["_trainable_variables"]].children.values())
    elif not node.slots:
        places = [place for place in other_places if graph.nodes[place].key]
        native.variables = OrderedDict(item for item in graph.by_name(places).items() if item[0] != "save_counter")


def _read_slots(native, graph, node, other_places):
    """Takes the slots that stand beside their variables, and those that everstep's OptimizerV2 tracks by name."""
    tracked = [(_TRACKED.match(name).group(1), place) for name, place in node.children.items() if _TRACKED.match(name)]
    if not node.slots and not tracked:
        return
    places = list(OrderedDict.fromkeys(variable for _, variable, _ in node.slots))
    if tracked:
        places.extend(place for place in other_places if place not in places)
    variables = graph.named(places)
    for slot, variable, place in node.slots:
        if variable in variables and graph.is_stored(place):
            native.slots.setdefault(variables[variable][0], OrderedDict())[slot] = graph.handle(place)
    for slot, place in tracked:
        full_name = graph.nodes[place].full_name
        owners = [name for name, _ in variables.values() if ("/" + full_name).endswith("/{}/{}".format(name, slot))]
        if not owners:
            raise FileError("{} has the slot {}, but not its variable".format(native.path, full_name))
        native.slots.setdefault(max(owners, key=len), OrderedDict())[slot] = graph.handle(place)
    native.variables = OrderedDict(item for item in variables.values() if item[0] in native.slots)


def _read_numbered(native, graph, node):
    """Takes the variables that new-style Keras counts: 0, 1, ..."""
    if "_variables" not in node.children:
        return
    places = graph.nodes[node.children["_variables"]].children
    counted = list(map(str, range(len(places))))
    if sorted(places) != sorted(counted):
        raise FileError("{} has an optimizer whose variables are {}".format(native.path, ", ".join(places)))
    native.entries.extend((graph.nodes[places[number]].full_name, graph.handle(places[number])) for number in counted)


def _read_values(native, graph, node):
    """Takes the numbers of the optimizer: its counters and hypers."""
    owners = [node] + [graph.nodes[place] for name, place in node.children.items() if name == "_hypers"]
    for name, place in [item for owner in owners for item in owner.children.items()]:
        if graph.is_stored(place) and name not in _COUNTS and not _TRACKED.match(name):
            # Names of tf.train, such as Adam/updates, begin with the optimizer's.
            name = str(name.partition("/")[2] or name if native.target == "tf_train" else name)
            native.optimizer_values[name] = graph.handle(place)


class _Graph(object):
    """All objects of a checkpoint. A place is an object's number.

    Attributes:
        nodes: the `_Node`s, by place.
    """

    def __init__(self, tensors):
        self._tensors = tensors
        self.nodes = [_Node(data) for data in fields(bytearray(tensors.get(GRAPH))).get(_NODES, ())]
        self._join_averages()

    def _join_averages(self):
        """Gives the optimizer inside Lookahead, MovingAverage or SWA of TensorFlow Addons what those keep.

        That is one slot and a count of steps. They have no hypers.
        """
        for node in self.nodes:
            for name in ("lh_base_optimizer", "awg_optimizer"):
                if name in node.children:
                    inner = self.nodes[node.children.pop(name)]
                    inner.slots.extend(node.slots)
                    inner.children.update(node.children)
                    node.slots, node.children = [], OrderedDict()

    def is_stored(self, place):
        return self.nodes[place].key in self._tensors.shapes

    def handle(self, place):
        return self._tensors.handle(self.nodes[place].key)

    def named(self, places):
        """Returns {place: (name, handle)} of those that have a value."""
        places = [place for place in places if self.is_stored(place)]
        names = numbered([self.nodes[place].full_name or self.nodes[place].key[: -len(_SUFFIX)] for place in places])
        return OrderedDict((place, (name, self.handle(place))) for place, name in zip(places, names))

    def by_name(self, places):
        """Returns {name: handle} of those that have a value."""
        return OrderedDict(self.named(places).values())

    def optimizers(self):
        """Returns (the optimizers, the LossScaleOptimizers around optimizers)."""
        wrappers = [node for node in self.nodes
                    if any(_is_optimizer(self.nodes[node.children[name]])
                           for name in ("inner_optimizer", "base_optimizer") if name in node.children)]
        return [node for node in self.nodes if _is_optimizer(node) and node not in wrappers], wrappers

    def loss_scale(self):
        """Returns {"scale": place, "good_steps": place} of a LossScaleOptimizer; {} if there is none."""
        for node in reversed(self.nodes):
            holder = self.nodes[node.children["loss_scale"]] if "loss_scale" in node.children else node
            found = {_SCALE_NAMES[name]: place for name, place in holder.children.items()
                     if name in _SCALE_NAMES and self.is_stored(place)}
            if set(found) == {"scale", "good_steps"}:
                return found
        return {}

    def places_of(self, node):
        """Returns the places of all objects that belong to an optimizer alone."""
        places = set(place for _, _, place in node.slots)
        for name, place in node.children.items():
            places.add(place)
            if name.startswith("_") and name != "_trainable_variables":
                places.update(self.nodes[place].children.values())
        return places


class _Node(object):
    """One object: `children` {name: place}, `key` and `full_name` of its value, `slots` [(name, variable, slot)]."""

    def __init__(self, data):
        message = fields(data)
        self.children, self.slots, self.key, self.full_name = OrderedDict(), [], None, ""
        for child in map(fields, message.get(_CHILDREN, ())):
            self.children[last(child, 2, b"").decode("utf-8")] = last(child, 1, 0)
        for value in map(fields, message.get(_ATTRIBUTES, ())):
            if last(value, 1, b"") == b"VARIABLE_VALUE":
                self.full_name, self.key = _text(last(value, 2, b"")), _text(last(value, 3, b""))
        for slot in map(fields, message.get(_SLOTS, ())):
            self.slots.append((_text(last(slot, 2, b"")), last(slot, 1, 0), last(slot, 3, 0)))


def _text(data):
    return str(bytes(data).decode("utf-8"))


def _is_optimizer(node):
    if node.slots or {"iter", "learning_rate"} <= set(node.children):
        return True
    return "_variables" in node.children and any(name in node.children for name in _COUNTS)


def _target(node):
    """Returns the API of an optimizer object."""
    if "_variables" in node.children:
        return "keras3" if "_trainable_variables" in node.children else "update_step"
    return "optimizer_v2" if "iter" in node.children else "tf_train"
