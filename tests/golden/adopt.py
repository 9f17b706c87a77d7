"""ADOPT, from the loop of the authors' code in float64: start 1, rate 0.5, beta_1 0.5, beta_2 0.75, epsilon 0.25.

By hand, with gradients 1, 2, -4:
t=1: v = 1, and nothing moves
t=2: direction = 2 / 1, bounded by 1^0.25 = 1;  m = 0.5, 1 - 0.5 * 0.5 = 0.75;  v = 0.75 + 0.25 * 4 = 1.75
t=3: direction = -4 / 1.3228757 = -3.0237, bounded by 2^0.25 = 1.1892071;  m = 0.25 - 0.5946036 = -0.3446036
     0.75 + 0.1723018 = 0.9223018
weight_decay 0.25:  0.125 * w less from the second update on
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.25}
_GRADS = [1.0, 2.0, -4.0, 0.5, 0.0, 8.0]
BASE = {"epsilon": 0.1}  # without clip, a row whose first gradient comes late moves by the rate times grad / epsilon
CONFIGURATIONS = [{"weight_decay": 0.1}, {"beta_2": 0.9, "epsilon": 1e-3}]
GOLDEN = [
    (
        _SETTINGS,
        1.0,
        _GRADS,
        [1.0000000000, 0.7500000000, 0.9223017788, 0.9542200537, 0.9701791911, 0.6043215646],
    ),
    (
        dict(_SETTINGS, weight_decay=0.25),
        1.0,
        _GRADS,
        [1.0000000000, 0.6250000000, 0.7191767788, 0.6611979563, 0.5945073492, 0.1543363040],
    ),
    (dict(_SETTINGS, clip=False), 1.0, [0.125, 2.0, -4.0], [1.0000000000, -1.0000000000, -1.0058083744]),
]
