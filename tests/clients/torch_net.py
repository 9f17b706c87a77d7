"""A small network of torch, and what trains it in several processes, in a module of its own for pickles."""
from __future__ import absolute_import, division, print_function

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return torch.softmax(self.out(torch.relu(self.hidden(x))), -1)


def train_sharded(rank, folder, name, cls, keywords):
    """Trains in one of two processes, each with the slots of its share, and saves the weights of the first.

    In the middle the shares are gathered, saved and loaded, as programs do to resume.
    """
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", "file://{}/{}".format(folder, name), rank=rank, world_size=2)
    torch.manual_seed(1)
    network = Net()
    model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=cls, lr=0.01, **keywords)
    schedule, random = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5), torch.Generator().manual_seed(rank)
    for number in range(12):
        x = torch.randn(8, 4, generator=random)
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(torch.log(model(x)), (x[:, 0] > 0).long()).backward()
        optimizer.step()
        schedule.step()
        if number == 5:
            optimizer.consolidate_state_dict(0)
            state = [optimizer.state_dict() if rank == 0 else None]
            torch.distributed.broadcast_object_list(state, 0)
            optimizer.load_state_dict(state[0])
    if rank == 0:
        torch.save(network.state_dict(), "{}/{}.pt".format(folder, name))
    torch.distributed.destroy_process_group()
