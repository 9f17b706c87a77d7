"""Reads the variables of a live stock optimizer, as if they were those of a file."""
from __future__ import absolute_import, division, print_function

import contextlib
import sys
from collections import OrderedDict

import numpy as np

from everstep.compat.backends.on_keras import KerasBackend
from everstep.compat.backends.on_tensorflow import TensorFlowBackend
from everstep.compat.checkpoints.claims import Claim, Request
from everstep.compat.checkpoints.identify import definition_of_stock
from everstep.compat.checkpoints.live import as_variables, is_ordered
from everstep.compat.checkpoints.reading import to_state
from everstep.compat.checkpoints.state import finished
from everstep.compat.engine.overwritten import has_stock_slots, is_overwritten
from everstep.compat.files.contents import Contents, Handle, Numbered, Weight, numbered
from everstep.compat.files.exact import bfloat16_to_float32
from everstep.compat.stock.entry import AROUND, own_count
from everstep.compat.stock.lookup import FRAMEWORKS, entry_for
from everstep.compat.stock.third_party import nested, other_entry, reader_of
from everstep.compat.targets.detect import TARGETS
from everstep.errors import StateError, UnsupportedError, VariableError
from everstep.optimizers.contract.checks import TEXT

# Methods in which a subclass would compute something else.
_RULES = ("update_step", "get_updates", "_resource_apply_dense", "_resource_apply_sparse", "_apply_dense", "build",
          "_create_slots", "_apply_sparse")


def api_of(optimizer):
    """Returns the API of an optimizer that everstep did not bind; None if it knows none."""
    return next((api for api in TARGETS if api.speaks(type(optimizer))), None)


def capture_stock(optimizer, variables, session=None, weights=False, scale=(), path=None, updates=None):
    """Does what `everstep.capture` does, for a stock optimizer. `scale` is as of `unwrapping.scale_variables`."""
    with open_stock(optimizer, variables, session) as stock:
        request = Request(definition=stock.definition, variables=stock.order, updates=updates)
        state, claim = to_state(stock.claim.contents, request, [stock.claim])
        if updates is not None and ("updates" in claim.values or claim.powers):
            raise StateError(own_count(type(optimizer).__name__))
        slots = OrderedDict((name, {} if is_overwritten(variable) else state.slots.get(name, {}))
                            for name, variable in stock.variables.items())
        values = OrderedDict((name, stock.claim.variables[name]) for name in stock.variables if weights)
        state.loss_scale = {name: stock.value(scale[name]) for name in scale} or None
        return finished(state.replace(slots=slots, variables=values, ordered=is_ordered(variables)), path)


def _definition(optimizer):
    """Returns the definition of a stock optimizer."""
    stock, api = type(optimizer), api_of(optimizer)
    of_another = reader_of(optimizer) is not None or other_entry(stock) is not None
    if stock.__module__.split(".")[0] in FRAMEWORKS or api.name == "tf_train" or of_another:
        return definition_of_stock(optimizer)
    base = next((each for each in stock.__mro__ if each.__module__.split(".")[0] in FRAMEWORKS), None)
    own = [name for each in stock.__mro__[: stock.__mro__.index(base)] for name in _RULES if name in vars(each)]
    if own or base.__name__ != stock.__name__:  # horovod.keras makes a subclass of the same name
        raise UnsupportedError(
            "{}.{} is no stock optimizer{}. Capture a stock optimizer, or one that bind(module) returned".format(
                stock.__module__, stock.__name__, ", it has its own " + own[0] if own else ""))
    return definition_of_stock({"class_name": base.__name__, "config": optimizer.get_config()}, api.name)


