"""`everstep.State`: the state of an optimizer, independent of any framework."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np

from everstep.compat.checkpoints import moving, torch_layers
from everstep.compat.files import npz, safetensors
from everstep.compat.files.contents import Handle


class State(object):
    """The state of an optimizer, independent of any framework.

    `everstep.capture` and `everstep.read_checkpoint` return one; `everstep.restore` and `everstep.write_checkpoint`
    take one.

        >>> import everstep, numpy as np
        >>> weights = np.ones(3)
        >>> optimizer = everstep.optimizers.Adam(0.1).bind(np)
        >>> _ = optimizer.apply_gradients([(np.ones(3), weights)])
        >>> everstep.capture(optimizer, {"w": weights})
        <everstep state of Adam: 1 updates, 1 variables>

    An array is a NumPy array or a handle. A handle reads a file on demand: it has `shape` and `dtype`, `handle[a:b]`
    reads rows, and `numpy.asarray(handle)` reads all of it.

    Each argument is an attribute of the same name. `scalars`, `slots` and `variables` become OrderedDicts.

    Args:
        definition: the definition's config (`Definition.get_config`), with the hypers at the time of capture. None if
            it is unknown: some files do not say.
        updates: int, the number of updates. Default 0. None if it is unknown.
        steps: int, the number of steps, with or without an update. Default None: every step updates.
        pending: int, the number of steps since the last update. Default 0.
        scalars: {name: float}.
        slots: {variable name: {slot name: array}}.
        variables: {variable name: array}, the values of the variables. Empty if they were not captured.
        ordered: True if `slots` are in the order in which the variables were given or trained. Default True. False if
            their order means nothing: `tf.train.Saver` stores names alphabetically.

        loss_scale: {"scale": float, "good_steps": float} of a LossScaleOptimizer around the optimizer. Default None.

    A state can be copied and pickled. A pickle and a deep copy hold all arrays, also those of a file.

    Raises:
        TypeError, ValueError: `scalars`, `slots` or `variables` is neither a dictionary nor a list of pairs.
    """

    def __init__(self, definition=None, updates=0, steps=None, pending=0, scalars=(), slots=(), variables=(),
                 ordered=True, loss_scale=None):
        self.definition, self.updates, self.steps, self.pending = definition, updates, steps, pending
        self.scalars, self.slots, self.variables = OrderedDict(scalars), OrderedDict(slots), OrderedDict(variables)
        self.ordered, self.loss_scale = ordered, loss_scale

    def save(self, path):
        """Writes the state to a `.npz` file, or a `.safetensors` file (docs/state_format.md).

        An existing file is replaced only once all is written.

        Args:
            path: the file to write. A name that ends in `.safetensors` makes a file of that format, which torch and
                JAX programs can read, too; any other name one of `.npz`.

        Raises:
            StateError: the format cannot hold something in the state, or the file cannot be written.
        """
        (safetensors if _names_safetensors(path) else npz).save(self, path)

    @classmethod
    def load(cls, path):
        """Reads a file that `save` wrote.

        Args:
            path: the file, by the name that `save` was given.

        Returns:
            A `State`. Its arrays are handles, which are read and checked on first use.

        Raises:
            FileError (a StateError): the file is not from `save`, is of a newer format, is damaged or truncated, or
                cannot be read.
        """
        return cls(**(safetensors if _names_safetensors(path) else npz).load(path))

    def to_dict(self):
        """Returns the whole state as dictionaries, lists, numbers and NumPy arrays."""
        return dict(vars(with_arrays(self, np.asarray)))

    def replace(self, **parts):
        """Returns a copy with some parts replaced.

        Args:
            **parts: the new parts, by the names of the class's arguments.

        Returns:
            A `State`, which shares the other parts.
        """
        return State(**dict(vars(self), **parts))

    def renamed(self, patterns):
        """Returns a copy in which variables have other names, with their slots and values.

            >>> import everstep, numpy as np
            >>> state = everstep.State(slots={"dense/kernel": {"m": np.zeros((4, 3))}})
            >>> list(state.renamed({"(.*)/kernel": r"\\1.weight"}).slots)
            ['dense.weight']

        Patterns in the definition (`exclude=`, `everstep.partition`) stay as they are: they look for the names that the
        state has after this.

        Args:
            patterns: {old: new}, or a list of pairs. Old is a regular expression that matches a whole name; new may
                refer to its groups: `\\1`, `\\g<name>`. The first pattern that matches a name is used. Names that none
                matches stay.

        Returns:
            A `State`, which shares the arrays.

        Raises:
            StateError: a pattern matches nothing, or two variables would get one name.
        """
        return moving.renamed(self, patterns)[0]

    def transposed(self, patterns):
        """Returns a copy in which the axes of variables, and of their slots, have another order.

            >>> import everstep, numpy as np
            >>> state = everstep.State(slots={"fc.weight": {"m": np.zeros((4, 3))}})
            >>> state.transposed({"fc.weight": (1, 0)}).slots["fc.weight"]["m"].shape
            (3, 4)

        Slots of one number stay as they are. The rows and columns of a factored matrix change places.

        Args:
            patterns: {name: axes}, or a list of pairs. Name is a regular expression that matches a whole name. Axes are
                those of `numpy.transpose`, of variable and slots: `(1, 0)` for a matrix. The first pattern that
                matches a name is used.

        Returns:
            A `State` whose transposed arrays are made when they are read.

        Raises:
            StateError: a pattern matches nothing, the axes do not fit a variable, or a slot has other axes than its
                variable.
        """
        return moving.transposed(self, patterns)

    def to_torch(self, layers):
        """Returns a copy for a model in torch: names, axes and gates of Keras's layers become those of torch's modules.

            >>> import everstep, numpy as np
            >>> state = everstep.State(slots={"dense/kernel": {"m": np.zeros((4, 3))}})
            >>> state = state.to_torch({"dense": ("Dense", "fc")})
            >>> state.slots["fc.weight"]["m"].shape
            (3, 4)

        All slots move with their variable, exactly, with one exception: torch's LSTM has two biases, which it adds, and
        Keras's has one. It becomes `bias_ih`, with its slots; `bias_hh` is 0 and has none. Give `bias_hh` no gradient
        (`requires_grad_(False)`) and leave it out of the optimizer: otherwise the sum moves twice as far.

        Args:
            layers: {name of a layer in Keras: (its class, name of the module in torch)}. The names are those that the
                variables begin with. A third item holds options: `{"suffix": "_l1_reverse"}` for LSTM and GRU (default
                `"_l0"`), `{"depth_multiplier": 2}` for a depthwise convolution (default 1; only `to_keras` needs it).
                None in place of the tuple leaves a layer out. The classes are Dense, Embedding, Conv1D to Conv3D and
                their Transpose, DepthwiseConv1D and 2D, BatchNormalization, LayerNormalization, GroupNormalization,
                LSTM, and GRU with reset_after=True.

        Returns:
            A `State` whose arrays are made when they are read.

        Raises:
            StateError: the state lacks a layer, a variable belongs to none, or a slot has no place in the other
                framework.
        """
        return torch_layers.to_torch(self, layers)

    def to_keras(self, layers):
        """Does the reverse of `to_torch`, with the same `layers`.

            >>> import everstep, numpy as np
            >>> state = everstep.State(slots={"fc.weight": {"m": np.zeros((3, 4))}})
            >>> state.to_keras({"dense": ("Dense", "fc")}).slots["dense/kernel"]["m"].shape
            (4, 3)

        Args:
            layers: as for `to_torch`: {name of a layer in Keras: (its class, name of the module in torch)}.

        Returns:
            A `State` whose arrays are made when they are read.

        Raises:
            StateError: as `to_torch`; or both biases of an LSTM have slots, which Keras's one bias cannot take.
        """
        return torch_layers.to_keras(self, layers)

    def __copy__(self):
        return self.replace()

    def __reduce__(self):  # a handle belongs to an open file, which cannot be pickled
        parts = self.to_dict()
        names = ("definition", "updates", "steps", "pending", "scalars", "slots", "variables", "ordered",
                 "loss_scale")
        return State, tuple(parts[name] for name in names)

    def __repr__(self):
        name = (self.definition or {}).get("definition", "an unknown definition")
        return "<everstep state of {}: {} updates, {} variables>".format(name, self.updates, len(self.slots))


def _names_safetensors(path):
    """Returns whether a path ends in `.safetensors`."""
    path = path.__fspath__() if hasattr(path, "__fspath__") else path
    return path[-12:] in (".safetensors", b".safetensors") if isinstance(path, (bytes, type(u""))) else False


def finished(state, path):
    """Returns a copy of a State of live arrays: in memory, or in a new file, which takes them one at a time.

    Args:
        path: the file; None for memory.
    """
    if path is None:
        return with_arrays(state, np.asarray)
    kept = {}  # type: dict  # {id of the last handle that was read: its array}

    def one_at_a_time(handle):
        def read(selection):
            if id(handle) not in kept:
                kept.clear()  # frees the old array before the new one is read
                kept[id(handle)] = np.asarray(handle)
            return kept[id(handle)][selection]

        return Handle("array", handle.shape, handle.dtype, read)

    with_arrays(state, one_at_a_time).save(path)
    return State.load(path)


def with_arrays(state, function):
    """Returns a copy of a State with a function's values in place of its arrays."""

    def values(arrays):
        return OrderedDict((name, function(array)) for name, array in arrays.items())

    slots = OrderedDict((name, values(slots)) for name, slots in state.slots.items())
    return state.replace(slots=slots, variables=values(state.variables))
