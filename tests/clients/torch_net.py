"""A small network of torch in a module of its own, so that pickles find it in another process."""
from __future__ import absolute_import, division, print_function

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return torch.softmax(self.out(torch.relu(self.hidden(x))), -1)
