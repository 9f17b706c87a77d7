"""Yogi, by hand: start 1, gradients 1, 0.5, -2, rate 0.5, beta_1 0.5, beta_2 0.75, epsilon 0.5.

m = 0.5, 0.5, -0.75;  0.5 sqrt(1 - 0.75^t) / (1 - 0.5^t) = 0.5, 0.4409585518, 0.4345187
v from 0.25:  0.25 + 0.25 * 1 = 0.5;  - 0.25 * 0.25 = 0.4375;  + 0.25 * 4 = 1.4375;  rate = 0.4142136, 0.3796661, ...
    1 - rate * 0.5 = 0.7928932188;  - rate * 0.5;  + rate * 0.75
tanh, v from 0.9375:  0.9375 + 0.25 tanh(0.625) = 1.0761499306;  1.0136499389;  2.0136499389
l1 0.25, l2 0.5:  (0.7928932188 - 0.4142135624 * 0.25) / (1 + 0.4142135624 * 0.5) = 0.5710678119;  ...
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5, "initial_accumulator_value": 0.25}
_GRADS = [1.0, 0.5, -2.0]
CONFIGURATIONS = [{"activation": "tanh"}, {"l1": 0.01, "l2": 0.01, "epsilon": 0.1, "initial_accumulator_value": 0.1}]
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.7928932188, 0.6030601768, 0.7948614464]),
    (
        dict(_SETTINGS, activation="tanh", initial_accumulator_value=0.9375),
        1.0,
        _GRADS,
        [0.8373853082, 0.6910626330, 0.8608682385],
    ),
    (dict(_SETTINGS, l1=0.25, l2=0.5), 1.0, _GRADS, [0.5710678119, 0.2406373321, 0.3267270676]),
]
