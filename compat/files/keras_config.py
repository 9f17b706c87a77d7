"""What the config of a Keras model says of its layers: their names, their order, and whether they train."""
from __future__ import absolute_import, division, print_function

import re
from collections import namedtuple

from everstep.compat.files.npz import parse_json, with_native_strings
from everstep.errors import FileError

MAX_TEXT, MAX_DEPTH = 1 << 26, 32
# trains: False if it is frozen, or a model around it; config: its own; layers: those inside of it.
Layer = namedtuple("Layer", "name class_name trains config layers")
# Weights that nothing trains, by the last part of their names. Keras 1 has `norm_running_mean`.
_STATISTICS = re.compile(r"(.*_)?(moving_(mean|variance)|running_(mean|std)|seed_generator_state)\Z")


def parse(text, name, path):
    """Returns the value of a JSON text of Keras, with `str` for text on Python 2 as well."""
    if not hasattr(text, "split") or len(text) > MAX_TEXT:
        raise FileError("{}: {} is not text, or too long".format(path, name))
    value = parse_json(text)
    return value if str is not bytes else with_native_strings(value, list)


def layers_in(serialized, trains=True, depth=0):
    """Returns [Layer] of the layers directly inside of a serialized model or layer, in its order."""
    config = serialized.get("config") if isinstance(serialized, dict) else None
    inside = config  # of Sequential up to Keras 2.2, the config is a list of layers
    if isinstance(config, dict):  # a model, or a layer around another one, such as TimeDistributed
        inside = config.get("layers") or [config.get("layer")]
        trains = trains and config.get("trainable") is not False
    layers = []
    for each in inside if isinstance(inside, list) and depth < MAX_DEPTH else []:
        if isinstance(each, dict) and isinstance(each.get("config"), (dict, list)):
            own = each["config"] if isinstance(each["config"], dict) else each
            layers.append(Layer(own.get("name", each.get("name")), str(each.get("class_name")),
                                trains and own.get("trainable") is not False, own, layers_in(each, trains, depth + 1)))
    return layers


def innermost(layers):
    """Returns the layers that have none inside, in order."""
    return [inner for layer in layers for inner in (innermost(layer.layers) if layer.layers else [layer])]


def is_statistic(name):
    """Returns whether a weight of this name holds statistics or a random state, which nothing trains."""
    return bool(_STATISTICS.match(name.split("/")[-1]))
