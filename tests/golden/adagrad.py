"""Adagrad, by hand: start 1, gradients 1, 2, rate 0.5, accumulator from 0.25, epsilon 0.25.

accumulator = 1.25, 5.25
outside:  1 - 0.5 / (sqrt(1.25) + 0.25) = 0.6345120047;  - 1 / (sqrt(5.25) + 0.25)
in root:  1 - 0.5 / sqrt(1.5) = 0.5917517095;  - 1 / sqrt(5.5)
"""
_SETTINGS = {"learning_rate": 0.5, "initial_accumulator_value": 0.25, "epsilon": 0.25}
BASE = {"learning_rate": 1.0}
CONFIGURATIONS = [{"epsilon": 1e-3, "epsilon_in_root": True, "initial_accumulator_value": 0.0}]
GOLDEN = [
    (_SETTINGS, 1.0, [1.0, 2.0], [0.6345120047, 0.2410107329]),
    (dict(_SETTINGS, epsilon_in_root=True), 1.0, [1.0, 2.0], [0.5917517095, 0.1653502768]),
]
