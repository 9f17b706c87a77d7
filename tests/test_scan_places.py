"""What `everstep scan` says of versions holds in this one: which names exist, and which arguments each class takes."""
from __future__ import absolute_import, division, print_function

import importlib
import inspect
import warnings

import pytest

from everstep.compat.stock.lookup import entries_of
from everstep.scan.definitions import entry_of
from everstep.scan.places import MODULES, SCHEDULES, place_of
from everstep.scan.signatures import order, taking

PRODUCTS = {"TF": "tensorflow", "Keras": "keras", "tf_keras": "tf_keras"}
ELSEWHERE = ("tensorflow_addons.optimizers", "transformers")  # tests/clients has them
MODULES_HERE = [name for name in sorted(MODULES) if name not in ELSEWHERE]


def find(name):
    """Returns a module; None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def version(product):
    """Returns the installed version of a product, "major.minor"; None if it is not installed."""
    module = find(PRODUCTS[product])
    return ".".join(module.__version__.split(".")[:2]) if module is not None else None


def attribute(dotted):
    """Returns what a dotted name is; None if there is no such thing."""
    parts = dotted.split(".")
    if find(parts[0]) is None:
        return None
    held = importlib.import_module(parts[0])
    for part in parts[1:]:
        try:
            held = getattr(held, part)
        except (AttributeError, ImportError):
            return None
    return held


def names():
    """Returns the names of all stock classes."""
    targets = "tf_train", "get_updates", "optimizer_v2", "update_step", "keras3"
    return sorted(set(entry.native for target in targets for entry in entries_of(target)))


def claimed(module, name):
    """Returns the span that says that a name exists here; None if none does."""
    place = place_of(module + "." + name)
    if place is None:
        return None
    spans = [span for span in place.spans if span.holds(version(span.product))]
    return spans[0] if spans else None


def works(made):
    """Returns whether a class can be used: in Keras 3, those of `legacy` raise an error."""
    if made is None or not isinstance(made, type):
        return False
    try:
        made(learning_rate=0.1)
    except ImportError:
        return False
    except Exception:  # an argument is missing: it is a class
        return True
    return True


@pytest.mark.parametrize("module", MODULES_HERE)
def test_classes_exist_where_it_is_said(module):
    here = version(MODULES[module][0].product)
    if here is None or module == "tensorflow.keras.optimizers.experimental" and here in ("2.9", "2.10"):
        pytest.skip("{} is not here, or is another class that nothing is said of".format(module))
    if module == "keras.optimizers" and here in ("2.4", "2.5", "2.6", "2.7", "2.8"):
        pytest.skip("nothing is said of keras {}".format(here))
    newer = ("Lamb", "Muon", "ScheduleFreeAdamW")  # in tf.keras they depend on the Keras beside it
    wrong = [name for name in names() if name not in newer
             and works(attribute(module + "." + name)) != (claimed(module, name) is not None)]
    assert not wrong


@pytest.mark.parametrize("module", sorted(SCHEDULES))
def test_schedules_exist_where_it_is_said(module):
    here = version(SCHEDULES[module][0].product)
    if here is None or module.startswith("keras") and here < "2.13":
        pytest.skip("{} is not here, or nothing is said of it".format(module))
    wrong = [name for name in ("ExponentialDecay", "PolynomialDecay", "CosineDecay", "CosineDecayRestarts")
             if (attribute(module + "." + name) is not None) != (claimed(module, name) is not None)]
    assert not wrong


def positional(made):
    """Returns the names of a class's positional arguments."""
    read = getattr(inspect, "getfullargspec", None) or inspect.getargspec
    return tuple(read(made.__init__).args[1:])


@pytest.mark.parametrize("module", MODULES_HERE)
def test_the_order_of_arguments(module):
    wrong = []
    for name in names():
        span, made = claimed(module, name), attribute(module + "." + name)
        if span is None or made is None or not positional(made):  # some versions wrap the constructor
            continue
        said = order(span, name)
        theirs = tuple("lr" if each == "learning_rate" and span.target == "get_updates" else each
                       for each in positional(made))
        shorter = min(len(said), len(theirs))
        if said[:shorter] != theirs[:shorter]:
            wrong.append((name, said, theirs))
    assert not wrong


# Arguments, and the error that a class raises that does not take one.
VALUES = dict(
    lr=0.1, learning_rate=0.1, decay=1e-3, clipnorm=1.0, global_clipnorm=1.0, weight_decay=1e-3, use_ema=True,
    amsgrad=True, momentum=0.5, initial_accumulator_value=0.2, schedule_decay=0.01, centered=True, name="x",
    gradient_accumulation_steps=2, beta1=0.5,
)
# Accepted and then not used, which is said to be no way to work. (API, argument), or (class, argument) of TF 2.11
IGNORED = {("update_step", "lr"), ("keras3", "decay"), ("SGD", "amsgrad")}


def takes(made, argument, value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made(**{argument: value})
        except (TypeError, ValueError):
            return False
    return True


@pytest.mark.parametrize("module", [name for name in MODULES_HERE if name.endswith("optimizers")])
def test_arguments_are_taken_where_it_is_said(module):
    wrong = []
    for name in ("SGD", "RMSprop", "Adagrad", "Adam", "Nadam"):
        span, made = claimed(module, name), attribute(module + "." + name)
        if span is None or made is None:
            continue
        entry = entry_of(span, name)
        for argument, value in sorted(VALUES.items()):
            part = taking(span, entry, argument)
            said = part is not None and part.holds(version(span.product))
            taken = takes(made, argument, value)
            if said != taken and not IGNORED.intersection([(span.target, argument), (name, argument)]):
                wrong.append((name, argument, "said" if said else "taken"))
    assert not wrong

