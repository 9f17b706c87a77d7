"""A rule's update as one compiled function."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

from everstep.compat.engine.fitting import VAR, fitted
from everstep.compat.engine.variable_view import GRAD


def new_values(backend, program, inputs, outside, view, traced):
    """Runs a program. Returns `{VAR or slot: new value}`, each in the full shape of the old value in `inputs`."""
    natives = OrderedDict()
    for name, native in zip([VAR] + list(traced.slots), program.run(backend, inputs, outside)):
        native = backend.cast(native, view.dtype)
        natives[name] = fitted(backend, native, inputs[name], name, view.about)
    if not traced.assigned:
        natives[VAR] = inputs[VAR] - natives[VAR]
    return natives


class CompiledUpdate(object):
    """The body of a compiled function: runs a program on a variable and its slots, and writes the results.

    An object, since TensorFlow counts how often functions with the same code are traced, and warns.

    Args:
        backend: the backend.
        program: the `Program`.
        traced: the `Traced` update that the program is of.
        names: the slots that it reads or writes.
        view: the `VariableView`.
    """

    def __init__(self, backend, program, traced, names, view):
        self.backend, self.program, self.names = backend.for_xla(), program, names
        self.dtype, self.about = view.dtype, view.about  # the parts of a view that `new_values` reads
        # drops the values of this step
        self.traced = traced._replace(change=None, slots=list(traced.slots), decay=None)

    def __call__(self, variable, slots, grad, outside):
        backend, slots = self.backend, dict(zip(self.names, slots))
        inputs = {name: backend.cast(backend.read(slot), self.dtype) for name, slot in slots.items()}
        inputs[GRAD], inputs[VAR] = grad, backend.cast(backend.read(variable), self.dtype)
        natives = new_values(backend, self.program, inputs, outside, self, self.traced)
        with backend.after(list(natives.values())):
            slots[VAR] = variable
            done = [backend.write(slots[name], native) for name, native in natives.items()]
        with backend.after(done):
            return backend.constant(True, "bool")

    def values(self, natives):
        """Returns the new values of the variable and its slots, for variables that a function cannot write.

        `natives` are the gradient, the values of the variable and of `names`, and those in `program.outside`.
        """
        stored = 2 + len(self.names)
        inputs = dict(zip([GRAD, VAR] + self.names, natives[:stored]))
        return list(new_values(self.backend, self.program, inputs, natives[stored:], self, self.traced).values())
