"""The command line: shows what is installed, shows definitions, and inspects and converts files of optimizer state."""
from __future__ import absolute_import, division, print_function

import argparse
import contextlib
import inspect
import json
import sys
import textwrap
import unicodedata

from everstep import VARIABLE, __version__, optimizers
from everstep.compat.state import files, verify
from everstep.compat.targets import doctor
from everstep.compat.targets.detect import WHAT_WORKS
from everstep.errors import ConfigError, EverstepError, FileError
from everstep.optimizers.contract import REQUIRED, Composite, Definition

WRITTEN = ("everstep", "tf-saver", "keras-h5", "keras", "keras-weights-h5")
LARGE = 1 << 26  # progress is shown for files of at least this many bytes


def main(arguments=None):
    """Runs one command.

    Returns:
        The exit code: 0; 1 if `doctor` finds a broken package, or `verify` a damaged file; 2 for a wrong call.
    """
    parser = argparse.ArgumentParser(
        prog="everstep", description="Write an optimizer once, run it on every TensorFlow and Keras."
    )
    parser.add_argument("--version", action="version", version="everstep " + __version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    look = commands.add_parser("doctor", help="show what is installed, and the optimizer API of each module")
    look.add_argument("--verbose", action="store_true", help="also show how updates can run here, see docs/speed.md")
    look.set_defaults(run=show_installed)
    commands.add_parser("list", help="list all definitions").set_defaults(run=list_definitions)
    show = commands.add_parser("show", help="show a definition: formula, arguments, slots, how stock optimizers differ")
    show.add_argument("name", metavar="NAME")
    show.set_defaults(run=lambda options: show_definition(options.name))
    look = commands.add_parser("inspect", help="show the optimizer state in a file of any format")
    look.add_argument("file", metavar="FILE", help="the file; of a TensorFlow checkpoint the path without .index")
    add_reading(look)
    look.set_defaults(run=inspect_file)
    look = commands.add_parser("verify", help="read a file as a whole, and compare its checksums")
    look.add_argument("file", metavar="FILE", help="the file, as for inspect")
    add_max_bytes(look)
    look.add_argument("--json", action="store_true", help="print JSON instead of tables")
    look.set_defaults(run=verify_file)
    convert = commands.add_parser("convert", help="write an optimizer state to a file of another format")
    convert.add_argument("source", metavar="SRC", help="the file to read, as for inspect")
    convert.add_argument("target", metavar="DST", help="the file to write")
    convert.add_argument("--to", required=True, metavar="FORMAT", help=", ".join(WRITTEN))
    add_reading(convert)
    convert.add_argument("--template", metavar="FILE", help="for Keras's formats: a file with the model and optimizer")
    ours = "for tf-saver: name slots as everstep does; for keras-weights-h5: the template is of an everstep optimizer"
    convert.add_argument("--ours", action="store_true", help=ours)
    rename = "rename variables: OLD is a regular expression for the whole name in SRC, NEW the name in DST"
    convert.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help=rename)
    convert.add_argument("--by-order", action="store_true", help="match variables by their order if no name matches")
    convert.add_argument("--dry-run", action="store_true", help="read and match, but write nothing")
    convert.set_defaults(run=convert_file)
    options = parser.parse_args(arguments)
    if options.command is None:  # Python 2 refuses this itself
        parser.error("give a command: doctor, list, show, inspect, verify or convert")
    try:
        return options.run(options)
    except EverstepError as error:
        print(printable("everstep: {}".format(error), sys.stderr), file=sys.stderr)
        return 2


def show_installed(options):
    """Prints the installed packages and the optimizer API of each module. Returns 1 if a package is broken, else 0."""
    packages = list(doctor.packages())
    rows = [(package.name, package.version or package.broken or "not installed") for package in packages]
    print_table("INSTALLED VERSION", [("everstep", __version__)] + rows)
    print()
    print_table("MODULE TARGET WHY", [(row.module, row.target or "none", row.why) for row in doctor.speaks()])
    print("\n{}.".format(WHAT_WORKS))
    if options.verbose:
        print()
        print_table("STRATEGY HERE", list(doctor.strategies()) or [("plain", "the others need TensorFlow")])
        print()
        print_table("DEFINITION KERNEL VARIABLES ROWS", list(doctor.kernels()) or [("none", "", "", "")])
    return 1 if any(package.broken for package in packages) else 0


def list_definitions(options):
    """Prints all definitions with their slots, wrappers last."""
    rows = []
    for name in optimizers.__all__:
        definition = getattr(optimizers, name)
        slots = ", ".join(
            slot.name if slot.when is None else "[{}]".format(slot.name) for slot in declared(definition, "slot")
        )
        description = inspect.getdoc(sys.modules[definition.__module__]).splitlines()[0]
        rows.append((definition.family, name, description, slots or "none"))
    rows.sort(key=lambda row: (row[0] == "wrappers", row[0].lower()))
    print_table("FAMILY NAME DESCRIPTION SLOTS", rows)
    print("\nA [slot] exists with some options only, see everstep show NAME.")
    return 0


