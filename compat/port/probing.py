"""Traces an original for variables of other names, sizes and dtypes, and finds those that have another rule."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict

from everstep.compat.port import dtypes, sizes
from everstep.compat.port.contents import Contents
from everstep.compat.port.grouping import Group
from everstep.compat.port.indexing import index_looks
from everstep.compat.port.looks import is_private, line_of
from everstep.compat.port.shapes import outputs_at
from everstep.errors import PortError

MYPY = False
if MYPY:  # Python 2.7 has no typing
    from typing import Any  # noqa: F401  # used in type comments

MOST_TRACES = 32
SCOPED = "outer/inner/last_w"


class Probing(object):
    """Finds which variables one original treats differently, in groups.

    Args:
        rule: its `Rule` for a variable called theta.

    Attributes:
        groups: [Group] in the order in which they are looked for.
        unfollowed: sentences about looks whose use is not known.
        indices: ["file:line"] where it decides or computes by the index of a variable.
    """

    def __init__(self, rule):
        self.rule, self.traces = rule, 0
        self.groups, self.unfollowed, self.sizes, self.dtypes, codes = [], [], [], [], set()  # type: Any
        self.asked = OrderedDict()  # {(kind, text, any_case, part): Look}
        self.programs = OrderedDict()  # {name: outputs}
        self._note(rule.base.original.looks)
        for _, reading, _ in rule.readings:
            self._note(reading.original.looks)
            codes |= reading.original.looks.codes
        self.indices = index_looks(codes)
        original = rule.base.original
        self.contents = Contents(original.optimizer, rule.arguments) if self.asked or self.sizes else None

    def run(self):
        """Finds the groups. Raises PortError if the rule changes in a way that is not followed."""
        if self.sizes:
            self._find_threshold()
        if self.dtypes:
            self._find_dtypes()
        self.unfollowed += ["what the index of a variable is used for is not followed ({})".format(line_of(each))
                            for each in self.indices]
        if self.asked:
            self._differs(SCOPED, "")
            self._find_groups()
        return self

    def check_large(self, threshold, small):
        """Refuses a rule of large variables that changes with the names or sizes that they have.

        Args:
            threshold: the `Threshold` that they reach.
            small: the Rule of smaller variables.
        """
        if self.asked:
            self._differs(SCOPED, "")
            self._find_groups()
        if self.groups:
            raise PortError(
                "the rule of large variables changes with their names ({}). Port it once for each, and join the "
                "definitions in `specialize`".format(self.groups[0].patterns[0]))
        self._check_ranks(lambda shape: self.rule if threshold.holds(shape) else small)

    def _note(self, looks):
        for look in looks.names:
            self.asked.setdefault(look[:4], look)
        self.sizes += [place for place in looks.sizes if place not in self.sizes]
        self.dtypes += [place for place in looks.dtypes if place not in self.dtypes]

    def _program(self, name, shape, why):
        """Returns the outputs for a variable of a name and shape; None if the rule has other ops."""
        self._count(why)
        try:
            reading = self.rule.traced((name,), shape)
        except PortError as error:
            raise PortError("it cannot be read for a variable called {} of shape {}, which {} asks for: {}".format(
                name, shape, why, error))
        self._note(reading.original.looks)
        outputs = self.rule.outputs_of(reading)
        reading.close()
        return outputs

    def _count(self, why):
        self.traces += 1
        if self.traces > MOST_TRACES:
            raise PortError(
                "its rule asks too much about its variables to follow: after {} traces {} is still open. Port it in "
                "parts, with these names or sizes as arguments".format(MOST_TRACES, why))

    def _differs(self, name, why):
        """Returns whether a variable of this name has another rule than theta."""
        if name not in self.programs:
            self.programs[name] = self._program(name, self.rule.base.setting.shapes[0], why)
        return not self.rule.is_same(self.programs[name], self.rule.base.outputs)

    # Names.

    def _find_groups(self):
        found, done = [], set()  # [(pattern, name, text)]
        while True:
            left = [look for key, look in self.asked.items() if key not in done]
            if not left:
                break
            look = left[0]
            done.add(look[:4])
            for each in self._looks_of_keys(look) if look.kind == "key" else [look]:
                case = self._case(each)
                if case is not None:
                    found.append(case)
        if found and self.groups:
            raise PortError(
                "the rule changes with the name of the variable ({}), and with its size or dtype ({}). Port it once "
                "for each size or dtype, and join the definitions in `specialize`".format(
                    found[0][0], line_of((self.sizes + self.dtypes)[0])))
        for pattern, name in found:
            same = [group for group in self.groups if self.rule.is_same(
                self.programs[group.name], self.programs[name])]
            if not same:
                self.groups.append(Group([pattern], name, None, ()))
            elif pattern not in same[0].patterns:
                same[0].patterns.append(pattern)
        self._order()

    def _looks_of_keys(self, look):
        """Returns a Look for each key of the dictionaries and sets that the name may be looked up in."""
        path, _, line = look.where.rpartition(":")
        return [look._replace(kind="equals", text=key) for key in self.contents.keys_at(path, int(line))
                if _cleaned(key) == re.sub(":0$", "", key) not in self.programs and not is_private(key)]

    def _case(self, look):
        """Returns (pattern, name) of a look that changes the rule; None for others."""
        if look.kind == "rank" or look.part == "only":  # SCOPED has more parts
            return None
        pattern = pattern_of(look)
        if look.kind in ("search", "match", "fullmatch"):
            names = generated(pattern)
        else:
            names = [_cleaned(name) for name in _names_of(look)]
        names = [name for name in names if name and _matches(pattern, name)]
        others = [name for name in ("theta", SCOPED) if not _matches(pattern, name)]
        if not names or not others:
            if others or look.truth is None or not all(_matches(pattern, each) for each in ("theta", SCOPED)):
                self._not_followed(look)
            return None
        differing = [name for name in names if self._differs(name, line_of(look.where))]
        if not differing:
            return None
        if look.part == "?" or len(differing) < len(names) or not all(self.rule.is_same(
                self.programs[each], self.programs[names[0]]) for each in names):
            raise PortError(
                "the rule changes with the variable's name in a way that no pattern has: for variables called {} it "
                "differs ({}). Port it once for each kind of name, and join the definitions with "
                "everstep.partition".format(", ".join(differing), line_of(look.where)))
        return pattern, names[0]

    def _not_followed(self, look):
        text = "what the variable's name is used for is not followed ({})".format(line_of(look.where))
        if text not in self.unfollowed:
            self.unfollowed.append(text)

    def _order(self):
        """Orders groups so that the first that matches counts.

        Names that match two and have a third rule are a group, or refused if there are more than two patterns.
        """
        for group in list(self.groups):
            self._check_both(group, group, group.patterns[:2])
        count = len(self.groups)
        for place in range(count):
            for other in range(place):
                one, two = self.groups[other], self.groups[place]
                if self._check_both(one, two, [one.patterns[0], two.patterns[0]]):
                    self.groups[other], self.groups[place] = two, one
                if len(self.groups) > count:
                    return

    def _check_both(self, one, two, patterns):
        """Returns whether a name that matches both is as the second says."""
        if len(patterns) < 2:
            return False
        texts = [re.sub(r"\(\?i\)|\\|\^|\$|\(\^\|/\)|\[\^/\]\*", "", each) for each in patterns]
        names = [_cleaned(joined) for joined in (
            "/".join(texts), "/".join(texts[::-1]), "_".join(texts), "{0}_x_{1}".format(*texts))]
        names = [name for name in names if all(_matches(each, name) for each in patterns)]
        if not names:
            return False
        self._differs(names[0], "a name that matches {} and {}".format(*patterns))
        program = self.programs[names[0]]
        if self.rule.is_same(program, self.programs[one.name]):
            return False
        if self.rule.is_same(program, self.programs[two.name]):
            return True
        if sum(len(group.patterns) for group in self.groups) == 2 and "(?i)" not in "".join(patterns):
            both = "^" + "".join("(?=.*(?:{}))".format(pattern) for pattern in patterns)
            self.groups.insert(0, Group([both], names[0], None, ()))
            return False
        raise PortError(
            "a name can match both {0} and {1}, as {2} does, and the rule of {2} is neither that of {0} nor that of "
            "{1}. Port it once for each kind of name, and join the definitions with everstep.partition".format(
                patterns[0], patterns[1], names[0]))

    # Sizes and dtypes.

    def _traced(self, shape):
        return self._program("theta", shape, "the size in " + line_of(self.sizes[0]))

    def _find_threshold(self):
        """Finds the size from which on the rule is another one. Refuses a rule that changes with sizes otherwise."""
        rule, large, names = self.rule, [], list(self.asked)
        numbers = sorted(int(each) for each in self.contents.numbers if sizes.SMALL <= each <= sizes.HUGE)
        tried = [number for number in numbers if number <= sizes.MOST_ELEMENTS // 2][:sizes.MOST_SIZES]
        if len(tried) < len(numbers):
            self.unfollowed.append("its code has {} whole numbers that may be sizes; {} were tried ({})".format(
                len(numbers), len(tried), line_of(self.sizes[0])))

        def differs(shape):
            outputs = self._traced(shape)
            if rule.is_same(outputs, rule.base.outputs):
                return False
            large.append((outputs, shape))
            if not rule.is_same(outputs, large[0][0]):
                raise self._sized(shape)
            return True

        probed = OrderedDict()
        for shape in [shape for number in tried for shape in sizes.shapes_around(number)] + list(sizes.WIDE):
            probed[shape] = differs(shape)
        self._check_shapes(sizes.THIN, lambda shape: rule)
        if large:
            threshold = sizes.found(sizes.thresholds(tried), differs, probed)
            if threshold is None:
                raise self._sized(large[0][1])
            self._check_shapes(threshold.below(), lambda shape: rule)
            self.groups.append(Group((), "theta", threshold, ()))
        else:
            self._check_ranks(lambda shape: rule)
        asked = [look for key, look in self.asked.items() if key not in names]
        if asked:
            raise PortError(
                "the rule asks for the names of large variables alone ({}). Port it once for each size, and join the "
                "definitions in `specialize`".format(line_of(asked[0].where)))

    def _check_ranks(self, rule_of):
        """Refuses a rule that changes with the size of variables of some ranks alone."""
        if self.sizes:
            size = sizes.LONG
            self._check_shapes([(size,), (size, 2, 2), (2, 2, size), (size, 2, 2, 2), (2, 2, 2, size)], rule_of)

    def _check_shapes(self, shapes, rule_of):
        """Refuses a rule that differs for shapes from what a function of a shape returns: the `Rule` that is known."""
        for shape in shapes:
            rule = rule_of(shape)
            if len(shape) in rule.unported:
                continue
            try:
                outputs = self._traced(shape)
            except PortError as error:
                if shape not in sizes.THIN or self.traces > MOST_TRACES:
                    raise
                self.unfollowed.append("its rule for variables of shape {} is not known: {}".format(shape, error))
                continue
            if not rule.is_same(outputs, outputs_at(rule, len(shape))):
                raise self._sized(shape)

    def _sized(self, shape):
        return PortError(
            "the rule changes with the size of the variable in a way that no single threshold has: it is another one "
            "for the shape {} than for {} ({}). Port it once for each, with the size as an argument, and join the "
            "definitions in `specialize`".format(shape, self.rule.shapes.base, "; ".join(map(line_of, self.sizes[:3]))))

    def _find_dtypes(self):
        """Finds dtypes that have a rule of their own."""
        rule, found, without, line = self.rule, [], [], line_of(self.dtypes[0])  # found: [(outputs, [dtype])]
        for dtype in dtypes.OTHERS:
            self._count("the dtype in " + line)
            try:
                reading = rule.traced(rule.names, rule.shapes.base, dtype)
            except PortError as error:
                if dtypes.is_mismatch(error):
                    without.append(dtype)
                else:
                    self.unfollowed.append("its rule for {} variables is not known: {} ({})".format(dtype, error, line))
                continue
            looks = reading.original.looks
            asked = [look.where for look in looks.names if look[:4] not in self.asked] + [
                place for place in looks.sizes if place not in self.sizes]
            try:
                if asked:
                    raise PortError("it asks for more of them ({})".format(line_of(asked[0])))
                outputs, own = dtypes.outputs_for(rule, reading)
                if rule.is_same(outputs, rule.base.outputs):
                    continue
                dtypes.check_fixed(rule, dtype, own)
            except PortError as error:
                self.unfollowed.append("its rule for {} variables is not followed: {} ({})".format(dtype, error, line))
                continue
            same = [group for known, group in found if rule.is_same(known, outputs)]
            if same:
                same[0].append(dtype)
            else:
                found.append((outputs, [dtype]))
        self.groups += [Group((), "theta", None, tuple(group)) for _, group in found]
        if without:
            rule.notes.append("the original takes no variables of {}, for which nothing is compared".format(
                " or ".join(without)))


def _cleaned(name):
    """Returns a name that a variable may have."""
    return re.sub(r"[^0-9A-Za-z_./-]", "", re.sub(":0$", "", name)).strip("/")


def _matches(pattern, name):
    return bool(re.search(pattern, name))


def _names_of(look):
    """Returns names for which the answer to a look is yes."""
    text = look.text
    forms = {
        "contains": ["net/x{}y", "x{}y/w", "net/x{}y/w"], "starts": ["{}x/w", "net/{}x"], "ends": ["net/x{}", "x{}/w"],
        "equals": ["{}", "net/{}", "{}/w", "net/{}/w"],
    }[look.kind]
    return [form.format(text) for form in forms]


def pattern_of(look):
    """Returns the regular expression, looked for in a name without `:0`, that says what a look says."""
    if look.kind in ("search", "match", "fullmatch"):
        text, flags = getattr(look.text, "pattern", look.text), getattr(look.text, "flags", 0)
        text = re.sub(r":(0|\\d\+?)\$?$", "$", text)
        text = {"search": "{}", "match": "^(?:{})", "fullmatch": "^(?:{})$"}[look.kind].format(text)
        return _in_case(text, look.any_case or bool(flags & re.IGNORECASE))
    ends = re.search(":0$", look.text) is not None
    text = re.escape(re.sub(":0$", "", look.text)).replace("\\_", "_").replace("\\/", "/")
    last = "(^|/)" if look.part in ("middle", "last", "?") else "^"
    after = {"": "$", "last": "$", "first": "(/|$)"}.get(look.part, "(/|$)")
    if look.kind == "contains":
        form = {"first": "^[^/]*{}", "last": "{}[^/]*$"}.get(look.part, "{}")
        return _in_case(form.format(text) + ("$" if ends else ""), look.any_case)
    form = {"starts": last + "{}" + ("[^/]*$" if look.part == "last" else ""),
            "ends": ("^[^/]*{}" if look.part == "first" else "{}") + after,
            "equals": last + "{}" + after}[look.kind]
    return _in_case(form.format(text), look.any_case)


def _in_case(pattern, any_case):
    return "(?i)" + pattern if any_case and not pattern.startswith("(?i)") else pattern


def generated(pattern):
    """Returns up to two texts that a regular expression matches, with other digits in each; [] if none is found."""
    parser = getattr(re, "_parser", None)
    if parser is None:
        import sre_parse as parser  # before Python 3.11
    texts = []
    for digit in "38":
        try:
            texts.append(_cleaned("".join(_sample(parser.parse(pattern), digit))))
        except (re.error, KeyError, ValueError):
            return []
    return list(OrderedDict.fromkeys(texts))


def _sample(parsed, digit):
    """Yields the parts of a text that a parsed expression matches."""
    for op, value in parsed:
        op = str(op).lower()
        if op == "literal":
            yield chr(value)
        elif op in ("max_repeat", "min_repeat"):
            for _ in range(max(value[0], 1)):
                for each in _sample(value[2], digit):
                    yield each
        elif op == "subpattern":
            for each in _sample(value[-1], digit):
                yield each
        elif op == "branch":
            for each in _sample(value[1][-1], digit):
                yield each
        elif op == "in":
            yield _member(value, digit)
        elif op in ("any", "not_literal"):
            yield "x"
        elif op != "at":
            raise ValueError(op)


def _member(members, digit):
    """Returns a character of a class of characters."""
    kinds = dict((str(op).lower(), value) for op, value in reversed(members))
    if "negate" in kinds:
        return "x"
    if "literal" in kinds:
        return chr(kinds["literal"])
    if "range" in kinds:
        return chr(kinds["range"][0])
    category = str(kinds["category"]).lower()
    return {"category_digit": digit, "category_word": "x", "category_not_digit": "x"}[category]
