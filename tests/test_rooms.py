"""The package is a stack of rooms: imports point down, and never in a circle."""
from __future__ import absolute_import, division, print_function

import ast
import io
import os

import pytest

from everstep.compat.engine.fused import KERNELS
from everstep.optimizers.contract.binder import Binder
from everstep.optimizers.contract.kernel_names import KERNEL_NAMES

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LONGEST = 449  # maximum number of lines of a shipped file
FOLDERS = {"api": "everstep", "compat": "everstep.compat", "optimizers": "everstep.optimizers"}
# From the top down. A module belongs to the longest name that is a prefix: api/ is "everstep", except for errors.
ROOMS = (
    "everstep.testing",
    "everstep",
    "everstep.compat.extras",
    "everstep.compat.ways",
    "everstep.compat.state",
    "everstep.compat.checkpoints",
    "everstep.compat.files",
    "everstep.compat.port",
    "everstep.compat.stock",
    "everstep.compat.targets",
    "everstep.compat.engine",
    "everstep.compat.backends",
    "everstep.compat.rules",
    "everstep.optimizers",  # includes everstep.optimizers.wrappers
    "everstep.optimizers.contract",
    "everstep.errors",
)
# {path:imported module: the reason why the import is not at the top of the file}
LATE = {
    "compat/targets/detect.py:everstep.compat.targets": "a target is loaded when its API is first spoken",
}


def shipped():
    """Returns {path: (module name, source)} of everything that is installed. Paths use / on every system."""
    files = {}
    for folder, package in FOLDERS.items():
        for path, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in names:
                if name.endswith(".py"):
                    inside = os.path.relpath(os.path.join(path, name), os.path.join(ROOT, folder)).replace(os.sep, "/")
                    module = (package + "/" + inside[: -len(".py")]).replace("/", ".").replace(".__init__", "")
                    with io.open(os.path.join(path, name), "rb") as file:
                        files[folder + "/" + inside] = module, file.read()
    return files


def imports(path, module, source, known):
    """Yields (imported everstep module, True if inside a function or by a call) for one file."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    inside = {id(below) for function in functions for below in ast.walk(function)}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "{} imports relatively".format(path)
            names = [node.module + "." + alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            literals = [below.value if hasattr(below, "value") else getattr(below, "s", "") for below in ast.walk(node)]
            names = [text for text in literals if isinstance(text, str)]
        for name in names:
            if name.split(".")[0] == "everstep":
                while name not in known:  # `name` may be a name in a module, or the constant start of a computed name
                    name = name.rpartition(".")[0]
                yield name, id(node) in inside or isinstance(node, ast.Call)


class Rooms(object):
    """The imports of some files.

    Attributes:
        graph: {module: the modules that it imports}
        late: {"path:module"} of imports inside functions and by calls.
    """

    def __init__(self, files):
        self.graph, self.late = {}, set()
        known = {module for module, _ in files.values()}
        for path, (module, source) in files.items():
            imported = list(imports(path, module, source, known))
            self.graph[module] = {name for name, _ in imported}
            self.late.update("{}:{}".format(path, name) for name, late in imported if late)
            if path == "optimizers/__init__.py":  # it imports every module that it finds
                self.graph[module].update(name for name in known if self.room(name) == self.room(module) != name)

    @staticmethod
    def room(module):
        return max((room for room in ROOMS if (module + ".").startswith(room + ".")), key=len)

    def upward(self):
        """Returns ["module -> module"] of the imports that point up, including imports of api/__init__ from below."""
        level = lambda module: ROOMS.index(self.room(module))  # noqa: E731
        return sorted("{} -> {}".format(module, name) for module, names in self.graph.items() for name in names
                      if level(name) < level(module))

    def circles(self):
        """Returns the modules whose imports lead back to themselves."""
        reached = {module: set(names) for module, names in self.graph.items()}
        for middle in reached:
            for names in reached.values():
                if middle in names:
                    names.update(reached[middle])
        return sorted(module for module, names in reached.items() if module in names)


FILES = shipped()
HERE = Rooms(FILES)


def test_the_files_are_found():
    modules = {module for module, _ in FILES.values()}
    assert {"everstep", "everstep.errors", "everstep.optimizers.adam", "everstep.compat.engine.step"} < modules
    assert "everstep.optimizers.contract.binder" in HERE.graph["everstep"]
    assert {"everstep.optimizers.adam", "everstep.optimizers.wrappers.clip"} < HERE.graph["everstep.optimizers"]


def test_imports_point_down():
    assert HERE.upward() == []


def test_no_imports_go_round():
    assert HERE.circles() == []


def test_imports_stand_at_the_top_of_a_file():
    assert HERE.late == set(LATE)


def test_nothing_stands_outside_of_the_rooms():
    assert len([path for path in FILES if path.startswith("compat/") and path.count("/") == 1]) <= 2


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_file_is_short(path):
    lines = FILES[path][1].count(b"\n")
    assert lines <= LONGEST


def test_mistakes_are_seen():
    step, rule, errors = "everstep.compat.engine.step", "everstep.optimizers.rule", "everstep.errors"
    good = {
        "api/errors.py": (errors, ""),
        "optimizers/rule.py": (rule, "from everstep.errors import RuleError\nimport numpy"),
        "compat/engine/step.py": (step, "import everstep.errors\nfrom everstep.optimizers import rule"),
        "optimizers/__init__.py": ("everstep.optimizers", ""),
        "api/__init__.py": ("everstep", "from everstep.compat.engine.step import Step"),
    }
    rooms = Rooms(good)
    assert (rooms.upward(), rooms.circles(), rooms.late) == ([], [], set())
    assert rooms.graph[step] == {errors, rule} and rooms.graph["everstep.optimizers"] == {rule}

    late = "def update(self):\n    from everstep.compat.engine.step import Step\n"
    rooms = Rooms(dict(good, **{"optimizers/rule.py": (rule, late)}))
    assert rooms.upward() == [rule + " -> " + step]
    assert rooms.circles() == [step, rule]
    assert rooms.late == {"optimizers/rule.py:" + step}

    rooms = Rooms(dict(good, **{"api/errors.py": (errors, "from everstep import __version__")}))
    assert rooms.upward() == [errors + " -> everstep"]
    assert rooms.circles() == ["everstep", step, errors, rule]

    called = 'importlib.import_module("everstep.optimizers." + name)'
    rooms = Rooms(dict(good, **{"optimizers/rule.py": (rule, called)}))
    assert rooms.circles() == ["everstep.optimizers", rule]
    assert rooms.late == {"optimizers/rule.py:everstep.optimizers"}


# References that are passed down to the contract

def test_an_unset_binder_says_so():
    with pytest.raises(AttributeError, match="binder.check is not set: everstep/__init__"):
        Binder().check(None)


def test_the_engine_has_the_kernels_of_the_contract():
    assert set(KERNELS) == KERNEL_NAMES
