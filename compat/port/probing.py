"""Traces an original with other names and sizes of its variables, and finds on what of them its rule depends."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict, namedtuple

from everstep.compat.port.contents import Contents
from everstep.compat.port.looks import line_of
from everstep.errors import PortError

MOST_TRACES = 32
MOST_ELEMENTS, MOST_SIZES = 4000000, 8
SMALL = 4  # sizes below are those of the shapes that every rule is read for
SCOPED = "outer/inner/last_w"
# Names that have the same rule. patterns: regular expressions; name: one that matches, of which a rule was read.
Group = namedtuple("Group", "patterns name")


class Probing(object):
    """The names and sizes of one original.

    Args:
        rule: its `Rule` for a variable called theta.

    Attributes:
        groups: [Group] in the order in which they are looked for.
        unfollowed: sentences about looks whose use is not known.
    """

    def __init__(self, rule):
        self.rule, self.groups, self.unfollowed, self.traces = rule, [], [], 0
        self.asked, self.sizes = OrderedDict(), []  # {(kind, text, any_case, part): Look}
        self.programs = OrderedDict()  # {name: outputs}
        self._note(rule.base.original.looks)
        for _, reading, _ in rule.readings:
            self._note(reading.original.looks)
        original = rule.base.original
        self.contents = Contents(original.optimizer, rule.arguments) if self.asked or self.sizes else None

    def run(self):
        """Finds the groups. Raises PortError if the rule changes in a way that is not followed."""
        if self.sizes:
            self._check_sizes()
        if self.asked:
            self._differs(SCOPED, "")
            self._find_groups()
        return self

    def _note(self, looks):
        for look in looks.names:
            self.asked.setdefault(look[:4], look)
        self.sizes += [place for place in looks.sizes if place not in self.sizes]

    def _program(self, name, shape, why):
        """Returns the outputs for a variable of a name and shape; None if the rule has other ops."""
        self.traces += 1
        if self.traces > MOST_TRACES:
            raise PortError(
                "its rule asks too much about its variables to follow: after {} traces {} is still open. Port it in "
                "parts, with these names or sizes as arguments".format(MOST_TRACES, why))
        try:
            reading = self.rule.traced((name,), shape)
        except PortError as error:
            raise PortError("it cannot be read for a variable called {} of shape {}, which {} asks for: {}".format(
                name, shape, why, error))
        self._note(reading.original.looks)
        outputs = self.rule.outputs_of(reading)
        reading.close()
        return outputs

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
        for pattern, name in found:
            same = [group for group in self.groups if self.rule.is_same(
                self.programs[group.name], self.programs[name])]
            if not same:
                self.groups.append(Group([pattern], name))
            elif pattern not in same[0].patterns:
                same[0].patterns.append(pattern)
        self._order()

    def _looks_of_keys(self, look):
        """Returns a Look for each key of the dictionaries and sets that the name may be looked up in."""
        path, _, line = look.where.rpartition(":")
        return [look._replace(kind="equals", text=key) for key in self.contents.keys_at(path, int(line))
                if _cleaned(key) == re.sub(":0$", "", key) not in self.programs]

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
            self.groups.insert(0, Group([both], names[0]))
            return False
        raise PortError(
            "variables whose name matches both {} and {}, such as {}, have a rule of their own. Port it once for each "
            "kind of name, and join the definitions with everstep.partition".format(patterns[0], patterns[1], names[0]))

    # Sizes.

    def _check_sizes(self):
        """Refuses a rule that changes with the size of the variable."""
        base, numbers = self.rule.base.setting.shapes[0], sorted(
            each for each in self.contents.numbers if SMALL <= each <= MOST_ELEMENTS // 2)
        if len(numbers) > MOST_SIZES:
            self.unfollowed.append("its code has {} whole numbers that may be sizes; {} were tried ({})".format(
                len(numbers), MOST_SIZES, line_of(self.sizes[0])))
        shapes = [shape for number in numbers[:MOST_SIZES] for shape in _shapes_around(number)]
        for shape in shapes:
            outputs = self._program("theta", shape, "the size in " + line_of(self.sizes[0]))
            if not self.rule.is_same(outputs, self.rule.base.outputs):
                raise PortError(
                    "the rule changes with the size of the variable: it is another one for the shape {} than for {} "
                    "({}). Definitions have no sizes: port it once for each, with the size as an argument, and join "
                    "the definitions in `specialize`".format(shape, base, "; ".join(map(line_of, self.sizes[:3]))))


def _shapes_around(number):
    """Returns shapes that have a number as either size, and one in which both are larger."""
    larger = (number + 1, number + 1)
    is_small = larger[0] * larger[1] <= MOST_ELEMENTS
    return [(number, 2), (2, number), larger if is_small else (number + 1, 2)]


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
