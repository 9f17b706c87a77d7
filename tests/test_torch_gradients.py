"""Gradients of torch in forms that few people use, and what torch's own names of arguments stand for."""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest

import everstep
from crafted_files import optional
from everstep.optimizers import SGD, Adam, RMSprop

torch = optional("torch")
pytestmark = pytest.mark.skipif(torch is None, reason="torch is not in this environment")


def stepped(definition, grad):
    parameter = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = definition.bind(torch.optim, params=[("weight", parameter)])
    for _ in range(2):
        parameter.grad = grad
        optimizer.step()
    return parameter.detach().numpy()


@pytest.mark.parametrize("definition", [SGD(0.5, momentum=0.5), Adam(0.5), RMSprop(0.5)],
                         ids=["momentum", "Adam", "RMSprop"])
def test_a_gradient_that_is_sparse_in_both_dimensions_counts_as_dense(definition):
    dense = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, -2.0]])
    np.testing.assert_allclose(stepped(definition, dense.to_sparse(2)), stepped(definition, dense), rtol=1e-6)


def test_rows_of_a_sparse_gradient_are_those_of_the_first_dimension():
    values = torch.tensor([[1.0, 0.0], [0.5, 0.5], [1.0, 1.0]])
    rows = torch.sparse_coo_tensor([[2, 0, 2]], values, (3, 2), check_invariants=True)
    changed = 1 - stepped(SGD(0.5), rows)
    np.testing.assert_allclose(changed, [[0.5, 0.5], [0, 0], [2, 1]])


def test_names_of_torch_for_hypers_of_ours():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = Adam().native_class(torch.optim)([parameter], lr=0.5, betas=(0.5, 0.25), eps=0.125)
    group, = optimizer.param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.5, 0.25), 0.125)
    assert everstep.from_native(optimizer) == Adam(0.5, 0.5, 0.25, 0.125)
