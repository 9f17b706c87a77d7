"""`everstep.port` follows what an original asks about names, sizes, dtypes and indices, or refuses it."""
from __future__ import absolute_import, division, print_function

import os
import re

import numpy as np
import pytest

import asking
import harness
import test_port
from everstep.compat.port import sizes
from everstep.compat.port.contents import Contents
from everstep.compat.port.indexing import index_looks
from everstep.compat.port.looks import Look, Looks, Name
from everstep.compat.port.probing import MOST_TRACES, generated, pattern_of
from everstep.compat.port.setting import REAL
from everstep.errors import PortError

pytestmark = pytest.mark.shared
tf = test_port.tf


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
CASES = harness.each_in_turn(sorted(asking.QUESTIONS), sorted(APIS), each_of=3)


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


@pytest.mark.skipif("v2" not in APIS, reason="there is no OptimizerV2")
def test_a_loop_that_counts_variables_is_refused():
    base = APIS["v2"][1]
    inner = asking.made(asking.kernels, "v2", *APIS["v2"])

    class Fading(inner):
        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            pairs = [(0.5 * grad if place > 0 else grad, var) for place, (grad, var) in enumerate(grads_and_vars)]
            return super(Fading, self).apply_gradients(pairs, *args, **kwargs)

    assert issubclass(Fading, base)
    with pytest.raises(PortError, match="changes with the index of a variable .*place > 0 else grad"):
        test_port.ported(Fading)


@pytest.mark.skipif(not APIS, reason="there is no graph to read without TensorFlow")
def test_the_other_dtypes_of_a_port_are_the_originals():
    """On NumPy, float64 variables move half as far as float32 ones, as with the original."""
    api = sorted(APIS)[-1]
    definition = test_port.ported(asking.made(asking.of_floatx, api, *APIS[api])).definition
    moved = {}
    for dtype in ("float32", "float64"):
        weights = np.ones(2, dtype)
        definition.bind(np).apply_gradients([(np.ones(2, dtype), weights)])
        moved[dtype] = 1 - weights
    np.testing.assert_allclose(moved["float64"], moved["float32"] / 2, rtol=1e-6)


@pytest.mark.skipif("train" not in APIS, reason="there is no tf.train")
def test_a_division_by_the_norm_of_the_gradient_is_not_still():
    """A zero gradient gives nan. A division that a zero gradient does not reach leaves the variable as it is."""
    class Normed(APIS["train"][1]):
        def __init__(self, learning_rate=0.1, is_safe=False):
            super(Normed, self).__init__(False, "Normed")
            self._rate, self.is_safe = learning_rate, is_safe

        def _apply_dense(self, grad, var):
            norm = tf.sqrt(tf.reduce_sum(grad * grad))
            if self.is_safe:
                norm = tf.where(tf.equal(norm, 0.0), tf.ones_like(norm), norm)
            return var.assign_sub(self._rate * grad / norm)

        _resource_apply_dense = _apply_dense

    assert "zero_grad_is_noop" not in test_port.ported(Normed).source
    assert "zero_grad_is_noop = True" in test_port.ported(lambda: Normed(is_safe=True)).source


def test_index_looks():
    def picks(grads, slots):
        for place, grad in enumerate(grads):
            slots[place] = "m_{}".format(place) + str(place) + slots.get(place) + grad
        return [grads[place] for place in range(len(slots))]

    def decides(grads, slots):
        first = [grad for place, grad in enumerate(grads) if place == 0]
        for other in range(len(grads)):
            first.append(0.9 ** other)
        third = grads.index(slots)
        return first if third else grads.index(slots) > 2

    assert index_looks([picks.__code__]) == []
    found = index_looks([decides.__code__])
    start = decides.__code__.co_firstlineno
    assert [int(each.rpartition(":")[2]) - start for each in found] == [1, 3, 5]


@pytest.mark.parametrize("text, rule, number", [
    ("max(variable.shape)", lambda shape: max(shape) >= 128, 128),
    ("min(variable.shape)", lambda shape: min(shape) > 64, 64),
    ("variable.shape[0]", lambda shape: shape[0] > 1000, 1000),
    ("variable.shape[-1]", lambda shape: shape[1] >= 50, 50),
    ("np.prod(variable.shape)", lambda shape: shape[0] * shape[1] >= 1024, 1024),
])
def test_thresholds_of_sizes(text, rule, number):
    """One that explains all traces is found among those of three numbers, both sides of it are traced."""
    probed = {shape: rule(shape) for each in (number, 300) for shape in sizes.shapes_around(each)}
    threshold = sizes.found(sizes.thresholds([10, number, 300]), rule, probed)
    assert threshold.measure.text == text and len(probed) < 20
    measured = [threshold.measure.of(shape) for shape in probed]
    assert threshold.size in measured and threshold.size - 1 in measured
    assert all(threshold.holds(shape) for shape in threshold.shapes()[:4])
    assert not any(threshold.holds(shape) for shape in threshold.below())


def test_sizes_that_no_threshold_explains():
    probed = {shape: shape[0] == 128 for shape in sizes.shapes_around(128)}
    assert sizes.found(sizes.thresholds([128]), lambda shape: shape[0] == 128, probed) is None
