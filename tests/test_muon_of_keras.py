"""Keras's own tests of its Muon, from its wheel, with ours in place."""
from __future__ import absolute_import, division, print_function

import unittest
import warnings

import pytest

import everstep
import harness

try:
    import keras

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pytest does not know Keras's marks
        from keras.src.optimizers import muon_test
except ImportError:
    pytest.skip("only Keras 3.15 and newer have a Muon", allow_module_level=True)

from types import SimpleNamespace
from unittest import mock

from everstep.optimizers.contract import Variable

ITS = keras.optimizers.Muon
pytestmark = pytest.mark.filterwarnings("ignore:stock Keras 3 on TensorFlow applies equal rows:UserWarning")
NAMES = sorted(name for name in dir(muon_test.MuonTest) if name.startswith("test_") and name != "test_session")


class Ours(object):
    """A bound Muon, with the methods of Keras's that its tests call. Each runs steps, or the rule, of ours."""

    made = []  # type: list

    def __init__(self, **arguments):
        native = {name: arguments.pop(name) for name in ("clipnorm", "clipvalue") if name in arguments}
        self.definition = everstep.from_native(ITS(**arguments)).replace(dense_ok=True)
        self.bound, self.native = self.definition.bind(keras, **native), native
        self.made.append(self.bound)

    def __getattr__(self, name):
        return getattr(self.bound, name)

    def _without_decay(self, rate):
        definition = self.definition.replace(learning_rate=float(rate), weight_decay=0.0, adam_weight_decay=0.0)
        return definition.bind(keras)

    def update_step(self, grad, variable, rate):
        self._without_decay(rate).apply([grad], [variable])

    def _apply_weight_decay(self, variables):
        zeros = [keras.ops.convert_to_tensor(each) * 0 for each in variables]  # a zero gradient only decays
        self.bound.apply(zeros, variables)

    def _clip_gradients(self, grads):
        """Gradients by which a step of gradient descent, with the same keywords, moves variables."""
        variables = [keras.Variable(each * 0) for each in grads]
        everstep.optimizers.SGD(1.0).bind(keras, **self.native).apply(list(map(keras.ops.array, grads)), variables)
        return [-keras.ops.convert_to_numpy(each) for each in variables]

    def _should_use_adamw(self, variable):
        record = Variable(variable.path, tuple(variable.shape), "float32", 0, (), variable)
        return self.definition.specialize(record).uses_adam

    def zeropower_via_newtonschulz5(self, x, steps):
        """A step from 0, without momentum and scale."""
        rule = self.definition.replace(learning_rate=1.0, momentum=0.0, rms_rate=0.0, ns_steps=steps)
        variable = keras.Variable(keras.ops.zeros_like(x))
        rule.bind(keras).apply([x], [variable])
        return -keras.ops.convert_to_tensor(variable)

    def lr_adjust(self, x):
        """A step from 0 without momentum, whose orthogonal matrix is replaced by x."""
        rule = self.definition.replace(learning_rate=1.0, uses_adam=False, weight_decay=0.0, adam_weight_decay=0.0,
                                       momentum=0.0)
        hyper = SimpleNamespace(**{name: getattr(rule, name) for name in rule.argument_names()})
        slots = SimpleNamespace(m=x * 0)
        with mock.patch.object(type(rule), "_orthogonal", lambda self, ops, grad, shape: grad):
            return rule.update(SimpleNamespace(**harness.bound(self.bound).backend.ops), x, x * 0, slots, hyper, 1)[0]


@pytest.mark.parametrize("name", NAMES)
def test_its_own_test(name, monkeypatch):
    its_check = muon_test.MuonTest.run_class_serialization_test
    monkeypatch.setattr(muon_test.MuonTest, "run_class_serialization_test",
                        lambda self, instance: its_check(self, instance.bound))
    monkeypatch.setattr(muon_test, "Muon", Ours)
    its_compile = keras.Model.compile
    monkeypatch.setattr(keras.Model, "compile", lambda self, optimizer, **others: its_compile(
        self, getattr(optimizer, "bound", optimizer), **others))
    del Ours.made[:]
    result = unittest.TestResult()
    muon_test.MuonTest(name).run(result)
    assert result.wasSuccessful() and not result.skipped, (result.errors, result.failures, result.skipped)
    assert Ours.made and all(type(each.definition).__name__ == "Muon" for each in Ours.made)


def test_all_of_them():
    assert len(NAMES) >= 12 and {"test_Newton_Schulz", "test_should_use_adamw", "test_model_fit"} <= set(NAMES)


def test_a_wrong_rule_is_found(monkeypatch):
    """Its tests fail if the rule is another one."""
    monkeypatch.setattr(everstep.optimizers.Muon, "_orthogonal", lambda self, ops, x, shape: x)
    monkeypatch.setattr(muon_test, "Muon", Ours)
    result = unittest.TestResult()
    muon_test.MuonTest("test_Newton_Schulz").run(result)
    assert result.failures
