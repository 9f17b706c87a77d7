"""`check_definition`: the tests that every definition of everstep passes, for a definition of yours."""
from __future__ import absolute_import, division, print_function

import contextlib
import inspect
import logging
import sys
import traceback
from collections import OrderedDict, namedtuple

import numpy as np

from everstep.compat.ways.known import all_ways
from everstep.errors import CheckError, DefinitionError
from everstep.optimizers.contract.definition import Definition
from everstep.testing import training
from everstep.testing.checks import CHECKS
from everstep.testing.training import BOUNDS, KINDS, SHAPES, START, STEPS, MovedTooLittle, Trial, of_variables

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

# label: the definition with its arguments; failure: text, None if it passed
Result = namedtuple("Result", "label way check distances failure")
SCALES = (1.0, 0.1, 0.01, 0.001)
RATES = (0.1, 1.0, 10.0, 100.0)
LOCATED = 4  # failures that are trained again, to find the step
COLUMNS = ("dense", "unique", "duplicates") + tuple(name for name in CHECKS if name != "gradients")


class Report(object):
    """What `check_definition` found.

    Attributes:
        results: [Result] of each check that was made.
        notes: texts about what could not be checked.
    """

    def __init__(self, results, notes):
        self.results, self.notes = results, notes

    @property
    def failures(self):
        return [result.failure for result in self.results if result.failure]

    def table(self):
        """Returns the largest differences as a table, with a row for each way."""
        cells = OrderedDict()
        for result in self.results:
            for column, far in result.distances.items():
                row = cells.setdefault(result.way, {})
                row[column] = max(far, row.get(column, 0.0))
        for result in self.results:
            if result.failure:
                for column in result.distances or [_column(result.check, "dense")]:
                    if not result.distances or result.distances[column] == max(result.distances.values()):
                        cells.setdefault(result.way, {})[column] = None
        columns = [name for name in COLUMNS if any(name in row for row in cells.values())]
        wide = max([len("way")] + [len(way) for way in cells])
        lines = ["  ".join(["{:{}}".format("way", wide)] + ["{:>7}".format(name) for name in columns])]
        for way, row in cells.items():
            texts = ["" if name not in row else "FAILED" if row[name] is None else "{:.0e}".format(row[name])
                     if row[name] else "same" for name in columns]
            texts = ["{:>{}}".format(text, max(7, len(name))) for text, name in zip(texts, columns)]
            lines.append("  ".join(["{:{}}".format(way, wide)] + texts))
        return "\n".join(line.rstrip() for line in lines)


def check_definition(definition_class, configurations=(), golden=(), golden_tolerance=1e-7, base=None, start=START,
                     shapes=None, steps=STEPS, targets=None, checks=None, every=False, echo=print, bounds=None):
    """Trains a definition on every API that is installed, and compares weights and slots with a float64 oracle.

    The oracle runs your rule too. It finds what an API does differently, not a rule that differs from its paper: a
    wrong bias correction is the same on every API. Golden numbers find that. Give some that your code did not compute.

    Args:
        definition_class: a subclass of `everstep.Definition`; or a definition, such as one in a wrapper, which is
            checked with its own arguments alone.
        configurations: [{argument: value}], to check besides the defaults. Boolean options are turned by themselves.
        golden: [(arguments, start value, gradients, expected values)]: one variable after each gradient, on NumPy in
            float64 (float32 if the start value is a float32 array). None for a value that is not known.
        golden_tolerance: how far these values may be off, relative to the largest of them or 1.
        base: {argument: value} for all runs. In `steps` steps every variable has to move by its own size; by default
            the learning rate is the first of 0.1, 1, 10 and 100 with which all do.
        start: the lowest and highest start value of variables.
        shapes: {name: shape}, to train other variables than those of `everstep.testing.SHAPES`; those called "unique"
            and "duplicates" get sparse gradients.
        steps: number of steps of a run.
        targets: names of targets or ways, such as ["keras3", "tf_train ref"]; by default all that are installed.
        checks: names out of `everstep.testing.CHECKS`; by default all.
        every: True to run every check in every mode and configuration. By default only the check "gradients" does so;
            the others run once on each target, in one of its modes and one configuration.
        echo: a function that prints the table; None to print nothing.
        bounds: {dtype: the largest difference that counts as rounding, relative to the largest value}, for "float32",
            "float64" and "float16". Default: 1e-5, 1e-6 and 2e-2. Rules that invert or factor matrices reach 3e-5 in
            float32.

    Returns:
        A `Report`.

    Raises:
        CheckError: a check failed. The message has a line for each, such as "on keras3 jax jit, rows: 3e-04 from step
            17 on, slot v of unique; rounding is at most 1e-05 (my_rule.py, line 21)", which is the line to look at.
        DefinitionError: there is no such check or target.

    >>> from everstep.optimizers import SGD
    >>> report = check_definition(SGD, checks=["config"], targets=["arrays"],
    ...                           golden=[({"learning_rate": 0.5}, 1.0, [1.0], [0.5])])
    way     config
    numpy     same
    2 checks passed
    """
    if isinstance(definition_class, Definition):
        definition_class = _Given(definition_class)
    ways = _chosen_ways(targets)
    chosen = _chosen_checks(checks)
    shapes = SHAPES if shapes is None else shapes
    settings = {"shapes": shapes, "kinds": {name: KINDS.get(name, "dense") for name in shapes}, "steps": steps,
                "between": start, "bounds": _checked_bounds(bounds)}
    results, definitions = [], []
    for arguments in training.configurations(definition_class, configurations):
        label = _label(definition_class, arguments)
        try:
            definition = _definition(definition_class, arguments, base, settings)
            is_given = isinstance(definition_class, _Given)
            definitions.append((label, definition, _near_enough(definition, settings) if is_given else settings))
        except Exception as error:  # what it is made of is the user's
            text = "{}: {}".format(label, _error_text(definition_class, error))
            results.append(Result(label, "construction", "config", {}, text))
    if definitions or not results:
        results += [check_golden(definition_class, golden_tolerance, *each) for each in golden]
    with _quiet_about("Gradients do not exist"):  # one variable has none on purpose
        for (label, definition, chosen_settings), way, name in _cases(definitions, ways, chosen, every):
            located = sum(1 for result in results if result.failure) < LOCATED
            result = _check(label, way, name, definition, chosen_settings, located)
            results += [result] if result else []
    report = Report(results, [] if golden else [
        "no golden numbers: a rule that differs from its paper is the same on every API, and passes"])
    _end(report, echo)
    return report


