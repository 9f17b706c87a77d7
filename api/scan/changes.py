"""What a call computes differently, without an error, on a newer API: from the stock table."""
from __future__ import absolute_import, division, print_function

from everstep.compat.stock.lookup import entries_of
from everstep.optimizers.contract.declarations import REQUIRED

_ORDER = ("tf_train", "get_updates", "optimizer_v2", "update_step", "keras3")
# The versions of each API, as people know them.
APIS = {
    "get_updates": "Keras 2.0 to 2.3", "optimizer_v2": "tf.keras 1.14 to 2.10", "update_step": "tf.keras 2.11 to 2.15",
    "keras3": "Keras 3",
}
_SPARSE = {
    "exact": "all rows of a variable with a sparse gradient", "rows": "only the rows present of a sparse gradient",
    "variable_rows": "only the rows present of a sparse gradient, and the slots of all rows",
}


def changes(span, entry, given, sparse):
    """Returns texts of what differs in silence on each newer API.

    Args:
        span: the `Span` that the code works on now.
        entry: the `Stock` of the class there.
        given: the names of the arguments that are given.
        sparse: how sparse gradients are treated now; None if that is not known.
    """
    texts, given = [], list(given) + ["learning_rate"] * ("lr" in given)
    for target in _ORDER[_ORDER.index(span.target) + 1:]:
        other = next((each for each in entries_of(target) if each.definition is entry.definition), None)
        if other is None:
            continue
        differences = _differences(entry, other, given, sparse) + _ignored(target, given, entry)
        if differences:
            texts.append("{}: {}".format(APIS[target], "; ".join(differences)))
    if span.target == "get_updates" and span.product == "Keras" and "clipnorm" in given:
        texts.append("tf.keras and Keras 3: clipnorm bounds the norm of each gradient, here the norm of all of them "
                     "together")
    if span.product == "TF" and span.holds("2.0") and {"clipnorm", "clipvalue"}.intersection(given):
        texts.append("TF 2.0 and 2.1: fit and apply_gradients do not clip")
    return texts


def _differences(entry, other, given, sparse):
    mine, theirs = _forms(entry), _forms(other)
    given = {entry.names.get(name, name) for name in given}
    texts = []
    for name in sorted(set(mine) | set(theirs)):
        default = entry.definition.declarations[name].default
        before, after = mine.get(name, default), theirs.get(name, default)
        fixed = name in other.fixed or name in entry.fixed
        if name in given and not fixed or REQUIRED in (before, after) or not _differ(before, after):
            continue
        if name in given and name not in other.names.values():
            continue  # it is an argument here alone: an error there
        texts.append("{} is {!r}, here {!r}".format(name, after, before))
    now = other.sparse({"momentum": 0.5}) if sparse == "rows" and "momentum" in given else other.sparse({})
    if sparse is not None and now != sparse:
        texts.append("moves {}, here {}".format(_SPARSE[now], _SPARSE[sparse]))
    return texts


def _forms(entry):
    """Returns {option of the definition: value} of a stock class without arguments."""
    forms = {entry.names[theirs]: value for theirs, value in entry.defaults.items()}
    return dict(forms, **entry.fixed)


def _differ(before, after):
    return type(before) is not type(after) and not _numbers(before, after) or before != after


def _numbers(before, after):
    return all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in (before, after))


def _ignored(target, given, entry):
    texts = []
    if "lr" in given and target == "update_step":
        texts.append("lr= is ignored")
    if "decay" in given and "decay" not in entry.names and target == "keras3":
        texts.append("decay= is ignored, with a warning")
    return texts
