"""Keeps the truth about a file: what its live stock optimizer held and what its next step did, never read by everstep.

A kind of people_files.py trains, saves and makes one more step. `Case` writes two files beside what was saved:

    truth.json  the writer's versions, and for each optimizer its class, its arguments, its count of updates, its
                variables in order, and where the file has their weights (found by their bits, not by names)
    truth.npy   float32, all arrays one after another: for each optimizer and each of its variables the weight, the
                slots, the gradient of the next step and the weight after it

Slots belong to variables by the optimizer's own lists: `get_slot(variable)`, `_momentums[index of variable]`, or in
Keras before tf.keras the order of the parameters that its `get_updates` was given.
"""
from __future__ import absolute_import, division, print_function

import io
import json
import os
import platform
import tempfile
import zipfile
from collections import OrderedDict

import numpy as np

# {class: [(role in everstep, names and attributes in the frameworks)]}. Keras before tf.keras has only a list; its
# roles are in this order, in blocks of one slot of all parameters.
ROLES = {
    "GradientDescent": [],
    "SGD": [("velocity", "momentum momentums")],
    "Momentum": [("velocity", "momentum")],
    "RMSprop": [("mean_square", "rms _velocities"), ("velocity", "momentum _momentums"),
                ("mean_grad", "mg _average_gradients")],
    "Adagrad": [("accumulator", "accumulator _accumulators")],
    "Adadelta": [("mean_square", "accum accum_grad _accumulated_grads"),
                 ("mean_square_step", "accum_update accum_var _accumulated_delta_vars")],
    "Adam": [("m", "m _momentums"), ("v", "v _velocities"), ("v_hat", "vhat _velocity_hats")],
    "Adamax": [("m", "m _m"), ("u", "v _u")],
    "Nadam": [("m", "m _momentums"), ("v", "v _velocities")],
    "Ftrl": [("accumulator", "accum accumulator _accumulators"), ("linear", "linear _linears")],
}
ROLES["RMSProp"] = ROLES["RMSprop"]
ROLES["AdamW"] = ROLES["LazyAdam"] = ROLES["Adam"]


