"""The command line, run in a separate process, on whatever is installed."""
from __future__ import absolute_import, division, print_function

import os
import subprocess
import sys

import pytest

import everstep
from everstep.cli import slot_patterns
from everstep.compat.engine.lowering import STRATEGIES
from everstep.compat.targets import detect, doctor


def run(*arguments, **options):
    """Returns (exit code, stdout, stderr)."""
    environment = dict(os.environ, **options.get("environment", {}))
    process = subprocess.Popen(
        [sys.executable, "-m", "everstep"] + list(arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    output, complaint = process.communicate()
    return process.returncode, output.decode(), complaint.decode()


def table(output, first):
    """Returns the rows of the table whose header starts with `first`, each split at its columns."""
    lines = iter(output.splitlines())
    header = next(line for line in lines if line.startswith(first))
    starts = [
        place for place in range(len(header)) if header[place] != " " and (place == 0 or header[place - 1] == " ")
    ]
    rows = []
    for line in lines:
        if not line:
            break
        rows.append([line[start:end].strip() for start, end in zip(starts, starts[1:] + [None])])
    return rows


def test_doctor_says_what_is_installed_and_what_it_speaks():
    code, output, complaint = run("doctor", "--verbose")
    assert code == 0, complaint
    installed = dict(table(output, "INSTALLED"))
    assert installed["everstep"] == everstep.__version__
    assert installed["python"] == "{}.{}.{}".format(*sys.version_info[:3])
    for name in ("numpy", "tensorflow", "jax", "torch", "keras", "tf_keras"):
        try:
            assert installed[name] == __import__(name).__version__
        except ImportError:
            assert installed[name] == "not installed"
    assert installed.get("keras runs on") == (
        None if installed["keras"] == "not installed" else __import__("keras").backend.backend()
    )
    rows = {module: (target, why) for module, target, why in table(output, "MODULE")}
    assert rows["numpy"][0] == "arrays"
    here = {name: module for name, module in detect.known_modules() if module is not None}
    assert set(rows) == set(here)
    for name, (target, why) in rows.items():
        try:
            api = detect.find(here[name])
        except everstep.errors.TargetError:
            assert target == "none" and why
        else:
            assert target == api.target.name
            assert why.startswith("{}.{}: ".format(api.base.__module__, api.base.__name__)), why
    assert "What works: " in output and "tf.compat.v1.train" in output
    strategies, kernels = dict(table(output, "STRATEGY")), table(output, "DEFINITION")
    if installed["tensorflow"] == "not installed":
        assert list(strategies) == ["plain"] and kernels == [["none", "", "", ""]]
    else:
        assert set(strategies) == set(STRATEGIES) and strategies["kernel"] == "yes"
        assert ["SGD", "apply_momentum", "resource, ref", "resource, ref"] in kernels


def test_doctor_reports_a_broken_framework(tmp_path):
    broken = tmp_path / "tensorflow"
    broken.mkdir()
    (broken / "__init__.py").write_text(u"raise RuntimeError('libcuda is older than time')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code, output, _ = run("doctor", environment={"PYTHONPATH": path})
    assert code == 1
    assert dict(table(output, "INSTALLED"))["tensorflow"] == "RuntimeError: libcuda is older than time"
    assert [row[1] for row in table(output, "MODULE") if row[0] == "numpy"] == ["arrays"]  # it went on after the error


def test_doctor_reports_a_keras_without_its_backend():
    keras, tensorflow = (dict(detect.known_modules()).get(name) for name in ("keras", "tensorflow.keras"))
    if keras is None or tensorflow is not None:
        pytest.skip("Keras 3 without TensorFlow is not in this environment")
    code, output, _ = run("doctor", environment={"KERAS_BACKEND": "tensorflow"})
    assert code == 1
    installed = dict(table(output, "INSTALLED"))
    assert installed["keras"] == "ModuleNotFoundError: No module named 'tensorflow'"
    assert installed["tensorflow"] == "not installed" and "keras runs on" not in installed


def test_list_has_every_definition_with_its_slots():
    code, output, complaint = run("list")
    assert (code, complaint) == (0, "")
    rows = {name: slots for _, name, _, slots in table(output, "FAMILY")}
    assert set(rows) == set(everstep.optimizers.__all__)
    families = [row[0] for row in table(output, "FAMILY")]
    assert families == sorted(families, key=lambda family: (family == "wrappers", family.lower()))
    assert rows["Adam"] == "m, v, [v_hat]" and rows["SGD"] == "[velocity]"
    assert all(what for _, _, what, _ in table(output, "FAMILY"))


@pytest.mark.shared  # the same everywhere
@pytest.mark.parametrize("name", everstep.optimizers.__all__)
def test_show_tells_all_that_is_declared(name):
    code, output, complaint = run("show", name)
    assert (code, complaint) == (0, "")
    definition = getattr(everstep.optimizers, name)
    assert [row[0] for row in table(output, "ARGUMENT")] == definition.argument_names()
    for argument, kind, default, _ in table(output, "ARGUMENT"):
        declared = definition.declarations[argument]
        assert kind == declared.kind
        assert default == ("(must be given)" if kind == "child" else repr(declared.default))
    state = [slot for slot in definition.declared_order if definition.declarations[slot].kind in ("slot", "scalar")]
    assert [row[0] for row in table(output, "STATE")] == (state or ["none"])
    assert "Sparse gradients: " in output


def test_show_tells_the_formula_and_where_stock_differs():
    _, output, _ = run("show", "adam")
    assert output.startswith("Adam\n\nAdam (Kingma & Ba 2015")
    assert "v := beta_2 * v + (1 - beta_2) * grad^2" in output
    assert "stock default: epsilon=1e-08" in output
    assert ">>>" not in output and "Args:" not in output
    assert table(output, "ARGUMENT")[1] == ["beta_1", "hyper", "0.9", "0 to 1"]
    assert table(output, "STATE")[2] == ["v_hat", "slot", "0.0", "the variable's", "with amsgrad"]
    _, output, _ = run("show", "SGD")
    assert table(output, "STATE") == [["velocity", "slot", "0.0", "the variable's", "unless momentum is given as 0"]]


def test_what_makes_no_sense_ends_with_2():
    code, output, complaint = run("show", "Adamant")
    assert (code, output) == (2, "")
    assert complaint.strip() == "everstep: there is no definition called 'Adamant'; known are {}".format(
        ", ".join(everstep.optimizers.__all__)
    )
    for arguments in ((), ("cure",), ("show",), ("list", "Adam")):
        code, output, complaint = run(*arguments)
        assert (code, output) == (2, "") and "usage: everstep" in complaint


def test_version_and_help():
    code, output, complaint = run("--version")
    assert code == 0 and (output + complaint).strip() == "everstep " + everstep.__version__  # Python 2: on stderr
    code, output, _ = run("--help")
    assert code == 0 and all(command in output for command in ("doctor", "list", "show"))


def test_the_name_of_a_slot_may_have_an_equals_sign():
    assert slot_patterns(["m={var}/a=b", "v={var}/v"]) == {"m": "{var}/a=b", "v": "{var}/v"}
    assert slot_patterns([]) is None


def test_kinds_of_variables_that_a_kernel_takes():
    kinds = [doctor._kinds(operations) for operations in ((None, None), ("Op", None), (None, "Op"), ("Op", "Op"))]
    assert kinds == ["none", "resource", "ref", "resource, ref"]
