"""The command line: shows what is installed, shows definitions, and inspects and converts files of optimizer state."""
from __future__ import absolute_import, division, print_function

import argparse
import difflib
import errno
import sys

try:
    from typing import Dict  # noqa: F401
except ImportError:  # Python 2
    pass

from everstep import __version__, completion, file_facts, optimizers, verify
from everstep.compat.checkpoints import files
from everstep.compat.checkpoints.claims import Request
from everstep.compat.checkpoints.identify import parsed
from everstep.compat.checkpoints.stripping import write_without_optimizer
from everstep.compat.files.contents import size_of
from everstep.compat.port import command
from everstep.compat.stock.registry import check_known
from everstep.compat.targets import doctor
from everstep.compat.targets.detect import WHAT_WORKS
from everstep.errors import ConfigError, EverstepError, FileError, NoFileError, PortError
from everstep.matrix_kit import commands as matrix_commands
from everstep.new import new
from everstep.plots import plot
from everstep.scan import report as scan_report
from everstep.show import list_definitions, schedules, show
from everstep.terminal import RED, leave_closed_pipe, painted, print_json, print_table, printable, progress, status

COMMANDS = ("doctor", "list", "show", "inspect", "verify", "convert", "port", "scan", "matrix", "new", "completion")
WRITTEN = ("everstep", "safetensors", "tf-saver", "keras-h5", "keras", "keras-weights-h5")


def main(arguments=None):
    """Runs one command. Without a command it prints the help.

    Returns:
        The exit code. 0: the command did what was asked, or the reader closed the pipe, as in `everstep list | head
        -1`. 1: `doctor` found a broken package, `verify` a damaged file, `port` no definition, or `scan` what
        --fail-on names. 2: the call is wrong, or a file is not there. 130: the user interrupted it.
    """
    parser = argument_parser()
    try:
        try:
            if not (sys.argv[1:] if arguments is None else arguments):
                parser.print_help()
                return 0
            options = parser.parse_args(as_options(sys.argv[1:] if arguments is None else arguments))
            if options.command is None:  # Python 2 refuses this itself
                parser.error("give a command, such as everstep doctor")
            return options.run(options)
        finally:
            sys.stdout.flush()  # here, because an error that Python meets as it exits is printed
    except EverstepError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except (IOError, OSError) as error:
        if error.errno != errno.EPIPE:
            raise
        leave_closed_pipe()
        return 0


def as_options(arguments):
    """Returns the arguments, with `help`, `help COMMAND` and `version` as the options that they stand for.

    Raises:
        ConfigError: there is no such command. The message has close ones.
    """
    first, rest = arguments[0], list(arguments[1:])
    if first in ("help", "version"):
        return rest[:1] + ["--" + first] if first == "help" else ["--version"]
    if first not in COMMANDS and not first.startswith("-"):
        close = difflib.get_close_matches(first, COMMANDS, 1)
        raise ConfigError("there is no command {!r}{}; `everstep help` lists them".format(
            first, "; did you mean `everstep {}`?".format(close[0]) if close else ""))
    return arguments


def complain(error):
    """Prints an error."""
    print(painted("everstep:", RED, sys.stderr) + printable(" {}".format(error), sys.stderr), file=sys.stderr)


class ShowVersion(argparse.Action):
    """Prints the version to the output; argparse on Python 2 prints it where errors go."""

    def __call__(self, parser, namespace, values, option_string=None):
        print("everstep " + __version__)
        parser.exit()


