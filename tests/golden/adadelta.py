"""Adadelta, by hand: start 1, gradients 1, 2, rate 0.5, rho 0.5, epsilon 0.25.

a = 0.5, step = sqrt(0.25 / 0.75) = 0.5773502692, d = 0.5 * 0.3333333333 = 0.1666666667;  1 - 0.2886751346
a = 2.25, step = sqrt(0.4166666667 / 2.5) * 2 = 0.8164965809;  0.7113248654 - 0.4082482905
"""
BASE = {"learning_rate": 300.0}  # the first steps are as small as the root of epsilon
CONFIGURATIONS = [{"epsilon": 1e-3, "rho": 0.9, "learning_rate": 3.0}]
GOLDEN = [
    ({"learning_rate": 0.5, "rho": 0.5, "epsilon": 0.25}, 1.0, [1.0, 2.0], [0.7113248654, 0.3030765749]),
]
