"""Ports what a wrapper has inside, and finds the wrapper of everstep that computes the same around it."""
from __future__ import absolute_import, division, print_function

import itertools
import time

from everstep.compat.port.arguments import BESIDE, check_given, factory_of, given_and_defaults, is_number
from everstep.compat.port.comparing import Unread, check_close, compare, compare_real, is_close, sparse_mode
from everstep.compat.port.expression_of import expression_of
from everstep.compat.port.originals import Kind, Original, optimizers_in
from everstep.compat.port.porting import FEW_STEPS, STEPS, Porting
from everstep.compat.port.racing import settle
from everstep.compat.port.reading import built
from everstep.compat.port.report import Port, Report, original_name
from everstep.compat.port.setting import Setting
from everstep.compat.port.shapes import BASE, DEEP
from everstep.compat.port.spelling import declared_name
from everstep.compat.stock.from_native import from_native, wrapped_as
from everstep.compat.stock.lookup import FRAMEWORKS
from everstep.compat.stock.third_party import package_of, reader_of
from everstep.errors import EverstepError, PortError
from everstep.optimizers.wrappers.accumulate import accumulate
from everstep.optimizers.wrappers.centralize import centralize
from everstep.optimizers.wrappers.clip import clip
from everstep.optimizers.wrappers.decoupled_weight_decay import decoupled_weight_decay
from everstep.optimizers.wrappers.lookahead import lookahead
from everstep.optimizers.wrappers.loss_scale import LossScale, loss_scale
from everstep.optimizers.wrappers.moving_average import MovingAverage, moving_average
from everstep.optimizers.wrappers.stochastic_weight_averaging import (
    StochasticWeightAveraging,
    stochastic_weight_averaging,
)

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

SHAPES = ((BASE,), (BASE, (6,)), (DEEP,))
# Numbers with which every comparison clips, overwrites and accumulates, whatever the user's are.
LOW = {"clipnorm": 0.7, "clipvalue": 0.3, "global_clipnorm": 0.9, "ema_overwrite_frequency": 3,
       "gradient_accumulation_steps": 3}
SHORT = 7  # steps after which the averages of a candidate are compared, too
MOST_CANDIDATES = 150


def port_of(kind, arguments, sparse=None, steps=STEPS, progress=None):
    """Returns the Port of an optimizer that everstep does not know, or raises PortError."""
    if kind.target != "tf_train":
        beside = {name: arguments[name] for name in BESIDE if arguments.get(name)}
        arguments = {name: value for name, value in arguments.items() if name not in BESIDE}
        if any(name not in ("ema_momentum", "ema_overwrite_frequency") for name in beside):
            return _beside(kind, arguments, beside, sparse, steps, progress)
    for find in (_decoupled, _around):
        port = find(kind, arguments, sparse, steps, progress)
        if port is not None:
            return port
    return Porting(kind, arguments, sparse, steps, progress).port()


def _beside(kind, arguments, beside, sparse, steps, progress):
    """Ports an optimizer with arguments of every Keras, such as clipnorm. beside: {name: value} of those."""
    plain = port_of(kind, arguments, sparse, steps, progress)
    original = built(kind, Setting(dict(arguments, **beside)))
    if kind.target == "optimizer_v2" and not hasattr(original.optimizer, "_transform_gradients"):
        check_given(kind.cls, beside)  # before TF 2.4 apply_gradients does not clip, and nothing can be compared
    low = dict(beside, **{name: min(beside[name], LOW[name]) for name in LOW if name in beside})
    cases = [(dict(arguments, **given), lambda rule, given=given: wrapped_as(
        rule, given, original.optimizer, kind.target)) for given in ([beside] if low == beside else [beside, low])]
    return _Wrapping(kind, plain, cases, sparse, steps).port()


