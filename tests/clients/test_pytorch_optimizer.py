"""pytorch-optimizer, prodigyopt and adam-mini (torch): rules that no TensorFlow or Keras ships, step by step.

All get the same gradients, in float64, on variables of several shapes. Ours run on Keras 3 with torch, and on NumPy.
"""
from __future__ import absolute_import, division, print_function

import functools
import importlib.metadata

import keras
import numpy as np
import pytest
import pytorch_optimizer as theirs
import torch
from adam_mini import Adam_mini
from compare import apart, shown
from prodigyopt import Prodigy as TheirProdigy
from pytorch_optimizer.optimizer.agc import agc
from pytorch_optimizer.optimizer.grokfast import gradfilter_ema
from pytorch_optimizer.optimizer.muon import base as muon_base

import everstep
from everstep.optimizers import (
    ADOPT,
    CAME,
    MARS,
    SGD,
    Adam,
    AdamMini,
    AdaMod,
    Adan,
    AdEMAMix,
    DAdaptAdam,
    Lion,
    Muon,
    Prodigy,
    SophiaH,
    Tiger,
)

STEPS = 100
SHAPES = {"bias": (4,), "conv": (3, 2, 2, 4), "kernel": (5, 4), "single": ()}
MODULES = {"Keras 3 on torch": keras, "NumPy": np}
SINGLE = 2e-6  # on torch, Keras 3.15 computes the mean of a float64 array, and its maximum with a number, in float32


def single(number):
    """Rounds a number to float32, as everstep keeps hypers."""
    return float(np.float32(number))


def start(shapes=None):
    random = np.random.RandomState(1)
    return {name: np.asarray(random.uniform(0.5, 1, shape)) for name, shape in sorted((shapes or SHAPES).items())}


def gradients(shapes=None):
    """Returns the gradients of each step. Their mean is not 0, so that variables move."""
    random = np.random.RandomState(2)
    shapes = shapes or SHAPES
    return [{name: np.asarray(random.normal(0.3, 1, shapes[name])) for name in sorted(shapes)} for _ in range(STEPS)]


def ours(definition, module, values=None, batches=None):
    """Returns the weights after each step. A batch is {name: gradient}, or a function of the weights."""
    values, optimizer = values or start(), definition.bind(module)
    if definition.stages > 1:
        everstep.enable_multistage(optimizer)
    if module is np:
        variables = {name: np.array(value) for name, value in values.items()}
    else:
        variables = {name: keras.Variable(value, dtype="float64", name=name) for name, value in values.items()}
    steps = []
    for batch in gradients() if batches is None else batches:
        now = {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}
        grads = batch(now) if callable(batch) else batch
        grads = {name: grad if module is np else torch.tensor(grad) for name, grad in grads.items()}
        optimizer.apply_gradients([(grads[name], variables[name]) for name in sorted(variables)])
        steps.append({name: np.array(keras.ops.convert_to_numpy(each)) for name, each in variables.items()})
    return steps


def reference(make, values=None, batches=None, change=None, names=False):
    """Returns the weights after each step of a torch optimizer.

    `change(parameters, step)` changes gradients before the step; it may return what replaces the step.
    """
    parameters = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in (values or start()).items()}
    optimizer = make(list(parameters.items()) if names else list(parameters.values()))
    steps = []
    for batch in gradients() if batches is None else batches:
        for name, grad in batch.items():
            parameters[name].grad = torch.tensor(grad)
        if change:
            change(parameters)
        optimizer.step()
        steps.append({name: each.detach().numpy().copy() for name, each in parameters.items()})
    return steps


def versions(package):
    return "{}, torch {}, Keras {}".format(importlib.metadata.version(package), torch.__version__, keras.__version__)


def tell(label, differences):
    """Prints a line of the table: the largest difference of any step, relative to the weights."""
    figures = ["{} {:.0e}".format(place, difference) for place, difference in sorted(differences.items())]
    print("after {} steps: {:<42} {}".format(STEPS, label, ", ".join(figures)))


