"""Finds the ways to train here. A way is one mode of one target: eager, in a function, in a session.

Each subclass of `Run` is one way; `all_ways()` lists those of this environment.
"""
from __future__ import absolute_import, division, print_function

from collections import namedtuple

from everstep.compat.targets import detect
from everstep.compat.ways.runs import (
    ArraysRun,
    EagerRun,
    FunctionRun,
    GetUpdatesRun,
    KerasFunctionRun,
    KerasJitRun,
    KerasRun,
    TrainRefRun,
    TrainResourceRun,
    V2SessionRun,
)
from everstep.errors import TargetError

# name: of the mode; target: of everstep; module: to bind to; world: the class of its World, made with the module;
# run: the class that trains; stock: the module or namespace of native classes; sparse: whether gradients may be sparse
Way = namedtuple("Way", "name target module world run stock sparse")
_ways = []  # type: list[Way]


def _way(name, api, run, stock, sparse=True):
    run = type(run.__name__, (run,), {"module": api.module})
    return Way(name, api.target.name, api.module, run.makes_world, run, stock, sparse)


def all_ways():
    """Returns every way of this environment once, the same objects at every call."""
    if not _ways:
        _ways.extend(_find_ways())
    return list(_ways)


def _find_ways():
    ways, bases = [], set()
    for name, module in detect.known_modules():
        if module is None:
            continue
        try:
            api = detect.find(module)
        except TargetError:
            continue
        if api.base in bases or api.target.name == "torch_optim":  # whose `bind` takes the parameters: see `torch_ways`
            continue
        bases.add(api.base)
        ways.extend(_ways_of_api(name, api))
    return ways


class ByGet(object):
    """The optimizers of a keras package that exports no classes, such as the one beside TF 2.5; `get` makes them."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        if hasattr(self._module, name):
            return getattr(self._module, name)
        try:
            return type(self._module.get(name.lower()))
        except ValueError:
            raise AttributeError(name)


def _ways_of_api(name, api):
    target, module = api.target.name, api.module
    if not api.adapter_class.holds_state:  # a way calls methods of an optimizer that has a state
        return []
    if target == "arrays":
        return [_way("numpy", api, ArraysRun, None)]
    stock = getattr(module, "optimizers", module)
    if hasattr(stock, "get") and not hasattr(stock, "Adam"):
        stock = ByGet(stock)
    if target == "keras3":
        return _ways_of_keras3(api, stock)
    import tensorflow as tf

    eager = getattr(tf, "executing_eagerly", lambda: False)()
    if target == "tf_train":
        ways = [
            _way("tf_train ref", api, TrainRefRun, module),
            _way("tf_train resource", api, TrainResourceRun, module),
        ]
        return ways + ([_way("tf_train eager", api, EagerRun, module)] if eager else [])
    if target == "optimizer_v2":
        ways = [_way("optimizer_v2 session", api, V2SessionRun, stock)]
        if eager:
            ways.append(_way("optimizer_v2 eager", api, EagerRun, stock))
            ways.append(_way("optimizer_v2 function", api, FunctionRun, stock))
        return ways
    if target == "update_step":
        return [
            _way("update_step eager", api, EagerRun, stock),
            _way("update_step function", api, FunctionRun, stock),
        ]
    return [_way("get_updates " + name.replace("tensorflow", "tf"), api, GetUpdatesRun, stock)]


def _ways_of_keras3(api, stock):
    import keras

    backend = keras.backend.backend()
    runs = [("eager", KerasRun)]
    runs += [("function", KerasFunctionRun)] if backend == "tensorflow" else []
    runs += [("jit", KerasJitRun)] if backend == "jax" else []
    return [_way("keras3 %s %s" % (backend, how), api, run, stock, backend == "tensorflow") for how, run in runs]


# The fastest first: eager mode is slow.
QUICK = (TrainResourceRun, FunctionRun, GetUpdatesRun, KerasJitRun, KerasFunctionRun, ArraysRun, V2SessionRun, KerasRun)


def quickest():
    """Returns the fastest way of each target."""
    fastest = {}
    for run in QUICK:
        for way in all_ways():
            if issubclass(way.run, run):
                fastest.setdefault(way.target, way)
    return [fastest[target] for target in sorted(fastest)]
