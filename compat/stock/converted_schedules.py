"""Converts the schedules of Keras to everstep's, which are valid on every API."""
from __future__ import absolute_import, division, print_function

from everstep.optimizers.contract import schedule as schedules


def converted(serialized):
    """Returns the everstep schedule for the config of a stock schedule, or None."""
    config = serialized["config"]
    initial = config.get("initial_learning_rate")
    steps = config.get("decay_steps")
    kind = serialized["class_name"].split(">")[-1]
    if kind == "ExponentialDecay":
        return schedules.ExponentialDecay(initial, float(steps), config["decay_rate"], config["staircase"])
    if kind == "InverseTimeDecay" and not config["staircase"]:
        return schedules.InverseTimeDecay(initial, config["decay_rate"] / steps)
    if kind == "PolynomialDecay":
        end, power = config["end_learning_rate"], config["power"]
        return schedules.PolynomialDecay(initial, float(steps), end, power, config["cycle"])
    if kind == "PiecewiseConstantDecay":
        return schedules.PiecewiseConstantDecay(tuple(config["boundaries"]), tuple(config["values"]))
    if kind == "CosineDecay":
        return schedules.CosineDecay(
            initial, float(steps), config["alpha"], config.get("warmup_target"), float(config.get("warmup_steps") or 0)
        )
    if kind == "CosineDecayRestarts":
        first = float(config["first_decay_steps"])
        return schedules.CosineDecayRestarts(initial, first, config["t_mul"], config["m_mul"], config["alpha"])
    return None