def _decoupled(kind, arguments, sparse, steps, progress):
    """Ports a class that a mixin of TensorFlow Addons or contrib gives weight decay; returns None for others."""
    classes = list(kind.cls.__mro__)
    names = [each.__name__ for each in classes]
    decay, exclude = arguments.get("weight_decay"), arguments.get("exclude_from_weight_decay")
    if "DecoupledWeightDecayExtension" not in names or kind.factory is not kind.cls or not is_number(decay):
        return None
    base = classes[names.index("DecoupledWeightDecayExtension") + 1]
    given = {name: value for name, value in arguments.items()
             if name not in ("weight_decay", "exclude_from_weight_decay")}
    try:
        inner_kind = Kind(base, given)
        if not exclude and _asks_itself(built(kind, Setting(arguments)), inner_kind, given):
            return None
        plain = stock_port(inner_kind, given, sparse) or port_of(inner_kind, given, sparse, steps, progress)
        cases = [(arguments, lambda rule: decoupled_weight_decay(rule, decay, times_rate=False, exclude=exclude))]
        return _Wrapping(kind, plain, cases, sparse, steps).port()
    except PortError:
        return None


def _around(kind, arguments, sparse, steps, progress):
    """Ports a wrapper around another optimizer; returns None if it is none, or one that everstep does not have."""
    try:
        original = Original.of(kind, Setting(arguments))
    except Exception:  # `port` raises the error later, with the reason
        return None
    inside = [(path, each) for path, each in optimizers_in(original.optimizer) if path]
    if len(set(id(each) for _, each in inside)) != 1:
        return None
    (path, inner), wrapper = inside[0], original.optimizer
    try:
        factory, given = factory_of(inner, {})
        Kind(factory, given)
    except Exception:  # Keras finds no session, or its config lacks something
        factory, given = (lambda **options: getattr(kind.make(options), path[:-1])), given_and_defaults(
            kind.factory, arguments)
    try:
        inner_kind = Kind(factory, given)
        settle(kind, arguments)
        inner_kind.order, inner_kind.order_note = kind.order, kind.order_note
        plain = stock_port(inner_kind, given, sparse) or port_of(inner_kind, given, sparse, steps, progress)
        wrap = _known(wrapper)
        if wrap is None and not _asks_itself(original, inner_kind, given):
            wrap = _by_trial(kind, arguments, wrapper, path, plain, steps)
        return None if wrap is None else _Wrapping(kind, plain, [(arguments, wrap)], sparse, steps).port()
    except EverstepError:
        return None


def _asks_itself(original, inner_kind, given):
    """Returns whether a wrapper asks for names or dtypes of variables, so that its rule has to be followed as one."""
    inner = built(inner_kind, Setting(given))
    places = [look.where for look in inner.looks.names] + inner.looks.dtypes
    inner.close()
    asked = [look.where for look in original.looks.names if look.kind not in ("key", "rank")] + original.looks.dtypes
    return any(place not in places for place in asked)


def _known(wrapper):
    """Returns a function of a definition that wraps it as an optimizer that everstep knows does; None for others."""
    if type(wrapper).__name__.startswith("LossScaleOptimizer") and package_of(type(wrapper)) in FRAMEWORKS:
        config = wrapper.get_config()
        growth = config.get("dynamic_growth_steps") if config.get("dynamic", True) else 0
        return lambda rule: loss_scale(rule, float(config["initial_scale"]), int(growth))
    reader = reader_of(wrapper)
    return None if reader is None else lambda rule: reader(wrapper, lambda *unused, **ignored: rule)


def _by_trial(kind, arguments, wrapper, path, plain, steps):
    """Returns the only wrapper that does what the original does; None if there is none, or more than one."""
    counts = plain.report.counts_itself
    long = _Recorded(kind, Setting(arguments), counts)
    short = _Recorded(kind, Setting(arguments, SHAPES[1]), counts)

    def is_same(definition):
        return all(is_close(compare("candidate", recorded.again(), definition, number))
                   for recorded, number in ((short, min(steps, SHORT)), (long, steps)))

    averages_only, matches = is_same(plain.definition), []
    for wrap in _candidates(wrapper, path, arguments, long):
        try:
            definition = wrap(plain.definition)
        except EverstepError:
            continue
        if averages_only and not isinstance(definition, (MovingAverage, StochasticWeightAveraging)):
            continue  # in so few steps neither this wrapper nor the original does anything
        if is_same(definition):
            matches.append(wrap)
    return matches[0] if len(matches) == 1 else None


