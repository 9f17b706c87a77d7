"""Every definition and wrapper in the modes in which people call `fit`, and saved, loaded and continued in them.

A run with jit_compile, run_eagerly or steps_per_execution equals the plain one; with mixed_float16 it stays near it. In
each mode a model that was saved half way and loaded ends as one that was not.
"""
from __future__ import absolute_import, division, print_function

import contextlib

import numpy as np
import pytest

import everstep
import harness
import keras_suite
import small_model
import test_battery as battery
import test_wrappers_battery as wrappers
from everstep.compat.targets import detect
from everstep.optimizers import SGD, Adam, ScheduleFreeAdamW

try:
    import tensorflow
except ImportError:  # Keras 3 on JAX or torch
    tensorflow = None

pytestmark = [
    # Of torch.compile, which uses its own deprecated functions.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    pytest.mark.filterwarnings("ignore:The dtype policy mixed_float16 may run slowly"),
    pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file"),
]
RANDOM = np.random.RandomState(0)
# Small, so that no gradient times the first loss scale, 2 ** 15, overflows in float16 and skips its step.
INPUTS, OUTPUTS = RANDOM.randn(12, 3).astype("float32") / 4, RANDOM.randn(12, 2).astype("float32") / 4
# {mode: arguments of compile}. Keras turns jit_compile on by itself on a GPU.
MODES = {"plain": {}, "jit_compile": {"jit_compile": True}, "run_eagerly": {"run_eagerly": True},
         "steps_per_execution": {"steps_per_execution": 3}, "mixed_float16": {}}


def kerases():
    """Yields (name, the package with its layers, the module to bind to, the modes that it has, the ending of files)."""
    for target, modules in sorted(keras_suite.available_modules().items()):
        for name, module in modules if target in ("optimizer_v2", "update_step", "keras3") else ():
            keras = keras_suite.package_of(name, module)
            if not harness.names_its_optimizers(module) or not hasattr(keras, "Sequential"):
                continue
            taken = harness.arguments_of(keras.Model.compile)
            if isinstance(getattr(keras.Model, "run_eagerly", None), property) and is_eager():
                taken.append("run_eagerly")  # TF 2.0 and 2.1 take it among others
            modes = [mode for mode, given in MODES.items() if mode != "plain" and set(given).issubset(taken)]
            # TF 2.11 cannot save its own LossScaleOptimizerV3.
            unsaved = target == "update_step" and tensorflow.__version__.startswith("2.11.")
            if keras.backend.backend() == "torch":
                modes.remove("steps_per_execution")  # Keras refuses it there
                if not harness.FULL:
                    modes.remove("jit_compile")  # 30 s; test_keras3_backends.py has a quick test of torch.compile
            if not hasattr(getattr(keras, "mixed_precision", None), "set_global_policy") or unsaved:
                modes.remove("mixed_float16")
            writes_keras = target == "keras3" or (
                target == "update_step" and not tensorflow.__version__.startswith("2.11."))
            yield name, keras, module, sorted(modes), ".keras" if writes_keras else ".h5"


def is_eager():
    return tensorflow is None or tensorflow.executing_eagerly()


# The battery's arguments drive these out of the numbers of float16.
SMALL = {"NovoGrad": {"learning_rate": 0.01}, "ConditionalGradient": {"learning_rate": 0.99, "lambda_": 0.1},
         "Muon": {"learning_rate": 0.2}}


def rules(mode):
    """Returns [(name, definition)]."""
    classes = battery.definition_classes()
    named = [(each.__name__, battery.define(each, SMALL.get(each.__name__, {}))) for each in classes]
    for name, make in sorted(wrappers.MADE.items()):
        if mode == "mixed_float16" and name.startswith("loss scale"):
            continue  # Keras scales the loss there, and twice is too much for float16
        named.append((name, make(SGD(0.05, momentum=0.5), "kernel")))
    # A random projection of rank 1 is near 0 for some gradients, and APOLLO divides by it: rounding grows to a step.
    return [(name, definition) for name, definition in named if definition.stages == 1 and name != "APOLLO"]


@contextlib.contextmanager
def in_mode(keras, mode):
    """Begins with a clear session, and ends with the policy of before."""
    keras.backend.clear_session()
    if mode != "mixed_float16":
        yield
        return
    precision = keras.mixed_precision
    before = (precision.global_policy if hasattr(precision, "global_policy") else precision.dtype_policy)()
    precision.set_global_policy("mixed_float16")
    try:
        yield
    finally:
        precision.set_global_policy(before)


