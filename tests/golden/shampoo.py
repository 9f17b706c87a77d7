"""Shampoo: pytorch-optimizer 4.1.0 in float64, with one matrix for each side, epsilon 0.25 and period 1.

After 100 updates of 4 x 3, 3 x 5 and 6 x 6 weights with epsilon 1e-6 it is 2e-15, 4e-15 and 2e-12 from everstep. The
rest is written out in NumPy, with roots from singular values. Variables of one axis by hand, with beta 0.5:
t=1: v = 0.5, 2;  1 - 0.125 * 1 / sqrt(0.5 + 0.25) = 0.8556624327;  2 - 0.125 * 2 / sqrt(2 + 0.25) = 1.8333333333
"""
_SETTINGS = {"learning_rate": 0.125, "epsilon": 0.25}
_START = [[1.0, 2.0], [3.0, -1.0], [0.0, 1.0]]
_GRADS = [
    [[1.0, 2.0], [-1.0, 0.5], [0.25, -2.0]],
    [[2.0, -1.0], [1.0, 1.0], [-0.5, 0.5]],
    [[0.5, 1.0], [-2.0, 0.5], [1.0, -1.0]],
]
# With period 10, the roots of the first gradient serve for ten updates. Where it has no part, they are epsilon^(-1/4),
# and float32 knows the eigenvalues to 1e-7 of the largest: with epsilon 1e-6 results differ by 2e-2, with 0.1 by 1e-6
BASE = {"learning_rate": 4.0, "epsilon": 0.1}
CONFIGURATIONS = [
    {"period": 1, "max_size": 3, "weight_decay": 0.01, "epsilon": 1e-6},
    {"period": 7, "max_size": 2, "momentum": 0.5, "beta": 0.9},
]
GOLDEN = [
    (
        dict(_SETTINGS, period=1), _START, _GRADS,
        [[[0.9290055, 1.919528304], [3.0873991145, -1.0283202312], [-0.0341532394, 1.0886740032]],
         [[0.8420020604, 1.9564343197], [3.0335987371, -1.0822492113], [-0.0330445288, 1.0682910221]],
         [[0.8167220944, 1.9245714028], [3.1084744837, -1.0952188916], [-0.0699096108, 1.102826412]]],
    ),
    (
        dict(_SETTINGS, period=2, momentum=0.5, weight_decay=0.25, beta=0.75), _START, _GRADS,
        [[[0.8436932735, 1.7813472371], [3.0563629105, -1.0203162827], [-0.0563203656, 1.1374308549]],
         [[0.485231275, 1.7412592891], [2.8701026826, -1.1306536822], [-0.0897437009, 1.1394697088]],
         [[0.2513005096, 1.6184014627], [2.8915086305, -1.1934621247], [-0.1802323116, 1.2009051869]]],
    ),
    (
        dict(_SETTINGS, period=1, max_size=2), _START, _GRADS,
        [[[0.9384837964, 1.9058245995], [3.0946661422, -1.0374655446], [-0.0242373533, 1.102964033]],
         [[0.8544965928, 1.9438537074], [3.0391854824, -1.0883058941], [0.0010440053, 1.0798252756]],
         [[0.8352807148, 1.9073900803], [3.1179371496, -1.1053871543], [-0.0385748162, 1.119294539]]],
    ),
    (
        dict(_SETTINGS, period=3, max_size=1), [_START], [[grad] for grad in _GRADS],
        [[[[0.9330347103, 1.9032735049], [3.0915939446, -1.0330751994], [-0.0175851999, 1.1016021739]]],
         [[[0.8487802899, 1.9418548114], [3.0364844212, -1.0835460804], [0.0078608858, 1.0782979193]]],
         [[[0.8308413371, 1.9061069789], [3.115680944, -1.1032734306], [-0.033034557, 1.1190450982]]]],
    ),
    (
        dict(_SETTINGS, beta=0.5), [1.0, 2.0], [[1.0, 2.0], [-1.0, 0.5]],
        [[0.8556624327, 1.8333333333], [0.9806624327, 1.7800331542]],
    ),
]  # fmt: skip
OPS = ["eigh"]  # what not every Keras 3 has
CATCH_UP = None  # refused: the rule needs the whole variable
LARGE = (4099, 256)  # a side with a diagonal, and one with a matrix
