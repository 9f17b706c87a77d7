"""Conditional gradient, by hand: start (3, 4), gradients (3, 4), (0, 2), (-1, 1), rate 0.75, lambda_ 2, epsilon 0.5.

0.75 * 3 - 0.25 * 2 * 3 / 5.5 = 1.9772727273, 0.75 * 4 - 0.5 * 4 / 5.5
0.75 * 1.9772727273, 0.75 * 2.6363636364 - 0.5 * 2 / 2.5
0.75 * 1.4829545455 + 0.5 / 1.9142136, 0.75 * 1.5772727273 - 0.5 / 1.9142136
"""
BASE = {"learning_rate": 0.5, "lambda_": 10.0}
CONFIGURATIONS = [{"lambda_": 20.0, "epsilon": 0.1}]
GOLDEN = [
    (
        {"learning_rate": 0.75, "lambda_": 2.0, "epsilon": 0.5},
        [3.0, 4.0],
        [[3.0, 4.0], [0.0, 2.0], [-1.0, 1.0]],
        [[1.9772727273, 2.6363636364], [1.4829545455, 1.5772727273], [1.3734197841, 0.9217506705]],
    ),
]
CATCH_UP = None  # refused: the rule needs the whole variable
