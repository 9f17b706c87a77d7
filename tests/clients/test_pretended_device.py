"""Keras 3 with torch on a device that is not the CPU: numbers, launches, waits, and operations that mix devices.

The device is pretended: pretended_device.cpp, a page of C++ that is built here, keeps its memory in the host's. Counts
are those of torch's own operations, with its limits for lists of tensors; no time is measured.
"""
from __future__ import absolute_import, division, print_function

import collections
import os
import shutil
import sys
import types

import numpy as np
import pytest
import torch

if shutil.which("c++") is None:
    pytest.skip("no C++ compiler (c++) builds the device: https://docs.pytorch.org/docs/main/cpp_extension.html",
                allow_module_level=True)

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_flatten  # noqa: E402
from torch.utils.cpp_extension import load  # noqa: E402

NAME = "pretended"


def _device():
    """Builds the device."""
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # where ninja is
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pretended_device.cpp")
    load("pretended_device", [source], extra_cflags=["-O1"]).init()
    torch.utils.rename_privateuse1_backend(NAME)
    module = types.ModuleType("torch." + NAME)
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    torch._register_device_module(NAME, module)
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=False)


_device()
import keras  # noqa: E402

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from compare import shown  # noqa: E402

import everstep  # noqa: E402
import test_battery as battery  # noqa: E402
from everstep.optimizers import SGD, Adam, AdamW, Lion, RMSprop  # noqa: E402
from everstep.testing import oracle  # noqa: E402

# What launches nothing: views, and memory that is not computed.
_FREE = frozenset("""
    view detach as_strided alias slice expand split split_with_sizes t transpose permute unsqueeze squeeze _unsafe_view
    _reshape_alias select narrow empty empty_strided empty_like size stride unbind set_ resize_ new_empty
    new_empty_strided
""".split())
_MOST = (None, 110, 64, 48, 36, 30)  # tensors that one launch of torch takes, by how many lists it reads
_BLOCKS, _CHUNK = 320, 65536  # and blocks, of elements: aten/src/ATen/native/cuda/MultiTensorApply.cuh


