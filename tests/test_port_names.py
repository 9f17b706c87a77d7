"""`everstep.port` follows what an original asks about names, sizes, dtypes and indices, or refuses it."""
from __future__ import absolute_import, division, print_function

import os
import re

import numpy as np
import pytest

import asking
import test_port
from everstep.compat.port.contents import Contents
from everstep.compat.port.looks import Look, Looks, Name
from everstep.compat.port.probing import MOST_TRACES, generated, pattern_of
from everstep.compat.port.setting import REAL
from everstep.errors import PortError

pytestmark = pytest.mark.shared
tf = test_port.tf
FULL = os.environ.get("EVERSTEP_FULL") == "1"


def apis():
    """Returns {API: (module, class of optimizers)} of those installed."""
    if tf is None:
        return {}
    found, tf1 = {}, test_port.tf1
    if hasattr(tf1.train.Optimizer, "_create_non_slot_variable"):
        found["train"] = tf1, tf1.train.Optimizer
    if test_port.optimizer_v2() is not None:
        found["v2"] = tf, test_port.optimizer_v2()
    keras = test_port.sys.modules.get("keras")
    if keras is not None and tuple(map(int, keras.__version__.split(".")[:2])) < (2, 4) and not test_port.is_eager:
        found["get_updates"] = keras, keras.optimizers.Optimizer
    is_tensorflow = not hasattr(keras, "backend") or keras.backend.backend() == "tensorflow"
    if hasattr(getattr(getattr(tf.keras, "optimizers", None), "Adam", None), "update_step") and is_tensorflow:
        found["new"] = tf.keras, tf.keras.optimizers.Optimizer
    return found


APIS = apis()
CASES = [(name, api) for place, name in enumerate(sorted(asking.QUESTIONS)) for turn, api in enumerate(sorted(APIS))
         if FULL or turn == place % len(APIS)]


@pytest.mark.skipif(not APIS, reason="there is no graph to read without TensorFlow")
@pytest.mark.parametrize("name, api", CASES)
def test_questions_about_variables(name, api):
    ask = asking.QUESTIONS[name]
    becomes, texts = asking.ASKED[ask]
    cls = asking.made(ask, api, *APIS[api])
    if becomes == "refused":
        with pytest.raises(PortError) as raised:
            test_port.ported(cls)
        assert all(text in str(raised.value) for text in texts), raised.value
        return
    port = test_port.ported(cls)
    unverified = [text for text in port.report.unverified if "for bfloat16 variables" not in text]
    if becomes == "unverified":
        assert all(text in " ".join(unverified) for text in texts), unverified
        return
    assert all(text in port.source for text in texts) and not unverified, port.source
    assert ("def specialize" in port.source) == (becomes in ("pattern", "condition"))
    assert "{} variables of models".format(len(REAL)) in [each.what for each in port.report.comparisons]


@pytest.mark.skipif("train" not in APIS, reason="there is no tf.train")
def test_too_many_names_are_refused():
    names = ["layer_{}/kernel".format(place) for place in range(MOST_TRACES + 1)]

    def ask(self, var):
        return 0.5 if any(name in var.name for name in names) else 1.0

    with pytest.raises(PortError, match="asks too much .* after 32 traces .*test_port_names.py, line"):
        test_port.ported(asking.made(ask, "train", *APIS["train"]))


@pytest.mark.skipif("train" not in APIS, reason="there is no tf.train")
def test_a_use_that_is_not_followed_is_said():
    def ask(self, var):
        return re.search(r"(?<=\d)z", var.name) is None  # no text for it is found

    port = test_port.ported(asking.made(ask, "train", *APIS["train"]))
    (text,) = port.report.unverified
    assert "is not followed" in text and "re.search" in text and "test_port_names.py, line" in text
    assert "Not verified: " in port.source and "not verified: " in str(port.report)