@contextlib.contextmanager
def _quiet_about(text):
    """Drops what TensorFlow logs with this text."""
    class Others(logging.Filter):
        def filter(self, record):
            return text not in record.getMessage()

    others, logger = Others(), logging.getLogger("tensorflow")
    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)


def _end(report, echo):
    if echo:
        echo(report.table())
        for note in report.notes:
            echo("note: " + note)
    if report.failures:
        raise CheckError("{} of {} checks failed:\n{}".format(
            len(report.failures), len(report.results), "\n".join("  " + text for text in report.failures)))
    if echo:
        echo("{} checks passed".format(len(report.results)))


def _cases(definitions, ways, checks, every):
    """Yields (one of the definitions, way, check)."""
    for definition in definitions:
        for way in ways:
            for name in checks:
                if every or name == "gradients":
                    yield definition, way, name
    grouped = OrderedDict()
    for way in ways:
        grouped.setdefault(way.target, []).append(way)
    turn = 0
    for group in grouped.values():
        for name in () if every or not definitions else checks:
            if name != "gradients":
                yield definitions[turn % len(definitions)], group[turn % len(group)], name
                turn += 1


def _check(label, way, name, definition, settings, located):
    """Returns the Result of one check, None if it does not apply."""
    where = "{} on {}, ".format(label, way.name)
    try:
        measured = CHECKS[name](way, definition, settings)
    except Exception as error:  # what frameworks raise of a rule
        return Result(label, way.name, name, {}, where + "{}: {}".format(name, _error_text(type(definition), error)))
    if measured is None:
        return None
    distances = OrderedDict()
    for variable, far in of_variables(measured.differences).items():
        column = _column(name, variable)
        distances[column] = max(far, distances.get(column, 0.0))
    if not distances:
        distances[_column(name, "dense")] = 0.0
    failure = None
    worst = max(measured.differences, key=lambda each: each.distance) if measured.differences else None
    if worst and not worst.distance <= measured.bound:
        column, part = _column(name, worst.variable), "slot " + worst.slot if worst.slot else "the variable"
        part += "" if column == worst.variable else " " + worst.variable if not worst.slot else " of " + worst.variable
        failure = "{}{}: {:.0e}{}, {}; {}{}".format(
            where, column.replace("_", " "), worst.distance, _since(measured) if located else "", part,
            "rounding is at most {:.0e}".format(measured.bound) if measured.bound else "it has to be the same",
            _line_of(type(definition.base), "fast_forward" if name == "fast_forward" else "update", worst.slot))
    return Result(label, way.name, name, distances, failure)


def _line_of(definition_class, verb, slot=None):
    """Returns " (file, line 7)" of what a rule returns for a slot, or for the variable; "" if it has no source."""
    try:
        function = getattr(definition_class, verb)
        path, (lines, first) = inspect.getsourcefile(function), inspect.getsourcelines(function)
    except (AttributeError, TypeError, IOError):
        return ""
    last = (slot or "").split("/")[-1]
    texts = ('"{}"'.format(last), last + " = ") if last else ()
    wanted = [place for place, line in enumerate(lines) if any(text in line for text in texts)]
    wanted = wanted or [place for place, line in enumerate(lines) if "return" in line] or [0]
    return " ({}, line {})".format(path, first + wanted[0 if slot else -1])