def argument_parser():
    """Returns the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="everstep", description="Write an optimizer once, run it on every TensorFlow and Keras."
    )
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    look = commands.add_parser("doctor", help="show what is installed, and the optimizer API of each module")
    look.add_argument("--verbose", action="store_true", help="also show how updates can run here, see docs/speed.md")
    add_json(look)
    look.set_defaults(run=show_installed)
    look = commands.add_parser("list", help="list definitions and schedules: all, or those in which a word occurs")
    look.add_argument("word", nargs="?", metavar="WORD", help="a part of a name, a family or a description")
    add_json(look)
    look.set_defaults(run=lambda options: list_definitions(options.json, options.word))
    look = commands.add_parser("show", help="show a definition: formula, arguments, slots; or recipes")
    look.add_argument("name", metavar="NAME", help="a definition, wrapper, schedule or stock optimizer; or: recipes")
    drawn = "draw with matplotlib into FILE or NAME.png how a definition descends, or the values of a schedule"
    look.add_argument("--plot", nargs="?", const="", metavar="FILE", help=drawn)
    add_json(look)
    look.set_defaults(run=show_or_plot)
    look = commands.add_parser("inspect", help="show the optimizer state in a file of any format")
    look.add_argument("file", metavar="FILE", help="the file; of a TensorFlow checkpoint the path without .index")
    add_reading(look)
    look.set_defaults(run=inspect_file)
    look = commands.add_parser("verify", help="read a whole file, and compare its checksums")
    look.add_argument("file", metavar="FILE", help="the file, as for inspect")
    add_max_bytes(look)
    add_json(look)
    look.set_defaults(run=verify_file)
    convert = commands.add_parser("convert", help="write a file's optimizer state in another format, or leave it out")
    convert.add_argument("source", metavar="SRC", help="the file to read, as for inspect")
    convert.add_argument("target", metavar="DST", help="the file to write")
    form = convert.add_mutually_exclusive_group(required=True)
    form.add_argument("--to", metavar="FORMAT", help=", ".join(WRITTEN))
    without = "copy SRC in the same format, without its optimizer state"
    form.add_argument("--without-optimizer", action="store_true", help=without)
    add_reading(convert)
    convert.add_argument("--template", metavar="FILE", help="for Keras's formats: a file with the model and optimizer")
    ours = "tf-saver: name slots as everstep does; keras-weights-h5: an everstep optimizer wrote the template"
    convert.add_argument("--ours", action="store_true", help=ours)
    rename = "rename variables: OLD is a regular expression for the whole name in SRC, NEW the name in DST"
    convert.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help=rename)
    convert.add_argument("--by-order", action="store_true", help="match variables by their order if no name matches")
    convert.add_argument("--dry-run", action="store_true", help="read and match, but write nothing")
    convert.set_defaults(run=lambda options: (strip_file if options.without_optimizer else convert_file)(options))
    ported = commands.add_parser("port", help="write an existing optimizer class as a definition, and compare both")
    ported.add_argument("optimizer", metavar="MODULE:CLASS", help="the class, or a function of keywords that makes it")
    ported.add_argument("--api", help="fail if it is of another API: tf.train, tf.keras, keras, or a target of doctor")
    given = "an argument of its constructor, a Python literal or text; numbers become hypers"
    ported.add_argument("-a", "--argument", action="append", default=[], metavar="NAME=VALUE", help=given)
    rows = "what to do with sparse gradients: exact, rows or variable_rows; needed if the original does none of them"
    ported.add_argument("--sparse", choices=("exact", "rows", "variable_rows"), help=rows)
    ported.add_argument("-o", "--output", metavar="FILE", help="write the definition to a new file, not to stdout")
    ported.add_argument("--test", action="store_true", help="write a test of it too, with numbers of the original")
    ported.set_defaults(run=port_optimizer)
    scanned = commands.add_parser("scan", help="find the optimizers of a code base, where they work, what to write")
    scan_report.add_arguments(scanned)
    cells = commands.add_parser("matrix", help="versions that install together; tests of your project in all of them")
    matrix_commands.add_commands(cells)
    package = commands.add_parser("new", help="write a package with your own optimizer, tested on every API")
    package.add_argument("package", metavar="PACKAGE", help="its name, such as my-optimizer")
    package.set_defaults(run=new_package)
    shell = commands.add_parser("completion", help="print a script that completes commands in bash, zsh or fish")
    shell.add_argument("shell", metavar="SHELL", choices=completion.SHELLS, help="bash, zsh or fish")
    shell.set_defaults(run=print_completion)
    return parser


def show_or_plot(options):
    """Prints what NAME is, or draws it."""
    if options.plot is None:
        return show(options.name, options.json)
    print(printable(plot(options.name, options.plot), sys.stdout))
    return 0


def add_json(command):
    """Adds the argument for output that programs read."""
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")


def print_completion(options):
    """Prints the script for a shell."""
    words = {"NAME": list(optimizers.__all__) + sorted(schedules()) + ["recipes"], "FORMAT": WRITTEN}
    print(completion.script(options.shell, argument_parser(), words))
    return 0


def show_installed(options):
    """Prints the installed packages and the optimizer API of each module. Returns 1 if a package is broken, else 0."""
    with status("importing the installed frameworks ..."):
        packages, modules = list(doctor.packages()), list(doctor.speaks())
    if options.json:
        print_json(installed_facts(packages, modules, options.verbose))
        return 1 if any(package.broken for package in packages) else 0
    rows = [(package.name, package.version or package.broken or "not installed") for package in packages]
    print_table("INSTALLED VERSION", [("everstep", __version__)] + rows)
    if any(package.broken for package in packages):
        print("\nA package that does not import may need older or newer ones beside it. `everstep matrix pins "
              "tensorflow==2.10`, for example, prints versions that work together.")
    print()
    print_table("MODULE TARGET WHY", [(row.module, row.target or "none", row.why) for row in modules])
    print("\n{}.".format(WHAT_WORKS))
    if options.verbose:
        print()
        print_table("STRATEGY HERE", list(doctor.strategies()) or [("plain", "the others need TensorFlow")])
        print()
        print_table("DEFINITION KERNEL VARIABLES ROWS", list(doctor.kernels()) or [("none", "", "", "")])
    return 1 if any(package.broken for package in packages) else 0


def installed_facts(packages, modules, verbose):
    """Returns what `doctor --json` prints."""
    facts = dict(
        everstep=__version__, packages=[dict(package._asdict()) for package in packages],
        modules=[dict(row._asdict()) for row in modules],
    )  # type: Dict[str, object]
    if verbose:
        names = "definition operation variables rows".split()
        facts.update(strategies=dict(doctor.strategies()),
                     kernels=[dict(zip(names, kernel)) for kernel in doctor.kernels()])
    return facts


def add_reading(command):
    """Adds the arguments for facts that a file may lack."""
    optimizer = 'the stock optimizer that wrote the state: Adam, or "Momentum(learning_rate=0.1, momentum=0.9)"'
    command.add_argument("--optimizer", help=optimizer)
    updates = "the number of updates so far, if the file does not hold it, or the name of the array that does"
    command.add_argument("--updates", type=number_or_name, help=updates)
    command.add_argument("--scope", help="which optimizer to read, if the file has several: its place in the file")
    slot = "names of the slots of your own optimizer class: m={var}/adam_m; --optimizer is then a definition"
    command.add_argument("--slot", action="append", metavar="SLOT=NAME", help=slot)
    command.add_argument("--learning-rate", type=float, help="the rate when the file was written, to rescale momentum")
    command.add_argument("--variables", help="the names of the trained variables in order: A,B,C")
    add_max_bytes(command)
    add_json(command)


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
    names = ("optimizer", "updates", "learning_rate", "scope", "max_bytes")
    keywords = {name: getattr(options, name) for name in names}
    if options.optimizer is not None:
        request = Request(None, options.optimizer, None, None, None, None, None)
        check_known(parsed(request).optimizer.name)
    return dict(keywords, variables=variables, slots=slot_patterns(options.slot))


def inspect_file(options):
    """Prints the optimizer state in a file: settings and counts, slots, and why it cannot be read if so."""
    facts = file_facts.inspect(options.file, **reading(options))
    if options.json:
        print_json(facts)
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
    for kind in ("missing", "rivals", "notes"):
        for text in facts[kind]:
            label = {"missing": "cannot be read as a state", "rivals": "it also has", "notes": "note"}[kind]
            print("\n" + printable("{}: {}".format(label, text), sys.stdout))
    return 0


def verify_file(options):
    """Prints for each array in a file if it is whole. Returns 1 if the file is damaged, 2 if there is none, else 0."""
    try:
        format, arrays = verify.stored_arrays(options.file, options.max_bytes)
    except FileError as error:
        if options.json:
            print_json(dict(file=options.file, error=str(error)))
        else:
            complain(error)
        return 2 if isinstance(error, NoFileError) else 1
    total = sum(size_of(array.handle) for array in arrays if array.handle is not None)
    with progress(total) as moved:
        results = [verify.verify_array(array, moved) for array in arrays]
    damaged = sum(result.is_damaged for result in results)
    notes = [verify.NO_CHECKSUM] if any(result.checksum == "none" and result.dtype for result in results) else []
    if options.json:
        facts = dict(file=options.file, format=format, damaged=damaged, bytes=total, notes=notes)
        facts["arrays"] = [dict(result._asdict()) for result in results]
        print_json(facts)
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
    handles = [handle for slots in state.slots.values() for handle in slots.values()]
    total = sum(map(size_of, handles + list(state.variables.values())))
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
        print_json(facts)
        return 0
    print_table("VARIABLE SOURCE MATCHED-BY", facts["variables"])
    done = "{} {}: {}, {} updates, {} variables, {} bytes".format(
        options.target, "would be written" if options.dry_run else "is written", options.to, state.updates,
        len(state.slots), total)
    print("\n" + printable(done, sys.stdout))
    for note in report.notes:
        print(printable("note: {}".format(note), sys.stdout))
    return 0


def strip_file(options):
    """Writes a copy of a file without its optimizer, and prints what is left out."""
    refused = [name for name in ("template", "ours", "rename", "by_order") if getattr(options, name)]
    if refused:
        raise ConfigError("--without-optimizer copies a file as it is, so --{} has no effect with it".format(
            refused[0].replace("_", "-")))
    keywords = reading(options)
    max_bytes = keywords.pop("max_bytes")
    stripped = write_without_optimizer(
        options.source, options.target, Request(**keywords), max_bytes, progress, options.dry_run)
    total = sum(map(size_of, stripped.removed.values()))
    rows = [(name, str(handle.shape), str(handle.dtype)) for name, handle in stripped.removed.items()]
    if options.json:
        print_json(dict(source=options.source, target=options.target, format=stripped.format, bytes=total,
                        written=not options.dry_run, removed=[row[0] for row in rows], notes=stripped.notes))
        return 0
    print_table("WITHOUT SHAPE DTYPE", rows)
    done = "{} {}: {}, without {} arrays of the optimizer, {} bytes".format(
        options.target, "would be written" if options.dry_run else "is written", stripped.format, len(rows), total)
    print("\n" + printable(done, sys.stdout))
    for note in stripped.notes:
        print(printable("note: {}".format(note), sys.stdout))
    return 0


def port_optimizer(options):
    """Prints or writes the definition that a foreign optimizer becomes. Returns 1 if it cannot be ported, else 0."""
    names = "api sparse output test".split()
    keywords = dict({name: getattr(options, name) for name in names}, given=options.argument)
    try:
        made = command.run(options.optimizer, progress=lambda text: print(text, file=sys.stderr), **keywords)
    except PortError as error:
        complain(error)
        return 1
    if not options.output:
        print(made.source)
    for line in made.report.lines():
        print(printable(line, sys.stderr), file=sys.stderr)
    if options.output:
        print(printable("{} is written".format(options.output), sys.stdout))
    return 0


def new_package(options):
    """Writes a package, and prints its files and what to do next."""
    for path in new(options.package):
        print(printable(path, sys.stdout))
    print("\nNext: cd {} && python -m pip install -e \".[test]\" && python -m pytest".format(options.package))
    return 0
