"""The commands `everstep list` and `everstep show`: definitions, wrappers, schedules and recipes."""
from __future__ import absolute_import, division, print_function

import inspect
import sys
import textwrap

import everstep
from everstep import VARIABLE, optimizers
from everstep.compat.engine.fast_forward import replayed_steps
from everstep.compat.stock.registry import find_composed, find_name, spelled
from everstep.errors import ConfigError, EverstepError
from everstep.optimizers.contract import REQUIRED, Composite, Definition, Schedule
from everstep.recipes import recipes
from everstep.terminal import print_json, print_table, width, wrapped


def list_definitions(as_json=False, word=None):
    """Prints all definitions with their slots, then wrappers and schedules; with a word those that have it."""
    rows = []
    for name in optimizers.__all__:
        definition = getattr(optimizers, name)
        rows.append((definition.family, name, description(definition), ", ".join(slot_names(definition)) or "none"))
    rows.sort(key=lambda row: (row[0] == "wrappers", row[0].lower()))
    for name, schedule in sorted(schedules().items()):
        rows.append(("schedules", name, inspect.getdoc(schedule).split(". ")[0].split(".\n")[0] + ".", "none"))
    if word is not None:
        rows = [row for row in rows if word.lower() in " ".join(row[:3]).lower() or spelled(word) in spelled(row[1])]
        if not rows:
            raise ConfigError("no definition has {!r} in its name, family or description; `everstep list` prints "
                              "all".format(word))
    if as_json:
        print_json([dict(zip("family name description slots".split(), row)) for row in rows])
        return 0
    print_table("FAMILY NAME DESCRIPTION SLOTS", rows)
    print("\nA [slot] exists with some options only, see everstep show NAME. For recipes: everstep show recipes")
    return 0


def description(definition):
    """Returns what a definition is, in a line."""
    return inspect.getdoc(sys.modules[definition.__module__]).splitlines()[0]


def schedules():
    """Returns `{name: class}` of the schedules that ship."""
    return {name: value for name, value in vars(everstep).items()
            if isinstance(value, type) and issubclass(value, Schedule) and value is not Schedule}


def slot_names(definition):
    """Yields the names of slots, in brackets if they exist with some options only; numbered ones as one."""
    seen = set()
    for slot in declared(definition, "slot"):
        stem = slot.name.rstrip("0123456789")
        name = stem + "*" if stem != slot.name else slot.name
        if name not in seen:
            seen.add(name)
            yield name if slot.when is None else "[{}]".format(name)


def show(name, as_json=False):
    """Prints a definition, a stock optimizer's definition, a schedule, or recipes.

    Case and all but letters and digits make no difference in a name.
    """
    wanted = spelled(name)
    if wanted in ("recipe", "recipes"):
        return show_recipes(recipes(), as_json=as_json)
    shipped = {spelled(known): getattr(optimizers, known) for known in optimizers.__all__}
    if wanted in shipped:
        return show_definition(shipped[wanted], as_json)
    known_schedules = {spelled(known): value for known, value in schedules().items()}
    if wanted in known_schedules:
        return show_schedule(known_schedules[wanted], as_json)
    composed = find_composed(name)
    if composed is not None:
        if as_json:
            print_json(dict(name=str(name), call=call_of(composed), explanation=inspect.getdoc(composed)))
            return 0
        print("everstep.get({!r}, {}\n\n{}".format(
            str(name), call_of(composed).partition("(")[2], inspect.getdoc(composed)))
        return 0
    try:
        definition, entry = find_name(str(name).rpartition(".")[2])  # code has tf.train.AdamOptimizer
    except EverstepError as error:
        general = wanted in ("optimizer", "optimizers")  # whoever gives this word wants no recipe
        found = [] if general else [recipe for recipe in recipes() if has_words(recipe.title, name)]
        if found:
            return show_recipes(found, in_full=True, as_json=as_json)
        close = [known for known in schedules() if wanted[:6] and wanted[:6] in spelled(known)]
        raise type(error)("{}{}".format(error, "; or the schedule {}?".format(" or ".join(close)) if close else ""))
    if entry is not None and not as_json:
        print("{} of {} is everstep's {}, with {}.\n".format(
            entry.native, entry.home, definition.__name__, ", ".join(fixed_options(entry))))
    more = {} if entry is None else dict(stock=entry.native, api=entry.home, options=list(fixed_options(entry)))
    return show_definition(definition, as_json, **more)


