"""Gives definitions access to the engine and its targets, without an import of them.

`everstep/__init__` sets the functions, so that no module here imports one of a folder above.
"""
from __future__ import absolute_import, division, print_function


class Binder(object):
    """The functions that definitions call in the rest of everstep, as attributes. `use` sets them."""

    def use(self, native_class, to_native_config, check, numpy_ops):
        """Sets all functions.

        Args:
            native_class: (definition class, module) -> its native class, in the API that the module belongs to.
            to_native_config: (definition, module) -> class name and config of the stock optimizer that does the same.
            check: (definition) -> None; raises if its rule breaks the contract.
            numpy_ops: the ops on NumPy arrays, with which calling a schedule evaluates it.
        """
        self.native_class = native_class
        self.to_native_config = to_native_config
        self.check = check
        self.numpy_ops = numpy_ops

    def __getattr__(self, name):  # runs only for names that are not set
        raise AttributeError("binder.{} is not set: everstep/__init__ calls binder.use(...) first".format(name))


binder = Binder()
