"""Compares the stock table with the optimizer classes of the installed frameworks."""
from __future__ import absolute_import, division, print_function

import importlib
import os
import sys
import warnings
from collections import namedtuple

import numpy as np
import pytest

import harness
from everstep.compat.stock.of_torch import split
from everstep.errors import UnsupportedError
from everstep.optimizers.adam import Adam
from everstep.optimizers.contract.declarations import REQUIRED
from everstep.optimizers.contract.trees import flat
from harness import TARGETS, known_modules
from stock import FRAMEWORKS, STOCK, UNSUPPORTED, entry_of_class

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "make"))

import docstrings  # noqa: E402

# Base classes of the APIs, and placeholders for removed classes.
BASES = ("Optimizer", "OptimizerV1", "OptimizerV2", "BaseOptimizer", "KerasOptimizer", "TFOptimizerV1", "_OptimizerV2",
         "_BaseOptimizer", "TFOptimizer", "LegacyOptimizerWarning", "TorchOptimizer",
         "JaxOptimizer", "NumpyOptimizer", "TensorflowOptimizer", "TorchParallelOptimizer")
# Arguments that all classes of an API share, or that from_native reads, refuses or ignores.
SHARED = set(
    "use_locking name clipnorm clipvalue global_clipnorm weight_decay use_ema ema_momentum ema_overwrite_frequency "
    "jit_compile loss_scale_factor gradient_accumulation_steps gradient_aggregator gradient_transformers decay lr "
    "is_legacy_optimizer relative_step skip_list sign_decay_fn accum_name linear_name "
    "use_own_namescope_for_non_slot_vars global_step adaptive_epsilon schedule_decay mesh params foreach maximize "
    "capturable differentiable fused decoupled_weight_decay lr_decay".split()
)
UNUSED = {("SGD", "amsgrad")}  # TF 2.11 accepts and ignores it
# Defaults of single versions that differ from the table: (target, argument, prefix of the module, default).
OTHER_DEFAULTS = [
    ("get_updates", "epsilon", "tensorflow.python.keras._impl", 1e-8),  # the first tf.keras
    ("get_updates", "epsilon", "keras.optimizers", 1e-8),  # Keras 2.0
    ("optimizer_v2", "learning_rate", "tensorflow.python.keras.optimizer_v2.ftrl", REQUIRED),  # TF 1.14
]


def below(base):
    yield base
    for subclass in base.__subclasses__():
        for each in below(subclass):
            yield each


def stock_classes():
    """Returns {(target, name, module): class} of all optimizer classes that the frameworks here load or export."""
    bases = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("opt", "optimizer_v2", "mixed_precision", "bayesflow"):
            try:
                importlib.import_module("tensorflow.contrib." + name)
            except ImportError:
                pass  # before TF 1.4 and after 1.15
        for _, module in known_modules():
            holder = getattr(module, "optimizers", module)
            exported = [getattr(holder, each, None) for each in dir(holder)]
            exported = [each for each in exported if isinstance(each, type) and hasattr(each, "__subclasses__")]
            bases.extend(base for subclass in exported for base in subclass.__mro__ if base.__name__ in BASES)
            bases.extend(subclass for subclass in exported if any(target.speaks(subclass) for target in TARGETS))
    classes = {}
    for base in set(bases):
        for subclass in below(base):
            if subclass.__module__.split(".")[0] in FRAMEWORKS and subclass.__name__ not in BASES:
                target = next((target.name for target in TARGETS if target.speaks(subclass)), None)
                classes[target or "", subclass.__name__, subclass.__module__] = subclass
    return classes


CLASSES = stock_classes()


IN_TABLE, REFUSED = [], {}  # [(entry, class)], {class: why} of the classes above
for key in sorted(CLASSES):
    try:
        IN_TABLE.append((entry_of_class(CLASSES[key], key[0] or None), CLASSES[key]))
    except UnsupportedError as error:
        REFUSED[key] = str(error)


@pytest.mark.skipif(not CLASSES, reason="no framework is installed here")
def test_every_class_is_in_the_table_or_refused_with_a_reason():
    reason = "everstep has no definition for "
    assert [key for key in REFUSED if reason not in REFUSED[key]] == []


def test_a_class_that_is_not_in_the_table_is_found():
    optimizer_class = type(str("NewOptimizer"), (object,), {"__module__": "keras.src.optimizers.new"})
    with pytest.raises(UnsupportedError, match="NewOptimizer is not one of the stock optimizers"):
        entry_of_class(optimizer_class, "keras3")


