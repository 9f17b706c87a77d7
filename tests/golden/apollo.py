"""APOLLO: apollo-torch 1.0.3 in float64, whose random numbers were those of everstep.

After 100 updates of 4 x 3, 3 x 5 and 6 x 6 weights, with ranks 1 and 2, it is 1e-15 from everstep.

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


BASE = {"learning_rate": 0.2, "rank": 1}
CONFIGURATIONS = [
    {"rank": 2, "period": 10, "weight_decay": 0.01},
    {"period": 1, "beta_1": 0.5, "scale": 2.0},
]
GOLDEN = [
    (
        dict(_SETTINGS, period=1), _START, _GRADS,
        [[[0.8653126084, 1.7306252169], [3.0205897261, -1.0259198631], [-0.0193800625, 1.1237904997]],
         [[0.7468186351, 1.722269656], [2.8958395795, -1.0242165851], [0.1579777028, 0.9119199083]],
         [[0.6694267566, 1.560341137], [2.8085581501, -0.9930132062], [0.1088840042, 0.9275793065]]],
    ),
    (
        dict(_SETTINGS, period=2, scale=4.0), _turned(_START), [_turned(grad) for grad in _GRADS],
        [[[0.7618752169, 3.1349294523, -0.0387601249], [1.5237504338, -1.0830897261, 1.2788309994]],
         [[0.6198341928, 2.6620298914, -0.0217716859], [1.5352494445, -1.4241761877, 1.2230903456]],
         [[0.5713985778, 2.7766147183, -0.1225588715], [1.4291413065, -1.4291139971, 1.2863363231]]],
    ),
    (
        dict(_SETTINGS, tensor_wise=True), [_START], [[grad] for grad in _GRADS],
        [[[[0.8776822307, 1.7553644615], [2.9973177693, -1.0142838846], [-0.0227669423, 1.1508855385]]],
         [[[0.736650136, 1.7573115846], [2.8468493264, -1.0393897758], [0.0063456559, 1.0865192342]]],
         [[[0.6853659202, 1.6458677996], [2.870940881, -1.0351727443], [-0.0503804439, 1.1090933061]]]],
    ),
    (
        dict(_SETTINGS, rank=2), [1.0, 2.0], [[1.0, 2.0], [-1.0, 0.5]],
        [[0.8880208333, 1.840625], [0.889563088, 1.7135407351]],
    ),
]  # fmt: skip
CATCH_UP = None  # refused: the rule needs the whole variable
LARGE = (1055744,)  # of a thousand channels some project to nearly 0, and float32 cannot tell how long those are