def compare(label, wanted, definition, most=1e-11, on_keras=None, version="pytorch-optimizer"):
    """Asserts that all steps agree within `most`; on Keras within `on_keras`, if that is given."""
    differences = {}
    for place, module in sorted(MODULES.items()):
        differences[place] = max(apart(one, other) for one, other in zip(wanted, ours(definition, module)))
    tell(label, differences)
    for place, difference in differences.items():
        assert difference <= (most if MODULES[place] is np else on_keras or most), place
    shown(version, versions(version), label, STEPS, weights=max(differences.values()))


RATE, BETA_1, BETA_2, BETA_3, EPSILON, DECAY = map(single, (0.01, 0.9, 0.99, 0.95, 1e-3, 0.1))
BETAS = {"beta_1": BETA_1, "beta_2": BETA_2}
THREE = dict(BETAS, beta_3=BETA_3)
PLAIN = {"lr": RATE, "foreach": False}


def adopt(parameters, **more):
    """Their optimizer with the bound of the authors' code, which counts updates from 0."""
    return theirs.ADOPT(parameters, betas=(BETA_1, BETA_2), eps=EPSILON, clip_lambda=lambda step: (step - 1) ** 0.25,
                        **dict(PLAIN, **more))


def adamod(parameters, **more):
    return theirs.AdaMod(parameters, betas=(BETA_1, BETA_2, BETA_3), eps=EPSILON, **dict(PLAIN, **more))


def came(parameters, **more):
    return theirs.CAME(parameters, betas=(BETA_1, BETA_2, BETA_3), **dict(PLAIN, **more))


def d_adapt(parameters, **more):
    return theirs.DAdaptAdam(parameters, lr=1.0, betas=(BETA_1, BETA_2), d0=1e-3, eps=EPSILON,
                             **dict({"foreach": False}, **more))


def adan(parameters, **more):
    return theirs.Adan(parameters, betas=(BETA_1, BETA_2, BETA_3), eps=EPSILON, **dict(PLAIN, **more))


def ademamix(parameters, **more):
    return theirs.AdEMAMix(parameters, betas=(BETA_1, BETA_2, BETA_3), eps=EPSILON, **dict(PLAIN, **more))


class TheirMARS(theirs.MARS):
    """Their optimizer without the 1e-15 that it adds to the second moment: the authors' code adds nothing."""

    apply_ams_bound = staticmethod(functools.partial(theirs.MARS.apply_ams_bound, exp_avg_sq_eps=0.0))


def mars(parameters, **more):
    betas, gamma = (BETA_1, BETA_2), single(0.025)
    return TheirMARS(parameters, betas=betas, gamma=gamma, eps=0.0, optimize_1d=True, **dict(PLAIN, **more))


