"""The layouts of slots on a mesh of devices (`keras.distribution`): those of their variables, as stock's slots have."""
from __future__ import absolute_import, division, print_function

import copy
from contextlib import contextmanager


def layout_of_slot(variable, shape, layout=None):
    """Returns the layout of a slot of a variable, whose own is `layout` or `_layout`: None if the variable has none.

    A slot with another shape keeps the mesh's axes along the dimensions that it shares with its variable. Without a
    layout of its own, the name of the slot would decide, and a layout map means the variable's dimensions.
    """
    layout = layout or getattr(variable, "_layout", None)
    if layout is None or tuple(shape) == tuple(variable.shape):
        return layout
    axes = layout.axes if hasattr(layout, "axes") else getattr(layout, "spec", None)
    if axes is None:  # one that says more than the axes, such as the order in memory
        return None
    axes = _axes_of(tuple(shape), tuple(variable.shape), tuple(axes))
    if hasattr(layout, "axes"):
        return type(layout)(axes, layout.device_mesh)
    return type(layout)(layout.mesh, type(layout.spec)(*axes))


@contextmanager
def instead_of_names(distributions, variable, shape):
    """Creates slots of a variable in their layout, in old Keras 3, whose `add_variable` takes none: names decide."""
    distribution = distributions.distribution()
    if distribution is None:
        yield
        return
    layout = layout_of_slot(variable, shape, distribution.get_variable_layout(variable))
    of_slots = copy.copy(distribution)
    of_slots.get_variable_layout = lambda slot: layout
    distributions.set_distribution(of_slots)
    try:
        yield
    finally:
        distributions.set_distribution(distribution)


def _axes_of(shape, whole, axes):
    """Returns the axes of the mesh for each dimension of a slot, given those of its variable."""
    axes = axes + (None,) * (len(whole) - len(axes))
    if len(shape) == len(whole):
        return tuple(axis if size == of_whole else None for size, of_whole, axis in zip(shape, whole, axes))
    found, place = [], 0
    for size in shape:  # the variable's dimensions, without some
        matching = [index for index in range(place, len(whole)) if whole[index] == size]
        found.append(axes[matching[0]] if matching else None)
        place = matching[0] + 1 if matching else place
    return tuple(found)


class FirstValue(object):
    """An initializer made of a function. On a mesh, Keras compiles that of a large variable, and needs an object."""

    def __init__(self, value):
        self._value = value

    def __call__(self, shape, dtype=None):
        return self._value(shape, dtype)