def show_definition(name):
    """Prints one definition. Upper and lower case are the same in its name."""
    definition = {known.lower(): getattr(optimizers, known) for known in optimizers.__all__}.get(name.lower())
    if definition is None:
        raise ConfigError(
            "there is no definition called {!r}; known are {}".format(name, ", ".join(optimizers.__all__))
        )
    print("{}\n\n{}\n".format(definition.__name__, inspect.getdoc(definition).split("\nArgs:")[0].rstrip()))
    arguments = [definition.declarations[argument] for argument in definition.argument_names()]
    print_table("ARGUMENT KIND DEFAULT TAKES", [(a.name, a.kind, default(a), takes(a)) for a in arguments])
    slots, scalars = declared(definition, "slot"), declared(definition, "scalar")
    state = [(slot.name, "slot", starts(slot), shape(slot), when(definition, slot)) for slot in slots]
    state += [(scalar.name, "scalar", scalar.init, "one for all variables", "always") for scalar in scalars]
    print()
    print_table("STATE KIND START SHAPE EXISTS", state or [("none", "", "", "", "")])
    print("\n" + sparse_behaviour(definition))
    return 0


def add_reading(command):
    """Adds the arguments for facts that a file may lack."""
    optimizer = 'the stock optimizer that wrote the state: Adam, or "Momentum(learning_rate=0.1, momentum=0.9)"'
    command.add_argument("--optimizer", help=optimizer)
    updates = "the number of updates so far, if the file does not hold it, or the name of the array that does"
    command.add_argument("--updates", type=number_or_name, help=updates)
    slot = "the names of a slot of an optimizer written by hand: m={var}/adam_m; --optimizer is then a definition"
    command.add_argument("--slot", action="append", metavar="SLOT=NAME", help=slot)
    command.add_argument("--learning-rate", type=float, help="the rate when the file was written, to rescale momentum")
    command.add_argument("--variables", help="the names of the trained variables in order: A,B,C")
    add_max_bytes(command)
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")


def add_max_bytes(command):
    """Adds the argument that allows packed files to become large."""
    bound = "how many bytes a packed file may unpack to; default: 20 times its size, at least 64 MiB"
    command.add_argument("--max-bytes", type=int, help=bound)


def number_or_name(text):
    """Returns text as an int if it is one."""
    try:
        return int(text)
    except ValueError:
        return text


def slot_patterns(texts):
    """Returns {slot: pattern} of SLOT=NAME texts; None if there are none."""
    wrong = [text for text in texts or () if "=" not in text]
    if wrong:
        raise ConfigError("--slot takes SLOT=NAME, such as m={{var}}/adam_m; got {!r}".format(wrong[0]))
    return dict(text.split("=", 1) for text in texts) if texts else None


def reading(options):
    """Returns those arguments as keywords of `read_checkpoint`."""
    variables = options.variables.split(",") if options.variables else None
    keywords = {name: getattr(options, name) for name in ("optimizer", "updates", "learning_rate", "max_bytes")}
    return dict(keywords, variables=variables, slots=slot_patterns(options.slot))


def inspect_file(options):
    """Prints the optimizer state in a file: settings and counts, slots, and why it cannot be read if so."""
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
    print_table("FIELD VALUE", [(name, "not known" if value is None else value) for name, value in rows])
    print()
    slots = [(variable or "", slot, str(tuple(shape)), dtype) for variable, slot, shape, dtype in facts["slots"]]
    print_table("VARIABLE SLOT SHAPE DTYPE", slots or [("none", "", "", "")])
    for kind in ("missing", "notes"):
        for text in facts[kind]:
            label = {"missing": "cannot be read as a state", "notes": "note"}[kind]
            print("\n" + printable("{}: {}".format(label, text), sys.stdout))
    return 0


def verify_file(options):
    """Prints for each array in a file if it is whole. Returns 1 if the file is damaged, else 0."""
    try:
        format, arrays = verify.stored_arrays(options.file, options.max_bytes)
    except FileError as error:
        if options.json:
            print(json.dumps(dict(file=options.file, error=str(error)), indent=2, sort_keys=True))
        else:
            print(printable("everstep: {}".format(error), sys.stderr), file=sys.stderr)
        return 1
    total = sum(map(verify.size_of, arrays))
    with progress(total) as moved:
        results = [verify.verify_array(array, moved) for array in arrays]
    damaged = sum(result.is_damaged for result in results)
    notes = [verify.NO_CHECKSUM] if any(result.checksum == "none" and result.dtype for result in results) else []
    if options.json:
        facts = dict(file=options.file, format=format, damaged=damaged, bytes=total, notes=notes)
        facts["arrays"] = [dict(result._asdict()) for result in results]
        print(json.dumps(facts, indent=2, sort_keys=True))
        return 1 if damaged else 0
    print_table("ARRAY SHAPE DTYPE CHECKSUM RESULT", [result[:-1] for result in results] or [("none", "", "", "", "")])
    state = "is damaged: {} of".format(damaged) if damaged else "was read, without an error:"
    summary = "{} {} {} arrays, {} bytes, {}".format(options.file, state, len(results), total, format)
    print("\n" + printable(summary, sys.stdout))
    for note in notes:
        print("note: {}".format(note))
    return 1 if damaged else 0


