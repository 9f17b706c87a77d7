# Generated: do not edit. Edit the declarations, then run python tests/make/stubs.py
from everstep.optimizers.adabelief import AdaBelief as AdaBelief
from everstep.optimizers.adabound import AdaBound as AdaBound
from everstep.optimizers.adadelta import Adadelta as Adadelta
from everstep.optimizers.adafactor import Adafactor as Adafactor
from everstep.optimizers.adagrad import Adagrad as Adagrad
from everstep.optimizers.adagrad_da import AdagradDA as AdagradDA
from everstep.optimizers.adagrad_decay import AdagradDecay as AdagradDecay
from everstep.optimizers.adam import Adam as Adam
from everstep.optimizers.adam_mini import AdamMini as AdamMini
from everstep.optimizers.adamax import Adamax as Adamax
from everstep.optimizers.adamw import AdamW as AdamW
from everstep.optimizers.adan import Adan as Adan
from everstep.optimizers.addsign import AddSign as AddSign
from everstep.optimizers.ademamix import AdEMAMix as AdEMAMix
from everstep.optimizers.cocob import COCOB as COCOB
from everstep.optimizers.conditional_gradient import ConditionalGradient as ConditionalGradient
from everstep.optimizers.diffgrad import DiffGrad as DiffGrad
from everstep.optimizers.ftrl import Ftrl as Ftrl
from everstep.optimizers.lamb import LAMB as LAMB
from everstep.optimizers.lars import LARS as LARS
from everstep.optimizers.lion import Lion as Lion
from everstep.optimizers.mars import MARS as MARS
from everstep.optimizers.muon import Muon as Muon
from everstep.optimizers.nadam import Nadam as Nadam
from everstep.optimizers.nadamw import NadamW as NadamW
from everstep.optimizers.novograd import NovoGrad as NovoGrad
from everstep.optimizers.powersign import PowerSign as PowerSign
from everstep.optimizers.prodigy import Prodigy as Prodigy
from everstep.optimizers.proximal_adagrad import ProximalAdagrad as ProximalAdagrad
from everstep.optimizers.proximal_gradient_descent import ProximalGradientDescent as ProximalGradientDescent
from everstep.optimizers.qhadam import QHAdam as QHAdam
from everstep.optimizers.radam import RAdam as RAdam
from everstep.optimizers.rmsprop import RMSprop as RMSprop
from everstep.optimizers.schedule_free_adamw import ScheduleFreeAdamW as ScheduleFreeAdamW
from everstep.optimizers.sgd import SGD as SGD
from everstep.optimizers.sgdw import SGDW as SGDW
from everstep.optimizers.tiger import Tiger as Tiger
from everstep.optimizers.wrappers.accumulate import Accumulate as Accumulate
from everstep.optimizers.wrappers.cautious import Cautious as Cautious
from everstep.optimizers.wrappers.centralize import Centralize as Centralize
from everstep.optimizers.wrappers.clip import Clip as Clip
from everstep.optimizers.wrappers.decoupled_weight_decay import DecoupledWeightDecay as DecoupledWeightDecay
from everstep.optimizers.wrappers.gradient_noise import GradientNoise as GradientNoise
from everstep.optimizers.wrappers.grokfast import Grokfast as Grokfast
from everstep.optimizers.wrappers.learning_rate_multipliers import LearningRateMultipliers as LearningRateMultipliers
from everstep.optimizers.wrappers.lookahead import Lookahead as Lookahead
from everstep.optimizers.wrappers.loss_scale import LossScale as LossScale
from everstep.optimizers.wrappers.master_copies import MasterCopies as MasterCopies
from everstep.optimizers.wrappers.moving_average import MovingAverage as MovingAverage
from everstep.optimizers.wrappers.multistage import Multistage as Multistage
from everstep.optimizers.wrappers.partition import Partition as Partition
from everstep.optimizers.wrappers.sharpness_aware import SharpnessAware as SharpnessAware
from everstep.optimizers.wrappers.stochastic_weight_averaging import (
    StochasticWeightAveraging as StochasticWeightAveraging,
)
from everstep.optimizers.yogi import Yogi as Yogi

__all__ = [
    "Accumulate",
    "AdEMAMix",
    "AdaBelief",
    "AdaBound",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "AdagradDA",
    "AdagradDecay",
    "Adam",
    "AdamMini",
    "AdamW",
    "Adamax",
    "Adan",
    "AddSign",
    "COCOB",
    "Cautious",
    "Centralize",
    "Clip",
    "ConditionalGradient",
    "DecoupledWeightDecay",
    "DiffGrad",
    "Ftrl",
    "GradientNoise",
    "Grokfast",
    "LAMB",
    "LARS",
    "LearningRateMultipliers",
    "Lion",
    "Lookahead",
    "LossScale",
    "MARS",
    "MasterCopies",
    "MovingAverage",
    "Multistage",
    "Muon",
    "Nadam",
    "NadamW",
    "NovoGrad",
    "Partition",
    "PowerSign",
    "Prodigy",
    "ProximalAdagrad",
    "ProximalGradientDescent",
    "QHAdam",
    "RAdam",
    "RMSprop",
    "SGD",
    "SGDW",
    "ScheduleFreeAdamW",
    "SharpnessAware",
    "StochasticWeightAveraging",
    "Tiger",
    "Yogi",
]
