"""`fit` with jit_compile=True, on every Keras on TensorFlow that has it. Keras turns it on by itself on a GPU.

Compared with the same fit without XLA. The tests of Keras 3 on JAX are jitted anyway.
"""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import harness
import keras_suite
import test_battery as battery
import test_wrappers_battery as wrappers
from everstep.optimizers import SGD, ScheduleFreeAdamW

pytestmark = pytest.mark.shared
RANDOM = np.random.RandomState(0)
INPUTS, OUTPUTS = RANDOM.randn(12, 3).astype("float32"), RANDOM.randn(12, 2).astype("float32")


def kerases():
    """Returns [(name, the package with its layers, the module to bind to)]."""
    found = []
    for target, modules in sorted(keras_suite.available_modules().items()):
        for name, module in modules if target in ("optimizer_v2", "update_step", "keras3") else ():
            keras = keras_suite.package_of(name, module)
            on_tensorflow = target != "keras3" or keras.backend.backend() == "tensorflow"
            if on_tensorflow and "jit_compile" in harness.arguments_of(keras.Model.compile):
                found.append((name, keras, module))
    return found


def rules():
    named = [(each.__name__, battery.define(each, {})) for each in battery.definition_classes()]
    for name, make in sorted(wrappers.MADE.items()):
        named.append((name, make(SGD(0.05, momentum=0.5), lambda variable: len(variable.shape) == 2)))
    return [(name, definition) for name, definition in named if definition.stages == 1]


def fitted(keras, definition, module, jitted):
    if hasattr(keras, "utils") and hasattr(keras.utils, "clear_session"):
        keras.utils.clear_session()
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    random = np.random.RandomState(1)
    model.set_weights([random.randn(*weight.shape) * 0.5 for weight in model.get_weights()])
    start = model.get_weights()
    model.compile(definition.bind(module), "mse", jit_compile=jitted)
    model.fit(INPUTS, OUTPUTS, batch_size=2, epochs=2, shuffle=False, verbose=0)
    return start, model.get_weights()


# Slots that start at the variable's value are the ones that XLA could not create, on Keras 3.
FROM_VALUE = [("ScheduleFreeAdamW", ScheduleFreeAdamW(0.1))]
FROM_VALUE += [(name, wrappers.MADE[name](SGD(0.1), None)) for name in ("moving average", "lookahead")]
CASES = harness.rotate(rules(), kerases())
CASES += [(rule, each) for rule in harness.share(FROM_VALUE, 3) for each in kerases() if each[0] == "tensorflow.keras"]


@pytest.mark.parametrize("rule, api", CASES, ids=["{}-{}".format(rule[0], api[0]) for rule, api in CASES])
def test_fit_compiled_by_xla(rule, api):
    _, keras, module = api
    start, expected = fitted(keras, rule[1], module, False)
    _, compiled = fitted(keras, rule[1], module, True)
    assert keras_suite.difference(start, expected) > 1e-4
    scale = max(1.0, max(abs(value).max() for value in expected))
    bound = 1.0 if rule[0] == "noise" else 1e-5  # XLA computes its sines of large numbers differently
    assert keras_suite.difference(compiled, expected) <= bound * scale