def has_words(title, words):
    """Returns whether a title has the words, whole and one after another."""
    title, words = ([spelled(word) for word in text.split()] for text in (title, str(words)))
    return any(words and title[start : start + len(words)] == words for start in range(len(title)))


def fixed_options(entry):
    """Yields what sets a stock optimizer apart from its definition's defaults: `name=value`."""
    options = dict({entry.names[theirs]: value for theirs, value in entry.defaults.items()}, **entry.fixed)
    options["sparse"] = entry.sparse({})
    for name in entry.definition.argument_names():
        if name in options and options[name] is not REQUIRED:
            if options[name] != entry.definition.declarations[name].default:
                yield "{}={!r}".format(name, options[name])
    for theirs, ours in sorted(entry.names.items()):
        if theirs != ours:
            yield "{} for its {}".format(ours, theirs)


def show_definition(definition, as_json=False, **more):
    """Prints one definition. more: facts for programs."""
    if as_json:
        print_json(dict(definition_facts(definition), **more))
        return 0
    print("{}\n\n{}\n".format(definition.__name__, wrapped(without_arguments(definition), width(sys.stdout))))
    function = function_of(definition)
    if function is not None:
        explanation = "{}\n\n{}".format(call_of(function), inspect.getdoc(function).split("\n\n" + ">" * 3)[0])
        print(wrapped(explanation, width(sys.stdout)) + "\n")
    show_arguments(definition)
    print()
    print_table("STATE KIND START SHAPE EXISTS", state_rows(definition) or [("none", "", "", "", "")])
    print("\n" + textwrap.fill(sparse_behaviour(definition), min(110, width(sys.stdout) or 110)))
    return 0


def state_rows(definition):
    """Returns (name, kind, start, shape, when it exists) of each slot and scalar."""
    slots, scalars = declared(definition, "slot"), declared(definition, "scalar")
    rows = [(slot.name, "slot", starts(slot), shape(slot), when(definition, slot)) for slot in slots]
    return rows + [
        (each.name, "scalar", each.init, "one for all variables", when(definition, each)) for each in scalars]


def definition_facts(definition):
    """Returns what `show --json` prints of a definition."""
    return dict(
        name=definition.__name__, family=definition.family, description=description(definition),
        explanation=without_arguments(definition), arguments=argument_facts(definition),
        kernel=definition.kernel.name if definition.kernel else None, sparse=sparse_behaviour(definition),
        state=[dict(zip("name kind start shape exists".split(), map(plain, row))) for row in state_rows(definition)],
    )


def argument_facts(configured):
    """Returns the arguments of a definition or schedule, for programs."""
    facts = []
    for argument in map(configured.declarations.get, configured.argument_names()):
        facts.append(dict(name=argument.name, kind=argument.kind, takes=takes(argument),
                          required=argument.default is REQUIRED))
        if argument.default is not REQUIRED:
            facts[-1]["default"] = plain(argument.default)
    return facts


