"""The stock table against the classes of the frameworks that are installed here."""
from __future__ import absolute_import, division, print_function

import importlib
import os
import sys
import warnings
from collections import namedtuple

import numpy as np
import pytest

import harness
from everstep.compat.stock.lookup import FRAMEWORKS, entry_of_class
from everstep.compat.stock.table import STOCK, UNSUPPORTED
from everstep.compat.targets.detect import TARGETS, known_modules
from everstep.errors import UnsupportedError
from everstep.optimizers.adam import Adam
from everstep.optimizers.contract.declarations import REQUIRED
from everstep.optimizers.contract.trees import flat

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "make"))

import docstrings  # noqa: E402

# What is no optimizer by itself: the base classes of the APIs, and what stands in for a class that is gone.
BASES = ("Optimizer", "OptimizerV1", "OptimizerV2", "BaseOptimizer", "KerasOptimizer", "TFOptimizerV1", "_OptimizerV2",
         "_BaseOptimizer", "TFOptimizer", "LegacyOptimizerWarning", "TorchOptimizer",
         "JaxOptimizer", "NumpyOptimizer", "TensorflowOptimizer", "TorchParallelOptimizer")
# Arguments that all classes of an API have, and that from_native reads, keeps out or has no use for.
SHARED = set(
    "use_locking name clipnorm clipvalue global_clipnorm weight_decay use_ema ema_momentum ema_overwrite_frequency "
    "jit_compile loss_scale_factor gradient_accumulation_steps gradient_aggregator gradient_transformers decay lr "
    "is_legacy_optimizer relative_step skip_list sign_decay_fn accum_name linear_name "
    "use_own_namescope_for_non_slot_vars adaptive_epsilon schedule_decay mesh".split()
)
UNUSED = {("SGD", "amsgrad")}  # TF 2.11 takes it and does nothing with it
# Defaults that a version has other than the table: (target, argument, how its modules are called, default).
OTHER_DEFAULTS = [
    ("get_updates", "epsilon", "tensorflow.python.keras._impl", 1e-8),  # the first tf.keras
    ("optimizer_v2", "learning_rate", "tensorflow.python.keras.optimizer_v2.ftrl", REQUIRED),  # TF 1.14
]


def below(base):
    yield base
    for made in base.__subclasses__():
        for each in below(made):
            yield each


def stock_classes():
    """{(target, name, module): class} of all optimizer classes that the frameworks here have loaded or export."""
    bases = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("tensorflow.contrib.opt", "tensorflow.contrib.optimizer_v2", "tensorflow.contrib.mixed_precision"):
            try:
                importlib.import_module(name)
            except ImportError:
                pass  # not before TF 1.4, nor after 1.15
        for _, module in known_modules():
            holder = getattr(module, "optimizers", module)
            exported = [getattr(holder, each, None) for each in dir(holder)]
            exported = [each for each in exported if isinstance(each, type) and hasattr(each, "__subclasses__")]
            bases.extend(base for made in exported for base in made.__mro__ if base.__name__ in BASES)
            bases.extend(made for made in exported if any(target.speaks(made) for target in TARGETS))
    found = {}
    for base in set(bases):
        for made in below(base):
            if made.__module__.split(".")[0] in FRAMEWORKS and made.__name__ not in BASES:
                target = next((target.name for target in TARGETS if target.speaks(made)), None)
                found[target or "", made.__name__, made.__module__] = made
    return found


CLASSES = stock_classes()


@pytest.mark.skipif(not CLASSES, reason="no framework is installed here")
def test_every_class_is_in_the_table_or_refused_with_a_reason():
    missing = []
    for (target, name, module), made in sorted(CLASSES.items()):
        try:
            entry_of_class(made, target or None)
        except UnsupportedError as error:
            if "is not one of those that definitions follow: " not in str(error):
                missing.append((target, name, module))
    assert not missing


def test_a_class_that_is_not_in_the_table_is_found():
    made = type(str("NewOptimizer"), (object,), {"__module__": "keras.src.optimizers.new"})
    with pytest.raises(UnsupportedError, match="NewOptimizer is not one of the stock optimizers"):
        entry_of_class(made, "keras3")


def in_table():
    """(entry, class) of those here that the table has."""
    for (target, _, _), made in sorted(CLASSES.items()):
        try:
            yield entry_of_class(made, target or None), made
        except UnsupportedError:
            pass


def arguments_of(made):
    """{argument: default} of a constructor as it is written; None where it is wrapped."""
    code, values = made.__init__.__code__, made.__init__.__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount]
    found = dict.fromkeys(names, REQUIRED)
    found.update(zip(reversed(names), reversed(values)))
    return found if {"learning_rate", "lr"}.intersection(found) else None


def ids(value):
    return getattr(value, "native", getattr(value, "__module__", None))


@pytest.mark.parametrize("entry, made", list(in_table()), ids=ids)
def test_defaults_are_those_of_the_class(entry, made):
    """As its constructor has them, and as it tells them where Keras works them out (`epsilon=None`)."""
    written = arguments_of(made)
    if written is None:
        assert entry.target in ("get_updates", "update_step", "keras3", "optimizer_v2"), made
        written = {}
    written = {{"lr": "learning_rate"}.get(name, name): value for name, value in written.items()}
    unknown = {each for each in set(written) - set(entry.defaults) - SHARED if (entry.native, each) not in UNUSED}
    assert not unknown, "{} has arguments that the table has not: {}".format(made, sorted(unknown))
    told = {}
    if entry.target != "tf_train":
        told = config_of(made)
    for theirs, wanted in entry.defaults.items():
        found = told.get(theirs, written.get(theirs, wanted))
        for target, argument, module, other in OTHER_DEFAULTS:
            if (target, argument, found) == (entry.target, theirs, other) and made.__module__.startswith(module):
                wanted = other
        if wanted is REQUIRED:
            assert found is REQUIRED
        elif found is not None:  # tf.train.FtrlOptimizer(beta=None)
            assert np.float32(found) == np.float32(wanted), theirs


def config_of(made):
    """The config of one that is made without arguments, with lr as learning_rate; {} where that is not possible."""
    keras = namedtuple("Keras", "backend")(getattr(sys.modules[made.__module__], "K", None))
    if hasattr(keras.backend, "get_session"):
        harness.start_anew(keras)  # else its session may be of another test's graph
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = made().get_config()
        except TypeError:  # Ftrl of TF 1.14 needs a rate, and its get_config calls what is not there
            return {}
    return dict(config, **({"learning_rate": config["lr"]} if "lr" in config else {}))


def test_the_table_fits_the_definitions():
    """Each argument and option is one of the definition, each slot on disk is one, and no entry stands twice."""
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
        made = entry.make(dict.fromkeys([name for name, value in entry.defaults.items() if value is REQUIRED], 0.5))
        needed = set(flat(made, "slot"))
        assert needed <= {slot.name for slot in entry.slots}, (entry, needed)
    assert not {entry.native for entry in STOCK}.intersection(UNSUPPORTED)


def test_the_docstrings_have_what_the_table_has():
    assert docstrings.stale() == {}, "run python tests/make/docstrings.py"


def test_a_docstring_that_is_old_is_found():
    rows = ["| stock | options |", "|-------|---------|", "| tf.train | epsilon=1 |", "| torch | the defaults |"]
    new = docstrings.renewed("".join("    {}\n".format(row) for row in rows), Adam)
    assert "epsilon=1 " not in new and "stock default: epsilon=1e-08" in new
    assert new.endswith("    | torch | the defaults |\n")
