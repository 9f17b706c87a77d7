"""Finds out of which weights of a model the slots in a file are that go by position. Each strategy is a function.

A strategy takes the model's weights and the shapes and names of the slots, and returns the weights' names, or None if
it cannot tell. `STRATEGIES` has their order.
"""
from __future__ import absolute_import, division, print_function

import itertools
import re
from collections import OrderedDict

from everstep.compat.checkpoints.conversions import first_few
from everstep.compat.files.contents import Weight, numbered
from everstep.errors import StateError

# Names of slots that say nothing: Variable_3 and param_3 of Keras 1 to 2.2, training/Adam/m_3_1 of Keras 2.3.
_SAYS_NOTHING = re.compile(r"((.*/)?(Variable|param)(_\d+)*|(.*training(_\d+)?/\w+/)?[a-z]+(_[a-z]+)*(_\d+)+)?\Z")
_SORTED_UP_TO = (2, 0, 5)  # Keras trained weights in the order of their sorted names
MAX_STATES = 1 << 16  # of the search for an order
NOTHING, MODELS, LAYERS = range(3)  # what may be left out


def version_of(contents):
    """Returns the version of Keras that wrote a file as a tuple; (99,) if the file does not say."""
    return tuple(map(int, re.findall(r"[0-9]{1,9}", contents.version)[:3])) or (99,)


def weights_of(claim):
    """Returns [Weight] of a claim's file, named as in a state, in the order in which the optimizer was given them.

    What nothing trains is left out.
    """
    contents = claim.contents
    if not contents.weights:
        return [Weight(name, handle, True, (("", index),))
                for index, (name, handle) in enumerate(claim.variables.items())]
    weights = [weight for weight in contents.weights if weight.trains is not None and weight.handle.dtype.kind in "fV"]
    names = numbered([weight.name for weight in weights])
    weights = [weight._replace(name=name, place=weight.place or (("", index),))
               for index, (name, weight) in enumerate(zip(names, weights))]
    if version_of(contents) > _SORTED_UP_TO or contents.format != "keras-h5":
        return weights
    weights.sort(key=lambda weight: weight.name + (":0" if weight.handle.name.endswith(":0") else ""))
    # in the order of names, weights of two layers can alternate
    return [weight._replace(place=(("", outer), ("", inner)))
            for outer, (_, model) in enumerate(itertools.groupby(weights, lambda weight: weight.place[0]))
            for inner, (_, layer) in enumerate(itertools.groupby(model, lambda weight: weight.place))
            for weight in layer]


def names_of(claim, weights, shapes, hints, given=None):
    """Returns the names of the variables that the slots belong to.

    Args:
        weights: what `weights_of` returned.
        shapes: the variables' shapes, in the order of the slots.
        hints: for each variable, the names of its slots in the file.
        given: the names, if the user gave them.

    Raises:
        StateError: the given names do not fit, or the file leaves the names open.
    """
    if given is not None:
        return _as_given({weight.name: weight.handle.shape for weight in weights}, shapes, given)
    if not weights:
        return [str(index) for index in range(len(shapes))]
    for strategy in STRATEGIES:
        if strategy is by_models and claim.contents.format != "keras-h5":
            continue  # other formats write flags for models, or none at all
        try:
            names = strategy(weights, shapes, hints)
        except StateError as error:
            raise StateError("{}: {}".format(claim.path, error))
        if names is not None:
            return names
    raise StateError(
        "{} has slots of shapes {}, and does not say of which of the weights {} they are. Give variables= "
        "(--variables), their names in the order of the model's trainable weights".format(
            claim.path, first_few(map(str, shapes)),
            first_few("{} {}".format(weight.name, weight.handle.shape) for weight in weights)))


def _as_given(known, shapes, given):
    if len(set(given)) != len(given) or len(given) != len(shapes):
        raise StateError("the file has slots of {} variables; variables= names {}".format(len(shapes), list(given)))
    for name, shape in zip(given, shapes):
        if name in known and known[name] != shape:
            raise StateError("{} has shape {}; the slots in its place have {}".format(name, known[name], shape))
    return list(given)