def plain(value):
    """Returns a value as JSON can have it."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def show_schedule(schedule, as_json=False):
    """Prints one schedule."""
    if as_json:
        print_json(dict(name=schedule.__name__, family="schedules", explanation=without_arguments(schedule),
                        arguments=argument_facts(schedule)))
        return 0
    explanation = wrapped(without_arguments(schedule), width(sys.stdout))
    print("everstep.{}\n\n{}\n".format(schedule.__name__, explanation))
    show_arguments(schedule)
    usage = "everstep.optimizers.Adam(everstep.{}(...))".format(schedule.__name__)
    said = "A schedule stands in place of a number: {}. It counts updates.".format(usage)
    print("\n" + wrapped(said, width(sys.stdout)))
    return 0


def show_recipes(chosen, in_full=False, as_json=False):
    """Prints the titles of recipes, or the recipes in full."""
    if as_json:
        print_json([dict(title=recipe.title, text=recipe.text) for recipe in chosen])
        return 0
    if not in_full:
        print_table("RECIPE FOR", [(recipe.title, recipe.first_sentence) for recipe in chosen])
        print("\neverstep show WORD prints the recipes that have the word in their title.")
        return 0
    for recipe in chosen:
        print("{}\n\n{}\n".format(recipe.title, recipe.text))
    return 0


def without_arguments(configured):
    """Returns a docstring up to its `Args:`."""
    return inspect.getdoc(configured).split("\nArgs:")[0].rstrip()


def show_arguments(configured):
    """Prints the arguments of a definition or schedule."""
    arguments = [configured.declarations[argument] for argument in configured.argument_names()]
    print_table("ARGUMENT KIND DEFAULT TAKES", [(a.name, a.kind, default(a), takes(a)) for a in arguments])


def function_of(definition):
    """Returns the function of everstep that makes a wrapper, or None."""
    if not issubclass(definition, Composite):
        return None
    named = [name for name in everstep.__all__ if spelled(name) == spelled(definition.__name__)]
    return getattr(everstep, named[0]) if named else None


def call_of(function):
    """Returns how a function is called, with its defaults."""
    if hasattr(inspect, "signature"):
        return "everstep.{}{}".format(function.__name__, inspect.signature(function))
    python_2 = vars(inspect)
    return "everstep.{}{}".format(
        function.__name__, python_2["formatargspec"](*python_2["getargspec"](function)))


def declared(definition, kind):
    """Returns the declarations of a kind, in the order of the class body."""
    return [d for d in map(definition.declarations.get, definition.declared_order) if d.kind == kind]


def default(argument):
    """Returns the default of an argument, in words."""
    return "(must be given)" if argument.default is REQUIRED else repr(argument.default)


def takes(argument):
    """Returns the values that an argument takes, in words."""
    if argument.kind == "child":
        return "a definition"
    if getattr(argument, "choices", None):
        return " or ".join(map(repr, argument.choices))
    low, high = argument.minimum, argument.maximum
    if low is not None and high is not None:
        return "{} to {}".format(low, high)
    if low is not None or high is not None:
        return "at least {}".format(low) if high is None else "at most {}".format(high)
    return "True or False" if isinstance(argument.default, bool) else ""


def starts(slot):
    """Returns the initial value of a slot, in words."""
    if slot.init is VARIABLE:
        return "the variable's value"
    return "by a function" if callable(slot.init) else slot.init


def shape(slot):
    """Returns the shape of a slot, in words, and its dtype if it declares one."""
    if callable(slot.shape):
        name = "depends on the variable"
    else:
        name = {None: "the variable's", "row": "one per row", (): "one number"}.get(slot.shape, slot.shape)
    return "{}, {}".format(name, slot.dtype) if slot.dtype else str(name)


def when(definition, slot):
    """Returns when a slot or scalar exists, in words."""
    if slot.when is None:
        return "always"
    if callable(slot.when):
        return "depends on options"
    by_hyper = definition.declarations.get(slot.when) in declared(definition, "hyper")
    return "unless {} is given as 0".format(slot.when) if by_hyper else "with {}".format(slot.when)


def sparse_behaviour(definition):
    """Describes what a sparse gradient does. `zero_grad_is_noop` may depend on options, which a class does not know."""
    if issubclass(definition, Composite):
        return "Sparse gradients: as for the definition inside, except as described above."
    places = {
        "element": "each element is updated by itself",
        "row": "each row is updated by itself",
        "variable": "the rule needs the whole variable, so sparse gradients are made dense",
    }
    costs = {True: "at the cost of the rows present", False: "at the cost of the whole variable"}
    cost = costs.get(
        definition.zero_grad_is_noop,
        "at the cost of the rows present if a zero gradient changes nothing, else of the whole variable",
    )
    text = (
        'Sparse gradients: {}. sparse="exact" does what the dense gradient with zeros elsewhere would do, {}.'.format(
            places.get(definition.locality, "it depends on options which elements are updated together"), cost
        )
    )
    if definition.locality != "variable":
        text += (
            ' "rows" changes only the rows present. {}. "variable_rows" changes slots as "exact" does, but of the '
            "variable only the rows present.".format(catching_up(definition))
        )
    return text


def catching_up(definition):
    """Describes what `sparse="catch_up"` does. A class alone cannot tell a `max_replay_steps` that is a property."""
    if "measure" in vars(definition) and definition.without_grad is Definition.without_grad:
        return '"catch_up" is refused, since the rule measures all rows of a step'
    steps = definition.max_replay_steps
    if not isinstance(steps, property):
        try:
            steps = replayed_steps(definition(sparse="catch_up"))
        except EverstepError:
            return '"catch_up" is refused with the default options, which need the whole variable'
    closed = definition.fast_forward is not Definition.fast_forward
    if steps == 0:
        how = "at once, by a closed form"
    else:
        how = "some one by one" if isinstance(steps, property) else "the first {} one by one".format(steps)
    if steps != 0 and closed:
        how += ", the rest by a closed form"
    return '"catch_up" first takes the updates that a row missed: {}'.format(how)
