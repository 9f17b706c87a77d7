"""Writes the type stubs of everstep.optimizers from the declarations; runs on NumPy alone.

    python tests/make/stubs.py            # `--check` only says which files are old

Type checkers and editors read the stubs: a constructor that is made from declarations cannot be read from the code.
One stub has all optimizers, one all wrappers; their modules have none. Some stubs are written by hand,
because a checker sees more in them than a declaration says.
"""
import inspect
import os
import re
import sys

import everstep
from everstep.optimizers.contract.composite import Composite
from everstep.optimizers.contract.configured import Configured
from everstep.optimizers.contract.declarations import REQUIRED, Hyper, Option
from everstep.optimizers.contract.signature import GIVEN, OF_INNER

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = {"everstep.optimizers": "optimizers", "everstep.compat": "compat", "everstep": "api"}
HEAD = "# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py\n"
BY_HAND = {"everstep.optimizers.contract." + name for name in ("configured", "declarations", "definition", "types")}
BY_HAND.add("everstep.compat.targets.native")
PACKAGES = ("everstep.optimizers.wrappers", "everstep.optimizers")
MADE_TO_SUBCLASS = {Composite, everstep.Wrapper, everstep.Schedule}  # whose constructors take what a subclass declares
OPERATORS = {"__call__", "__neg__"}.union(*(("__{}__".format(name), "__r{}__".format(name))
                                            for name in ("add", "sub", "mul", "truediv")))
TYPING = {name: "typing" for name in ("Any", "Literal")}
TYPING.update((kind, "everstep.optimizers.contract.declarations") for kind in ("Child", "Hyper", "Option", "Scalar",
                                                                             "Slot"))
TYPING.update(Definition="everstep.optimizers.contract.definition",
              Schedule="everstep.optimizers.contract.schedule_base",
              HyperValue="everstep.optimizers.contract.types")


def classes():
    """All definition and schedule classes that ship, and what they inherit from."""
    shipped = {made for made in Configured.registered() if made.__module__.startswith("everstep.")
               and getattr(sys.modules[made.__module__], made.__name__, None) is made}  # doctests make others there
    return {base for made in shipped for base in made.__mro__ if issubclass(base, Configured)}


def generated():
    """{path: text} of every stub."""
    modules = {made.__module__ for made in classes()} - BY_HAND
    texts = {stub_path(name): module_stub(sys.modules[name]) for name in modules
             if name.rpartition(".")[0] not in PACKAGES}
    texts.update((stub_path(name), package_stub(sys.modules[name])) for name in PACKAGES)
    return texts


def stub_path(module):
    package = next(package for package in FOLDERS if (module + ".").startswith(package + "."))
    path = os.path.join(ROOT, FOLDERS[package], *module[len(package) + 1:].split("."))
    return os.path.join(path, "__init__.pyi") if module in PACKAGES else path + ".pyi"


def module_stub(module):
    """The stub of a module: what is public in it."""
    own = [value for name, value in vars(module).items()
           if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")]
    return Stub(own).text()


def package_stub(package):
    """The stub of a package: what it offers of its modules, and by name what it offers of another package."""
    values = sorted((getattr(package, name) for name in package.__all__), key=lambda value: value.__module__)
    own = [value for value in values if value.__module__.rpartition(".")[0] == package.__name__]
    others = "".join("from {0} import {1} as {1}\n".format(value.__module__.rpartition(".")[0], value.__name__)
                     for value in values if value not in own)
    listed = "".join("    {},\n".format(quoted(name)) for name in package.__all__)
    return Stub(own).text(others) + "\n__all__ = [\n" + listed + "]\n"


class Stub:
    """The text for classes and functions.

    Attributes:
        own: these classes and functions.
        imports: {name: the module it is from} of what the text uses.
    """

    def __init__(self, own):
        self.own, self.imports = own, {}

    def text(self, others=""):
        """Returns the stub, with more lines of imports."""
        blocks = ["\n" + self.class_(made) for made in self.own if isinstance(made, type)]
        blocks += ["\n" + self.function(made) for made in self.own if inspect.isfunction(made)]
        used = set(re.findall(r"\b\w+\b", "".join(blocks)))
        imports = {name: TYPING[name] for name in used & set(TYPING)}
        imports.update(self.imports)
        own = {made.__name__ for made in self.own}
        imports = {name: at for name, at in imports.items() if name not in own}
        return HEAD + import_lines(imports) + others + "".join(blocks)

    def class_(self, made):
        bases = [base for base in made.__bases__ if issubclass(base, Configured)]  # others mix in what no user calls
        self.imports.update((base.__name__, base.__module__) for base in bases if base not in self.own)
        body = []
        own = vars(made)
        declared = [name for name in made.declared_order if name in own]
        for name in declared:
            body.append("{}: {}".format(name, declared_type(made.declarations[name])))
        inherited = {name for base in made.__bases__ for name in dir(base)} | set(everstep.Definition.verbs)
        for name, value in own.items():
            if (not name.startswith("_") or name in OPERATORS) and name not in declared and name not in inherited:
                body.append(self.member(name, value, name in getattr(made, "verbs", ())))
        if made not in MADE_TO_SUBCLASS:
            body.append(self.constructor(made, inspect.signature(made).parameters.values()))
        return self.block(made, bases, body)

    @staticmethod
    def block(made, bases, body):
        lines = "".join("    {}\n".format(line) for entry in body for line in entry.splitlines())
        head = "class {}({}):".format(made.__name__, ", ".join(base.__name__ for base in bases))
        return "{}\n{}".format(head, lines) if lines else head + " ...\n"

    def member(self, name, value, is_verb):
        """One line or more; a verb's arguments are given by position, so that an override may call them as it likes."""
        if isinstance(value, property):
            return "@property\ndef {}(self) -> Any: ...".format(name)
        if isinstance(value, (staticmethod, classmethod)):
            return "@{}\n{}".format(type(value).__name__, self.function(value.__func__))
        if is_verb:
            return self.function(value).replace(") ->", ", /) ->")
        return self.function(value) if inspect.isfunction(value) else "{}: Any".format(name)

    def function(self, function):
        """A function's stub. One that makes a definition takes what its class declares."""
        returns = next((made for made in self.own if isinstance(made, type)
                        and made.__name__.lower() == function.__name__.replace("_", "")), None)
        types = {} if returns is None else argument_types(returns)
        takes = inspect.signature(function).parameters.values()
        if "." in function.__qualname__ or returns is None:
            takes = [each if each.name in ("self", "cls") else each.replace(annotation="Any") for each in takes]
        else:
            takes = [each.replace(annotation="Definition" if each.name == "definition" else types.get(each.name, "Any"))
                     for each in takes]
        return definition_line(function.__name__, takes, returns.__name__ if returns else "Any")

    @staticmethod
    def constructor(made, takes):
        types = argument_types(made)
        takes = [each.replace(annotation="Definition" if each.kind == each.VAR_KEYWORD else types[each.name])
                 for each in takes]
        return definition_line("__init__", [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)] + takes,
                               "None", "self")


