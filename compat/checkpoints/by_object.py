"""Finds optimizers among the objects of a checkpoint of tf.train.Checkpoint, and the slots that they name."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

from everstep.compat.checkpoints.claims import Claim
from everstep.compat.checkpoints.identify import likely_optimizers
from everstep.compat.checkpoints.layouts import all_slots
from everstep.compat.checkpoints.saver_names import POWERS
from everstep.compat.engine.step import ENGINE_SLOTS
from everstep.compat.stock.entry import AROUND
from everstep.compat.stock.lookup import entry_for
from everstep.compat.stock.table import STOCK
from everstep.errors import FileError

# {name on disk: our name} for the counters of stock optimizers.
COUNTERS = {counter.native: counter.name for entry in STOCK for counter in entry.head + entry.tail}
# If a slot's shape or dtype differs from its variable's, everstep's OptimizerV2 tracks it as `touched/0`.
_TRACKED = re.compile(r"(.+)/[0-9]+\Z")
_COUNTS = ("_iterations", "iterations")  # new-style optimizers (which also have them in _variables); Keras 3.1 to 3.4
# The children of a LossScaleOptimizer: of Keras 3, and of its `loss_scale` in tf.keras and tf.train.
_SCALE_NAMES = {"dynamic_scale": "scale", "step_counter": "good_steps", "current_loss_scale": "scale",
                "good_steps": "good_steps"}
_INSIDE = ("inner_optimizer", "base_optimizer")  # of a LossScaleOptimizer
_AVERAGED = ("lh_base_optimizer", "awg_optimizer")  # of Lookahead, MovingAverage and SWA of TensorFlow Addons


def found(contents):
    """Returns [Claim], one for each optimizer among the objects, without a definition."""
    graph = contents.objects
    inside = {node.children[name]: place for place, node in enumerate(graph.nodes)
              for name in _AVERAGED if name in node.children}
    optimizers = [place for place, node in enumerate(graph.nodes)
                  if (place in inside or _is_optimizer(node)) and place not in inside.values()]
    wrappers = [place for place, node in enumerate(graph.nodes)
                if any(node.children.get(name) in optimizers for name in _INSIDE)]
    optimizers = [place for place in optimizers if place not in wrappers]
    scale = _loss_scale(graph)
    if not optimizers:
        variables = graph.by_name(range(len(graph.nodes)))
        return [Claim(contents, variables=variables, missing=["no optimizer among its objects"])]
    own = set(scale.values())
    for place in set(optimizers + wrappers).union(inside.values()):
        own.update(_places_of(graph, graph.nodes[place]))
    others, paths = [place for place in range(len(graph.nodes)) if place not in own], graph.paths()
    scale = {name: graph.handle(place) for name, place in scale.items()}
    return [_claim(contents, _joined(graph, place, inside), others, paths.get(place, ""))._replace(loss_scale=scale)
            for place in optimizers]


def _joined(graph, place, inside):
    """Returns the node of an optimizer with what an optimizer of TensorFlow Addons around it keeps.

    That is one slot and a count of steps. Those have no hypers.
    """
    node, owners = graph.nodes[place], []
    while place in inside:
        place = inside[place]
        owners.append(graph.nodes[place])
    children, slots = OrderedDict(node.children), list(node.slots)
    for owner in owners:
        children.update((name, child) for name, child in owner.children.items() if name not in _AVERAGED)
        slots.extend(owner.slots)
    return node._replace(children=children, slots=slots)


def _claim(contents, node, others, scope):
    graph, target = contents.objects, _target(node)
    variables, slots = OrderedDict(), OrderedDict()
    if "_trainable_variables" in node.children:
        variables = graph.by_name(graph.nodes[node.children["_trainable_variables"]].children.values())
    elif not node.slots:
        places = [place for place in others if graph.nodes[place].key]
        variables = OrderedDict(item for item in graph.by_name(places).items() if item[0] != "save_counter")
    if node.slots or any(map(_TRACKED.match, node.children)):
        variables, slots = _slots(contents, node, others)
    return Claim(contents, target, entries=_numbered(contents, node), slots=slots,
                 values=_values(graph, node, target), variables=variables, scope=scope)


def _slots(contents, node, others):
    """Returns (variables, slots): those beside variables, and those that everstep's OptimizerV2 tracks by name."""
    graph, slots = contents.objects, OrderedDict()
    tracked = [(_TRACKED.match(name).group(1), place) for name, place in node.children.items() if _TRACKED.match(name)]
    places = list(OrderedDict.fromkeys(variable for _, variable, _ in node.slots))
    if tracked:
        places.extend(place for place in others if place not in places)
    variables = graph.named(places)
    for slot, variable, place in node.slots:
        if variable in variables and graph.is_stored(place):
            slots.setdefault(variables[variable][0], OrderedDict())[slot] = graph.handle(place)
    for slot, place in tracked:
        full_name = graph.nodes[place].full_name
        owners = [name for name, _ in variables.values() if ("/" + full_name).endswith("/{}/{}".format(name, slot))]
        if not owners:
            raise FileError("{} has the slot {}, but not its variable".format(contents.path, full_name))
        slots.setdefault(max(owners, key=len), OrderedDict())[slot] = graph.handle(place)
    return OrderedDict(item for item in variables.values() if item[0] in slots), slots