def arguments_of(optimizer_class):
    """Returns {argument: default} from a constructor's signature, or None if the constructor is wrapped."""
    code, values = optimizer_class.__init__.__code__, optimizer_class.__init__.__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount]
    defaults = dict.fromkeys(names, REQUIRED)
    defaults.update(zip(reversed(names), reversed(values)))
    return defaults if {"learning_rate", "lr"}.intersection(defaults) else None


def ids(value):
    return getattr(value, "native", getattr(value, "__module__", None))


@pytest.mark.parametrize("entry, optimizer_class", IN_TABLE, ids=ids)
def test_defaults_are_those_of_the_class(entry, optimizer_class):
    """As in the constructor's signature, or in the config if Keras computes the default (`epsilon=None`)."""
    written = arguments_of(optimizer_class)
    if written is None:
        assert entry.target in ("get_updates", "update_step", "keras3", "optimizer_v2"), optimizer_class
        written = {}
    if entry.target == "torch_optim":
        written = split(written)
    else:
        written = {{"lr": "learning_rate"}.get(name, name): value for name, value in written.items()}
    unknown = {each for each in set(written) - set(entry.defaults) - SHARED if (entry.native, each) not in UNUSED}
    assert not unknown, "{} has arguments that the table has not: {}".format(optimizer_class, sorted(unknown))
    told = {}
    if entry.target != "tf_train":
        told = config_of(optimizer_class)
    for theirs, expected in entry.defaults.items():
        actual = told.get(theirs, written.get(theirs, expected))
        for target, argument, module, other in OTHER_DEFAULTS:
            known = (target, argument, actual) == (entry.target, theirs, other)
            if known and optimizer_class.__module__.startswith(module):
                expected = other
        if expected is REQUIRED:
            assert actual is REQUIRED
        elif theirs in entry.none and not actual:
            assert entry.none[theirs] == expected, theirs
        elif actual is not None:  # tf.train.FtrlOptimizer(beta=None)
            assert np.float32(actual) == np.float32(expected), theirs


def config_of(optimizer_class):
    """Returns the config of an optimizer made without arguments, with lr as learning_rate; {} if that fails."""
    keras = namedtuple("Keras", "backend")(getattr(sys.modules[optimizer_class.__module__], "K", None))
    if hasattr(keras.backend, "get_session"):
        harness.clear_session(keras)  # the current session may belong to another test's graph
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = optimizer_class().get_config()
        except TypeError:  # Ftrl of TF 1.14 needs a rate, and its get_config raises
            return {}
    return dict(config, **({"learning_rate": config["lr"]} if "lr" in config else {}))


def test_the_table_fits_the_definitions():
    """Arguments, options and slots of each entry exist in its definition, and no class has two entries."""
    seen = set()
    for entry in STOCK:
        assert (entry.target, entry.native) not in seen, entry
        seen.add((entry.target, entry.native))
        declared = entry.definition.declarations
        for ours in list(entry.names.values()) + list(entry.fixed):
            assert declared[ours].is_argument, (entry, ours)
        assert not set(entry.names.values()).intersection(entry.fixed), entry
        slots = {name for name, each in declared.items() if each.kind == "slot"}
        assert {slot.name for slot in entry.slots} <= slots, entry
        scalars = {name for name, each in declared.items() if each.kind == "scalar"}
        counters = {counter.name for counter in entry.head + entry.tail}
        assert counters <= scalars | {"updates", "learning_rate", "beta1_power", "beta2_power"}, entry
        required = [name for name, value in entry.defaults.items() if value is REQUIRED]
        needed = set(flat(entry.make(dict.fromkeys(required, 0.5)), "slot"))
        assert needed <= {slot.name for slot in entry.slots}, (entry, needed)
    assert not {entry.native for entry in STOCK}.intersection(UNSUPPORTED)


def test_the_docstrings_have_what_the_table_has():
    assert docstrings.stale() == {}, "run python tests/make/docstrings.py"


def test_a_docstring_that_is_old_is_found():
    rows = ["| stock | options |", "|-------|---------|", "| tf.train | epsilon=1 |", "| torch | the defaults |"]
    new = docstrings.renewed("".join("    {}\n".format(row) for row in rows), Adam)
    assert "epsilon=1 " not in new and "stock default: epsilon=1e-08" in new
    assert new.endswith("    | torch | the defaults |\n")
