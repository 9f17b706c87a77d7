"""Muon: stock Keras 3.15, in float64 on torch, with `exclude_layers=["w"]` for the matrix that Adam trains.

Its scale, the root of the larger side, is 2 or left out, so that it is exact in Keras's float32. The last by hand:
start (1, 2), gradients (1, 2), (-1, 0.5), Adam at half the rate:
t=1: m = 0.5, 1; v = 0.25, 1; correction = 0.5 * 0.5 / 0.5 = 0.5; 1 - 0.125 (0.5 * 0.5 / (0.5 + 0.5) + 0.125 * 1)

The authors' scale, for two rows and four columns, is from pytorch-optimizer 4.1.0 in float64, on transposed matrices.
"""
_SETTINGS = {
    "learning_rate": 0.125, "momentum": 0.5, "weight_decay": 0.25, "adam_beta_1": 0.5, "adam_beta_2": 0.75,
    "epsilon": 0.5, "adam_weight_decay": 0.125, "rms_rate": 0.5,
}  # fmt: skip
_START = [[1.0, 2.0], [3.0, -1.0], [0.0, 1.0], [-1.0, -2.0]]
_GRADS = [
    [[1.0, 2.0], [-1.0, 0.5], [0.25, -2.0], [0.5, 1.0]],
    [[2.0, -1.0], [1.0, 1.0], [-0.5, 0.5], [3.0, 0.25]],
]
CONFIGURATIONS = [
    {"weight_decay": 0.1, "adam_weight_decay": 0.1, "rms_rate": 0.0},
    {"original_scale": True, "ns_steps": 2},
]
GOLDEN = [
    (
        _SETTINGS, _START, _GRADS,
        [
            [[0.9009261763, 1.8900130713], [3.0093381111, -0.9982538759], [-0.0522202434, 1.0338690724],
             [-1.0026619118, -1.9612434644]],
            [[0.8172466483, 1.9101302945], [2.8993962194, -1.077994421], [-0.0387381444, 0.9821049944],
             [-1.0447855678, -1.9313710897]],
        ],
    ),
    (
        dict(_SETTINGS, uses_adam=True, exclude=["."]), _START, _GRADS,
        [
            [[0.921875, 1.8854166667], [3.015625, -1.0260416667], [-0.025, 1.0677083333], [-1.0260416667, -2.03125]],
            [[0.8207893146, 1.8559570312], [2.9447767291, -1.0759512483], [0.0021502025, 1.0706915452],
             [-1.0988886842, -2.0429956033]],
        ],
    ),
    (
        dict(_SETTINGS, nesterov=False, rms_rate=0.0, ns_steps=2), [[1.0, 2.0], [3.0, -1.0]],
        [[[1.0, 2.0], [-1.0, 0.5]], [[2.0, -1.0], [1.0, 1.0]]],
        [
            [[0.916559616, 1.833119232], [2.9939422079, -1.012596104]],
            [[0.7704447465, 1.7850360863], [2.8814879528, -1.0741955302]],
        ],
    ),
    (
        dict(_SETTINGS, adam_rate_ratio=0.5), [1.0, 2.0], [[1.0, 2.0], [-1.0, 0.5]],
        [[0.953125, 1.9270833333], [0.950096987, 1.8674734244]],
    ),
    (
        {"learning_rate": 0.125, "momentum": 0.5, "weight_decay": 0.25, "original_scale": True},
        [[1.0, 2.0, 0.0, -1.0], [3.0, -1.0, 1.0, 2.0]],
        [[[1.0, 2.0, -1.0, 0.5], [0.25, -2.0, 0.5, 1.0]], [[2.0, -1.0, 1.0, 1.0], [-0.5, 0.5, 3.0, 0.25]]],
        [
            [[0.8728326259, 1.8703433357, 0.058513949, -1.0603460164],
             [2.8323994229, -0.8766577189, 0.9706625465, 1.8166470091]],
            [[0.7318144145, 1.8468048484, 0.0017697643, -1.0862941591],
             [2.7632417022, -0.856715577, 0.7573274389, 1.7318207612]],
        ],
    ),
]  # fmt: skip
BASE = {"learning_rate": 2.0}  # without a scale, elements of large matrices move by little
LARGE = (4099, 256)  # products of the shared tests' 1031 x 1024 take minutes
CATCH_UP = None  # refused: the rule needs the whole variable