DECOUPLED = {"weight_decay": DECAY, "weight_decouple": True}
RULES = [
    ("Adan", adan, Adan(RATE, epsilon=EPSILON, **THREE)),
    ("Adan, proximal decay", lambda p: adan(p, weight_decay=DECAY), Adan(RATE, epsilon=EPSILON, weight_decay=DECAY,
     **THREE)),
    ("Adan, decoupled decay", lambda p: adan(p, **DECOUPLED),
     Adan(RATE, epsilon=EPSILON, weight_decay=DECAY, proximal=False, **THREE)),
    ("AdEMAMix", lambda p: ademamix(p, **DECOUPLED), AdEMAMix(RATE, epsilon=EPSILON, alpha=5.0, weight_decay=DECAY,
     **THREE)),
    ("AdEMAMix, warm-ups", lambda p: ademamix(p, t_alpha_beta3=60.0),
     AdEMAMix(RATE, epsilon=EPSILON, alpha=5.0, alpha_warmup=60, beta_3_warmup=60, **THREE)),
    ("Tiger", lambda p: theirs.Tiger(p, beta=BETA_3, weight_decay=DECAY, **PLAIN),
     Tiger(RATE, beta=BETA_3, weight_decay=DECAY)),
    ("ADOPT", adopt, ADOPT(RATE, epsilon=EPSILON, **BETAS)),
    ("AdaMod", adamod, AdaMod(RATE, epsilon=EPSILON, **THREE)),
    ("AdaMod, decay", lambda p: adamod(p, **DECOUPLED), AdaMod(RATE, epsilon=EPSILON, weight_decay=DECAY, **THREE)),
    ("CAME", came, CAME(RATE, epsilon_1=single(1e-30), epsilon_2=single(1e-16), **THREE)),
    ("CAME, decay", lambda p: came(p, **DECOUPLED),
     CAME(RATE, epsilon_1=single(1e-30), epsilon_2=single(1e-16), weight_decay=DECAY, **THREE)),
    ("D-Adapt Adam", d_adapt, DAdaptAdam(1.0, d0=1e-3, epsilon=EPSILON, **BETAS)),
    ("D-Adapt Adam, decay, corrected, growth_rate",
     lambda p: d_adapt(p, growth_rate=1.02, bias_correction=True, **DECOUPLED),
     DAdaptAdam(1.0, d0=1e-3, epsilon=EPSILON, growth_rate=1.02, bias_correction=True, weight_decay=DECAY, **BETAS)),
    ("MARS", mars, MARS(RATE, epsilon=0.0, **BETAS)),
    ("MARS, decay, amsgrad", lambda p: mars(p, weight_decay=DECAY, ams_bound=True),
     MARS(RATE, epsilon=0.0, weight_decay=DECAY, amsgrad=True, **BETAS)),
]  # fmt: skip


@pytest.mark.parametrize("label, make, definition", RULES, ids=[label for label, _, _ in RULES])
def test_rule(label, make, definition):
    single_on_keras = any(word in label for word in ("MARS", "warm", "CAME"))
    most = 1e-5 if "D-Adapt" in label else 1e-11  # its scalars are float32 here, as Prodigy's
    compare(label, reference(make), definition, most, on_keras=SINGLE if single_on_keras else None)


@pytest.mark.parametrize("noise", ["normal", "signs"])
@pytest.mark.parametrize("place", sorted(MODULES))
def test_sophia_h(place, noise):
    """The loss is quadratic. Their optimizer is given u * (H u), with the u that ours has drawn."""
    random, gamma = np.random.RandomState(4), single(0.5)
    curvatures = {name: np.asarray(random.uniform(0.1, 3, shape)) for name, shape in SHAPES.items()}
    batches = [batch for each in gradients() for batch in (each, each)]  # the same at both points

    def at(batch):
        return lambda now: {name: curvatures[name] * now[name] + batch[name] for name in now}

    settings = dict(BETAS, gamma=gamma, epsilon=EPSILON, weight_decay=DECAY, distance=0.125, noise=noise)
    steps = ours(SophiaH(RATE, **settings), MODULES[place], None, list(map(at, batches)))
    befores, probes = [start()] + steps[1:-1:2], steps[::2]
    parameters = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in start().items()}
    optimizer = theirs.SophiaH([parameters[name] for name in sorted(parameters)], lr=RATE / gamma,
                               betas=(BETA_1, BETA_2), weight_decay=DECAY * gamma, p=gamma, eps=EPSILON / gamma,
                               update_period=1, foreach=False)
    worst = 0.0
    for batch, before, probe, after in zip(gradients(), befores, probes, steps[1::2]):
        now = {name: parameter.detach().numpy().copy() for name, parameter in parameters.items()}
        for name, grad in at(batch)(now).items():
            parameters[name].grad = torch.tensor(grad)
        moved = {name: (probe[name] - before[name]) / 0.125 for name in sorted(SHAPES)}
        optimizer.step(hessian=[torch.tensor(moved[name] ** 2 * curvatures[name]) for name in sorted(SHAPES)])
        worst = max(worst, apart({name: each.detach().numpy() for name, each in parameters.items()}, after))
    tell("SophiaH, " + noise, {place: worst})
    assert worst <= (1e-11 if MODULES[place] is np else SINGLE)
    shown("pytorch-optimizer", versions("pytorch-optimizer"), "SophiaH, " + noise, STEPS, weights=worst)


