"""LARS, by hand: start (3, 4), gradients (0, 2), (1, 1), (-1, 2), rate 0.5, momentum 0.5, trust_coefficient 0.25.

weight_decay 0:  ratio = 0.25 * 5 / 2 = 0.625;  velocity (0, 0.5 * 0.625 * 2);  (3, 4 - 0.625)
    0.25 * 4.5156257 / 1.4142136 = 0.7982524859;  velocity (0.3991262430, 0.3125 + 0.3991262430);  ...
weight_decay 0.25, epsilon 0.5:  ratio = 1.25 / (2 + 1.25 + 0.5) = 1 / 3;  step = 0.5 / 3 (0.75, 3);  ...
weight_decay 0.25, nesterov:  ratio = 1.25 / 3.25;  3 - 1.5 * 0.5 * 0.3846154 * 0.75;  4 - 1.5 * 0.5 * 0.3846154 * 3
excluded:  momentum alone
"""
_SETTINGS = {"learning_rate": 0.5, "momentum": 0.5, "weight_decay": 0.25, "trust_coefficient": 0.25}
_GRADS = [[0.0, 2.0], [1.0, 1.0], [-1.0, 2.0]]
BASE = {"learning_rate": 15.0}
START = (-0.8, -0.2)
CONFIGURATIONS = [
    {"momentum": 0.0, "learning_rate": 100.0},
    {"weight_decay": 0.01, "epsilon": 0.1},
]
GOLDEN = [
    (
        dict(_SETTINGS, weight_decay=0.0),
        [3.0, 4.0],
        _GRADS,
        [[3.0, 3.375], [2.6008737570, 2.6633737570], [2.6094129547, 1.8913559974]],
    ),
    (
        dict(_SETTINGS, epsilon=0.5),
        [3.0, 4.0],
        _GRADS,
        [[2.875, 3.5], [2.4930857961, 2.9015481412], [2.3509166977, 2.2493726090]],
    ),
    (
        dict(_SETTINGS, nesterov=True),
        [3.0, 4.0],
        _GRADS,
        [[2.7836538462, 3.1346153846], [2.2062034164, 2.4209821899], [2.1880960042, 1.7302232863]],
    ),
    (
        dict(_SETTINGS, exclude_from_layer_adaptation="."),
        [3.0, 4.0],
        _GRADS,
        [[3.0, 3.0], [2.5, 2.0], [2.75, 0.5]],
    ),
]
CATCH_UP = None  # refused: the rule needs the whole variable
