"""What definitions ask of the rest of everstep, handed over by `everstep/__init__`: nothing here imports upward."""
from __future__ import absolute_import, division, print_function


class Binder(object):
    """The verbs that stand above the contract. Each is an attribute once `use` was called."""

    def use(self, native_class, to_native_config, check, numpy_ops):
        """Sets all of them.

        Args:
            native_class: (definition class, module) -> the native class of it in the API that the module speaks.
            to_native_config: (definition, module) -> class name and config of the stock optimizer that does the same.
            check: (definition) -> None; raises where its rule breaks the contract.
            numpy_ops: the table of ops for NumPy, in which a schedule that is called is evaluated.
        """
        self.native_class = native_class
        self.to_native_config = to_native_config
        self.check = check
        self.numpy_ops = numpy_ops

    def __getattr__(self, name):  # asked for what is not set
        raise AttributeError("binder.{} is not set: everstep/__init__ calls binder.use(...) first".format(name))


binder = Binder()
