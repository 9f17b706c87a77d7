"""Schedule-Free AdamW, by hand, with x kept: start 1, gradients 1, 2, -1, rate 0.5, both betas 0.75, epsilon 0.5.

sqrt(v / (1 - beta_2^t)) = 1, 1.6475090, 1.4046256;  share = 1, 1/2, 1/3
    z = 1 - 0.5 / 1.5 = 0.6666666667;  - 1 / 2.1475090 = 0.2010108641;  + 0.5 / 1.9046256 = 0.4635296550
    x = 0.6666666667, 0.4338387654, 0.4437357286;  y = 0.25 z + 0.75 x
weight_decay 0.25, warmup_steps 2, averaging_power 1:  rate = 0.25, 0.5, 0.5;  weights 0.0625, 0.5, 0.75;
    share = 1, 8/9, 4/7;  z = 1 - 0.25 (1 / 1.5 + 0.25) = 0.7708333333;  ...
weight_decay 0.25, rate_power 0:  share = 1, 1/2, 1/3
correction_in_rate, warmup_steps 4:  rate = 0.125 * 0.5, 0.25 * 0.6614378, 0.375 * 0.7603453
    z = 1 - 0.0625 / (0.5 + 0.5);  - 0.1653595 * 2 / (1.0897247 + 0.5);  + 0.2851295 / (1.0680004 + 0.5)
    share = 1, 0.0273437500 / 0.03125 = 0.875, 0.7223427332
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.75, "beta_2": 0.75, "epsilon": 0.5}
_GRADS = [1.0, 2.0, -1.0]
CONFIGURATIONS = [
    {"weight_decay": 0.1, "warmup_steps": 10, "averaging_power": 1.0},
    {"rate_power": 0.0, "epsilon": 1e-3},
    {"correction_in_rate": True, "warmup_steps": 5},
]
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.6666666667, 0.3756317900, 0.4486842102]),
    (
        dict(_SETTINGS, weight_decay=0.25, warmup_steps=2, averaging_power=1.0),
        1.0,
        _GRADS,
        [0.7708333333, 0.2556575282, 0.3853476629],
    ),
    (dict(_SETTINGS, weight_decay=0.25, rate_power=0.0), 1.0, _GRADS, [0.5416666667, 0.2083140817, 0.2598833301]),
    (dict(_SETTINGS, warmup_steps=4, correction_in_rate=True), 1.0, _GRADS, [0.9375, 0.7489679800, 0.8788551714]),
]