PRODIGY = [
    ("Prodigy", {}, {}),
    ("Prodigy, decay, beta_3", {"weight_decay": DECAY, "beta3": 0.9, "d_coef": 2.0},
     {"weight_decay": DECAY, "beta_3": 0.9, "d_coef": 2.0}),
    ("Prodigy, growth_rate", {"growth_rate": 1.02}, {"growth_rate": 1.02}),
    ("Prodigy, corrected, safeguarded", {"use_bias_correction": True, "safeguard_warmup": True},
     {"bias_correction": True, "safeguard_warmup": True}),
]  # fmt: skip


@pytest.mark.parametrize("label, settings, our_settings", PRODIGY, ids=[label for label, _, _ in PRODIGY])
def test_prodigy(label, settings, our_settings):
    """Its scalars are float32 here, so that the estimates agree to seven digits."""

    def make(parameters):
        return TheirProdigy(parameters, lr=1.0, betas=(BETA_1, BETA_2), eps=EPSILON, d0=1e-3, **settings)

    definition = Prodigy(1.0, epsilon=EPSILON, d0=1e-3, **dict(BETAS, **our_settings))
    compare(label, reference(make), definition, 1e-5, version="prodigyopt")


def as_rows(kernel):
    """Returns a kernel of Keras as torch has it: one row for each output."""
    if kernel.ndim != 3:
        return np.ascontiguousarray(np.moveaxis(kernel, -1, 0)) if kernel.ndim > 1 else kernel
    return np.ascontiguousarray(kernel.transpose(1, 2, 0).reshape(-1, kernel.shape[0]))  # of MultiHeadAttention


MINI = {  # {their name: (shape, options of ours)}; embeddings have rows in torch too
    "mlp.weight": ((6, 4), {}),
    "embed.weight": ((6, 4), {"block": "row"}),
    "norm.weight": ((4,), {"block": "variable"}),
    "mlp.bias": ((4,), {}),
    "wq.weight": ((6, 2, 3), {"block": "head"}),
    "v_proj.weight": ((6, 2, 3), {"block": "column"}),
}


@pytest.mark.parametrize("name", sorted(MINI))
def test_adam_mini(name):
    shape, options = MINI[name]

    def rows(grad):
        return grad if name == "embed.weight" else as_rows(grad)

    def make(parameters):
        return Adam_mini(parameters, lr=RATE, betas=(BETA_1, BETA_2), eps=EPSILON, weight_decay=decay, dim=6, n_heads=2,
                         verbose=False)

    decay = 0.0 if name in ("norm.weight", "mlp.bias") else DECAY  # where its code has none
    values, batches = start({name: shape}), gradients({name: shape})
    moved = [{name: rows(value[name])} for value in [values] + batches]
    wanted = reference(make, moved[0], moved[1:], names=True)
    definition = AdamMini(RATE, epsilon=EPSILON, weight_decay=decay, **dict(BETAS, **options))
    differences = {}
    for place, module in sorted(MODULES.items()):
        steps = [{name: rows(step[name])} for step in ours(definition, module, values, batches)]
        difference = differences[place] = max(apart(one, other) for one, other in zip(wanted, steps))
        assert difference <= (1e-11 if module is np else SINGLE)
    tell("AdamMini, " + name, differences)
    shown("adam-mini", versions("adam-mini"), "AdamMini, " + name, STEPS, weights=difference)