def _candidates(wrapper, path, arguments, recorded):
    """Yields functions of a definition that return one in a wrapper."""
    numbers = [value for value in given_and_defaults(type(wrapper), arguments).values() if is_number(value)]
    numbers += [value for value in vars(wrapper).values() if is_number(value)]
    numbers += [recorded.number(native) for paths, native in held_by(recorded.original.found)
                if any(paths) and not any(name.startswith("." + path) for name in paths) and not tuple(native.shape)]
    numbers = sorted(set(float("{:.7g}".format(float(number))) for number in numbers))
    counts = [int(number) for number in numbers if number == int(number) and 1 <= number < 10000]
    shares, positive = [number for number in numbers if 0 < number < 1], [number for number in numbers if number > 0]
    makers = [(lambda rule, k, share: lookahead(rule, k, share), counts, shares)]  # type: list[Any]
    makers += [(lambda rule, k, how: accumulate(rule, k, how), [k for k in counts if k > 1], ("mean", "sum"))]
    makers += [(lambda rule, share, warm_up, start: moving_average(rule, share, warm_up, start),
                shares, ("none", "ramp", "zero_debias"), [0] + counts)]
    makers += [(lambda rule, start, period: stochastic_weight_averaging(rule, start, period), [0] + counts, counts)]
    makers += [(lambda rule, name, bound: clip(rule, **{name: bound}), ("norm", "global_norm", "value"), positive)]
    makers += [(lambda rule, decay, times: decoupled_weight_decay(rule, decay, times), positive, (True, False))]
    makers += [(lambda rule: centralize(rule),)]
    every = ((maker[0], values) for maker in makers for values in itertools.product(*maker[1:]))
    for maker, values in itertools.islice(every, MOST_CANDIDATES):
        yield lambda rule, maker=maker, values=values: maker(rule, *values)


def held_by(found):
    """Returns [(paths, native variable)] of what an optimizer holds."""
    # earlier places are results of writes
    held = [([path for path, _ in places], places[-1][1]) for places in found.values()]
    return [(paths, native) for paths, native in held if not any(path.startswith("variable ") for path in paths)]


class _Recorded(object):
    """The run of an original, kept to be compared with many definitions."""

    def __init__(self, kind, setting, moves_counter):
        self.original, self.setting = built(kind, setting), setting
        self.original.start_running(moves_counter)
        self.kept, self.place = [], 0

    def again(self):
        self.place = 0
        return _Around(self)

    def step(self, batch):
        self.place += 1
        if self.place > len(self.kept):
            self.original.step(batch)
            self.kept.append(self.original.weights())

    def weights(self):
        return self.kept[self.place - 1]

    def number(self, native):
        return self.original.number(native)


class _Around(Unread):
    """A wrapper that runs. Each slot of a definition has to be one of its arrays."""

    def __init__(self, original):
        super(_Around, self).__init__(original)
        self.found = getattr(original, "original", original).found

    def arrays(self):
        """Returns all arrays that the optimizer holds."""
        return [self.original.number(native) for _, native in held_by(self.found)]


