"""Finishes what earlier steps left: an open accumulation window, and rows that have missed updates."""
from __future__ import absolute_import, division, print_function

import numpy as np

from everstep.compat.engine.fast_forward import ROWS, Missed, catches_up
from everstep.compat.engine.step import holds
from everstep.compat.targets.hypers import refusal
from everstep.errors import GradientError, UnsupportedError


def flush(bound, variables=None):
    """Does what `NativeOptimizer.flush` says."""
    if not bound.adapter.holds_state:
        raise refusal(bound, "flush")
    return bound.backend.plain(_flush)(bound, variables)


def _flush(bound, variables):
    operations = _update_window(bound, variables) if holds(bound.definition) else []
    variables = bound.variables_with_slots() if variables is None else variables
    with bound.backend.after(operations):
        caught_up = _catch_up_rows(bound, [(variable, None) for variable in variables])
        return bound.backend.group(operations + caught_up)


def _update_window(bound, variables):
    """Runs the update of an open window."""
    adapter = bound.adapter
    keys = bound.calls.get((bound.graph_now(), 0)) or [key for keys in bound.calls.values() for key in keys]
    if variables is None:
        parts = [known.variable for known in bound.rules.values() if known.key in keys]
        parts = parts if keys else bound.variables_with_slots()
    else:
        parts = [part for variable in variables for part in adapter.parts(variable)]
        for variable in parts:
            for name in bound.slot_names(variable):
                adapter.get_slot(variable, name)  # raises an error that tells the user what to do first
        if keys and set(keys) != set(map(bound.variable_key, parts)):
            raise UnsupportedError(
                "{} counts the steps of all its variables together; flush them in one call".format(
                    bound.definition._short()
                )
            )
    return adapter.take_flush([adapter.unwrap(variable) for variable in parts]) if parts else []


def catch_up(bound, variable, rows):
    """Does what `NativeOptimizer.catch_up` says."""
    bound.adapter.check_variable(variable)
    if isinstance(rows, (list, tuple, np.ndarray, np.generic)):
        rows = np.asarray(rows)
        if rows.dtype.kind not in "iu":
            raise GradientError("catch_up takes row numbers, integers; got {!r}".format(rows))
    return bound.backend.group(bound.backend.plain(_catch_up_rows)(bound, [(variable, rows)]))


def _catch_up_rows(bound, rows_of_variables):
    """Takes missed updates for (variable, rows) pairs; rows of None are all rows. Returns operations."""
    backend, operations = bound.backend, []
    for variable, rows in rows_of_variables:
        if not bound.record(variable).shape or not catches_up(backend.moves_rows, bound.rule(variable)):
            continue
        bound.adapter.get_slot(variable, ROWS)  # raises an error that tells the user what to do first
        native = bound.adapter.unwrap(variable)
        with backend.at(native):
            find = None
            if rows is not None:
                unique = backend.existing_rows(backend.unique(rows), native, bound.record(variable).name)
                find = lambda unique=unique: unique  # noqa: E731  # a function of one line
            missed = Missed(bound.host_of(variable), variable, find)
            operations.extend(missed.take_all() if rows is None else missed.take())
    return operations