def _numbered(contents, node):
    """Returns the variables that new-style Keras counts: 0, 1, ..."""
    graph = contents.objects
    places = graph.nodes[node.children["_variables"]].children if "_variables" in node.children else {}
    counted = list(map(str, range(len(places))))
    if sorted(places) != sorted(counted):
        raise FileError("{} has an optimizer whose variables are {}".format(contents.path, ", ".join(places)))
    return [(graph.nodes[places[number]].full_name, graph.handle(places[number])) for number in counted]


def _values(graph, node, target):
    """Returns the numbers of the optimizer: its counters and hypers."""
    values = OrderedDict()
    owners = [node] + [graph.nodes[place] for name, place in node.children.items() if name == "_hypers"]
    for name, place in [item for owner in owners for item in owner.children.items()]:
        if graph.is_stored(place) and name not in _COUNTS and not _TRACKED.match(name):
            # Names of tf.train, such as Adam/updates, begin with the optimizer's.
            name = str(name.partition("/")[2] or name if target == "tf_train" else name)
            values[name] = graph.handle(place)
    return values


def _loss_scale(graph):
    """Returns {"scale": place, "good_steps": place} of a LossScaleOptimizer; {} if there is none."""
    for node in reversed(graph.nodes):
        holder = graph.nodes[node.children["loss_scale"]] if "loss_scale" in node.children else node
        places = {_SCALE_NAMES[name]: place for name, place in holder.children.items()
                  if name in _SCALE_NAMES and graph.is_stored(place)}
        if set(places) == {"scale", "good_steps"}:
            return places
    return {}


def _places_of(graph, node):
    """Returns the places of all objects that belong to an optimizer alone."""
    places = set(place for _, _, place in node.slots)
    for name, place in node.children.items():
        places.add(place)
        if name.startswith("_") and name != "_trainable_variables":
            places.update(graph.nodes[place].children.values())
    return places


def _is_optimizer(node):
    if node.slots or {"iter", "learning_rate"} <= set(node.children):
        return True
    return "_variables" in node.children and any(name in node.children for name in _COUNTS)


def _target(node):
    """Returns the API of an optimizer object."""
    if "_variables" in node.children:
        return "keras3" if "_trainable_variables" in node.children else "update_step"
    return "optimizer_v2" if "iter" in node.children else "tf_train"


def by_slot_name(claim, definition):
    """Returns the claim as one of a definition, of a checkpoint or a live optimizer that names slots.

    Raises:
        FileError: the slots are not those of the definition.
    """
    values = OrderedDict((COUNTERS.get(name, name), handle) for name, handle in claim.values.items())
    names, entry = {name: name for name in all_slots(definition) + list(ENGINE_SLOTS)}, None
    stored_names = set(name for variable_slots in claim.slots.values() for name in variable_slots)
    if not stored_names <= set(names) or claim.target == "tf_train" and "updates" not in values:
        entry = entry_for(claim.target, definition)
        names = dict({native: name for name, native in AROUND.items() if name in names}, **entry.slot_names)
    if not stored_names <= set(names):
        raise FileError("{} has the slots {}, which are not those of {}{}".format(
            claim.path, ", ".join(sorted(stored_names)), definition._short(), likely_optimizers(claim)))
    slots = OrderedDict((variable, OrderedDict()) for variable in claim.variables)
    for variable, variable_slots in claim.slots.items():
        slots[variable].update((names[name], handle) for name, handle in variable_slots.items())
    powers = OrderedDict((name, values[name]) for name in POWERS if name in values)
    return claim._replace(definition=definition, slots=slots, values=values, entry=entry,
                          powers={"beta1_power": powers} if powers else {})
