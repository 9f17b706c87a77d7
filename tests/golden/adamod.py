"""AdaMod, from the authors' adamod 0.0.3 in float64: start 1, rate 0.5, betas 0.5, 0.75, 0.5, epsilon 0.5.

By hand, with gradient 1:
t=1: m = 0.5, v = 0.25;  rate = 0.5 * 0.5 / 0.5 / (0.5 + 0.5) = 0.5, average 0.25;  1 - 0.25 * 0.5 = 0.875
weight_decay 0.25, beta_3 0.25:  average 0.375;  1 - 0.125 - 0.375 * 0.5 = 0.6875
The gradient of 8 makes the rate the lower one of both.
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "beta_3": 0.5, "epsilon": 0.5}
_GRADS = [1.0, 2.0, -1.0, 8.0]
BASE = {"beta_3": 0.9}  # the average must come near the rate in the shared tests
CONFIGURATIONS = [{"weight_decay": 0.1, "epsilon": 1e-3}, {"beta_3": 0.5}]
CATCH_UP = (2e-3, 1e-9)  # after 200 replayed steps the average rate stays, and bounds the step after the gap
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.8750000000, 0.5453872230, 0.5115882284, 0.1226232774]),
    (
        dict(_SETTINGS, weight_decay=0.25, beta_3=0.25),
        1.0,
        _GRADS,
        [0.6875000000, 0.2548369460, 0.1883456163, -0.2241625367],
    ),
]