def built(keras, optimizer, mode):
    # With names of its own: noise depends on the names of variables.
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="output")], name="model")
    random = np.random.RandomState(1)
    model.set_weights([random.randn(*weight.shape) * 0.5 for weight in model.get_weights()])
    model.compile(optimizer, "mse", **MODES[mode])
    return model


def fit(model):
    model.fit(INPUTS, OUTPUTS, batch_size=2, epochs=1, shuffle=False, verbose=0)
    return model.get_weights()


def trained(keras, module, definition, mode, path=None):
    """Returns (weights at the start, after two epochs). With a path the model is saved and loaded between the two."""
    with in_mode(keras, mode):
        model = built(keras, definition.bind(module), mode)
        start = model.get_weights()
        fit(model)
        if not path:
            return start, fit(model)
        small_model.save(model, path)
    with in_mode(keras, mode):  # which clears the session, so that variables get the same names again
        model = keras.models.load_model(path, custom_objects=everstep.custom_objects(module))
        model.compile(model.optimizer, "mse", **MODES[mode])
        return start, fit(model)


def cases(per_cell=2):
    """Returns this cell's cases: some of every rule in every mode of every Keras, in turn."""
    every = [(rule, mode, api) for api in kerases() for mode in api[3] for rule in rules(mode)]
    return every if harness.FULL else harness.share(every, max(1, len(every) // per_cell))


def always_fuses_amsgrad(api):
    """XLA has no such operation; stock's OptimizerV2, and so ours, always takes it, and raises."""
    return detect.find(api[2]).target.name == "optimizer_v2"


# Slots that start at the variable's value are the ones that XLA could not create, on Keras 3.
NOT_FOR_XLA = [("ScheduleFreeAdamW", ScheduleFreeAdamW(0.1)), ("Adam with amsgrad", Adam(0.1, amsgrad=True))]
NOT_FOR_XLA += [(name, wrappers.MADE[name](SGD(0.1), None)) for name in ("moving average", "lookahead")]
CASES = cases()
CASES += [(rule, "jit_compile", api) for rule in harness.share(NOT_FOR_XLA, 3) for api in kerases()
          if api[0] == "tensorflow.keras" and "jit_compile" in api[3] and not (
              rule[0] == "Adam with amsgrad" and always_fuses_amsgrad(api))]


@pytest.mark.parametrize("rule, mode, api", CASES, ids=["-".join((rule[0], mode, api[0])) for rule, mode, api in CASES])
def test_fit(rule, mode, api, tmpdir):
    (name, definition), (_, keras, module, _, suffix) = rule, api
    start, expected = trained(keras, module, definition, "plain")
    _, weights = trained(keras, module, definition, mode)
    assert keras_suite.difference(start, expected) > 1e-4
    scale = max(1.0, max(abs(value).max() for value in expected))
    far = keras_suite.difference(weights, expected) / scale
    print("FIT", name, mode, api[0], far)
    if (name, mode) != ("noise", "jit_compile"):  # XLA computes its sines of large numbers differently
        assert far <= (2e-3 if mode == "mixed_float16" else 1e-5)
    _, resumed = trained(keras, module, definition, mode, str(tmpdir.join("model" + suffix)))
    print("RESUMED", name, mode, api[0], keras_suite.difference(resumed, weights) / scale)
    if name != "noise" or suffix == ".h5":  # a function of the name, which Keras 3 changes in a model that it loads
        assert keras_suite.difference(resumed, weights) <= 1e-6 * scale


FUSING = [api for api in kerases() if "jit_compile" in api[3] and always_fuses_amsgrad(api)]


@pytest.mark.parametrize("api", FUSING, ids=[api[0] for api in FUSING])
def test_xla_refuses_amsgrad_of_optimizer_v2(api):
    _, keras, module, _, _ = api
    stock = getattr(module, "optimizers", module).Adam
    for optimizer in (Adam(0.1, amsgrad=True).bind(module), stock(0.1, amsgrad=True)):
        with in_mode(keras, "jit_compile"):
            model = built(keras, optimizer, "jit_compile")
            with pytest.raises(tensorflow.errors.InvalidArgumentError, match="ResourceApplyAdamWithAmsgrad"):
                fit(model)