def _checked_bounds(bounds):
    for name, bound in sorted((bounds or {}).items()):
        if name not in BOUNDS or not isinstance(bound, float) or not 0 < bound < 1:
            raise DefinitionError("bounds are numbers between 0 and 1 for {}; got {}={!r}".format(
                ", ".join(sorted(BOUNDS)), name, bound))
    return bounds


def _since(measured):
    """Returns from which step on a trial differs, for a message."""
    if measured.trial is None or measured.trial.away:  # a look after each step would catch up
        return ""
    step = measured.trial.first_step(measured.bound)
    if step is None:
        return " once, and not when trained again (does the rule keep values outside of its slots?)"
    return " from step {} on".format(step)


def _column(check, variable):
    if check != "gradients":
        return check
    return variable if variable in ("unique", "duplicates") else "dense"


class _Given(object):
    """Makes copies of a definition, as a class makes its own."""

    declarations = {}  # type: dict[str, Any]

    def __init__(self, definition):
        self.definition, self.__name__ = definition, type(definition).__name__

    def takes(self, name):
        return False

    def __call__(self, **arguments):
        return self.definition.replace(**arguments) if arguments else self.definition


def _moves(definition, settings):
    """Returns whether each variable moves by its own size in half the steps, as many as accumulation has updates.

    True if the rule fails: the checks will say so.
    """
    try:
        Trial(None, definition, **dict(settings, steps=settings["steps"] // 2)).expected()
    except MovedTooLittle:
        return False
    except Exception:  # of the user's rule
        pass
    return True


def _near_enough(definition, settings):
    """Returns settings with start values so small that each variable of a `_Given` moves by its own size."""
    low, high = settings["between"]
    for scale in SCALES:
        scaled = dict(settings, between=(low * scale, high * scale))
        if _moves(definition, scaled):
            return scaled
    return settings


def _definition(definition_class, arguments, base, settings):
    """Returns a definition with these arguments, that moves variables by their own size if `base` is None."""
    if base is not None or not definition_class.takes("learning_rate") or "learning_rate" in arguments:
        return definition_class(**dict(base or {}, **arguments))
    for rate in RATES:
        definition = definition_class(**dict({"learning_rate": rate}, **arguments))
        if _moves(definition, settings):
            return definition
    return definition_class(**dict({"learning_rate": RATES[0]}, **arguments))


def check_golden(definition_class, tolerance, arguments, start, grads, expected):
    """Returns the Result of one row of golden numbers."""
    label, failure = _label(definition_class, arguments), None
    dtype = np.float32 if getattr(start, "dtype", None) == np.float32 else np.float64
    try:
        weights = np.array(start, dtype, ndmin=1)
        optimizer = training.bound(definition_class(**arguments), np)
        for step, (grad, value) in enumerate(zip(grads, expected), 1):
            with np.errstate(all="ignore"):
                optimizer.apply_gradients([(np.array(grad, dtype, ndmin=1), weights)])
            if value is not None and not np.abs(weights - value).max() <= tolerance * max(1, np.abs(value).max()):
                failure = "{} on numpy, golden numbers: {} after step {}, and {} expected{}".format(
                    label, weights.tolist() if weights.size > 1 else weights[0], step,
                    value.tolist() if hasattr(value, "tolist") else value, _line_of(definition_class, "update"))
                break
    except Exception as error:
        failure = "{} on numpy, golden numbers: {}".format(label, _error_text(definition_class, error))
    return Result(label, "numpy", "golden", {}, failure)


def _label(definition_class, arguments):
    return definition_class.__name__ + "".join(
        " {}={}".format(name, value) for name, value in sorted(arguments.items()))


def _error_text(definition_class, error):
    """Returns an error's class and message, and the line of the rule that it came from."""
    if isinstance(error, CheckError):
        return str(error)
    text = "{}: {}".format(type(error).__name__, str(error).strip().split("\n\n")[0])
    try:
        path = inspect.getsourcefile(definition_class)
    except TypeError:  # typed into an interpreter
        return text
    lines = [entry[1] for entry in traceback.extract_tb(sys.exc_info()[2]) if entry[0] == path]
    return "{} ({}, line {})".format(text, path, lines[-1]) if lines else text + _line_of(definition_class, "update")


def _chosen_ways(targets):
    ways = all_ways()
    if targets is None:
        return ways
    for name in targets:
        if name not in [way.name for way in ways] + [way.target for way in ways]:
            raise DefinitionError("there is no target or way {!r} here; there are {}".format(
                name, ", ".join(way.name for way in ways)))
    return [way for way in ways if way.name in targets or way.target in targets]


def _chosen_checks(checks):
    for name in checks or ():
        if name not in CHECKS:
            raise DefinitionError("there is no check {!r}; there are {}".format(name, ", ".join(CHECKS)))
    return [name for name in CHECKS if checks is None or name in checks]
