"""Signatures and type stubs say what constructors take. The lint cell runs pyright and mypy: tests/typing/check.py."""
from __future__ import absolute_import, division, print_function

import ast
import importlib
import inspect
import io
import os
import pydoc
import runpy
import sys

import numpy as np
import pytest

import everstep
import harness
from everstep.optimizers import SGD, Accumulate, Adam, Nadam, Partition
from everstep.optimizers.contract.composite import Composite
from everstep.optimizers.contract.signature import GIVEN, OF_INNER

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "make"), os.path.join(HERE, "typing")]
MODERN = sys.version_info >= (3, 9)
ADAM = ("(learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-07, amsgrad=False, bias_correction=True, "
        "*, corrected_root=False, sparse='exact', dense_ok=False")
SHIPPED = [made for made in everstep.Definition.registered() + everstep.Schedule.registered()
           if made.__module__.startswith("everstep.")]

python_3 = pytest.mark.skipif(sys.version_info < (3,), reason="Python 2.7 has no signatures")
modern = pytest.mark.skipif(not MODERN, reason="modern Python, as stubs are written with")
if MODERN:
    import check
    import stubs


# Signatures

@pytest.mark.skipif(sys.version_info > (3,), reason="other Pythons have signatures")
def test_python_2_goes_without():
    assert not hasattr(Adam, "__signature__")
    assert not hasattr(Adam.native_class(np), "__signature__")


@python_3
def test_the_signature_of_a_definition():
    assert str(inspect.signature(Adam)) == ADAM + ")"
    if sys.version_info >= (3, 7):  # whose `help` shows constructors
        assert "learning_rate=0.001" in pydoc.render_doc(Adam, renderer=pydoc.plaintext)
    assert str(inspect.signature(everstep.Warmup)) == "(of=0.001, steps=1.0, start=0.0, shift=False)"
    assert str(inspect.signature(everstep.Warmup())) == "(updates)"  # of calling it
    assert not hasattr(Adam(), "__signature__")


@python_3
@pytest.mark.parametrize("made", SHIPPED, ids=lambda made: made.__name__)
def test_every_signature_has_the_arguments_and_their_defaults(made):
    shown = inspect.signature(made).parameters
    assert [name for name, each in shown.items() if each.kind != each.VAR_KEYWORD] == made.argument_names()
    assert {name for name, each in shown.items() if each.kind == each.KEYWORD_ONLY} == (
        set(made.keyword_only + made.without_position).intersection(made.argument_names()))
    if not issubclass(made, Composite) and "update" in vars(made):
        values = made()._values
        assert {name: each.default for name, each in shown.items()} == dict(values)


@python_3
def test_the_signature_of_definitions_made_of_others():
    shown = inspect.signature(Accumulate).parameters
    assert list(shown) == ["inner", "steps", "reduction", "sparse", "dense_ok"]
    assert shown["inner"].default is inspect.Parameter.empty and shown["sparse"].default is OF_INNER
    assert str(inspect.signature(Partition)).endswith("chosen=None, starts=(), **branches)")


@python_3
def test_the_signature_of_a_users_own():
    class Own(Adam):
        beta_1 = everstep.hyper(0.5)
        needed = everstep.option()

    shown = inspect.signature(Own).parameters
    assert list(shown)[:2] == ["learning_rate", "beta_1"] and shown["beta_1"].default == 0.5
    assert shown["needed"].default is GIVEN and "needed=<required>" in str(inspect.signature(Own))


@python_3
@pytest.mark.parametrize("way", harness.quickest(), ids=harness.way_name)
def test_the_signature_of_a_native_class(way):
    made = Adam.native_class(way.module)
    signature = inspect.signature(made)
    assert str(signature).startswith(ADAM + ", ")
    native = [each for name, each in signature.parameters.items() if name not in Adam.argument_names()]
    assert all(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in native)
    names = {each.name for each in native}
    assert "name" in names and not names.intersection(["lr", "decay", "self", "lowering", "definition"])
    assert ("use_locking" in names) == (made.adapter_class.target == "tf_train")
    assert ("gradients" in names) == bool(made.adapter_class.takes_gradients)
    if made.adapter_class.target in ("keras3", "update_step"):
        assert {"clipnorm", "weight_decay", "use_ema"} < names
    shown = list(inspect.signature(Partition.native_class(way.module)).parameters)
    assert shown[-1] == "branches" and set(Partition.argument_names()).union(["name"]) <= set(shown)


@python_3
def test_a_subclass_of_a_native_class_has_its_own_signature():
    class Own(Adam.native_class(np)):
        def __init__(self, rate):
            super(Own, self).__init__(rate)

    class Same(Adam.native_class(np)):
        pass

    assert str(inspect.signature(Own)) == "(rate)"
    assert str(inspect.signature(Same)) == ADAM + ", name=None)"
    assert not hasattr(Same(0.1), "__signature__")


# Names

@pytest.mark.skipif(sys.version_info < (3, 7), reason="older Pythons do not ask a module")
def test_optimizers_offer_algorithms_only():
    public = [name for name in dir(everstep.optimizers) if not name.startswith("__")]
    assert public == sorted(everstep.optimizers.__all__)
    assert everstep.optimizers.adam.Adam is Adam


def test_what_bind_returns_is_a_native_optimizer():
    assert isinstance(SGD(0.1).bind(np), everstep.NativeOptimizer)
    assert issubclass(Nadam.native_class(np), everstep.NativeOptimizer)
    assert not isinstance(SGD(0.1), everstep.NativeOptimizer)


# Stubs

