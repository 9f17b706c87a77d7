"""The command `everstep`: what is installed here, what the definitions are, and what files of optimizers hold."""
from __future__ import absolute_import, division, print_function

import argparse
import contextlib
import inspect
import json
import sys
import textwrap

from everstep import VARIABLE, __version__, optimizers
from everstep.compat.state import files
from everstep.compat.targets import doctor
from everstep.compat.targets.detect import WHAT_WORKS
from everstep.errors import ConfigError, EverstepError
from everstep.optimizers.contract import REQUIRED, Composite, Definition

WRITTEN = ("everstep", "tf-saver", "keras-h5", "keras", "keras-weights-h5")
LARGE = 1 << 26  # bytes from which progress is shown


def main(arguments=None):
    """Runs one command; the exit code is 0, 1 where the doctor finds something broken, or 2 for what makes no sense."""
    parser = argparse.ArgumentParser(
        prog="everstep", description="Write an optimizer once, run it on every TensorFlow and Keras."
    )
    parser.add_argument("--version", action="version", version="everstep " + __version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    look = commands.add_parser("doctor", help="what is installed here, and which target each module speaks")
    look.add_argument("--verbose", action="store_true", help="also how updates can be carried out, see docs/speed.md")
    look.set_defaults(run=show_installed)
    commands.add_parser("list", help="the definitions").set_defaults(run=list_definitions)
    show = commands.add_parser("show", help="a definition: formula, hypers, slots, and where stock optimizers differ")
    show.add_argument("name", metavar="NAME")
    show.set_defaults(run=lambda options: show_definition(options.name))
    look = commands.add_parser("inspect", help="what optimizer's state a file holds, whatever its format")
    look.add_argument("file", metavar="FILE", help="a file, or of a TensorFlow checkpoint the path without .index")
    add_reading(look)
    look.set_defaults(run=inspect_file)
    convert = commands.add_parser("convert", help="an optimizer's state, in a file of another format")
    convert.add_argument("source", metavar="SRC")
    convert.add_argument("target", metavar="DST")
    convert.add_argument("--to", required=True, metavar="FORMAT", help=", ".join(WRITTEN))
    add_reading(convert)
    convert.add_argument("--template", metavar="FILE", help="for Keras's formats: a file with the model and optimizer")
    convert.add_argument("--ours", action="store_true", help="name slots as optimizers do that everstep bound")
    say = "a variable's name there; OLD is a pattern"
    convert.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help=say)
    convert.add_argument("--by-order", action="store_true", help="match variables that no name matches in their order")
    convert.add_argument("--dry-run", action="store_true", help="read and match, and write nothing")
    convert.set_defaults(run=convert_file)
    options = parser.parse_args(arguments)
    if options.command is None:  # Python 2 refuses this itself
        parser.error("which command? doctor, list, show, inspect or convert")
    try:
        return options.run(options)
    except EverstepError as error:
        print("everstep: {}".format(error), file=sys.stderr)
        return 2


def show_installed(options):
    packages = list(doctor.packages())
    rows = [(package.name, package.version or package.broken or "not installed") for package in packages]
    print_table("INSTALLED VERSION", [("everstep", __version__)] + rows)
    print()
    print_table("MODULE TARGET WHY", [(found.module, found.target or "none", found.why) for found in doctor.speaks()])
    print("\n{}.".format(WHAT_WORKS))
    if options.verbose:
        print()
        print_table("STRATEGY HERE", list(doctor.strategies()) or [("plain", "there is no other without TensorFlow")])
        print()
        print_table("DEFINITION KERNEL VARIABLES ROWS", list(doctor.kernels()) or [("none", "", "", "")])
    return 1 if any(package.broken for package in packages) else 0


def list_definitions(options):
    rows = []
    for name in optimizers.__all__:
        made = getattr(optimizers, name)
        slots = ", ".join(
            slot.name if slot.when is None else "[{}]".format(slot.name) for slot in declared(made, "slot")
        )
        rows.append((made.family, name, inspect.getdoc(sys.modules[made.__module__]).splitlines()[0], slots or "none"))
    rows.sort(key=lambda row: (row[0] == "wrappers", row[0].lower()))
    print_table("FAMILY NAME WHAT SLOTS", rows)
    print("\n[a slot] is there with some settings only: everstep show NAME")
    return 0


def show_definition(name):
    made = {known.lower(): getattr(optimizers, known) for known in optimizers.__all__}.get(name.lower())
    if made is None:
        raise ConfigError(
            "there is no definition called {!r}; known are {}".format(name, ", ".join(optimizers.__all__))
        )
    print("{}\n\n{}\n".format(made.__name__, inspect.getdoc(made).split("\nArgs:")[0].rstrip()))
    arguments = [made.declarations[argument] for argument in made.argument_names()]
    print_table("ARGUMENT KIND DEFAULT TAKES", [(a.name, a.kind, default(a), takes(a)) for a in arguments])
    state = [(slot.name, "slot", starts(slot), shape(slot), when(made, slot)) for slot in declared(made, "slot")]
    state += [
        (scalar.name, "scalar", scalar.init, "one for all variables", "always") for scalar in declared(made, "scalar")
    ]
    print()
    print_table("STATE KIND START SHAPE EXISTS", state or [("none", "", "", "", "")])
    print("\n" + sparse_behaviour(made))
    return 0


def add_reading(command):
    """The arguments that say what a file does not."""
    say = 'the stock optimizer that trained: Adam, or "Momentum(learning_rate=0.1, momentum=0.9)"'
    command.add_argument("--optimizer", help=say)
    command.add_argument("--updates", type=int, help="how many updates were made, where the file does not say")
    command.add_argument("--learning-rate", type=float, help="the rate that was in force, to rescale momentum with")
    command.add_argument("--variables", help="names of the trained variables in order: A,B,C")
    command.add_argument("--json", action="store_true", help="for programs")