def numeric(value):
    """Returns the NumPy array of a variable or tensor of any framework in eager mode."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "indices") and hasattr(value, "values"):
        dense = np.zeros([int(n) for n in value.dense_shape], np.float32)
        np.add.at(dense, np.asarray(value.indices), np.asarray(value.values))
        return dense
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


class Watch(object):
    """A stock optimizer of a Keras model: its variables, slots, counter and last gradients, by identity.

    It records gradients in the optimizer's own methods, which it wraps on this one object; no file shows it.

    Args:
        keras: the Keras.
        optimizer: a compiled model's optimizer, before its first step.
    """

    def __init__(self, keras, optimizer):
        self.keras, self.K = keras, keras.backend
        self.outer, self.optimizer = optimizer, getattr(optimizer, "inner_optimizer", optimizer)
        self.variables, self.gradients, self.recorded = None, None, None
        optimizer = self.optimizer
        if hasattr(optimizer, "stateless_apply"):
            self.api = "keras3"
            self._wrap_apply("apply", lambda grads, trainable_variables=None: (
                grads, trainable_variables or optimizer._trainable_variables))
        elif hasattr(optimizer, "add_slot") or hasattr(optimizer, "update_step"):
            self.api = "update_step" if hasattr(optimizer, "update_step") else "optimizer_v2"
            if self._is_eager():
                self._wrap_apply("apply_gradients", lambda pairs, *_, **__: list(zip(*pairs)))
            else:
                self._wrap_get_updates()
        else:
            self.api = "get_updates"
            self._wrap_get_updates()

    @staticmethod
    def _is_eager():
        import tensorflow

        return getattr(tensorflow, "executing_eagerly", lambda: False)()

    def _wrap_apply(self, name, parts):
        method = getattr(self.optimizer, name)

        def apply(*args, **kwargs):
            if args and hasattr(args[0], "__next__"):
                args = (list(args[0]),) + args[1:]
            grads, variables = parts(*args, **kwargs)
            self.variables = list(variables)
            self.gradients = [numeric(self.keras.ops.convert_to_numpy(grad) if self.api == "keras3" else grad)
                              for grad in grads]
            return method(*args, **kwargs)

        setattr(self.optimizer, name, apply)

    def _wrap_get_updates(self):
        get_gradients, get_updates, tensors = self.optimizer.get_gradients, self.optimizer.get_updates, []

        def gradients(loss, params):
            tensors[:] = get_gradients(loss, params)
            return list(tensors)

        def updates(*args, **kwargs):
            params = kwargs.get("params") or [each for each in args if isinstance(each, list)][0]
            moves = list(get_updates(*args, **kwargs))
            self.variables = list(params)
            self.recorded = [self.K.variable(np.zeros(self.K.get_value(each).shape), name="recorded")
                             for each in params]
            return moves + [self.K.update(*pair) for pair in zip(self.recorded, tensors)]

        self.optimizer.get_gradients, self.optimizer.get_updates = gradients, updates

    def value(self, variable):
        if self.api == "keras3":
            return self.keras.ops.convert_to_numpy(variable)
        return self.K.get_value(variable)

    def name(self, variable):
        return str(getattr(variable, "path", None) or variable.name).split(":")[0]

    def class_name(self):
        return type(self.optimizer).__name__

    def arguments(self):
        return self.optimizer.get_config()

    def updates(self):
        """Returns the count that the optimizer has itself, as a number. RMSprop of Keras 1.0 has none."""
        counter = getattr(self.optimizer, "iterations", None)
        return 0 if counter is None else float(self.value(counter))

    def is_counted(self):
        """Returns whether the counter is among the weights, which is what a file has of an optimizer."""
        if self.api != "get_updates":
            return True
        return any(each is getattr(self.optimizer, "iterations", None) for each in self.optimizer.weights)

    def slots(self):
        """Returns [{role: array}], in the order of the variables."""
        optimizer, roles = self.optimizer, ROLES[self.class_name()]
        found = [OrderedDict() for _ in self.variables]
        if self.api == "get_updates":
            counters = (getattr(optimizer, "iterations", None), getattr(optimizer, "m_schedule", None))
            arrays = [each for each in optimizer.weights if not any(each is counter for counter in counters)]
            count = len(self.variables)
            for index, array in enumerate(arrays):
                role = roles[index // count][0]
                if role != "v_hat" or optimizer.amsgrad:
                    found[index % count][role] = self.value(array)
            return found
        for role, spellings in roles:
            for name in spellings.split():
                for index, variable in enumerate(self.variables):
                    if self.api == "optimizer_v2":
                        if name in optimizer.get_slot_names():
                            found[index][role] = self.value(optimizer.get_slot(variable, name))
                        continue
                    slots = getattr(optimizer, name, None)
                    if isinstance(slots, list) and slots:
                        if self.api == "keras3":
                            place = optimizer._get_variable_index(variable)
                        else:
                            place = optimizer._index_dict[optimizer._var_key(variable)]
                        found[index][role] = self.value(slots[place])
        return found

    def last_gradients(self):
        if self.recorded is not None:
            return [self.value(each) for each in self.recorded]
        return self.gradients

    def values(self):
        return [self.value(each) for each in self.variables]


class TrainWatch(object):
    """An optimizer of tf.train in a graph.

    Args:
        session: the session.
        optimizer: the optimizer, after `apply_gradients`.
        pairs: what its `compute_gradients` returned, without variables that have no gradient. Parts of a partitioned
            variable are one variable.
        arguments: those it was made with.
        class_name: the optimizer's class.
        counted: whether a global_step counts its steps; None if the file has no count at all.
    """

    api = "tf_train"

    def __init__(self, session, optimizer, pairs, arguments, class_name, counted):
        self.session, self.optimizer, self.given = session, optimizer, arguments
        self.count, self.gradients, self.named = 0, None, class_name
        self.counted = counted or counted is False and hasattr(optimizer, "_get_beta_accumulators")  # Adam's powers
        self.wholes = OrderedDict()
        for grad, variable in pairs:
            info = variable._get_save_slice_info() if hasattr(variable, "_get_save_slice_info") else None
            name = info.full_name if info is not None else variable.op.name
            self.wholes.setdefault(name, []).append((grad, variable))
        self.grads = [grad for whole in self.wholes.values() for grad, _ in whole]

    def step(self, train, feed=None):
        """Makes a step and keeps its gradients, which are those that the step used."""
        self.gradients = self.session.run([self.grads, train], feed)[0]
        self.count += 1

    def class_name(self):
        return self.named

    def arguments(self):
        return self.given

    def updates(self):
        return self.count

    def is_counted(self):
        return self.counted

    def name(self, variable):
        return variable

    @property
    def variables(self):
        return list(self.wholes)

    def _joined(self, parts):
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def slots(self):
        found = []
        for whole in self.wholes.values():
            slots = OrderedDict()
            for role, spellings in ROLES[self.named.replace("Optimizer", "")]:
                for name in spellings.split():
                    if name in self.optimizer.get_slot_names():
                        parts = [self.optimizer.get_slot(variable, name) for _, variable in whole]
                        slots[role] = self._joined(self.session.run(parts))
            found.append(slots)
        return found

    def last_gradients(self):
        rest, joined = list(self.gradients), []
        for whole in self.wholes.values():
            joined.append(self._joined([numeric(rest.pop(0)) for _ in whole]))
        return joined

    def values(self):
        return [self._joined(self.session.run([variable for _, variable in whole])) for whole in self.wholes.values()]


# Where a file has an array


def arrays_in(path):
    """Returns {bits of a float32 array: [its names in the file]}. `path` is what a person gives to a reader."""
    found = {}

    def add(name, array):
        if array.dtype.kind == "f" and array.size:
            found.setdefault(np.float32(array).tobytes() + repr(array.shape).encode(), []).append(str(name))

    def add_hdf5(file):
        file.visititems(lambda name, item: add(name, np.asarray(item)) if hasattr(item, "dtype") else None)

    if not os.path.isdir(path) and os.path.isfile(path):
        with io.open(path, "rb") as file:
            start = file.read(4)
        if start == b"\x89HDF":
            import h5py

            with h5py.File(path, "r") as file:
                add_hdf5(file)
            return found
        if start == b"PK\x03\x04":
            import h5py

            with zipfile.ZipFile(path) as archive, tempfile.NamedTemporaryFile() as unpacked:
                unpacked.write(archive.read("model.weights.h5"))
                unpacked.flush()
                with h5py.File(unpacked.name, "r") as file:
                    add_hdf5(file)
            return found
    import tensorflow

    if os.path.isdir(path):
        path = os.path.join(path, "variables", "variables")
    compat = getattr(getattr(tensorflow, "compat", None), "v1", tensorflow)
    reader = getattr(tensorflow.train, "NewCheckpointReader", None) or compat.train.NewCheckpointReader
    reader = reader(path)
    for name in reader.get_variable_to_shape_map():
        array = reader.get_tensor(name)
        if hasattr(array, "dtype"):
            add(name, array)
    return found


def plain(value):
    """Returns a value as JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes) and not isinstance(value, str):
        return value.decode("utf-8")
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if hasattr(value, "numpy"):
        return plain(value.numpy())
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


