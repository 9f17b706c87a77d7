"""The objects of a checkpoint of `tf.train.Checkpoint`: how they refer to each other and to their values.

They are parsed here, so that versions of TensorFlow without object checkpoints can read them too.
"""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict, namedtuple

from everstep.compat.files.bundle_index import fields, last
from everstep.compat.files.contents import numbered

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# Field numbers in the protobuf message TrackableObjectGraph.
_NODES, _CHILDREN, _ATTRIBUTES, _SLOTS = 1, 1, 2, 3


class Graph(object):
    """All objects of a checkpoint. A place is an object's number.

    Attributes:
        nodes: the `Node`s, by place.
    """

    def __init__(self, tensors):
        self._tensors = tensors
        self.nodes = [_node(data) for data in fields(bytearray(tensors.get(GRAPH))).get(_NODES, ())]

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

    def paths(self):
        """Returns {place: its name, by the names of the shortest way to it from the object that was saved}."""
        paths, waiting = {0: ""}, [0]
        for place in waiting:
            for name, child in self.nodes[place].children.items():
                if child not in paths:
                    paths[child] = (paths[place] + "/" + name).lstrip("/")
                    waiting.append(child)
        return paths


class Node(namedtuple("Node", "children slots key full_name")):
    """One object: `children` {name: place}, `slots` [(name, variable, slot)], `key` and `full_name` of its value."""

    __slots__ = ()


def _node(data):
    message = fields(data)
    children, slots, key, full_name = OrderedDict(), [], None, ""
    for child in map(fields, message.get(_CHILDREN, ())):
        children[last(child, 2, b"").decode("utf-8")] = last(child, 1, 0)
    for value in map(fields, message.get(_ATTRIBUTES, ())):
        if last(value, 1, b"") == b"VARIABLE_VALUE":
            full_name, key = _text(last(value, 2, b"")), _text(last(value, 3, b""))
    for slot in map(fields, message.get(_SLOTS, ())):
        slots.append((_text(last(slot, 2, b"")), last(slot, 1, 0), last(slot, 3, 0)))
    return Node(children, slots, key, full_name)


def _text(data):
    return str(bytes(data).decode("utf-8"))
