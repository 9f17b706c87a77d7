"""Gives definitions and targets access to folders above them, without an import.

`everstep/__init__` sets the functions, so that no module here imports one of a folder above.
"""
from __future__ import absolute_import, division, print_function


class Binder(object):
    """The functions that definitions and targets call in folders above, as attributes. `use` sets them."""

    def use(self, native_class, to_native_config, check, numpy_ops, stock_arrays, stock_slots, stock_groups,
            class_named):
        """Sets all functions.

        Args:
            native_class: (definition class, module) -> its native class, in the API that the module belongs to.
            to_native_config: (definition, module) -> class name and config of the stock optimizer that does the same.
            check: (definition) -> None; raises if its rule breaks the contract.
            numpy_ops: the ops on NumPy arrays, with which calling a schedule evaluates it.
            stock_arrays: (target, definition, arrays, {variable: shape}) -> the roles of a stock optimizer's arrays.
            stock_slots: (target, definition) -> {slot in files of the stock optimizer: slot of the definition}.
            stock_groups: (definition class, definition or None) -> what stock of torch has in its parameter groups and
                states: ({hyper: (key, position in its tuple or None)}, {other key: value}, {scalar: key}).
            class_named: (package, target, name) -> the native class of an imported definition of that name, or None.
        """
        self.native_class = native_class
        self.to_native_config = to_native_config
        self.check = check
        self.numpy_ops = numpy_ops
        self.stock_arrays = stock_arrays
        self.stock_slots = stock_slots
        self.stock_groups = stock_groups
        self.class_named = class_named

    def __getattr__(self, name):  # runs only for names that are not set
        raise AttributeError("binder.{} is not set: everstep/__init__ calls binder.use(...) first".format(name))


binder = Binder()
