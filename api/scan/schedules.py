"""The everstep schedule that computes the same as a schedule of tf.train or Keras, as text of Python."""
from __future__ import absolute_import, division, print_function

from everstep.scan.parsing import literal, one_line

# {schedule: its arguments in order}. The second of tf.train is the step.
_TRAIN = {
    "exponential_decay": "learning_rate global_step decay_steps decay_rate staircase",
    "inverse_time_decay": "learning_rate global_step decay_steps decay_rate staircase",
    "polynomial_decay": "learning_rate global_step decay_steps end_learning_rate power cycle",
    "piecewise_constant": "x boundaries values", "piecewise_constant_decay": "x boundaries values",
    "cosine_decay": "learning_rate global_step decay_steps alpha",
    "cosine_decay_restarts": "learning_rate global_step first_decay_steps t_mul m_mul alpha",
}
_KERAS = {
    "ExponentialDecay": "initial_learning_rate decay_steps decay_rate staircase",
    "InverseTimeDecay": "initial_learning_rate decay_steps decay_rate staircase",
    "PolynomialDecay": "initial_learning_rate decay_steps end_learning_rate power cycle",
    "PiecewiseConstantDecay": "boundaries values",
    "CosineDecay": "initial_learning_rate decay_steps alpha", "CosineDecayRestarts": "initial_learning_rate "
    "first_decay_steps t_mul m_mul alpha",
}
_SAME = {
    "exponential_decay": "ExponentialDecay", "inverse_time_decay": "InverseTimeDecay",
    "polynomial_decay": "PolynomialDecay", "piecewise_constant": "PiecewiseConstantDecay",
    "piecewise_constant_decay": "PiecewiseConstantDecay", "cosine_decay": "CosineDecay",
    "cosine_decay_restarts": "CosineDecayRestarts",
}
_OURS = {
    "learning_rate": "initial", "initial_learning_rate": "initial", "decay_steps": "decay_steps", "decay_rate": "rate",
    "staircase": "staircase", "end_learning_rate": "end", "power": "power", "cycle": "cycle", "alpha": "alpha",
    "boundaries": "boundaries", "values": "values", "first_decay_steps": "decay_steps", "t_mul": "multiplier",
    "m_mul": "peak",
}


def schedule(name, arguments):
    """Returns (the text of the everstep schedule or None, why there is none)."""
    ours = _SAME.get(name, name)
    if name not in _TRAIN and name not in _KERAS:
        return None, "everstep has no such schedule; a function of the step can be a learning rate on its own API"
    names = _TRAIN.get(name, _KERAS.get(name, "")).split()
    given = dict(zip(names, arguments.positional), **arguments.named)
    given.pop("name", None)
    if arguments.starred or len(arguments.positional) > len(names):
        return None, "not all of its arguments are known"
    for step in ("global_step", "x"):
        given.pop(step, None)
    if set(given) - set(_OURS):
        return None, "{} has no counterpart that can be read here: use from_native".format(
            sorted(set(given) - set(_OURS))[0])
    if ours == "InverseTimeDecay":
        return _inverse_time(given)
    parts = ["{}={}".format(_OURS[each], _text(given[each], each in ("boundaries", "values")))
             for each in names if each in given]
    return "everstep.{}({})".format(ours, ", ".join(parts + _defaults(ours, given))), None


def _defaults(ours, given):
    """Returns the arguments that stock has other defaults for than everstep."""
    if ours == "CosineDecayRestarts":
        return ["multiplier=2.0"] * ("t_mul" not in given)
    return []


def _inverse_time(given):
    known, staircase = literal(given["staircase"]) if "staircase" in given else (True, False)
    if not known or staircase:
        return None, "everstep.InverseTimeDecay has no staircase"
    if not {"decay_rate", "decay_steps"} <= set(given):
        return None, "not all of its arguments are known"
    rate = given.get("learning_rate", given.get("initial_learning_rate"))
    values = [literal(given[each]) for each in ("decay_rate", "decay_steps")]
    share = repr(values[0][1] / float(values[1][1])) if all(known for known, _ in values) and values[1][1] else \
        "({}) / float({})".format(one_line(given["decay_rate"]), one_line(given["decay_steps"]))
    return "everstep.InverseTimeDecay(initial={}, rate={})".format(_text(rate), share), None


def _text(node, is_tuple=False):
    known, value = literal(node)
    if known and isinstance(value, list):
        return repr(tuple(value))
    text = repr(value) if known else one_line(node)
    return "tuple({})".format(text) if is_tuple and not known else text
