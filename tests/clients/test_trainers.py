"""Hugging Face's Trainer, PyTorch Lightning and accelerate: ours in the place of torch.optim.AdamW, with resuming.

Each trains with weights that decay and weights that do not, a schedule of torch, clipped gradients and two batches for
each step. Weights are float64, and the betas are numbers that float32 holds, as everstep keeps hypers: what is left is
the rounding of rates. (In float32 it is 2e-7 in two of them, and 9e-6 of a small bias of BERT.)
"""
from __future__ import absolute_import, division, print_function

import numpy as np
import pytest
import pytorch_lightning as lightning
import torch
import transformers
from accelerate import Accelerator
from accelerate import __version__ as accelerate_version
from compare import apart, shown
from torch.utils.data import DataLoader

import everstep
from everstep.optimizers import AdamW, Adan

ON_TORCH = ", torch {}".format(torch.__version__)
STEPS, HALF, BATCH = 30, 15, 8  # an epoch is a half: Lightning begins its data anew when it resumes within one
SETTINGS = dict(lr=0.01, betas=(0.875, 0.9921875), weight_decay=0.125)
LIKE_STOCK = 1e-6
CONFIG = dict(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
              max_position_embeddings=16, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def groups(model):
    """Returns the two groups of parameters that Trainer makes of a model."""
    biases = [pair for pair in model.named_parameters() if pair[1].dim() < 2]
    others = [pair for pair in model.named_parameters() if pair[1].dim() > 1]
    return [dict(params=others), dict(params=biases, weight_decay=0.0)]


def stock(model):
    return torch.optim.AdamW(groups(model), **SETTINGS)


def ours(model):
    return AdamW.native_class(torch.optim)(groups(model), epsilon=1e-8, corrected_root=True, **SETTINGS)


def another(model):
    """A rule that torch does not have."""
    return everstep.cautious(Adan(0.01)).bind(torch.optim, params=model.named_parameters())


def schedule(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, STEPS, cycle_momentum=False)


def data():
    """Returns ids, and labels: whether the ids are large."""
    random = np.random.RandomState(0)
    labels = random.randint(0, 2, 2 * BATCH * HALF)
    return [dict(input_ids=torch.tensor(random.randint(0, 32, 9) + 32 * label), labels=torch.tensor(label))
            for label in labels]


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Flatten(), torch.nn.Linear(72, 16),
                               torch.nn.ReLU(), torch.nn.Linear(16, 2))


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch["input_ids"]), batch["labels"])


# A client is a function of (how to make the optimizer, a folder, the step to go on from, the last step). It saves at
# the last step, and returns (losses, weights, the optimizer).


class Losses(transformers.TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs, **others):
        self.losses += [logs["loss"]] if "loss" in logs else []


def by_trainer(make, folder, first, last):
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**CONFIG))
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=BATCH, gradient_accumulation_steps=2, max_steps=last, logging_steps=1,
        save_steps=last, report_to=[], use_cpu=True, disable_tqdm=True, max_grad_norm=1.0)
    optimizer, kept = make(model), Losses()
    trainer = transformers.Trainer(model, arguments, train_dataset=data(), callbacks=[kept],
                                   optimizers=(optimizer, schedule(optimizer)))
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-{}".format(first)) if first else None)
    return kept.losses, weights(model), optimizer


class Module(lightning.LightningModule):
    def __init__(self, make):
        super().__init__()
        self.model, self.make, self.losses = network(), make, []

    def training_step(self, batch, place):
        loss = loss_of(self.model, batch)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        optimizer = self.make(self.model)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule(optimizer), "interval": "step"}}


def by_lightning(make, folder, first, last):
    module = Module(make)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=last // HALF, accumulate_grad_batches=2, gradient_clip_val=1.0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    path = str(folder / "step-{}.ckpt")
    trainer.fit(module, DataLoader(data(), BATCH), ckpt_path=path.format(first) if first else None, weights_only=True)
    trainer.save_checkpoint(path.format(last))
    return module.losses, weights(module.model), trainer.optimizers[0]


def by_accelerate(make, folder, first, last):
    accelerator, model = Accelerator(cpu=True, gradient_accumulation_steps=2), network()
    optimizer, losses = make(model), []
    model, prepared, batches, scheduler = accelerator.prepare(
        model, optimizer, DataLoader(data(), BATCH), schedule(optimizer))
    if first:
        accelerator.load_state(str(folder / str(first)))
    for _ in range(first, last, HALF):
        for batch in batches:
            with accelerator.accumulate(model):
                loss = loss_of(model, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                prepared.step()
                scheduler.step()
                prepared.zero_grad()
            losses.append(loss.item())
    accelerator.save_state(str(folder / str(last)))
    return losses, weights(accelerator.unwrap_model(model)), optimizer


def weights(model):
    """Returns {name: value}, without the biases of keys: softmax cancels them, so their gradients are rounding."""
    return {name: each.detach().numpy().copy() for name, each in model.named_parameters() if "key.bias" not in name}


CLIENTS = [("transformers", transformers.__version__, "Trainer", by_trainer),
           ("pytorch-lightning", lightning.__version__, "Trainer", by_lightning),
           ("accelerate", accelerate_version, "a loop", by_accelerate)]


@pytest.mark.parametrize("client, version, how, train", CLIENTS, ids=[client[0] for client in CLIENTS])
def test_beside_adamw(client, version, how, train, tmp_path):
    folders = [tmp_path / name for name in ("stock", "again", "ours", "halves", "moved")]
    losses, expected, _ = train(stock, folders[0], 0, STEPS)
    again = train(stock, folders[1], 0, STEPS)
    own_losses, actual, optimizer = train(ours, folders[2], 0, STEPS)
    difference = apart(expected, actual)
    assert np.mean(losses[-8:]) < 0.9 * np.mean(losses[:8]) and len(losses) == len(own_losses)
    assert {int(optimizer.state[param]["step"]) for param in optimizer.state} == {STEPS}

    train(ours, folders[3], 0, HALF)
    resumed = apart(actual, train(ours, folders[3], HALF, STEPS)[1])
    train(stock, folders[4], 0, HALF)
    moved = apart(expected, train(ours, folders[4], HALF, STEPS)[1])
    saved = "its checkpoint: {:.1e}; that of stock, into ours: {:.1e}".format(resumed, moved)
    shown(client, version + ON_TORCH, "{}, AdamW".format(how), STEPS, apart(losses, own_losses),
          apart(losses, again[0]), difference, apart(expected, again[1]), saved)
    assert max(difference, moved) < LIKE_STOCK and resumed == 0


@pytest.mark.parametrize("client, version, how, train", CLIENTS, ids=[client[0] for client in CLIENTS])
def test_a_rule_that_torch_lacks(client, version, how, train, tmp_path):
    losses, actual, optimizer = train(another, tmp_path / "whole", 0, STEPS)
    train(another, tmp_path / "halves", 0, HALF)
    resumed = apart(actual, train(another, tmp_path / "halves", HALF, STEPS)[1])
    shown(client, version + ON_TORCH, "{}, cautious(Adan): loss {:.2f} to {:.2f}".format(
        how, np.mean(losses[:8]), np.mean(losses[-8:])), STEPS, saved="its checkpoint: {:.1e}".format(resumed))
    assert np.mean(losses[-8:]) < 0.9 * np.mean(losses[:8]) and resumed == 0