@contextlib.contextmanager
def open_stock(optimizer, variables, session):
    """Yields a `_Stock` with the optimizer's variables, with their graph as the default graph."""
    named, api = _named(variables), api_of(optimizer)
    if api.name == "keras3":
        import keras

        on_tensorflow = keras.backend.backend() == "tensorflow"
        if not on_tensorflow:
            yield _Stock(optimizer, _definition(optimizer), named, api.name, KerasBackend(keras, keras.Variable), None)
            return
    import tensorflow

    backend = TensorFlowBackend(tensorflow)
    variables = [_unwrap(variable) for variable in named.values()]
    with backend.inside(variables):
        session = backend.session_for(variables, session, lambda found: keras_session(optimizer, found))
        yield _Stock(optimizer, _definition(optimizer), named, api.name, backend, session)


def _unwrap(variable):
    """Returns the variable of TensorFlow in a variable of Keras 3."""
    return variable.value if hasattr(variable, "path") and hasattr(variable, "value") else variable


def keras_session(optimizer, variables):
    """Returns Keras's session, if Keras made all the variables; else None."""
    for base in type(optimizer).__mro__:
        module = sys.modules[base.__module__]
        keras = getattr(module, "K", None) or getattr(module, "backend", None)
        if hasattr(keras, "get_session"):
            known = getattr(keras, "_GRAPH_VARIABLES", {}).get(variables[0].graph)
            is_keras = known is None or set(map(id, known)).issuperset(map(id, variables))
            return keras.get_session() if is_keras else None
    return None


def names_of(variables):
    """Returns the names by which a list of variables is called: each once."""
    return numbered([getattr(each, "path", None) or str(getattr(each, "name", "")).split(":")[0] for each in variables])


def _named(variables):
    """Returns {name: variable}."""
    variables = as_variables(variables)
    if not isinstance(variables, dict):
        variables = OrderedDict(zip(names_of(variables), variables))
    for name, variable in variables.items():
        if not isinstance(name, TEXT):
            raise VariableError("variables are called by text; got {!r}".format(name))
        if not hasattr(variable, "shape") or not hasattr(variable, "dtype") or isinstance(variable, np.ndarray):
            raise VariableError("{!r} is no variable of one piece".format(variable))
    if len(set(map(id, variables.values()))) < len(variables):
        raise VariableError("a variable is given twice")
    return variables


