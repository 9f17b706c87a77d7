"""The matrix tests the installed package, and its cells match its table."""
from __future__ import absolute_import, division, print_function

import ast
import glob
import io
import os
import subprocess
import sys

import pytest

import cells
import everstep
import generate

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.dirname(os.path.abspath(everstep.__file__))
FRAMEWORKS = {"h5py", "jax", "keras", "optax", "tensorflow", "tf_keras", "torch"}


def setup_cfg(section, key):
    parser = cells.RawConfigParser()
    parser.read(os.path.join(ROOT, "setup.cfg"))
    return parser.get(section, key)


def folder_map():
    return dict(line.split(" = ") for line in setup_cfg("options", "package_dir").strip().splitlines())


def dist_info(name):
    """Returns the text of a file in the installed distribution's metadata."""
    paths = glob.glob(os.path.join(os.path.dirname(PACKAGE), "everstep-*.dist-info", name))
    if not paths and not os.environ.get("EVERSTEP_CELL"):
        pytest.skip("everstep is not installed from a wheel here; in every cell of the matrix it is")
    assert len(paths) == 1, paths
    with io.open(paths[0], encoding="utf-8") as file:
        return file.read()


def sources(*folders):
    for folder in folders:
        for path, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith(".py"):
                    yield os.path.join(path, name)


# The matrix

def test_the_generated_files_are_current():
    assert generate.stale(generate.generated()) == [], "run python matrix/generate.py"


def test_keras_without_tensorflow_is_told_its_backend():
    for cell in cells.read().values():
        pins = cell.pins
        if "keras" in pins and "tensorflow" not in pins:
            assert cell.env["KERAS_BACKEND"] in pins, cell.name


def test_torch_is_its_cpu_build_and_brings_nothing():
    for cell in cells.read().values():
        assert not any(package.startswith(("torch", "nvidia")) for package in cell.packages), cell.name
        brings = any(package.startswith("nvidia") for package in cell.no_deps)  # an old one, which needs them
        assert all(package.endswith("+cpu") != brings for package in cell.no_deps if package.startswith("torch=")), cell


# (target of the cases, or None for those without; the first and the last TensorFlow of the quick cells that share them;
# what is in the names of the others that do)
SHARING = [
    (None, "1.4", "1.13", ""), (None, "1.14", "2.10", ""), (None, "2.11", "2.15", "-tfk"), (None, "2.16", "99", "-k3"),
    (None, "0", "0", "-numpy"),
    ("tf_train", "1.4", "1.15", ""), ("tf_train", "2.0", "99", ""), ("get_updates", "1.4", "1.13", ""),
    ("optimizer_v2", "2.0", "2.15", "-tfk"), ("update_step", "2.11", "2.15", "-tfk"), ("keras3", "2.16", "99", "-k3"),
]


def shares(cell, first, last, others):
    """Returns whether a cell has a TensorFlow from `first` to `last`, or is one of the others."""
    if others and others in cell.name:
        return True
    first, last, tensorflow = [version and tuple(map(int, version.split(".")[:2]))
                               for version in (first, last, cell.pins.get("tensorflow"))]
    return bool(tensorflow) and first <= tensorflow <= last


@pytest.mark.parametrize("target, first, last, others", SHARING)
def test_the_quick_cells_of_an_api_have_all_parts(target, first, last, others):
    missing = set(range(2520))  # a case of each remainder, for 1 to 9 parts
    for cell in cells.read().values():
        if cell.group == "quick" and shares(cell, first, last, others):
            missing -= {case for case in missing if cells.has_case(cell.parts, target, case)}
    assert not missing


def test_every_known_failure_names_a_cell():
    for entry in cells.known_failures():
        assert any(cells.matches(entry.cells, cell) for cell in cells.read()), entry


def test_only_the_star_is_special_in_a_pattern():
    assert cells.matches("tests/test_a.py::test[Adam-*]", "tests/test_a.py::test[Adam-dense]")
    assert not cells.matches("tests/test_a.py::test[Adam-*]", "tests/test_a.py::testA")
    assert not cells.matches("py3", "py36")


# What is installed

def test_setup_cfg_lists_exactly_the_packages():
    folders = {os.path.relpath(os.path.dirname(path), ROOT) for path in sources("api", "compat", "optimizers")}
    folders = {path.replace(os.sep, "/") for path in folders}
    assert set(folder_map().values()) == folders
    assert set(setup_cfg("options", "packages").split()) == set(folder_map())
    assert all(os.path.exists(os.path.join(ROOT, path, "__init__.py")) for path in folders)