MUON = [
    ("Muon, the authors' scale", {}, {"original_scale": True}),
    ("Muon, decay, the scale of Liu et al.", {"use_adjusted_lr": True, "weight_decay": DECAY}, {"weight_decay": DECAY}),
]  # fmt: skip


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)], ids=str)
@pytest.mark.parametrize("label, settings, options", MUON, ids=[label for label, _, _ in MUON])
def test_muon(label, settings, options, shape, monkeypatch):
    """Their optimizer computes in bfloat16; here it uses float64. It divides by the norm, ours by the norm + 1e-7."""
    precise = functools.partial(muon_base.zero_power_via_newton_schulz_5, dtype=torch.float64)
    monkeypatch.setattr(muon_base, "zero_power_via_newton_schulz_5", precise)

    def make(parameters):
        groups = [{"params": parameters, "use_muon": True}]
        return theirs.Muon(groups, lr=RATE, momentum=BETA_3, **dict({"foreach": False}, **settings))

    values, batches = start({"kernel": shape}), gradients({"kernel": shape})
    first, *others = [{"kernel": as_rows(each["kernel"])} for each in [values] + batches]
    wanted = reference(make, first, others)
    definition = Muon(RATE, momentum=BETA_3, **dict({"weight_decay": 0.0}, **options))
    differences = {}
    for place, module in sorted(MODULES.items()):
        steps = [{"kernel": as_rows(step["kernel"])} for step in ours(definition, module, values, batches)]
        differences[place] = max(apart(one, other) for one, other in zip(wanted, steps))
        assert differences[place] <= SINGLE
    label = "{}, {} x {}".format(label, *shape)
    tell(label, differences)
    shown("pytorch-optimizer", versions("pytorch-optimizer"), label, STEPS, weights=max(differences.values()))


# Wrappers


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=RATE, momentum=BETA_1)


def test_grokfast():
    averages = []

    def change(parameters):
        model = torch.nn.ParameterDict(parameters)
        averages.append(gradfilter_ema(model, averages[-1] if averages else None, alpha=BETA_3, lamb=2.0))

    definition = everstep.grokfast(SGD(RATE, momentum=BETA_1), average_decay=BETA_3, factor=2.0)
    compare("grokfast(SGD)", reference(sgd, change=change), definition)


def test_clip_by_units():
    def change(parameters):
        for parameter in parameters.values():
            axes = list(range(parameter.ndim))
            order = axes[-1:] + axes[:-1]  # outputs first
            clipped = agc(parameter.detach().permute(order), parameter.grad.permute(order), 1e-3, 0.1)
            parameter.grad = clipped.permute([order.index(axis) for axis in axes])

    definition = everstep.clip(SGD(RATE, momentum=BETA_1), unit_norm=0.1)
    compare("clip(SGD, unit_norm)", reference(sgd, change=change), definition, on_keras=SINGLE)


def autoclip(share, history):
    """Returns what changes gradients as the authors' code of AutoClip does: it keeps all norms."""

    def change(parameters):
        squares = [parameter.grad.double().square().sum() for parameter in parameters.values()]
        history.append(float(torch.stack(squares).sum().sqrt()))
        torch.nn.utils.clip_grad_norm_(parameters.values(), np.percentile(history, share))

    return change


def test_clip_by_percentile_in_its_first_steps():
    """The percentile is exact for the first five norms. Then our estimate differs from theirs by the printed figure."""
    wanted = reference(sgd, change=autoclip(30, []))
    definition = everstep.clip(SGD(RATE, momentum=BETA_1), percentile=30)
    steps = {place: ours(definition, module) for place, module in MODULES.items()}
    for place, each in steps.items():
        assert max(apart(one, other) for one, other in zip(wanted[:5], each)) <= 1e-6, place
        assert max(apart(one, other) for one, other in zip(steps["NumPy"], each)) <= 1e-6, place
    joined = [[np.concatenate([each[name].ravel() for name in sorted(SHAPES)]) for each in run] for run in (
        wanted, steps["NumPy"])]  # one weight alone may be near 0
    difference = max(apart([one], [other]) for one, other in zip(*joined))
    tell("clip(SGD, percentile=30), estimated", {"NumPy": difference})
    assert difference <= 0.02


