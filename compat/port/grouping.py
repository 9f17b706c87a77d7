"""Names the options that choose between the rules of a definition, and writes `specialize`, which sets them."""
from __future__ import absolute_import, division, print_function

import re
from collections import OrderedDict, namedtuple

from everstep.compat.port.choices import quoted
from everstep.compat.port.spelling import declared_name
from everstep.errors import PortError

# Variables that have the same rule, by their names, sizes or dtypes. patterns: regular expressions that their names
# match, else (); name: one of these names, else "theta"; threshold: the `sizes.Threshold` that they reach, else None;
# dtypes: their dtypes, else ().
Group = namedtuple("Group", "patterns name threshold dtypes")


def flagged(groups, arguments, notes):
    """Gives each group an option that is true for its variables.

    Args:
        groups: [Group].
        arguments: {name: value} of the original. A list of patterns among them gives the option its name.
        notes: sentences for the report. They are added to.

    Returns:
        {name of that option: (name of the option that holds the patterns of the group, Group)}.

    Raises:
        PortError: the rule changes with more than one of names, sizes and dtypes.
    """
    if len(groups) > 1 and not (all(group.patterns for group in groups) or all(group.dtypes for group in groups)):
        raise PortError("its rule changes with more than one of the names, sizes and dtypes of variables. Port it once "
                        "for each kind, and join the definitions in `specialize`")
    lists = {tuple(value): name for name, value in arguments.items() if isinstance(value, (list, tuple))}
    flags = OrderedDict()
    for number, group in enumerate(groups, 1):
        ending = "_{}".format(number) if len(groups) > 1 else ""
        argument = lists.get(tuple(group.patterns))
        flag, option = "is_named" + ending, "names" + ending
        if group.threshold:
            flag = "is_large"
        elif group.dtypes:
            flag = "is_" + "_or_".join(group.dtypes)
        elif argument and len(groups) == 1:
            flag, option = "is_excluded", declared_name(argument)
            if any(re.escape(each) != each for each in group.patterns):
                notes.append(argument + " are regular expressions here, looked for in the variable's name")
        flags[flag] = option, group
    return flags


def specializing(flags):
    """Returns (imports, lines of `specialize`). flags: what `flagged` returned."""
    imports, lines, tests = [], ["", "    def specialize(self, variable):"], []
    for option, group in flags.values():
        if group.threshold:
            test = group.threshold.test
        elif group.dtypes:
            test = "variable.dtype " + ("== " + quoted(group.dtypes[0]) if len(group.dtypes) == 1 else
                                        "in " + quoted(group.dtypes))
        else:
            test = "any(re.search(pattern, variable.name) for pattern in self.{})".format(option)
        tests.append(test)
    for module, used in (("import re", "re.search"), ("import numpy as np", "np.")):
        imports += [module] if used in "".join(tests) else []
    if len(tests) > 1:
        for flag, test in zip(flags, tests):
            lines += ["        if {}:".format(test), "            return self.replace({}=True)".format(flag)]
        return imports, lines + ["        return self"]
    (flag, (_, group)), = flags.items()
    if group.patterns:
        return imports, lines + [
            "        matches = " + tests[0], "        return self.replace({}=bool(matches))".format(flag)]
    return imports, lines + ["        return self.replace({}={})".format(flag, tests[0])]
