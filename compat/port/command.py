"""`everstep port`: ports an optimizer that is named on the command line, and writes files."""
from __future__ import absolute_import, division, print_function

import ast
import importlib
import io
import os
import sys

import numpy as np

from everstep.compat.port.entry import kind_of, port
from everstep.compat.port.originals import Original
from everstep.compat.port.setting import SEED, Setting, gradients
from everstep.errors import ConfigError, PortError
from everstep.optimizers.wrappers.loss_scale import LossScale

# {--api: targets}; the names of targets are taken too.
APIS = {"tf.train": ("tf_train",), "tf.keras": ("optimizer_v2", "update_step", "keras3", "get_updates"),
        "keras": ("get_updates", "keras3", "update_step", "optimizer_v2")}
TEST_STEPS = 10
_TEST = '''"""Trains {name} on every API that is installed, and as {original} was trained, on {versions}."""
import numpy as np
from everstep.testing import check_definition

from {module} import {name}

WEIGHTS = np.array({weights})  # of the original, after {steps} steps


def test_weights_are_those_of_the_original():
    random = np.random.RandomState({seed})
    start = random.uniform(0.5, 1.5, {shape}).astype(np.float32)
    random = np.random.RandomState({seed} + 1)
    gradients = [random.normal(size={shape}).astype(np.float32) for _ in range({steps})]
    known = [None] * ({steps} - 1) + [WEIGHTS]
    check_definition({name}, golden=[({{}}, start, gradients, known)], golden_tolerance=1e-5)
'''


def named(text):
    """Returns the class or function that `package.module:Name` names."""
    module, _, name = text.partition(":")
    if not name:
        raise ConfigError("name the optimizer as package.module:Class; got {!r}".format(text))
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError("{} cannot be imported: {}".format(text, error))
    finally:
        sys.path.remove(os.getcwd())
    return found


def arguments_of(texts):
    """Returns {name: value} of NAME=VALUE texts: Python literals, or else text."""
    arguments = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError("-a takes NAME=VALUE, such as learning_rate=0.01; got {!r}".format(text))
        try:
            arguments[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            arguments[name] = value
    return arguments


def run(text, api=None, given=(), sparse=None, output=None, test=False, progress=None):
    """Ports the optimizer that `text` names. Returns the Port, once files are written."""
    factory, arguments = named(text), arguments_of(given)
    for path in [output, test and output and path_of_test(output)]:
        if path and os.path.exists(path):
            raise ConfigError("{} exists; give another -o, or remove it".format(path))
    if test and not (output and os.path.basename(output).endswith(".py")):
        raise ConfigError("--test writes a test beside the rule: give -o NAME.py")
    if api is not None:
        expected = APIS.get(api, (api,))
        target = kind_of(factory, arguments).target
        if target not in expected:
            raise ConfigError("{} is an optimizer of {}, not of {}".format(text, target, api))
    made = port(factory, arguments, sparse, progress)
    if test and made.report.is_stock:
        raise PortError("everstep has this optimizer, which needs no test: {}".format(made.source.splitlines()[-1]))
    if test and isinstance(made.definition, LossScale):
        raise PortError("--test cannot scale a loss: port the optimizer inside, without its LossScaleOptimizer")
    if output:
        files = [(output, made.source)]
        if test:
            files.append((path_of_test(output), _test(made, factory, arguments, output)))
        for path, content in files:
            with io.open(path, "w", encoding="utf-8", newline="\n") as file:
                file.write(u"{}".format(content))
    return made


def path_of_test(output):
    folder, name = os.path.split(output)
    return os.path.join(folder, "test_" + name)


def _test(made, factory, arguments, output):
    """Returns the source of a test, with weights of the original."""
    kind = kind_of(factory, arguments)
    kind.order = made.report.order
    setting = Setting(dict(made.report.arguments))
    original = Original.of(kind, setting)
    original.start_running(made.report.counts_itself)
    for batch in gradients(setting, TEST_STEPS):
        original.step(batch)
    weights = np.round(original.weights()[0].astype(np.float64), 7).tolist()
    original.close()
    rows = "[\n{}\n]".format("\n".join("    {},".format(row) for row in weights))
    name = "definition" if made.report.is_wrapped else type(made.definition).__name__
    return _TEST.format(
        name=name, original=made.report.original, versions=made.report.versions,
        module=os.path.basename(output)[: -len(".py")], weights=rows, steps=TEST_STEPS, seed=SEED,
        shape=setting.shapes[0])
