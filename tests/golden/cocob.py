"""COCOB, by hand: start 1. TensorFlow Addons 0.19 gives the same for a learning rate of 1.

alpha 100, gradients 1, 2, -1:  largest L = 1, 2, 2; absolute sum A = 1, 3, 4; sum G = 1, 3, 2
    reward R = 0, 0.02, 0.00485
    offsets -1 / 100 = -0.01;  -3 / 400 * 2.02 = -0.01515;  -2 / 400 * 2.00485 = -0.01002425
alpha 1, gradients 1, 2, -4:  -1 / 2 = -0.5;  R = 1, -3 / (2 * 5) * 3 = -0.9;  R = max(1 - 3.6, 0), 1 / (4 * 11) * 4
alpha 1, rate 0.5, gradients 1, -2, -1:  -0.5;  R = 0, 1 / (2 * 5) * 2 = 0.2;  R = 0.2, 2 / (2 * 6) * 2.2 = 0.3666666667
"""
BASE = {"learning_rate": 1.0, "alpha": 100.0}  # bets grow faster with a smaller alpha, past what float16 holds
START = (0.2, 0.5)  # bets stay small for long: 30 steps with a million elements move a variable by 0.7
CONFIGURATIONS = [{"alpha": 80.0}]
GOLDEN = [
    ({}, 1.0, [1.0, 2.0, -1.0], [0.99, 0.98485, 0.98997575]),
    ({"alpha": 1.0}, 1.0, [1.0, 2.0, -4.0], [0.5, 0.1, 1.0909090909]),
    ({"alpha": 1.0, "learning_rate": 0.5}, 1.0, [1.0, -2.0, -1.0], [0.75, 1.1, 1.1833333333]),
]