@modern
def test_the_stubs_are_current():
    assert stubs.stale() == {}, "run python tests/make/stubs.py"


@modern
def test_a_stub_that_is_old_is_found(monkeypatch, tmp_path):
    path = stubs.stub_path("everstep.optimizers")
    assert path.endswith(os.path.join("optimizers", "__init__.pyi")) and os.path.exists(path)
    monkeypatch.setattr(stubs, "generated", lambda: {path: "other"})
    stale = stubs.stale()
    assert stale[path] == "other"
    assert stale[stubs.stub_path("everstep.optimizers.wrappers")] is None  # one that nothing needs any more


@modern
def test_one_stub_has_all_optimizers_and_one_all_wrappers():
    """Each offers what its package does when it runs, and no module beside it has a stub."""
    for package in (everstep.optimizers, everstep.optimizers.wrappers):
        path = stubs.stub_path(package.__name__)
        with io.open(path, encoding="ascii") as file:
            body = ast.parse(file.read()).body
        names = {node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        imports = [each for node in body if isinstance(node, ast.ImportFrom) for each in node.names]
        names.update(each.asname for each in imports if each.asname)  # "Clip as Clip" offers it
        assert names == set(package.__all__)
        folder = os.path.dirname(path)
        assert [name for name in os.listdir(folder) if name.endswith(".pyi")] == ["__init__.pyi"]


@modern
def test_a_new_optimizer_gets_a_stub(tmp_path, monkeypatch):
    source = ("from everstep.optimizers.contract import Definition, hyper, option, slot\n"
              "class Fresh(Definition):\n"
              "    rate = hyper(0.1)\n"
              "    form = option('a', choices=('a', 'b'))\n"
              "    v = slot()\n"
              "    def update(self, ops, grad, var, slots, hyper, t):\n"
              "        return hyper.rate * grad, {'v': slots.v}\n")
    (tmp_path / "fresh_for_stubs.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = stubs.module_stub(importlib.import_module("fresh_for_stubs"))
    assert "class Fresh(Definition):\n    rate: Hyper\n    form: Option[Literal[\"a\", \"b\"]]\n    v: Slot\n" in text
    assert "        rate: HyperValue = 0.1,\n        form: Literal[\"a\", \"b\"] = \"a\",\n        *,\n" in text
    ast.parse(text)


def stub_functions(body):
    """{name: names of the arguments, or None where there are several signatures} of the functions in a stub's body."""
    functions = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            arguments = [each.arg for each in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
            overloaded = any(getattr(each, "id", "") == "overload" for each in node.decorator_list)
            functions[node.name] = None if overloaded else arguments
    return functions


def differences(stub, owner, of):
    """What a stub says otherwise than the code of `owner`, a module or class, of the functions of the module `of`."""
    functions = {}
    for name, value in vars(owner).items():
        function = inspect.unwrap(getattr(value, "fget", getattr(value, "__func__", value)))
        if inspect.isfunction(function) and function.__module__ == of:
            functions[name] = list(inspect.getfullargspec(function).args)
    inherited = {name for base in getattr(owner, "__mro__", ())[1:] for name in vars(base)}
    found = ["{} is not in the stub".format(name) for name in functions
             if name not in stub and name not in inherited and name[0] != "_"]
    found += ["{} is in the stub alone".format(name) for name in stub if name not in functions and name[0] != "_"]
    return found + ["{} takes {}".format(name, functions[name]) for name, arguments in stub.items()
                    if arguments is not None and functions.get(name, arguments) != arguments]


@modern
@pytest.mark.parametrize("name", sorted(stubs.BY_HAND) if MODERN else [])
def test_a_stub_written_by_hand_agrees_with_the_code(name):
    module = importlib.import_module(name)
    with io.open(stubs.stub_path(name), encoding="ascii") as file:
        body = ast.parse(file.read()).body
    assert differences(stub_functions(body), module, name) == []
    for node in body:
        owner = getattr(module, getattr(node, "name", ""), None)
        if isinstance(node, ast.ClassDef) and owner not in (None, everstep.NativeOptimizer):
            assert differences(stub_functions(node.body), owner, name) == [], node.name
    classes = {value.__name__ for value in vars(module).values() if getattr(value, "__module__", "") == name
               and inspect.isclass(value) and value.__name__[0] != "_"}
    assert classes == {node.name for node in body if isinstance(node, ast.ClassDef) and node.name[0] != "_"}


@modern
def test_the_comparison_sees_what_differs():
    class Owner(object):
        def there(self, first):
            pass

    Owner.there.__module__ = "here"
    assert differences({"there": ["self", "second"], "gone": []}, Owner, "here") == [
        "gone is in the stub alone", "there takes ['self', 'first']"]
    assert differences({}, Owner, "here") == ["there is not in the stub"]


# What pyright and mypy are asked in the lint cell

@modern
def test_what_type_checkers_call_right_runs():
    runpy.run_path(os.path.join(HERE, "typing", "right.py"))


@modern
def test_an_error_in_the_wrong_place_is_a_fault():
    expected = check.marked("wrong.py")
    assert len(expected) > 20 and check.marked("right.py") == set()
    assert check.faults("mypy", dict.fromkeys(expected, ""), expected) == []
    one = sorted(expected)[0]
    assert check.faults("mypy", dict.fromkeys(expected - {one}, ""), expected) == [
        "mypy does not object to wrong.py:{}".format(one[1])]
    assert check.faults("mypy", dict.fromkeys(expected | {("right.py", 3)}, "bad"), expected) == [
        "mypy objects to right.py:3: bad"]