def _launches(lists):
    """Returns how many launches torch divides a call on lists of tensors into."""
    most, launches, blocks, tensors = _MOST[min(5, len(lists))], 0, 0, 0
    for tensor in lists[0]:
        left, tensors = -(-tensor.numel() // _CHUNK), tensors + 1
        while left:
            taken = min(_BLOCKS - blocks, left)
            blocks, left = blocks + taken, left - taken
            if blocks == _BLOCKS:
                launches, blocks, tensors = launches + 1, 0, 1 if left else 0
        if tensors == most:
            launches, blocks, tensors = launches + 1, 0, 0
    return launches + (blocks > 0)


class Counts(TorchDispatchMode):
    """Counts the launches on the device, the waits for it, and the operations that mix it with the processor."""

    def __init__(self):
        super(Counts, self).__init__()
        self.launches, self.waits, self.mixed = 0, 0, collections.Counter()

    @property
    def is_clean(self):
        """Whether something ran on the device, and nothing mixed it with the processor."""
        return self.launches > 0 and not self.mixed

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, out = func._schema.name.split("::")[1], func(*args, **(kwargs or {}))
        given = [each for each in tree_flatten((args, kwargs or {}))[0] if isinstance(each, torch.Tensor)]
        made = [each for each in tree_flatten(out)[0] if isinstance(each, torch.Tensor)]
        here = [each for each in given if each.device.type == "cpu"]
        if not any(each.device.type == NAME for each in given + made):
            return out
        if name == "_local_scalar_dense":
            self.waits += 1
        elif name in ("copy_", "_to_copy", "_copy_from") and here or name == "lift_fresh":
            pass  # copies to the device, which nobody waits for
        elif name in ("copy_", "_to_copy", "_copy_from") and made[0].device.type == "cpu":
            self.waits += 1
        elif name not in _FREE:
            if any(each.dim() for each in here) or here and name.rstrip("_") in ("addcmul", "addcdiv", "pow", "where"):
                self.mixed[name] += 1
            self.launches += self._of(name, args, out)
        return out

    @staticmethod
    def _of(name, args, out):
        if name.startswith(("_foreach", "_fused")):
            lists = [each for each in args if isinstance(each, (list, tuple)) and each and torch.is_tensor(each[0])]
            lists = lists[:4] if name.startswith("_fused") else lists
            return _launches(lists + [out] if isinstance(out, (list, tuple)) else lists) + (name == "_foreach_norm")
        return -(-len(args[0]) // 128) if name == "cat" else 1


SHAPES = dict({"w%d" % number: (3, number % 5 + 1) for number in range(6)}, large=(300, 110), single=(), vector=(7,))


def starts():
    random = np.random.RandomState(0)
    return {name: random.normal(1, 0.5, shape).astype("float32") for name, shape in sorted(SHAPES.items())}


def gradients(steps):
    random = np.random.RandomState(1)
    return [{name: random.normal(0, 1, shape).astype("float32") for name, shape in sorted(SHAPES.items())}
            for _ in range(steps)]


def trained(definition, device=NAME, steps=4):
    """Returns ({name: value} after some steps, their `Counts`)."""
    start = starts()
    optimizer = definition.bind(keras)
    variables = [keras.Variable(value, name=name) for name, value in start.items()]
    optimizer.build(variables)
    counts = Counts()
    with torch.no_grad():
        for batch in gradients(steps):
            grads = [torch.tensor(batch[name], device=device) for name in start]
            with counts:
                optimizer.apply(grads, variables)
    return {name: keras.ops.convert_to_numpy(v.value) for name, v in zip(start, variables)}, counts


class Literals(everstep.Definition):
    """Numbers in sums, quotients and powers, on either side."""

    learning_rate = everstep.hyper(0.1)
    m = everstep.slot()

    def update(self, ops, grad, var, slots, hyper, t):
        m = 0.9 * slots.m + grad / 2
        share = ops.where(m > 0.1, 2 - m, m - 3) / 7 + ops.minimum(m, 1 / t) - 2.0 ** (-ops.square(m)) + m**2 / 9
        return hyper.learning_rate * (share + ops.clip(m, -0.5, 0.5)), {"m": m}


def _configured():
    for definition_class, settings in battery.CONFIGURED:
        if definition_class.stages > 1:
            continue  # tests/test_multistage.py takes their steps
        more = {"epsilon": 1e-3} if definition_class.takes("epsilon") else {}
        if definition_class.takes("beta"):  # Tiger's: halves are exact, so no sign depends on the order of operations
            more["beta"] = 0.5
        yield battery.define(definition_class, settings, **more)


INNER = Adam(0.1, epsilon=1e-3)
EACH = list(_configured()) + [
    Literals(), everstep.accumulate(Literals(), 3), everstep.clip(INNER, global_norm=1.0),
    everstep.clip(INNER, norm=1.0), everstep.moving_average(INNER), everstep.accumulate(INNER, 2),
    everstep.lookahead(INNER, 3), everstep.grokfast(INNER), everstep.decoupled_weight_decay(Lion(0.1), 0.1),
    everstep.centralize(INNER), everstep.stochastic_weight_averaging(SGD(0.1, momentum=0.9), 2, 2),
    everstep.master_copies(INNER),
]
DISTANCES = []


@pytest.fixture(autouse=True)
def _on_the_device():
    keras.utils.clear_session()
    with keras.device(NAME):
        assert keras.Variable(1.0).value.device.type == NAME
        yield


@pytest.mark.parametrize("definition", EACH, ids=lambda definition: definition._short())
def test_numbers_and_devices(definition):
    actual, counts = trained(definition)
    assert counts.is_clean, counts.mixed
    if definition.refresh_methods:  # eigenvectors of equal eigenvalues are not unique: those of the same library
        with keras.device("cpu"):
            expected, _ = trained(definition, "cpu")
    else:
        expected, _ = oracle.trajectory(definition, starts(), gradients(4))
    distance = max(oracle.distance(actual[name], expected[name]) for name in expected)
    DISTANCES.append(distance)
    assert distance <= 1e-5


@pytest.mark.parametrize("definition", EACH, ids=lambda definition: definition._short())
def test_numbers_and_devices_of_torch_optim(definition):
    params = [(name, torch.tensor(value, device=NAME, requires_grad=True)) for name, value in starts().items()]
    optimizer, counts = definition.bind(torch.optim, params=params), Counts()
    for batch in gradients(4):
        for name, param in params:
            param.grad = torch.tensor(batch[name], device=NAME)
        with counts:
            optimizer.step()
    assert counts.is_clean, counts.mixed
    if not definition.refresh_methods:  # see above
        expected, _ = oracle.trajectory(definition, starts(), gradients(4))
        assert max(oracle.distance(param.detach().cpu().numpy(), expected[name]) for name, param in params) <= 1e-5


def steps(make, shapes, dtype="float32", count=1):
    """Returns the `Counts` of some steps of an optimizer of Keras, once everything is planned."""
    optimizer = make()
    variables = [keras.Variable(np.ones(shape, "float32"), dtype=dtype, name="v%d" % place)
                 for place, shape in enumerate(shapes)]
    optimizer.build(variables)
    grads = [torch.ones(shape, device=NAME, dtype=getattr(torch, dtype)) for shape in shapes]
    counts = Counts()
    with torch.no_grad():
        for _ in range(8):
            optimizer.apply(grads, variables)
        with counts:
            for _ in range(count):
                optimizer.apply(grads, variables)
    return counts


def of_torch(make, shapes):
    """Returns the `Counts` of a step of an optimizer of torch."""
    tensors = [torch.ones(shape, device=NAME, requires_grad=True) for shape in shapes]
    for tensor in tensors:
        tensor.grad = torch.ones_like(tensor)
    optimizer = make(tensors)
    for _ in range(8):
        optimizer.step()
    with Counts() as counts:
        optimizer.step()
    return counts


STOCK = keras.optimizers
# {what: (ours, the same of Keras)}, and of torch's fused optimizers
BESIDE = {
    "Adam": (lambda: Adam().bind(keras), STOCK.Adam),
    "AdamW": (lambda: AdamW().bind(keras), STOCK.AdamW),
    "SGD": (lambda: SGD().bind(keras), STOCK.SGD),
    "momentum": (lambda: SGD(momentum=0.9).bind(keras), lambda: STOCK.SGD(momentum=0.9)),
    "RMSprop": (lambda: RMSprop().bind(keras), STOCK.RMSprop),
    "Lion": (lambda: Lion().bind(keras), STOCK.Lion),
    "clip, AdamW": (lambda: everstep.clip(AdamW(), global_norm=1.0).bind(keras),
                    lambda: STOCK.AdamW(global_clipnorm=1.0)),
    "accumulate": (lambda: everstep.accumulate(Adam(), 4).bind(keras),
                   lambda: STOCK.Adam(gradient_accumulation_steps=4)),
    "moving average": (lambda: everstep.moving_average(Adam()).bind(keras), lambda: STOCK.Adam(use_ema=True)),
}
FUSED = {
    "Adam": lambda tensors: torch.optim.Adam(tensors, fused=True),
    "AdamW": lambda tensors: torch.optim.AdamW(tensors, fused=True),
    "SGD": lambda tensors: torch.optim.SGD(tensors, 0.01, fused=True),
    "momentum": lambda tensors: torch.optim.SGD(tensors, 0.01, momentum=0.9, fused=True),
}
TRANSFORMER = [(512, 512)] * 24 + [(512, 2048), (2048, 512)] * 6 + [(512,)] * 100 + [(8000, 512)]
KINDS = {"10 of 1M": [(1000, 1000)] * 10, "300 of 1k": [(32, 32)] * 300, "a transformer": TRANSFORMER}
TABLE = {}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", sorted(BESIDE))
def test_counts_beside_stock(name, kind):
    """A step launches and waits no more often than stock Keras, and once more than torch's fused optimizers at most."""
    count = 4 if name == "accumulate" else 1
    ours, stock = (steps(make, KINDS[kind], count=count) for make in BESIDE[name])
    TABLE[name, kind] = ours.launches, stock.launches
    assert ours.is_clean, ours.mixed
    assert ours.launches <= stock.launches
    assert ours.waits <= stock.waits
    if name in FUSED:
        assert ours.launches <= of_torch(FUSED[name], KINDS[kind]).launches + 1


# {what: (ours, that of torch with foreach)}
BESIDE_TORCH = {
    "Adam": (Adam(corrected_root=True), torch.optim.Adam), "AdamW": (AdamW(corrected_root=True), torch.optim.AdamW),
    "SGD": (SGD(0.01), torch.optim.SGD),
    "momentum": (SGD(0.01, momentum=0.9, rate_in_velocity=False),
                 lambda tensors, **more: torch.optim.SGD(tensors, 0.01, 0.9, **more)),
    "RMSprop": (RMSprop(epsilon_in_root=False), torch.optim.RMSprop),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", sorted(BESIDE_TORCH))
def test_counts_beside_torch(name, kind):
    """Bound to torch.optim, a step launches as often as torch's own with foreach=True at most; RMSprop 1.5 times."""
    definition, stock = BESIDE_TORCH[name]
    ours = of_torch(lambda tensors: definition.bind(torch.optim, params=tensors), KINDS[kind])
    foreach = of_torch(lambda tensors: stock(tensors, foreach=True), KINDS[kind])
    TABLE["torch.optim " + name, kind] = ours.launches, foreach.launches
    assert ours.is_clean, ours.mixed
    assert ours.launches <= foreach.launches * (1.5 if name == "RMSprop" else 1) and ours.waits <= foreach.waits


@pytest.mark.parametrize("definition", [Adam(), Lion(), everstep.accumulate(Adam(), 2), everstep.master_copies(Adam())],
                         ids=lambda definition: definition._short())
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision(definition, dtype):
    assert steps(lambda: definition.bind(keras), [(5, 3), (3,)], dtype).is_clean


def test_a_rate_that_is_set_at_each_step_is_not_waited_for():
    optimizer, variable = AdamW().bind(keras), keras.Variable(np.ones(3, "float32"))
    optimizer.build([variable])
    for step in range(12):
        optimizer.learning_rate.assign(optimizer.learning_rate * 0.9)
        with torch.no_grad(), Counts() as counts:
            optimizer.apply([torch.ones(3, device=NAME)], [variable])
        assert step < 8 or not counts.waits


def test_what_was_counted():
    told = ", ".join("{} {}/{}".format(name, *TABLE[name, kind]) for name, kind in sorted(TABLE) if kind == "10 of 1M")
    shown("a pretended device", "torch " + torch.__version__, "{} rules; launches beside stock: {}".format(
        len(DISTANCES), told or "none"), 4, weights=max(DISTANCES or [0]))
