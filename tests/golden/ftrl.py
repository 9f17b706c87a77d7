"""Ftrl, by hand: start 1, rate 0.5, accumulator n from 0.25; z is linear, q is the divisor.

gradients 1, 2, all else 0:  n = 1.25, z = 1 - (sqrt(1.25) - 0.5) / 0.5 = -0.2360679775, q = 2 sqrt(1.25)
    w = 0.2360679775 / 2.2360679775 = 0.1055728090
    n = 5.25, z = -0.2360679775 + 2 - 2 (sqrt(5.25) - sqrt(1.25)) * 0.1055728090, q = 2 sqrt(5.25);  w = -0.3308629715
gradients 1, -2, power -0.25, l1 0.125, l2 0.25, shrinkage 0.5, beta 1:
    z = 1 + 1 - 2 (1.25^0.25 - 0.25^0.25) = 1.2997632, q = 2 (1.0573713 + 1) + 0.5;  w = (0.125 - z) / q = -0.2545041308
    z = z - 2 + w - 2 (5.25^0.25 - 1.25^0.25) w, q = 2 (1.5137033 + 1) + 0.5;  w = (-0.125 - z) / q = 0.1081445093
"""
_ALL = {"learning_rate_power": -0.25, "l1": 0.125, "l2": 0.25, "l2_shrinkage": 0.5, "beta": 1.0}
_START = {"learning_rate": 0.5, "initial_accumulator_value": 0.25}
BASE = {"learning_rate": 1.0}
CONFIGURATIONS = [{"l1": 0.01, "l2": 0.001, "l2_shrinkage": 0.001, "beta": 0.1, "learning_rate_power": -0.4}]
GOLDEN = [
    (_START, 1.0, [1.0, 2.0], [0.1055728090, -0.3308629715]),
    (dict(_START, **_ALL), 1.0, [1.0, -2.0], [-0.2545041308, 0.1081445093]),
]
