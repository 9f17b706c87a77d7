"""Ports one optimizer: reads its rules, writes a definition, and trains both."""
from __future__ import absolute_import, division, print_function

import itertools
import linecache
import textwrap
import time
from collections import OrderedDict

from everstep.compat.port import comparing, writing
from everstep.compat.port.arguments import check_given, given_and_defaults
from everstep.compat.port.averages import average_of
from everstep.compat.port.choices import choices_of, condition
from everstep.compat.port.comparing import (
    DTYPE_STEPS,
    DTYPE_TOLERANCES,
    TOLERANCE,
    Unread,
    check_close,
    compare,
    compare_real,
    is_close,
    sparse_mode,
)
from everstep.compat.port.dtypes import variant
from everstep.compat.port.grouping import flagged, specializing
from everstep.compat.port.looks import line_of
from everstep.compat.port.originals import FunctionOriginal
from everstep.compat.port.probing import Probing
from everstep.compat.port.racing import settle
from everstep.compat.port.reading import built
from everstep.compat.port.report import Port, Report, original_name
from everstep.compat.port.ruling import Rule
from everstep.compat.port.setting import Setting
from everstep.compat.port.shapes import SHAPES
from everstep.compat.port.spelling import declared_name
from everstep.compat.port.storing import stored_as_by
from everstep.compat.port.variables import flags_of
from everstep.compat.port.writing import Choice, Leaf, Parts, class_name
from everstep.errors import EverstepError, PortError

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

STEPS, FEW_STEPS = 100, 20
MOST_RULES = 8  # of all options together


