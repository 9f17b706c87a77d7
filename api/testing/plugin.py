"""Fixtures and a marker for pytest: `pytest -p everstep.testing.plugin`, or that in `addopts`. Needs everstep[testing].

    def test_it_learns(train):                          # runs once for each target that is installed
        losses = train(MyOptimizer(0.1)).losses
        assert losses[-1] < 0.5 * losses[0]

    @pytest.mark.needs("tensorflow>=2.11", target="keras3")    # skips, and says why, where these are not installed
    def test_on_keras_3():
        ...
"""
from __future__ import absolute_import, division, print_function

import pytest

from everstep.compat.ways import small_model
from everstep.compat.ways.known import all_ways, quickest
from everstep.compat.ways.requirements import missing
from everstep.optimizers.contract.definition import Definition
from everstep.testing.oracle import trajectory

NEEDS = "needs(*packages, target=None): skips the test where a package ('tensorflow>=2.11') or target is not installed"


def pytest_configure(config):
    config.addinivalue_line("markers", NEEDS)


def pytest_generate_tests(metafunc):
    """Runs a test of `target`, `world` or `train` once for each target. Frameworks are imported here, if at all."""
    fixtures = getattr(metafunc, "_arg2fixturedefs", {}).get("target")
    if fixtures and fixtures[-1].func.__module__ == __name__:  # and not a fixture of the user's own
        ways = quickest()
        metafunc.parametrize("target", ways, indirect=True, ids=[way.target for way in ways])


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        reasons = [text for text in map(missing, mark.args) if text]
        wanted = mark.kwargs.get("target")
        if wanted and not reasons:
            known = sorted(set(way.target for way in all_ways()))
            reasons = [] if wanted in known else ["the target {}; here are {}".format(wanted, ", ".join(known))]
        if reasons:
            pytest.skip("needs " + "; ".join(reasons))


@pytest.fixture
def target(request):
    """Each target that is installed, in its fastest mode: `target.module` is what `bind` takes, `target.target` its
    name, and `target.sparse` whether gradients can be sparse."""
    return request.param


@pytest.fixture
def world(target):
    """The `everstep.testing.World` of `target`: variables, gradients and steps, called the same on every API."""
    with target.world(target.module) as world:
        yield world


@pytest.fixture
def train(target):
    """A function that trains a small real model, an embedding and a matrix, on `target`.

    `train(optimizer, steps=20)` takes a definition, or a function that returns a native optimizer of the target. It
    returns the `losses` before each step, the `weights` and the `optimizer`.
    """
    def trained(optimizer, steps=20):
        is_rule = isinstance(optimizer, Definition)
        return small_model.train(target, (lambda: optimizer.bind(target.module)) if is_rule else optimizer, steps)

    return trained


@pytest.fixture
def oracle():
    """A function that trains a definition in float64: `oracle(definition, {name: start}, [{name: gradient}])`.

    It returns ({name: weights}, {name: {slot: array}}). See `everstep.testing.oracle.trajectory`.
    """
    return trajectory
