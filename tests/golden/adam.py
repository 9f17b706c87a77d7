"""Adam, by hand: start 1, gradients 1, 2, rate 0.1, beta_1 0.5, beta_2 0.75, epsilon 0.5 (dyadic, so exact in float32).

t=1: m = 0.5, v = 0.25, rate = 0.1 sqrt(0.25) / 0.5 = 0.1;  w = 1 - 0.1 * 0.5 / (0.5 + 0.5) = 0.95
t=2: m = 0.25 + 1 = 1.25, v = 0.1875 + 1 = 1.1875, rate = 0.1 sqrt(1 - 0.5625) / 0.75 = 0.0881917103688...
     w = 0.95 - 0.0881917103688 * 1.25 / (1.08972473588517 + 0.5) = 0.8806548892
amsgrad, gradients 2, 1: t=1: m = 1, v = 1, w = 1 - 0.1 * 1 / (1 + 0.5) = 0.9333333333
     t=2: m = 0.5 + 0.5 = 1, v = 0.75 + 0.25 = 1, v_hat = 1, w = 0.9333333333 - 0.0881917103688 / 1.5 = 0.8745388598
"""
_SETTINGS = {"learning_rate": 0.1, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5}
CONFIGURATIONS = [{"amsgrad": True}]
GOLDEN = [
    (_SETTINGS, 1.0, [1.0, 2.0], [0.95, 0.8806548892]),
    (dict(_SETTINGS, amsgrad=True), 1.0, [2.0, 1.0], [0.9333333333, 0.8745388598]),
]