def test_everything_is_installed():
    here = {os.path.join(name.replace(".", os.sep), os.path.basename(path)) for name, folder in folder_map().items()
            for ending in ("*.py", "*.pyi") for path in glob.glob(os.path.join(ROOT, folder, ending))}
    there = set()
    for path, _, names in os.walk(PACKAGE, followlinks=True):
        there.update(os.path.relpath(os.path.join(path, name), os.path.dirname(PACKAGE))
                     for name in names if name.endswith((".py", ".pyi")))
    assert here == there
    assert os.path.join("everstep", "optimizers", "__init__.pyi") in there
    data = ["py.typed", "recipes.md", "matrix_kit/cells.ini", "matrix_kit/proven.json"]
    data += ["template/" + name for name in os.listdir(os.path.join(ROOT, "api", "template"))]
    assert all(os.path.exists(os.path.join(PACKAGE, name)) for name in data)


def test_nothing_but_everstep_lands_at_the_top_level():
    paths = [line.split(",")[0] for line in dist_info("RECORD").splitlines()]
    tops = {path.split("/")[0] for path in paths if not path.startswith("../")}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"everstep"}
    scripts = {path for path in paths if path.startswith("../")}
    assert {os.path.splitext(os.path.basename(path))[0] for path in scripts} == {"everstep"}


def test_one_wheel_serves_python_2_and_3():
    tags = {line for line in dist_info("WHEEL").splitlines() if line.startswith("Tag:")}
    assert tags == {"Tag: py2-none-any", "Tag: py3-none-any"}


def test_the_version_is_one():
    assert everstep.__version__ == setup_cfg("metadata", "version")
    assert "\nVersion: %s\n" % everstep.__version__ in dist_info("METADATA")


def test_what_is_tested_is_what_is_installed():
    assert not PACKAGE.startswith(os.path.join(ROOT, "api"))
    assert not {"compat", "optimizers"}.intersection(sys.modules)


# What its sources import

def test_all_that_ships_compiles_on_this_python():
    for path in sources("api", "compat", "optimizers"):
        with open(path, "rb") as file:
            compile(file.read(), path, "exec", dont_inherit=True)


def test_every_module_starts_alike():
    future = {"absolute_import", "division", "print_function"}
    for path in sources("api", "compat", "optimizers"):
        body = [node for node in parse(path).body if not isinstance(node, ast.Expr)]  # without the docstring
        first = [alias.name for node in body if getattr(node, "module", "") == "__future__" for alias in node.names]
        assert not body or future.issubset(first), path


def test_importing_everstep_imports_no_framework():
    code = ("import sys, everstep, everstep.cli, everstep.compat, everstep.optimizers\n"
            "print(sorted(%r & {name.split('.')[0] for name in sys.modules}))" % FRAMEWORKS)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.communicate()[0].decode().strip() == "[]"


def parse(path):
    with open(path, "rb") as file:
        return ast.parse(file.read(), path)


def imported(tree):
    """Yields (line, module) for every import of a module, by statement or by call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.lineno, node.module
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__", "find_spec"):
                literal = node.args[0]
                yield node.lineno, str(literal.value if hasattr(literal, "value") else getattr(literal, "s", ""))


def version_checks(tree):
    """Yields (line, expression) for every check of a Python or package version."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("__version__", "version_info", "hexversion",
                                                             "python_version", "python_version_tuple", "PY2", "PY3"):
            yield node.lineno, node.attr
    for line, name in imported(tree):
        if name.split(".")[0] in ("packaging", "pkg_resources", "distutils", "six"):
            yield line, "import " + name


@pytest.mark.parametrize("path", [os.path.relpath(path, ROOT) for path in sources("api", "optimizers")])
def test_only_compat_knows_a_framework_or_a_version(path):
    tree = parse(os.path.join(ROOT, path))
    assert [item for item in imported(tree) if item[1].split(".")[0] in FRAMEWORKS] == []
    assert list(version_checks(tree)) == []


def test_the_scan_sees_what_it_should():
    tree = ast.parse("import keras.backend\nfrom tensorflow import x\nimportlib.import_module('jax')\n"
                     "if tf.__version__ < '2': pass\nfrom packaging import version\nsys.version_info >= (3,)\n"
                     "from . import keras\n__version__ = '1'\n")
    assert [item for item in imported(tree) if item[1].split(".")[0] in FRAMEWORKS] == [
        (1, "keras.backend"), (2, "tensorflow"), (3, "jax")]
    assert sorted(version_checks(tree)) == [(4, "__version__"), (5, "import packaging"), (6, "version_info")]
