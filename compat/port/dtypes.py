"""Reads the rule of an original for variables of another dtype than float32."""
from __future__ import absolute_import, division, print_function

import copy
import re

from everstep.compat.port.algebra import ops
from everstep.compat.port.reading import Reading
from everstep.compat.port.setting import Setting
from everstep.errors import PortError

OTHERS = ("float64", "float16", "bfloat16")
_ROUNDING = {"float64": 1e-6, "float16": 1.1e-3, "bfloat16": 9e-3}
_SMALLEST = {"float64": 0.0, "float16": 6e-8, "bfloat16": 0.0}
_LARGEST = 65504.0  # of float16
_OWN_FAULT = re.compile("float(16|32|64)|double|half|[dD][tT]ype|precision")


def is_mismatch(error):
    """Returns whether an original does not take variables of a dtype, by its error."""
    return _OWN_FAULT.search(str(error)) is not None


def outputs_for(rule, reading):
    """Returns (outputs, {place: number} of the constants that are the dtype's own) of a reading for another dtype.

    Constants that are only rounded are those of float32.
    """
    dtype = reading.setting.dtype
    reading.run((), rule.axes)
    known, constants = [number for _, number in rule.base.machine.constants], reading.machine.constants
    is_alike = len(known) == len(constants)  # otherwise the rule has other terms, and its hypers are searched again
    patches, own = dict(rule.patches if is_alike else rule.explained_in(reading)), {}
    for place, (_, number) in enumerate(constants):
        same = [each for each in (known[place:place + 1] if is_alike else known) if _is_rounded(dtype, each, number)]
        if not same and (is_alike or place not in patches):
            own[place] = number
            patches[place] = ops.constant(float(str(reading.setting.of_dtype(number))))  # the shortest text
        elif place not in patches:
            patches[place] = ops.constant(same[0])
    outputs = rule.outputs_of(reading, patches)
    reading.close()
    return outputs, own


def check_fixed(rule, dtype, own):
    """Raises PortError if constants of a dtype move with the arguments. own: {place: number}."""
    setting = Setting(rule.altered_arguments(), (rule.shapes.base,), rule.names, dtype=dtype)
    other = Reading(rule.kind, setting, rule.given).run((), rule.axes)
    other.close()
    if any(other.machine.constants[place][1] != number for place, number in own.items()):
        raise PortError("its numbers for {} variables depend on the arguments".format(dtype))


def _is_rounded(dtype, one, two):
    """Returns whether two numbers differ by the rounding of a dtype alone."""
    if dtype == "float16" and abs(one) > _LARGEST:
        return abs(two) > _LARGEST
    return abs(one - two) <= max(_ROUNDING[dtype] * max(abs(one), abs(two)), _SMALLEST[dtype])


def variant(rule, dtype):
    """Returns a Rule for variables of a dtype. It has no readings."""
    outputs, own = outputs_for(rule, rule.traced(rule.names, rule.shapes.base, dtype))
    check_fixed(rule, dtype, own)
    if rule.of_ranks:
        raise PortError("its rule changes both with the rank and with the dtype of the variable")
    new = copy.copy(rule)
    new.base = copy.copy(rule.base)
    new.base.outputs = outputs
    new.make()
    new.readings = []
    return new