class _Stock(object):
    """The variables of a stock optimizer, as `Contents` whose arrays have numbers as names, and a Claim on them.

    Attributes:
        claim: the Claim, whose `contents` are those of the live optimizer.
        definition: the definition that computes the same.
        variables: {name: variable}, as they were given.
        order: the names in the order of the slots, for APIs that keep them by position; else None.
        places: {name of an array: the variable that holds it}.
    """

    def __init__(self, stock, definition, variables, api, backend, session):
        self._stock, self.variables, self.places, self.order = stock, variables, {}, None
        self._backend, self._session, self.definition = backend, session, definition
        try:
            config = None if api == "tf_train" else stock.get_config()
        except AttributeError:  # Ftrl of TF 1.14
            config = {}
        named, entries, slots, values = self._handles(variables.values()), [], {}, {}
        self.path = "the live {}".format(type(stock).__name__)
        if api in ("tf_train", "optimizer_v2"):
            slots, values = self._read_named(entry_for(api, definition))
        else:
            self.order = list(variables) if api == "get_updates" else self._order_of_slots()
            weights = stock.weights if api == "get_updates" else stock._variables
            entries = [("", handle) for handle in self._handles(weights)]
            product = getattr(stock, "_u_product", None)  # of Nadam, which may keep it beside its variables
            if product is not None:
                values["_u_product"] = self._handles([product])[0]
        weights = [Weight(name, handle, True, ()) for name, handle in zip(variables, named)
                   if has_stock_slots(stock, variables[name])]
        contents = Contents(self.path, "live", weights=weights, optimizers=[Numbered("", entries)] if entries else ())
        self.claim = Claim(contents, api, type(stock).__name__, config, entries=entries, slots=slots, values=values,
                           variables=zip(variables, named))

    def value(self, variable):
        """Returns the number in a variable."""
        return float(self._backend.values([_unwrap(variable)], self._session)[0])

    def _handles(self, variables):
        """Returns handles of variables' values, read now and at once."""
        variables, handles = list(variables), []
        values = self._backend.values([_unwrap(variable) for variable in variables], self._session)
        for variable, value in zip(variables, map(bfloat16_to_float32, values)):
            name = str(len(self.places))
            self.places[name] = variable
            handles.append(Handle(name, value.shape, value.dtype, value.__getitem__))
        return handles

    def _read_named(self, entry):
        """Returns ({variable: {name: handle}}, {name: handle}), the slots and counters of an API that names them."""
        names = [slot.native for slot in entry.slots] + sorted(set(filter(None, AROUND.values())))
        slots, values, wanted = OrderedDict(), OrderedDict(), []  # wanted: [(dictionary, key for the handle, variable)]
        for name, variable in self.variables.items():
            for native in names:
                slot_variable = self._slot(variable, native)
                if slot_variable is not None:
                    wanted.append((slots.setdefault(name, OrderedDict()), native, slot_variable))
        for counter in entry.head:
            variable = self._counter(counter.native)
            if variable is not None:
                wanted.append((values, counter.native, variable))
        hypers = [item for each in nested(self._stock) for item in getattr(each, "_hyper", {}).items()]
        for name, hyper in hypers:
            if hasattr(hyper, "assign"):  # get_config of a graph gives the value in Keras's session
                wanted.append((values, name, hyper))
        global_step = self._backend.tf.train.get_global_step() if entry.target == "tf_train" else None
        own_step = getattr(self._stock, "_global_step", None)  # of AdagradDAOptimizer
        global_step = own_step if hasattr(own_step, "assign") else global_step
        if global_step is not None:
            wanted.append((values, "global_step", global_step))
        for (dictionary, key, _), handle in zip(wanted, self._handles(variable for _, _, variable in wanted)):
            dictionary[key] = handle
        if any(slot.always for slot in entry.slots) or slots:
            self._check_trained([name for name in self.variables if name not in slots])
        return slots, values

    def _slot(self, variable, name):
        for stock in nested(self._stock):
            try:
                slot = stock.get_slot(variable, name)
            except (AttributeError, KeyError):  # of an OptimizerV2, or contrib's MovingAverageOptimizer
                slot = None
            if slot is None and name == "average" and hasattr(stock, "_ema"):
                slot = stock._ema.average(variable)
            if slot is not None:
                return slot
        return None

    def _counter(self, name):
        if name == "iter":
            return self._stock.iterations
        rule = nested(self._stock)[-1]
        for attribute in ("_" + name, "_m_cache" if name == "momentum_cache" else "_" + name):
            if getattr(rule, attribute, None) is not None:
                return getattr(rule, attribute)
        find = getattr(rule, "_get_non_slot_variable", None)
        graph = None if self._backend.eager else self._backend.tf.get_default_graph()
        return find(name, graph=graph) if find else None

    def _order_of_slots(self):
        """Returns the names in the order in which the optimizer was built on the variables."""
        stock = self._stock
        indices = getattr(stock, "_trainable_variables_indices", None) or getattr(stock, "_index_dict", {})
        keys = {name: stock._var_key(variable) for name, variable in self.variables.items()}
        self._check_trained([name for name in self.variables if keys[name] not in indices])
        places = {name: indices[key] for name, key in keys.items()}
        if len(indices) != len(places):
            raise StateError("{} has slots of {} variables; {} are given: give all that it trains".format(
                self.path, len(indices), len(places)))
        updated = [name for name, variable in self.variables.items() if has_stock_slots(stock, variable)]
        return sorted(updated, key=lambda name: places[name])

    def _check_trained(self, missing):
        if missing:
            raise StateError("{} has no slots of {}: it has not trained {}".format(
                self.path, ", ".join(missing[:8]), "them" if len(missing) > 1 else "it"))