def convert_file(options):
    """Writes the state of one file to another, and prints how variables were matched."""
    state = files.read_checkpoint(options.source, **reading(options))
    total = files.size_of(state)
    with progress(total if not options.dry_run else 0) as moved:
        names = "template ours learning_rate rename by_order dry_run".split()
        keywords = {name: getattr(options, name) for name in names}
        report = files.write_checkpoint(state, options.target, options.to, moved=moved, **keywords)
    facts = dict(
        source=options.source, target=options.target, format=options.to, written=not options.dry_run, bytes=total,
        updates=state.updates, definition=state.definition, variables=[list(match) for match in report.matches],
        notes=report.notes,
    )
    if options.json:
        print(json.dumps(facts, indent=2, sort_keys=True))
        return 0
    print_table("VARIABLE SOURCE MATCHED-BY", facts["variables"])
    done = "{} {}: {}, {} updates, {} variables, {} bytes".format(
        options.target, "would be written" if options.dry_run else "is written", options.to, state.updates,
        len(state.slots), total)
    print("\n" + printable(done, sys.stdout))
    for note in report.notes:
        print(printable("note: {}".format(note), sys.stdout))
    return 0


@contextlib.contextmanager
def progress(total):
    """Gives a function to call with the number of bytes done. It shows a bar on stderr with tqdm, else lines."""
    if total < LARGE:
        yield lambda count: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        done = [0, 0]  # bytes, and the tenths of the total that were printed

        def moved(count):
            done[0] += count
            if done[0] * 10 // total > done[1]:
                done[1] = done[0] * 10 // total
                print("{} of {} MB".format(done[0] >> 20, total >> 20), file=sys.stderr)

        yield moved
        return
    with tqdm(total=total, unit="B", unit_scale=True, file=sys.stderr) as bar:
        yield bar.update


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
    return "the variable's value" if slot.init is VARIABLE else slot.init


def shape(slot):
    """Returns the shape of a slot, in words, and its dtype if it declares one."""
    if callable(slot.shape):
        name = "depends on the variable"
    else:
        name = {None: "the variable's", "row": "one per row", (): "one number"}.get(slot.shape, slot.shape)
    return "{}, {}".format(name, slot.dtype) if slot.dtype else str(name)


def when(definition, slot):
    """Returns when a slot exists, in words."""
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
            places[definition.locality], cost
        )
    )
    if definition.locality != "variable":
        text += (
            ' "rows" changes only the rows present. {}. "variable_rows" changes slots as "exact" does, but of the '
            "variable only the rows present.".format(catching_up(definition))
        )
    return textwrap.fill(text, 110)


def catching_up(definition):
    """Describes what `sparse="catch_up"` does. A class alone cannot tell a `max_replay_steps` that is a property."""
    if "measure" in vars(definition) and definition.without_grad is Definition.without_grad:
        return '"catch_up" is refused, since the rule measures all rows of a step'
    steps = definition.max_replay_steps
    closed = definition.fast_forward is not Definition.fast_forward
    if steps == 0:
        how = "at once, by a closed form"
    else:
        how = "some one by one" if isinstance(steps, property) else "the first {} one by one".format(steps)
    if steps != 0 and closed:
        how += ", the rest by a closed form"
    return '"catch_up" first takes the updates that a row missed: {}'.format(how)


def print_table(header, rows):
    """Prints rows in columns that are as wide as their longest cell."""
    rows = [header.split()] + [[printable(cell, sys.stdout).replace("\n", "\\x0a") for cell in row]
                               for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def printable(value, stream):
    """Returns a value as text that a terminal only prints.

    Names come from files: control characters, which could make a terminal do something, and characters that the stream
    cannot encode are escaped.
    """
    text = str(value)
    if isinstance(text, bytes):  # Python 2
        text = text.decode("utf-8", "replace")
    text = "".join(
        char if char == "\n" or unicodedata.category(char)[0] != "C" else "\\x%02x" % ord(char) for char in text
    )
    encoding = getattr(stream, "encoding", None) or "utf-8"
    encoded = text.encode(encoding, "backslashreplace")
    return encoded if str is bytes else encoded.decode(encoding)