class Case(object):
    """One file: its folder, what is said of it, and its truth.

    Args:
        out: the folder of all files.
        name: the name of the file's folder there.
        writer: {package: version}.
        kinds: rows of faults.md that it is of, such as "R1 R12".
    """

    def __init__(self, out, name, writer, kinds):
        self.name, self.folder = name, os.path.join(out, name)
        if not os.path.isdir(self.folder):
            os.makedirs(self.folder)
        self.writer = dict(writer, python=platform.python_version())
        self.facts = {"name": name, "kinds": kinds, "writer": self.writer}
        self.optimizers, self.arrays = [], []


    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, path, watches, save, step, how=(), notes="", named=None, **facts):
        """Saves, makes one more step, and writes the truth.

        Args:
            path: what a person gives to a reader, relative to the folder.
            watches: the watches of the optimizers in the file.
            save: a function that writes the file.
            step: a function that makes one more step of all optimizers.
            how: for each optimizer {argument of read_checkpoint: value}, where a file needs them; or one for all.
            notes: what is special about the file.
            named: {name of a variable: name in the file that nothing else tells}.
        """
        before = [(watch.updates(), watch.values(), watch.slots(), watch.arguments()) for watch in watches]
        save()
        places = arrays_in(self.path(path))
        step()
        hows = how if isinstance(how, list) else [how] * len(watches)
        for watch, (updates, values, slots, arguments), each in zip(watches, before, hows):
            variables = []
            if watch.is_counted() and "updates" in each:
                each = {key: each[key] for key in each if key != "updates"}
            after = zip(watch.variables, values, slots, watch.last_gradients(), watch.values())
            for variable, value, slot, gradient, moved in after:
                key = np.float32(value).tobytes() + repr(value.shape).encode()
                variables.append(OrderedDict([("name", watch.name(variable)), ("shape", list(value.shape)),
                                              ("places", sorted(places.get(key, []))), ("slots", list(slot))]))
                assert gradient.shape == value.shape == moved.shape, (watch.name(variable), gradient.shape)
                assert np.isfinite(moved).all(), watch.name(variable)
                assert not np.array_equal(moved, value), "the step did not move " + watch.name(variable)
                assert places.get(key) or "refused" in facts, "the file has not the weight " + watch.name(variable)
                self.arrays += [value] + list(slot.values()) + [gradient, moved]
            self.optimizers.append(OrderedDict([
                ("class", watch.class_name()), ("api", watch.api), ("arguments", plain(arguments)),
                ("updates", updates), ("counted", watch.is_counted()), ("how", plain(dict(each))),
                ("variables", variables)]))
        self.facts.update(facts, path=path, notes=notes, optimizers=self.optimizers)
        with open(self.path("truth.json"), "w") as file:
            json.dump(plain(self.facts), file, separators=(",", ":"), sort_keys=True)
        flat = np.concatenate([np.float32(each).ravel() for each in self.arrays]) if self.arrays else np.zeros(0)
        np.save(self.path("truth.npy"), np.float32(flat))
        for leftover in ("checkpoint",):
            if os.path.isfile(self.path(leftover)) and not facts.get("keeps_checkpoint"):
                os.remove(self.path(leftover))
        return self