def by_names_of_slots(weights, shapes, hints):
    """Names in the file decide, for frozen weights too: `training/Adam/dense/kernel/m`, `adam/dense_kernel_momentum`.

    Raises:
        StateError: they are those of no weights.
    """
    hints = [[text.split(":")[0] for text in texts] for texts in hints]
    if any(_SAYS_NOTHING.match(text) for texts in hints for text in texts) or not any(hints):
        return None
    known = {}
    for weight in weights:
        known.setdefault(weight.name.partition("#")[0].replace("/", "_"), []).append(weight)
    found = []
    for shape, texts in zip(shapes, hints):
        called = {_longest(known, text.replace("/", "_")) for text in texts}.difference([""])
        fitting = known[called.pop()] if len(called) == 1 else ()
        found.append([weight.name for weight in fitting if weight.handle.shape == shape])
    if not all(found) or len(set(map(tuple, found))) < len(found) and all(len(names) == 1 for names in found):
        raise StateError("its slots are called {}, after none of the model's weights {}".format(
            first_few(texts[0] for texts, names in zip(hints, found) if len(names) != 1),
            first_few(weight.name for weight in weights)))
    return [names[0] for names in found] if all(len(names) == 1 for names in found) else None


def _longest(known, text):
    """Returns the longest known name that is in a text as whole words, which end at `_`; "" if there is none."""
    words, found = text.split("_"), ""
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            name = "_".join(words[start:end])
            if len(name) > len(found) and name in known:
                found = name
    return found


def by_flags(weights, shapes, hints):
    """All weights train that the file does not say are frozen, in the model's order."""
    return _only_way([weight for weight in weights if weight.trains], shapes, NOTHING)


def by_models(weights, shapes, hints):
    """Models inside of the model were frozen as a whole, as in a GAN. A config may have only the flags of layers."""
    return _only_way([weight for weight in weights if weight.trains], shapes, MODELS)


def by_layers(weights, shapes, hints):
    """A layer trained as a whole or not at all, whatever its flag is now; the layers are in the model's order."""
    return _only_way(weights, shapes, LAYERS)


# Names in the file come first. Flags may have changed after the optimizer was compiled, so that by_flags may find
# nothing; where it finds a way, by_layers would find it too, and others.
STRATEGIES = (by_names_of_slots, by_flags, by_models, by_layers)


def _only_way(weights, shapes, optional):
    """Returns the names of the weights that the slots are of, if there is exactly one way; else None.

    Args:
        optional: what may be left out: NOTHING, MODELS, or LAYERS, each as a whole.
    """
    root = _Layer()
    for weight in weights:
        layer = root
        for chain, number in weight.place:
            layer = layer.chains.setdefault(chain, {}).setdefault(number, _Layer())
        layer.weights.append(weight)
    left = [MAX_STATES]
    ways = _ways(root, list(shapes), 0, optional, left).get(len(shapes), ())
    return list(ways[0]) if len(ways) == 1 and left[0] >= 0 else None


class _Layer(object):
    """The weights of a layer, and the layers inside of it: `{chain: {number: layer}}`, see `contents.Weight`."""

    def __init__(self):
        self.weights, self.chains = [], OrderedDict()


def _ways(layer, shapes, start, optional, left):
    """Returns {end: at most two ways} to give the slots from `start` to `end` to a layer's weights: tuples of names.

    Args:
        left: [how many states may still be looked at]; below 0, ways are missing.
    """
    own = [weight.handle.shape for weight in layer.weights]
    ends = {start: [()]} if optional == LAYERS or not own else {}
    if own and shapes[start : start + len(own)] == own:
        ends[start + len(own)] = [tuple(weight.name for weight in layer.weights)]
    chains = [[inner for _, inner in sorted(chain.items())] for chain in layer.chains.values()]
    if not chains:
        return ends
    # {index of a slot: {the next layer of each chain: ways}}
    states, ends = {end: {(0,) * len(chains): ways} for end, ways in ends.items()}, {}
    # For each layer of a chain, how far one may go without it: to the first one that may not be left out.
    reach = [_reach(chain, optional) for chain in chains]
    for place in range(start, len(shapes) + 1):
        for nexts, ways in states.pop(place, {}).items():
            if all(reach[number][at] == len(chains[number]) for number, at in enumerate(nexts)):
                ends[place] = (ends.get(place, []) + ways)[:2]
            for number, chain in enumerate(chains):
                for index in range(nexts[number], min(reach[number][nexts[number]] + 1, len(chain))):
                    left[0] -= 1
                    if left[0] < 0:
                        return {}
                    then = nexts[:number] + (index + 1,) + nexts[number + 1 :]
                    inside = optional if optional == LAYERS else NOTHING
                    for end, inner in _ways(chain[index], shapes, place, inside, left).items():
                        if end > place:
                            reached = states.setdefault(end, {})
                            reached[then] = (reached.get(then, []) + [a + b for a in ways for b in inner])[:2]
    return ends


def _reach(chain, optional):
    """Returns, for each layer of a chain and its end, the index of the first one from there on that must train."""
    reach = [len(chain)]
    for index in reversed(range(len(chain))):
        must = optional == NOTHING or optional == MODELS and not chain[index].chains
        reach.append(index if must else reach[-1])
    return reach[::-1]
