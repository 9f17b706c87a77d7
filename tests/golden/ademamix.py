"""AdEMAMix, from pytorch-optimizer 4.1.0 in float64: start 1, gradients 1, 2, -1, rate 0.5, betas 0.5, 0.75, 0.875.

epsilon 0.5, alpha 4. The first update by hand: slow = 0.125, 1 - 0.5 * (1 + 4 * 0.125) / (1 + 0.5) = 0.5
weight_decay 0.25:  0.125 * w less
warm-ups of 2 updates:  alpha 2, 4, 4;  log(beta_3) = 2 / (1 / log(0.5) + 1 / log(0.875)), so 0.7993, 0.875, 0.875
    slow = 0.2007082928;  1 - 0.5 * (1 + 2 * 0.2007082928) / 1.5 = 0.5329 (to four digits)
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "beta_3": 0.875, "alpha": 4.0, "epsilon": 0.5}
_GRADS = [1.0, 2.0, -1.0]
CONFIGURATIONS = [
    {"weight_decay": 0.1, "alpha_warmup": 20, "beta_3_warmup": 30, "beta_3": 0.99},
    {"weight_decay": 0.1, "epsilon": 1e-3},
]
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.5, -0.2227366103, -0.4591793159]),
    (dict(_SETTINGS, weight_decay=0.25), 1.0, _GRADS, [0.375, -0.3946116103, -0.5817278646]),
    (dict(_SETTINGS, alpha_warmup=2, beta_3_warmup=2), 1.0, _GRADS, [0.5329168414, -0.2514461904, -0.5486884475]),
    (dict(_SETTINGS, alpha_warmup=4, beta_3_warmup=4), 1.0, _GRADS, [0.5709470889, -0.1108337261, -0.4472673059]),
]
CATCH_UP = (2e-3, 1e-9)  # 200 steps are replayed: slow moves the variable on, by more than any closed form here follows