@pytest.mark.parametrize("shape, is_determined", [((5, 4), True), ((20, 4), False)], ids=str)
def test_soap_is_not_determined(shape, is_determined):
    """Their SOAP has no unique result where gradients lack full rank: a rounding error in them changes its weights."""

    def train(error):
        noise, batches = np.random.RandomState(3), gradients({"kernel": shape})
        for batch in batches:
            batch["kernel"] *= 1 + error * noise.normal(size=shape)
        return reference(lambda p: theirs.SOAP(p, lr=RATE, betas=(BETA_1, BETA_2)), start({"kernel": shape}), batches)

    difference = max(apart(one, other) for one, other in zip(train(0.0), train(1e-14)))
    print("SOAP of pytorch-optimizer, {}, gradients 1e-14 apart: {:.0e}".format(shape, difference))
    assert difference <= 1e-12 if is_determined else difference >= 1e-3


@pytest.mark.parametrize("module", sorted(MODULES))
def test_cautious(module):
    """Their code multiplies by n / (count + 1), as the authors' did first; we use n / count, as the authors do now."""
    wanted = reference(lambda p: theirs.Lion(p, betas=(BETA_1, BETA_2), weight_decay=0.0, cautious=True, **PLAIN))
    steps = ours(everstep.cautious(Lion(RATE, **BETAS)), MODULES[module])
    before, their_before, worst = start(), start(), 0.0
    for step, their_step in zip(steps, wanted):
        for name in SHAPES:
            change, their_change = step[name] - before[name], their_step[name] - their_before[name]
            count = np.count_nonzero(np.abs(change) > 1e-12)
            worst = max(worst, np.abs(change * count / (count + 1) - their_change).max())
        before, their_before = step, their_step
    tell("cautious(Lion)", {module: worst})
    assert worst <= (1e-13 if MODULES[module] is np else SINGLE * RATE)


@pytest.mark.parametrize("adaptive", [False, True])
def test_sharpness_aware(adaptive):
    """The loss is a quadratic form, whose gradient is `matrix * weights`."""
    values, matrices = start(), start()
    parameters = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in values.items()}
    optimizer = theirs.SAM(list(parameters.values()), torch.optim.SGD, lr=RATE, momentum=BETA_1, rho=single(0.05),
                           adaptive=adaptive, foreach=False)

    def backward():
        for name, parameter in parameters.items():
            parameter.grad = parameter.detach() * torch.tensor(matrices[name])

    wanted = []
    for _ in range(STEPS):
        backward()
        optimizer.step(backward)
        wanted.append({name: each.detach().numpy().copy() for name, each in parameters.items()})
    definition = everstep.sharpness_aware(SGD(RATE, momentum=BETA_1), single(0.05), adaptive, eta=0.0)
    batches = [lambda now: {name: now[name] * matrices[name] for name in now}] * (2 * STEPS)
    differences, label = {}, "sharpness_aware(SGD, adaptive={})".format(adaptive)
    for place, module in sorted(MODULES.items()):
        steps = ours(definition, module, values, batches)[1::2]
        difference = differences[place] = max(apart(one, other) for one, other in zip(wanted, steps))
        assert difference <= 1e-6  # their norm, and our total, are float32
    tell(label, differences)
    shown("pytorch-optimizer", versions("pytorch-optimizer"), label, STEPS, weights=difference)


def test_the_inner_rule_is_that_of_torch():
    """The comparison itself: Adam of torch and ours."""
    wanted = reference(lambda p: torch.optim.Adam(p, RATE, (BETA_1, BETA_2), eps=0.0, foreach=False))
    compare("Adam", wanted, Adam(RATE, epsilon=0.0, **BETAS), version="torch")