def reading(options):
    """The same, as `read_checkpoint` takes them."""
    variables = options.variables.split(",") if options.variables else None
    said = {name: getattr(options, name) for name in ("optimizer", "updates", "learning_rate")}
    return dict(said, variables=variables)


def inspect_file(options):
    facts = files.inspect(options.file, **reading(options))
    if options.json:
        print(json.dumps(facts, indent=2, sort_keys=True))
        return 0
    hypers = {name: value for name, value in (facts["definition"] or {}).items() if name != "module"}
    rows = [(name, facts[name]) for name in ("format", "writer", "api", "optimizer")]
    rows.append(("definition", hypers.pop("definition", "the file does not say")))
    rows += [(name, value) for name, value in sorted(hypers.items()) if not isinstance(value, dict)]
    rows += [(name, facts[name]) for name in ("updates", "steps", "pending") if facts[name] is not None]
    rows += sorted(facts["scalars"].items())
    print_table("WHAT IS", [(name, "not known" if value is None else value) for name, value in rows])
    print()
    slots = [(variable or "", slot, str(tuple(shape)), dtype) for variable, slot, shape, dtype in facts["slots"]]
    print_table("VARIABLE SLOT SHAPE DTYPE", slots or [("none", "", "", "")])
    for kind in ("missing", "notes"):
        for text in facts[kind]:
            print("\n{}: {}".format({"missing": "cannot be read as a state", "notes": "note"}[kind], text))
    return 0


def convert_file(options):
    state = files.read_checkpoint(options.source, **reading(options))
    total = files.size_of(state)
    with progress(total if not options.dry_run else 0) as moved:
        given = "template ours learning_rate rename by_order dry_run".split()
        how = {name: getattr(options, name) for name in given}
        report = files.write_checkpoint(state, options.target, options.to, moved=moved, **how)
    facts = dict(
        source=options.source, target=options.target, format=options.to, written=not options.dry_run, bytes=total,
        updates=state.updates, definition=state.definition, variables=[list(match) for match in report.matches],
        notes=report.notes,
    )
    if options.json:
        print(json.dumps(facts, indent=2, sort_keys=True))
        return 0
    print_table("VARIABLE WAS MATCHED-BY", facts["variables"])
    print("\n{} {}: {}, {} updates, {} variables, {} bytes".format(
        options.target, "would be written" if options.dry_run else "is written", options.to, state.updates,
        len(state.slots), total))
    for note in report.notes:
        print("note: {}".format(note))
    return 0


@contextlib.contextmanager
def progress(total):
    """A function to call with the number of bytes done: a bar on stderr where tqdm is installed, else lines."""
    if total < LARGE:
        yield lambda count: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        done = [0, 0]

        def moved(count):
            done[0] += count
            if done[0] * 10 // total > done[1]:
                done[1] = done[0] * 10 // total
                print("{} of {} MB".format(done[0] >> 20, total >> 20), file=sys.stderr)

        yield moved
        return
    with tqdm(total=total, unit="B", unit_scale=True, file=sys.stderr) as bar:
        yield bar.update


def declared(made, kind):
    return [made.declarations[name] for name in made.declared_order if made.declarations[name].kind == kind]


def default(argument):
    return "(must be given)" if argument.default is REQUIRED else repr(argument.default)


def takes(argument):
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
    return "the variable's value" if slot.init is VARIABLE else slot.init


def shape(slot):
    if callable(slot.shape):
        name = "by variable"
    else:
        name = {None: "the variable's", "row": "one for each row", (): "one number"}.get(slot.shape, slot.shape)
    return "{}, {}".format(name, slot.dtype) if slot.dtype else str(name)


def when(made, slot):
    if slot.when is None:
        return "always"
    if callable(slot.when):
        return "by its settings"
    by_hyper = made.declarations.get(slot.when) in declared(made, "hyper")
    return "unless {} is given as 0".format(slot.when) if by_hyper else "with {}".format(slot.when)


def sparse_behaviour(made):
    """Describes what a sparse gradient does. `zero_grad_is_noop` may depend on options, which a class does not know."""
    if issubclass(made, Composite):
        return "Sparse gradients: as the definition inside says, but for what is said above."
    places = {
        "element": "each element is updated by itself",
        "row": "each row is updated by itself",
        "variable": "the rule needs the whole variable, so sparse gradients are made dense",
    }
    cost = {True: "it costs what the rows present cost", False: "it costs what the whole variable costs"}
    text = (
        'Sparse gradients: {}. sparse="exact" does what the dense gradient with zeros elsewhere would do; {}.{}'.format(
            places[made.locality],
            cost.get(made.zero_grad_is_noop, "if a zero gradient changes nothing, it costs what the rows present cost"),
            ""
            if made.locality == "variable"
            else ' sparse="rows" changes only the rows present; {}; "variable_rows" moves slots as exact does, and of '
            "the variable the rows present.".format(catching_up(made)),
        )
    )
    return textwrap.fill(text, 110)


def catching_up(made):
    """What `sparse="catch_up"` does; a property tells it by settings that a class alone does not have."""
    if "measure" in vars(made) and made.without_grad is Definition.without_grad:
        return '"catch_up" is refused, since the rule measures all rows of a step'
    steps = "some" if isinstance(made.max_replay_steps, property) else "{}".format(made.max_replay_steps)
    closed = made.fast_forward is not Definition.fast_forward
    how = "in one by a closed form" if steps == "0" else "one by one, the first {}".format(steps)
    if steps != "0" and closed:
        how += ", and the rest by a closed form"
    return '"catch_up" first takes the steps that a row missed, {}'.format(how)


def print_table(header, rows):
    rows = [header.split()] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
