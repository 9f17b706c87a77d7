"""Makes tests/files/torch2.13: state_dicts that torch saved, and what is in them.

    python tests/make/torch_files.py tests/files/torch2.13

`truth.npz` has {FILE/PARAMETER/SLOT: array} of the live optimizers, and FILE/PARAMETER of the weights.
"""
import os
import sys

import numpy as np
import torch

MAKES = {
    "adam.pt": lambda named: torch.optim.Adam(named, lr=0.25, betas=(0.8, 0.9), eps=1e-3, amsgrad=True),
    "adamw.bin": lambda named: torch.optim.AdamW([each for _, each in named], lr=0.125),
    "sgd.pt": lambda named: torch.optim.SGD(named, lr=0.5, momentum=0.9),
    "rmsprop.pth": lambda named: torch.optim.RMSprop(named, lr=0.5, alpha=0.75, momentum=0.5, centered=True),
    "nadam.pt": lambda named: torch.optim.NAdam(named, lr=0.5),
    "bfloat16.pt": lambda named: torch.optim.Adam([
        {"params": named[:1], "weight_decay": 0.125}, {"params": named[1:]}], lr=0.25),
    "checkpoint.pt": lambda named: torch.optim.Adamax([each for _, each in named], lr=torch.tensor(0.25)),
}


def main(folder):
    torch.manual_seed(0)
    truth = {}
    for name, make in MAKES.items():
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        model = model.to(torch.bfloat16 if name == "bfloat16.pt" else torch.float32)
        parameters = list(model.named_parameters())
        optimizer = make(parameters)
        for _ in range(3):
            for index, (_name, parameter) in enumerate(parameters):
                # A transposed gradient makes slots whose axes lie in another order, of the first matrix.
                turned = torch.randn(parameter.shape[::-1]).to(parameter.dtype)
                parameter.grad = turned.t() if index == 0 else turned.t().contiguous()
            optimizer.step()
        whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "loss": [0.5, None]}
        torch.save(whole if name == "checkpoint.pt" else optimizer.state_dict(), os.path.join(folder, name),
                   _use_new_zipfile_serialization=name != "adamw.bin")
        for key, parameter in parameters:
            truth["{}/{}".format(name, key)] = parameter.detach().float().numpy()
            for slot, value in optimizer.state[parameter].items():
                truth["{}/{}/{}".format(name, key, slot)] = value.detach().float().numpy()
    np.savez_compressed(os.path.join(folder, "truth.npz"), **truth)


if __name__ == "__main__":
    main(sys.argv[1])
