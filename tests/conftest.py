"""Checks that the cell has the versions that it pins, turns warnings into errors, and marks known failures as xfails.

`@pytest.mark.shared`, on a test or a module, splits its cases over the cells of the matrix, so that the matrix takes
less than an hour: a cell runs those in its `parts` of api/matrix_kit/cells.ini. `shared(False)` exempts one test of
such a module. Outside of a cell, and with EVERSTEP_FULL=1, all cases run.
"""
from __future__ import absolute_import, division, print_function

import gc
import importlib
import os
import platform
import sys
import warnings

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads it on import
os.environ.pop("COLUMNS", None)  # the width of tables, where somebody exports it

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "matrix"))

import cells  # noqa: E402

pytest.register_assert_rewrite("keras_suite", "runs")

CELL = os.environ.get("EVERSTEP_CELL")  # set by tox
FIFTH = os.environ.get("EVERSTEP_FIFTH")  # 0 to 4, set by matrix/run.py: which of its shared cases a quick cell runs
FULL = bool(os.environ.get("EVERSTEP_FULL"))
FRAMEWORKS = ("tensorflow", "jax", "torch", "keras", "tf_keras", "optax")
INSTALLED = {}  # {package: installed version, or None if it is not installed}

collect_ignore = [] if CELL in cells.read() and cells.read()[CELL].group == "clients" else ["clients"]

# Warnings that do not become errors: (filter, why we cannot fix it). The module is the one that warns.
OTHERS = "(tensorflow|keras|tf_keras|jax|wrapt|gast|astunparse|google|h5py|flatbuffers|tensorboard|pkg_resources)"
ALLOWED = [
    ("ignore::DeprecationWarning:" + OTHERS, "old frameworks use what a newer Python or NumPy gave up"),
    ("ignore::PendingDeprecationWarning:" + OTHERS, "the same"),
    ("ignore::FutureWarning:" + OTHERS, "the same"),
    ("ignore:np.asscalar:DeprecationWarning", "standalone Keras 2.2 calls it, and NumPy 1.16 warns in its own name"),
    ("ignore:You are saving your model as an HDF5 file:UserWarning", "Keras 2.13 and newer; we save one on purpose"),
    ("ignore:unclosed running multiprocessing pool", "MirroredStrategy of TF 2.8 leaves its threads to the collector"),
    ("ignore:Method:RuntimeWarning:" + OTHERS, "Keras 2 finds its callbacks slow, by the clock, on a busy machine"),
    ("ignore:Do not pass an `input_shape`:UserWarning", "Keras 3; Keras 2 knows no other way that all versions take"),
]


def pytest_configure(config):
    config.addinivalue_line("markers", "shared(whether=True): a cell of the matrix runs a part of its cases")
    config.addinivalue_line("filterwarnings", "error")
    for filter_, _ in ALLOWED:
        config.addinivalue_line("filterwarnings", filter_)


def pytest_sessionstart(session):
    # Import the frameworks before any test, so that no test fails for a warning that an import emits.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("numpy", "packaging") + FRAMEWORKS:
            INSTALLED[name] = _version(name)
    table = cells.read()
    if CELL and CELL not in table:
        pytest.exit("EVERSTEP_CELL is %s, which api/matrix_kit/cells.ini does not have" % CELL, returncode=3)
    wrong = _not_as_pinned(table[CELL]) if CELL else []
    if wrong:
        pytest.exit("%s is not what it says: %s" % (CELL, "; ".join(wrong)), returncode=3)


def _version(name):
    try:
        return importlib.import_module(name).__version__
    except ImportError as error:
        # A package that is installed but does not import is broken, not missing.
        missing = getattr(error, "name", str(error).split()[-1])  # Python 2: "No module named keras"
        return None if missing == name else "broken (%s)" % error
    except Exception as error:
        return "broken (%s)" % error