class Porting(object):
    """One port, from the rules of each set of options to the definition."""

    def __init__(self, kind, arguments, sparse=None, steps=STEPS, progress=None):
        self.kind, self.sparse, self.steps = kind, sparse, steps
        self.progress = progress or (lambda text: None)
        self.started, self.notes, self.comparisons, self.schedules = time.time(), [], [], {}
        self.arguments = given_and_defaults(kind.factory, arguments)
        check_given(kind.cls, self.arguments)
        for name, value in list(self.arguments.items()):
            if name in ("epsilon", "eps") and value is None and kind.target != "tf_train":
                self.arguments[name] = 1e-7  # what every Keras takes for None
            elif not isinstance(value, (bool, int, float, str, type(None), list, tuple)) and callable(value):
                if hasattr(value, "get_config") and "rate" in name:
                    self.schedules[declared_name(name)], self.arguments[name] = value, 0.01
        self.rules, self.unfollowed = OrderedDict(), []  # {(values of the options, a Group's key): Rule}, sentences

    def port(self):
        """Returns the Port, or raises PortError."""
        try:
            return self._port()
        finally:
            for rule in self.rules.values():
                rule.close()

    def _port(self):
        self.progress("reading the rule")
        settle(self.kind, self.arguments)
        first = self._named_rate(self._rule(()))
        self._options(first)
        self._find_groups()
        self.stored_as = stored_as_by(list(self._used_rules().values()))
        tree = self._tree(list(self.options), {})
        self.progress("writing the definition")
        cls, source = self._written(tree, "exact", None)
        self.progress("comparing")
        self._compare(cls)
        self.progress("comparing with sparse gradients")
        more = [group.threshold.shapes().base for _, group in self.groups.values() if group.threshold]
        sparse, comparisons, notes = sparse_mode(
            self.kind, self.arguments, lambda mode: cls(sparse=mode), self.comparisons, self.sparse, self.steps,
            self._moves_counter(), more)
        self.comparisons += comparisons
        self.notes += notes
        self.report = Report(original_name(self.kind), self.comparisons, sparse, self.notes, 0.0)
        renamed, self.report.order = self.kind.renamed, self.kind.order
        self.report.arguments = {renamed.get(name, name): value for name, value in self.arguments.items()}
        self.report.counts_itself = self._moves_counter()
        self.report.unverified = self.unfollowed
        mode = self.sparse or (sparse if sparse in comparing.MODES else "exact")
        cls, source = self._written(tree, mode, self.report)
        self.report.seconds = time.time() - self.started
        return Port(cls(**self.schedules), source, self.report)

    # Options.

    def _rule(self, values, group=None):
        """Returns the rule with some options set. values: ((argument, value), ...); group: that of its variables."""
        key = tuple(sorted(values)), group and (group.name, group.threshold, group.dtypes)
        if key not in self.rules:
            arguments = dict(self.arguments, **dict(values))
            if group and group.dtypes:
                self.rules[key] = variant(self._rule(values), group.dtypes[0])
            elif group:
                shapes = group.threshold.shapes() if group.threshold else SHAPES
                self.rules[key] = Rule(self.kind, arguments, (group.name,), shapes)
            else:
                self.rules[key] = Rule(self.kind, arguments)
        return self.rules[key]

    def _named_rate(self, first):
        """Returns the rule with the hyper that the whole change is a multiple of as learning_rate, as others set it."""
        names = [name for name in self.arguments if declared_name(name) in first.hypers]
        rates = [name for name in names if first.is_multiple_of(declared_name(name))]
        is_clear = len(rates) == 1 or rates[:1] == names[:1]  # the rate comes first
        if not rates or not is_clear or "learning_rate" in [declared_name(name) for name in self.arguments]:
            return first
        first.close()
        self.rules.clear()
        self.kind.renamed["learning_rate"] = rates[0]
        self.arguments = OrderedDict(
            ("learning_rate" if name == rates[0] else name, value) for name, value in self.arguments.items())
        self.notes.append("{} is called learning_rate here".format(rates[0]))
        return self._rule(())

    def _options(self, first):
        """Returns {argument: its values} of the arguments whose choice changes the rule."""
        options = OrderedDict()
        for name, value in sorted(self.arguments.items()):
            others = []
            for other in choices_of(self.kind.cls, name, value):
                if other == value:
                    continue
                self.progress("reading the rule with {}={}".format(name, other))
                try:
                    if _differ(first, self._rule([(name, other)])):
                        others.append(other)
                except PortError as error:
                    self.notes.append("{}={} is not ported: {}".format(name, other, error))
            if others:
                options[name] = (True, False) if isinstance(value, bool) else (value,) + tuple(others)
        self.options, count = OrderedDict(), 1
        for name, values in options.items():
            count *= len(values)
            if count > MOST_RULES:
                left = [name for name in options if name not in self.options]
                self.notes.append("options stay as given: " + ", ".join(left))
                break
            self.options[name] = values
        try:
            for values in self._combinations():
                self._check_scalars(first, self._rule(self._chosen(values)))
        except PortError as error:
            self.notes.append("{} are not ported together: {}".format(" and ".join(self.options), error))
            one = list(self.options.items())[:1] if len(self.options) > 1 else []
            self.options = OrderedDict(one)

    def _combinations(self):
        return itertools.product(*self.options.values())

    def _chosen(self, values):
        """Returns ((argument, value), ...) of the options that are not as given. values: of all options, in order."""
        return [pair for pair in zip(self.options, values) if self.arguments[pair[0]] != pair[1]]

    @staticmethod
    def _check_scalars(first, other):
        if [scalar.name for scalar in first.scalars] != [scalar.name for scalar in other.scalars]:
            raise PortError("they differ in what they count")

    def _find_groups(self):
        """Finds which variables an original treats differently, and by which options. Notes what is not known."""
        groups, self.indices = [], []
        for rule in self._used_rules().values():
            probing = Probing(rule).run()
            self.unfollowed += [text for text in probing.unfollowed if text not in self.unfollowed]
            self.indices += probing.indices
            groups += [group for group in probing.groups if group not in groups]
        self.groups = flagged(groups, self.arguments, self.notes)
        for values, rule in self._used_rules().items():
            for group in groups:
                other = self._rule(self._chosen(values), group)
                self._check_scalars(rule, other)
                if group.threshold:
                    Probing(other).check_large(group.threshold, rule)

    def _tree(self, options, values):
        if options:
            name, tree = options[0], None
            for value in reversed(self.options[name]):
                branch = self._tree(options[1:], dict(values, **{name: value}))
                tree = branch if tree is None else Choice(condition("self", declared_name(name), value), branch, tree)
            return tree
        chosen = [(name, value) for name, value in values.items() if self.arguments[name] != value]
        tree = self._of_ranks(self._rule(chosen))
        for flag, (_, group) in reversed(list(self.groups.items())):
            tree = Choice("self." + flag, self._of_ranks(self._rule(chosen, group)), tree)
        return tree

    @staticmethod
    def _of_ranks(rule):
        tree = Leaf(rule.var, rule.news, rule.hints)  # type: Any
        for rank, (var, news) in rule.ranks.items():
            test = "grad.ndim < {}".format(rank + 1) if rank < 2 else "grad.ndim > {}".format(rank - 1)
            tree = Choice(test, Leaf(var, news, rule.hints), tree)
        return tree

    # The definition.

    def _written(self, tree, sparse, report):
        """Returns (class, source)."""
        first = self._rule(())
        hypers, options, slots = OrderedDict(), OrderedDict(), OrderedDict()
        rules = self._used_rules()
        of_groups = {flag: [self._rule(self._chosen(values), group) for values in rules]
                     for flag, (_, group) in self.groups.items()}
        for rule in list(rules.values()) + sum(of_groups.values(), []):
            for name in rule.given:  # the original's order
                if name in rule.hypers:
                    hypers.setdefault(name, first.hypers.get(name, rule.hypers[name]))
            for name, value in rule.hypers.items():
                hypers.setdefault(name, value)
            options.update(rule.options)
            for slot in rule.slots.values():
                slots.setdefault(slot.name, slot)
                if isinstance(slot.start, str) and slot.start != "VARIABLE":
                    options[slot.start] = first.given[slot.start]
        clash = set(hypers).intersection(options)
        if clash:
            raise PortError("{} is a hyper with one option, and the first value of a slot with another".format(
                ", ".join(sorted(clash))))
        options.update((declared_name(name), self.arguments[name]) for name in self.options)
        extra, imports = [], []
        if self.groups:
            imports, extra = specializing(self.groups)
            options.update((option, tuple(group.patterns)) for option, group in self.groups.values() if group.patterns)
            options.update((flag, False) for flag in self.groups)
        averages = set(average_of(rule) for rule in rules.values())
        if len(averages) == 1 and averages != {None}:
            extra += ["", "    def evaluation_value(self, ops, var, slots, hyper):",
                      "        return slots." + averages.pop()]
        placed = [(slot, self._when_named(slot.name, rules, of_groups)) for slot in slots.values()]
        saved = OrderedDict((slot.name, slot.saved) for slot in slots.values() if slot.saved)
        parts = Parts(
            class_name(self.kind.cls.__name__), self._docstring(report), hypers, options, placed, first.scalars, tree,
            sparse, saved if len(saved) == len(slots) else {}, extra, imports,
            {declared_name(name): values for name, values in self.options.items() if isinstance(values[0], str)},
            self.stored_as)
        source = writing.source_of(parts)
        return self._class_of(source, parts.name), source

    def _when_named(self, slot, rules, of_groups):
        """Returns the text of `when` of a slot that variables of some names may lack; None if it always exists."""
        plain = any(slot in rule.slots for rule in rules.values())
        having = [flag for flag in of_groups if any(slot in rule.slots for rule in of_groups[flag])]
        if len(having) == (len(of_groups) if plain else 0):
            return self._when(slot, rules)
        if len(rules) > 1:
            raise PortError("the slot {} exists for variables of some names only, and with some options only: give "
                            "the options as arguments of a function that takes none".format(slot))
        if not plain and len(having) == 1:
            return '"{}"'.format(having[0])
        flags = [flag for flag in of_groups if (flag in having) != plain]
        text = " or ".join("definition." + flag for flag in flags)
        return "lambda definition: " + ("not ({})".format(text) if plain and len(flags) > 1
                                        else "not " + text if plain else text)

    def _used_rules(self):
        """Returns {values of the options: rule} of all that the definition has, the given values first."""
        used = [(values, self._rule(self._chosen(values))) for values in self._combinations()]
        return OrderedDict(sorted(used, key=lambda item: bool(self._chosen(item[0]))))

    def _when(self, slot, rules):
        """Returns the text of `when` of a slot; None if it always exists."""
        having = [values for values, rule in rules.items() if slot in rule.slots]
        if len(having) == len(rules):
            return None
        for place, name in enumerate(self.options):
            present = [value for value in self.options[name] if any(values[place] == value for values in having)]
            # the slot depends on this option only
            if len(having) * len(self.options[name]) == len(rules) * len(present):
                if present == [True]:
                    return '"{}"'.format(declared_name(name))
                having, names = [(value,) for value in present], [name]
                break
        else:
            names = list(self.options)
        terms = [" and ".join(condition("definition", declared_name(name), value) for name, value in zip(names, values))
                 for values in sorted(having)]
        return "lambda definition: " + " or ".join(terms)

    @staticmethod
    def _class_of(source, name):
        path = "<everstep.port {} {}>".format(name, abs(hash(source)))
        linecache.cache[path] = len(source), None, source.splitlines(True), path
        namespace = {"__name__": "ported"}  # type: dict[str, Any]
        try:
            exec(compile(source, path, "exec"), namespace)
            cls = namespace[name]
            cls()
        except EverstepError as error:
            raise PortError("what was written down is no definition: {}\n{}".format(error, source))
        return cls

    def _docstring(self, report):
        lines = ["Ported from {}.".format(original_name(self.kind)), ""]
        if report is not None:
            lines += ["Compared with it on {}; largest distance of weights and slots:".format(report.versions), ""]
            for each in report.comparisons:
                slots = "" if each.slots is None else ", {:.0e}".format(each.slots)
                lines.append("    {}, {} steps: {:.0e}{}".format(each.what, each.steps, each.distance, slots))
            if report.sparse in ("none", "other"):
                lines += ["", {
                    "none": "The original takes no sparse gradients.",
                    "other": "Sparse gradients: the original does something else, see the notes.",
                }[report.sparse]]
            for text in report.unverified:
                lines += [""] + _filled("Not verified: " + text)
            for note in report.notes:
                lines += [""] + _filled("Note: " + note)
        return [line.replace('"""', "'''").replace("\\", "/") for line in lines]

    # The comparison.

    def _compare(self, cls):
        for values, rule in self._used_rules().items():
            options = OrderedDict(zip(map(declared_name, self.options), values))
            chosen = self._chosen(values)
            suffix = ", " + ", ".join("{}={}".format(*item) for item in options.items()) if chosen else ""
            self._compare_rule(cls, rule, options, suffix)
            for flag, (option, group) in self.groups.items():
                other = self._rule(chosen, group)
                if group.patterns:
                    named = dict(options, **{each: () for each, _ in self.groups.values()})
                    named.update({flag: True, option: (".",)})  # matches the name of every NumPy array
                    self._compare_rule(cls, other, named, suffix + ", named " + group.name, first_only=True)
                elif group.threshold:
                    self._compare_rule(cls, other, options, suffix + ", large variables")
                else:
                    self._compare_dtypes(cls, rule.arguments, options, group.dtypes, suffix)
        self._add(compare_real(self.kind, self.arguments, cls(), min(self.steps, FEW_STEPS), self._moves_counter(),
                               self._rule(()).unported))
        if not self.kind.in_graph:
            self._compare_eagerly(cls)
        self.notes += [self.kind.order_note] if self.kind.order_note else []
        for rule in self._used_rules().values():
            self.notes += [note for note in rule.notes if note not in self.notes]
            for _, reading, _ in rule.readings:
                for read, write in reading.original.unordered:
                    text = "the original leaves open whether {} reads before or after {} writes; here it reads before"
                    if not any(old.startswith("the original leaves open") for old in self.notes):
                        self.notes.append(text.format(read.name, write.name))

    def _compare_rule(self, cls, rule, options, suffix, first_only=False):
        for what, reading, arguments in rule.readings:
            if first_only and what == "two variables":
                continue  # only one of them has a name that matches
            known = cls.argument_names()
            given = {name: value for name, value in rule.hypers_of(reading, arguments).items() if name in known}
            definition = cls(**dict(given, **options))
            title = (what or "shape {}".format(rule.shapes.base)) + suffix
            is_first = reading is self._rule(()).base
            self._add(compare(title, reading, definition, self.steps if is_first else min(self.steps, FEW_STEPS)))

    def _compare_dtypes(self, cls, arguments, options, names, suffix):
        """Compares the definition with the original for variables of other dtypes."""
        for dtype in names:
            if dtype not in DTYPE_TOLERANCES:
                text = "the rule for {} variables is read, and not compared".format(dtype)
                self.unfollowed += [text] if text not in self.unfollowed else []
                continue
            original = built(self.kind, Setting(arguments, dtype=dtype))
            original.start_running(self._moves_counter())
            title = "{} variables{}".format(dtype, suffix)
            self._add(compare(title, Unread(original), cls(**options), DTYPE_STEPS), DTYPE_TOLERANCES[dtype])

    def _compare_eagerly(self, cls):
        """Compares the original outside of `tf.function`, where Python runs at every step."""
        original = FunctionOriginal(self.kind, Setting(self.arguments), eagerly=True)
        self._add(compare("eager", Unread(original), cls(), min(self.steps, FEW_STEPS)))

    def _add(self, comparison, tolerance=TOLERANCE):
        self.comparisons.append(comparison)
        original = self._rule(()).base.original
        for name, value in flags_of(original.optimizer).items():
            if not is_close(comparison, tolerance) and original.flags.get(name) not in (None, value):
                raise PortError(
                    "{} keeps state in a Python attribute: {} was {}, and is {} after a step, and what it computes "
                    "depends on that ({}). Keep it in a variable, or compute it from the count of updates".format(
                        self.kind.cls.__name__, name, original.flags[name], value, comparison.what))
        if self.indices and not is_close(comparison, tolerance):
            raise PortError(
                "the rule changes with the index of a variable ({}): the definition is another one for {}. Port it "
                "once for each, and join the definitions with everstep.partition".format(
                    "; ".join(map(line_of, self.indices[:3])), comparison.what))
        check_close(self.kind, comparison, tolerance)

    def _moves_counter(self):
        first = self._rule(()).base
        return any(first.roles[key].kind == "counter" for key in first.machine.written)


def _filled(text):
    return textwrap.wrap(text, 108)


def _differ(one, other):
    """Returns whether two rules differ in more than their numbers."""
    if set(one.ranks) != set(other.ranks):
        return True
    for rank in [None] + list(one.ranks):
        (var, news), (other_var, other_news) = [each.ranks.get(rank, (each.var, each.news)) for each in (one, other)]
        if var is not other_var or set(news) != set(other_news):
            return True
        if any(news[name] is not other_news[name] for name in news):
            return True
    return [slot[:3] for slot in one.slots.values()] != [slot[:3] for slot in other.slots.values()]
