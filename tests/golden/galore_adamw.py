"""GaLoreAdamW: galore-torch 1.0 in float64, whose singular vectors were given everstep's signs.

After 100 updates of 4 x 3, 3 x 5 and 6 x 6 weights, with periods 1, 10 and 200, it is 3e-15 from everstep. Other signs
of the vectors at a new projection change the sign of the momentum that is carried over.

Variables of one axis by hand: m = 0.5, 1;  v = 0.25, 1;  correction = sqrt(0.25) / 0.5 = 1;  step = 0.6667, 0.8
(1 - 0.125 * 0.6667) * (1 - 0.125 * 0.25) = 0.8880208333
(2 - 0.125 * 0.8) * (1 - 0.125 * 0.25) = 1.8406250000
"""
_SETTINGS = {"learning_rate": 0.125, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.25, "weight_decay": 0.25, "rank": 1}
_START = [[1.0, 2.0], [3.0, -1.0], [0.0, 1.0]]
_GRADS = [
    [[1.0, 2.0], [-1.0, 0.5], [0.25, -2.0]],
    [[2.0, -1.0], [1.0, 1.0], [-0.5, 0.5]],
    [[0.5, 1.0], [-2.0, 0.5], [1.0, -1.0]],
]


def _turned(matrix):
    return [list(row) for row in zip(*matrix)]


BASE = {"learning_rate": 0.3, "rank": 1}
CONFIGURATIONS = [
    {"period": 10, "weight_decay": 0.01},
    {"period": 1, "beta_1": 0.5, "scale": 1.0},
]
GOLDEN = [
    (
        dict(_SETTINGS, period=1), _START, _GRADS,
        [[[0.964932584, 1.9132781065], [2.9043483117, -0.9808164062], [0.0037458942, 0.9925180803]],
         [[0.9104243897, 1.8623055483], [2.797053613, -0.9441798273], [0.0212232767, 0.9551318239]],
         [[0.8946353822, 1.7988638294], [2.7321323124, -0.9239884726], [0.000288877, 0.9336805488]]],
    ),
    (
        dict(_SETTINGS, period=2, scale=0.5), _turned(_START), [_turned(grad) for grad in _GRADS],
        [[[0.961115168, 2.9024466233, 0.0074917884], [1.8890562131, -0.9928828125, 1.0162861607]],
         [[0.9297682159, 2.805251784, 0.0093182441], [1.8216977788, -1.0030563969, 0.9976017709]],
         [[0.8946739439, 2.7417572341, -0.0111153373], [1.7672711653, -0.9817222474, 0.9747699651]]],
    ),
    (
        _SETTINGS, [_START], [[grad] for grad in _GRADS],
        [[[[0.964932584, 1.9132781065], [2.9043483117, -0.9808164062], [0.0037458942, 0.9925180803]]],
         [[[0.9341223892, 1.8493254519], [2.8103407358, -0.9707664797], [0.0046591221, 0.9680391667]]],
         [[[0.9028735279, 1.778478752], [2.7202845278, -0.9545990201], [0.0065651258, 0.9508055618]]]],
    ),
    (
        dict(_SETTINGS, rank=2), [1.0, 2.0], [[1.0, 2.0], [-1.0, 0.5]],
        [[0.8880208333, 1.840625], [0.889563088, 1.7135407351]],
    ),
    (
        dict(_SETTINGS, rank=2), _START, _GRADS,
        [[[0.8880208333, 1.840625], [2.9869791667, -1.029296875], [-0.0403645833, 1.065625]],
         [[0.7606278393, 1.7831054688], [2.864343162, -1.0811039428], [-0.0007747033, 1.0555124633]],
         [[0.6617750615, 1.6852928786], [2.8404843484, -1.1228166515], [-0.0539948118, 1.0784028808]]],
    ),
]  # fmt: skip
CATCH_UP = None  # refused: the rule needs the whole variable
LARGE = (65537, 16)  # one singular value stands out: of the others float32 cannot tell the vectors apart
LARGE_STEPS = 60  # in fewer it moves by less than its own size