@pytest.mark.skipif("train" not in APIS, reason="there is no tf.train")
def test_names_of_a_list_are_the_argument():
    """It exists for variables of a name alone, and so does its slot."""
    base = APIS["train"][1]

    class Partly(base):
        def __init__(self, learning_rate=0.1, smoothed=("kernel",)):
            super(Partly, self).__init__(False, "Partly")
            self._rate, self.smoothed = learning_rate, smoothed

        def _has(self, var):
            return any(part in var.name for part in self.smoothed)

        def _create_slots(self, var_list):
            for var in filter(self._has, var_list):
                self._zeros_slot(var, "m", self._name)

        def _apply_dense(self, grad, var):
            if not self._has(var):
                return var.assign_sub(self._rate * grad)
            m = self.get_slot(var, "m")
            return var.assign_sub(self._rate * m.assign(0.5 * m + grad))

        _resource_apply_dense = _apply_dense

    port = test_port.ported(Partly)
    assert 'smoothed = everstep.option(("kernel",))' in port.source and 'when="is_excluded"' in port.source
    weights = np.ones(2, np.float32)  # called array_0
    optimizer = port.definition.replace(smoothed=("array",)).bind(np)
    for _ in range(2):
        optimizer.apply_gradients([(np.ones(2, np.float32), weights)])
    np.testing.assert_allclose(weights, 1 - 0.1 - 0.15, rtol=1e-6)


@pytest.mark.skipif("v2" not in APIS, reason="there is no OptimizerV2")
def test_what_a_wrapper_asks_is_followed():
    """Lookahead that leaves biases out: no wrapper of everstep does that, and so both are one rule."""
    written = test_port.classes("v2")

    class Choosy(written["Periodic"]):
        def _resource_apply_dense(self, grad, var, apply_state=None):
            if "bias" in var.name:
                return self.inner._resource_apply_dense(grad, var, apply_state)
            return super(Choosy, self)._resource_apply_dense(grad, var, apply_state)

    port = test_port.wrapped(lambda: Choosy(written["Warmed"](0.02)))
    assert 'names = everstep.option(("bias",))' in port.source and "lookahead" not in port.source


@pytest.mark.parametrize("look, matching, others", [
    (("contains", "bias", False, ""), ["dense/bias_1"], ["kernel"]),
    (("contains", "norm", True, ""), ["LayerNorm/x"], ["kernel"]),
    (("starts", "emb", False, ""), ["embedding/w"], ["net/embedding"]),
    (("ends", "bias:0", False, ""), ["dense/bias"], ["bias/x", "bias_1"]),
    (("equals", "bias", False, "last"), ["dense/bias", "bias"], ["bias/x", "my_bias"]),
    (("equals", "bert", False, "first"), ["bert/x", "bert"], ["net/bert"]),
    (("match", "bert/.*bias:0$", False, ""), ["bert/x/bias"], ["net/bert/bias", "bert/bias/x"]),
    (("search", re.compile("NORM", re.I), False, ""), ["layer_norm"], ["kernel"]),
])
def test_looks_as_patterns(look, matching, others):
    pattern = pattern_of(Look(*look + ("here:1", False)))
    assert all(re.search(pattern, name) for name in matching)
    assert not any(re.search(pattern, name) for name in others)


def test_texts_that_a_pattern_matches():
    assert generated(r"layer_(\d+)/(gamma|beta)") == ["layer_3/beta", "layer_8/beta"]
    assert generated("a[x-z]{2}.?[^q]*b+") == ["axxxxb"] and generated(r"(?<=\d)z") == []


def test_names_tell_what_they_are_asked():
    looks = Looks()
    name = Name("net/layer_1/bias:0", looks)
    assert "bias" in name and not name.lower().startswith(("BERT", "x")) and name.split("/")[-1][:-2] == "bias"
    assert name.replace("net", "model").endswith("0") and {"net/layer_1/bias:0": 7}.get(name) == 7
    assert [look[:4] for look in looks.names] == [
        ("contains", "bias", False, ""), ("starts", "BERT", True, ""), ("starts", "x", True, ""),
        ("equals", "bias", False, "last"), ("ends", "0", False, ""), ("key", "", False, ""),
        ("equals", "net/layer_1/bias:0", False, "")]
    assert all(os.path.basename(__file__).rpartition(".")[0] in look.where for look in looks.names)


def test_contents_of_code():
    table, limit = {"of_closure": 0.5}, 4096

    class Written(object):
        def __init__(self):
            self.sizes = {"of_attribute": 77}

        def update(self, name):
            return table.get(name, 1) if name in ("of_tuple", "x") else self.sizes, limit, 321

    contents = Contents(Written(), {"rates": {"of_argument": 55}})
    assert {"of_closure", "of_attribute", "of_argument"} <= contents.keys
    assert {4096, 321, 55, 77} <= contents.numbers
    assert "of_tuple" in contents.keys_at(Written.update.__code__.co_filename, Written.update.__code__.co_firstlineno)