class _Wrapping(object):
    """A port of what is inside, in a wrapper.

    Args:
        plain: the Port of what is inside.
        cases: [(arguments of the original, function of the definition inside that returns the wrapped one)], those
            that the user gave first.
    """

    def __init__(self, kind, plain, cases, sparse, steps):
        self.kind, self.plain, self.cases, self.sparse, self.steps = kind, plain, cases, sparse, steps
        self.started = time.time()

    def port(self):
        counts, comparisons = self.plain.report.counts_itself, []
        rule, arguments = self._without_schedules()
        for place, (given, wrap) in enumerate(self.cases):
            for shapes in SHAPES:
                what = "two variables" if len(shapes) > 1 else "shape {}".format(shapes[0])
                suffix = ", " + ", ".join("{}={}".format(name, given[name]) for name in LOW if name in given)
                original = built(self.kind, Setting(dict(given, **arguments), shapes))
                original.start_running(counts)
                steps = self.steps if shapes == (BASE,) else min(self.steps, FEW_STEPS)
                comparisons.append(compare(what + (suffix if place else ""), _Around(original), wrap(rule), steps))
                original.close()
                check_close(self.kind, comparisons[-1])
        given, wrap = self.cases[0]
        without = [rank for rank in (1, 3) if any(
            note.startswith("variables of {} dimension".format(rank)) for note in self.plain.report.notes)]
        comparisons.append(compare_real(
            self.kind, dict(given, **arguments), wrap(rule), min(self.steps, FEW_STEPS), counts, without))
        check_close(self.kind, comparisons[-1])
        notes = []
        if isinstance(wrap(rule), LossScale):
            notes = ["gradients that are not finite were not compared, nor how the loss scale grows and falls"]

        def in_mode(mode):
            try:
                return wrap(rule.replace(sparse=mode))
            except EverstepError:  # the wrapper has no such mode
                return None

        sparse, more, sparse_notes = sparse_mode(
            self.kind, dict(given, **arguments), in_mode, comparisons, self.sparse, self.steps, counts)
        mode = self.sparse or (sparse if in_mode(sparse) is not None else self.plain.definition.sparse)
        definition = wrap(self.plain.definition.replace(sparse=mode))
        report = self._report(given, comparisons + more, sparse, notes + sparse_notes)
        return Port(definition, self._source(definition, report), report)

    def _without_schedules(self):
        """Returns (the definition inside, arguments) with numbers in place of schedules."""
        schedules = [name for name, value in self.cases[0][0].items()
                     if hasattr(value, "get_config") and callable(value) and "rate" in name]
        rule = self.plain.definition
        names = {declared_name(name): 0.01 for name in schedules}
        return (rule.replace(**names) if names else rule), {name: 0.01 for name in schedules}

    def _report(self, given, comparisons, sparse, notes):
        inside = self.plain.report
        parts = [each._replace(what="inside, " + each.what) for each in inside.comparisons]
        notes = inside.notes + [note for note in notes if note not in inside.notes]
        report = Report(original_name(self.kind), parts + comparisons, sparse, notes, 0.0)
        report.arguments, report.counts_itself, report.is_wrapped = given, inside.counts_itself, True
        report.order = self.kind.order
        report.seconds, report.unverified = inside.seconds + time.time() - self.started, inside.unverified
        return report

    def _source(self, definition, report):
        """Returns the source of the class inside, and the expression of the whole."""
        source, _, tail = self.plain.source.partition("\n\ndefinition = ")
        name = type(self.plain.definition).__name__
        inner = tail.strip() or name + "()"
        if self.plain.definition.sparse != definition.base.sparse:
            inner = "{}sparse={!r})".format(inner[:-1] + ("" if inner.endswith("()") else ", "), definition.base.sparse)
        text = expression_of(definition, self.plain.definition.replace(sparse=definition.base.sparse), inner)
        own = ["# Compared with {} on {}:".format(report.original, report.versions)]
        own += ["# " + line for line in report.lines()[1:] if not line.strip().startswith(("inside, ", "note"))]
        source = source.rstrip("\n") + "\n"
        return "{}\n\n{}\ndefinition = {}\n".format(source, "\n".join(line.rstrip() for line in own), text)


def stock_port(kind, arguments, sparse):
    """Returns the Port of a stock optimizer; None for others."""
    started = time.time()
    if sparse is not None or kind.factory is not kind.cls:
        return None
    try:
        if kind.in_graph:
            with kind.tf1.Graph().as_default():
                definition = from_native(kind.make(arguments))
        else:
            definition = from_native(kind.make(arguments))
    except (EverstepError, AttributeError):
        return None
    notes = ["everstep knows this optimizer: its definition is the one of everstep.from_native"]
    comparisons = []
    try:
        rule_free = Unread(Original.of(kind, Setting(arguments)))
        rule_free.original.start_running()
        comparisons.append(compare("dense", rule_free, definition, STEPS))
    except (EverstepError, TypeError) as error:
        notes.append("not compared here: {}".format(error))
    if comparisons and not is_close(comparisons[0]):
        return None
    report = Report(original_name(kind), comparisons, definition.sparse, notes, time.time() - started)
    report.is_stock = True
    source = "import everstep\n\ndefinition = everstep.optimizers.{}\n".format(definition._short())
    return Port(definition, source, report)
