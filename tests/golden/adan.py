"""Adan, from pytorch-optimizer 4.1.0 in float64: start 1, gradients 1, 2, -1, rate 0.5, betas 0.5, 0.75, 0.5.

epsilon 0.5. The second update by hand: difference = 1, m_hat = 1.25 / 0.75, d = 0.25, d_hat = 0.25 / 0.4375,
    v = 0.5 * 0.5 + 0.5 * 2.75^2 = 4.03125, v_hat = 5.375
    0.6666666667 - 0.5 * (1.6666666667 + 0.75 * 0.5714285714) / (2.3184046 + 0.5) = 0.2949602627
weight_decay 0.25:  the result divided by 1.125;  with proximal=False 0.125 * w less
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "beta_3": 0.5, "epsilon": 0.5}
_GRADS = [1.0, 2.0, -1.0]
CONFIGURATIONS = [{"weight_decay": 0.1, "proximal": False}, {"weight_decay": 0.1, "epsilon": 1e-3}]
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.6666666667, 0.2949602627, 0.3815763085]),
    (dict(_SETTINGS, weight_decay=0.25), 1.0, _GRADS, [0.5925925926, 0.1963432788, 0.2515193996]),
    (dict(_SETTINGS, weight_decay=0.25, proximal=False), 1.0, _GRADS, [0.5416666667, 0.1022519294, 0.1760864840]),
]
CATCH_UP = (2e-3, 1e-9)  # no table for beta_1=0.98: 200 steps are replayed, and 0.98^200 of a step is left