def argument_types(made):
    return {name: argument_type(made.declarations[name]) for name in made.argument_names()}


def argument_type(declaration):
    """What a constructor takes for a declaration."""
    if isinstance(declaration, Hyper):
        return "HyperValue"
    return option_type(declaration) if isinstance(declaration, Option) else "Definition"


def declared_type(declaration):
    """What stands for a declaration in a class body."""
    kind = next(base.__name__ for base in type(declaration).__mro__ if base.__name__ in TYPING)
    return "Option[{}]".format(option_type(declaration)) if kind == "Option" else kind


def option_type(option):
    default = option.default
    if type(option) is not Option or default is REQUIRED:
        return "Any"
    if option.choices:
        return "Literal[{}]".format(", ".join(map(quoted, option.choices)))
    kind = type(default).__name__ if isinstance(default, (bool, int, float, str)) else "Any"
    if default is None and option.minimum is not None:
        kind = "float | None"
    if option.schedule == "any":
        return "HyperValue"
    return kind + " | Schedule" if option.schedule and kind != "Any" else kind


def definition_line(name, takes, returns, bare=""):
    """`def name(...) -> returns: ...`, in one line if that is short, else with one argument in a line."""
    shown, keyword_only = [], False
    for each in takes:
        if each.kind == each.KEYWORD_ONLY and not keyword_only:
            shown.append("*")
            keyword_only = True
        text = {each.VAR_KEYWORD: "**", each.VAR_POSITIONAL: "*"}.get(each.kind, "") + each.name
        annotated = each.annotation is not each.empty
        text += ": {}".format(each.annotation) if annotated else ""
        if each.default is not each.empty:
            equals = " = " if annotated else "="
            text += "" if each.default is GIVEN else equals + shown_default(each.default)
        shown.append(text)
    line = "def {}({}) -> {}: ...\n".format(name, ", ".join(shown), returns)
    if len(line) < 110:
        return line
    return "def {}(\n{}) -> {}: ...\n".format(name, "".join("    {},\n".format(text) for text in shown), returns)


def shown_default(value):
    plain = isinstance(value, (bool, int, float, str, type(None))) or value == ()
    return quoted(value) if plain and value is not OF_INNER else "..."


def quoted(value):
    return '"{}"'.format(value) if isinstance(value, str) else repr(value)


def import_lines(imports):
    by_module = {}
    for name, module in imports.items():
        by_module.setdefault(module, []).append(name)
    ours = [(module, names) for module, names in sorted(by_module.items()) if module != "typing"]
    lines = ["from typing import {}".format(", ".join(sorted(by_module["typing"])))] if "typing" in by_module else []
    lines += [""] if lines and ours else []
    lines += [import_line(module, ", ".join(sorted(names))) for module, names in ours]
    return "\n".join(lines) + "\n" if lines else ""


def import_line(module, names):
    line = "from {} import {}".format(module, names)
    return line if len(line) <= 120 else "from {} import (\n    {},\n)".format(module, names)


def stale():
    """{path: text, or None if there should be no such file} of the stubs that are old."""
    texts = generated()
    by_hand = {stub_path(name) for name in BY_HAND}
    there = {os.path.join(path, name) for folder in FOLDERS.values()
             for path, _, names in os.walk(os.path.join(ROOT, folder)) for name in names if name.endswith(".pyi")}
    return {path: texts.get(path) for path in set(texts) | (there - by_hand) if read(path) != texts.get(path)}


def read(path):
    if not os.path.exists(path):
        return None
    with open(path, encoding="ascii") as file:
        return file.read()


if __name__ == "__main__":
    old = stale()
    if "--check" in sys.argv:
        sys.exit("old: {}; run python tests/make/stubs.py".format(", ".join(sorted(old))) if old else 0)
    for path, text in sorted(old.items()):
        print("removing" if text is None else "writing", os.path.relpath(path, ROOT))
        if text is None:
            os.remove(path)
        else:
            with open(path, "w", encoding="ascii", newline="\n") as file:
                file.write(text)