def _not_as_pinned(cell, compared=None):
    pins = cell.pins
    expected = {name: pins[name] for name in INSTALLED if name in pins}
    expected["python"] = cell.python
    for name in ("tensorflow", "jax", "torch"):
        expected.setdefault(name, None)
    if cell.kind == "numpy":
        expected.setdefault("keras", None)
    installed = dict(INSTALLED, python="%d.%d" % sys.version_info[:2])
    return ["%s is %s, should be %s" % (name, installed[name] or "absent", expected[name] or "absent")
            for name in sorted(expected)
            if not _is(installed[name], expected[name]) and name in (compared or expected)]


def _is(installed, expected):
    """Returns whether a version is the pinned one. PyPI's 2.0.1 of torch calls itself 2.0.1+cu117."""
    return expected in (installed, str(installed).partition("+")[0])


def cells_like_this():
    """Returns the names of the cells with this Python and these frameworks: in a cell of the matrix, its own."""
    names = [CELL] if CELL else [name for name, cell in cells.read().items() if cell.group in ("quick", "full")]
    wrong = {name: _not_as_pinned(cells.read()[name], ("python",) + FRAMEWORKS) for name in names}
    return [name for name in names if not wrong[name]]


def pytest_collection_modifyitems(config, items):
    parts = cells.read()[CELL].parts if CELL and not FULL else {None: ({1}, 1)}
    selected, deselected = [], []
    for item in items:
        number = cells.number_of(item.nodeid)
        is_selected = not _is_shared(item) or cells.has_case(parts, _target(item), number) and _is_in_fifth(number)
        (selected if is_selected else deselected).append(item)
    items[:] = selected
    config.hook.pytest_deselected(items=deselected)
    for entry in cells.known_failures():
        for item in items:
            if cells.matches(entry.cells, CELL or "") and cells.matches(entry.tests, item.nodeid):
                item.add_marker(pytest.mark.xfail(reason="%s (%s)" % (entry.cause, entry.link), strict=True))


def _is_in_fifth(number):
    return not FIFTH or FULL or cells.read()[CELL].group != "quick" or (number >> 16) % 5 == int(FIFTH)


def _target(item):
    """Returns the target of the way, the mode or the API among the arguments of a case; None if there is none."""
    arguments = getattr(item, "callspec", None)
    targets = {getattr(value, "target", None) for value in arguments.params.values()} if arguments else ()
    return next((target for target in targets if isinstance(target, str)), None)


def _is_shared(item):
    shared = item.get_closest_marker("shared")  # a mark on the test goes before one on its module
    return shared is not None and False not in shared.args


def pytest_terminal_summary(terminalreporter):
    versions = ["%s %s" % (name, INSTALLED[name]) for name in sorted(INSTALLED) if INSTALLED[name]]
    terminalreporter.write_line("cell %s: python %s, %s"
                                % (CELL or "(none)", platform.python_version(), ", ".join(versions)))


def pytest_collection_finish():
    """Freezes all imported objects, so that the collector does not walk a million framework objects again and again."""
    gc.collect()
    if hasattr(gc, "freeze"):  # Python 3.7 and newer
        gc.freeze()
    gc.set_threshold(20000, 10, 10)


@pytest.fixture(autouse=True)
def close_runs():
    """Closes the runs of harness.new_run."""
    yield
    harness = sys.modules.get("harness")
    while harness is not None and harness.open_runs:
        harness.open_runs.pop().close()


@pytest.fixture
def command(capsys):
    """Runs a command line in this process: in another one, imports take seconds. Returns (code, stdout, stderr)."""
    from everstep import cli

    return lambda *arguments: (cli.main(list(arguments)),) + tuple(capsys.readouterr())


@pytest.fixture
def shipped_only(monkeypatch):
    """Hides the definitions that other tests declare from look-ups by name."""
    from everstep import optimizers
    from harness import registry

    shipped = {name: [each for each in same if each is getattr(optimizers, name, None)]
               for name, same in registry.definition_classes().items()}
    monkeypatch.setattr(registry, "definition_classes", lambda: {name: same for name, same in shipped.items() if same})
