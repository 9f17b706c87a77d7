"""SGDW, by hand: start 1, gradients 1, 0.5, rate 0.5, momentum 0.5, weight_decay 0.25.

1 - 0.125 - 0.5 = 0.375;  velocity 0.25 + 0.25:  0.375 - 0.046875 - 0.5
without the rate, velocity of gradients 1, 1:  1 - 0.25 - 0.5 = 0.25;  0.25 - 0.0625 - 0.5
"""
_SETTINGS = {"learning_rate": 0.5, "momentum": 0.5, "weight_decay": 0.25}
CONFIGURATIONS = [{"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "rate_in_velocity": False}]
GOLDEN = [
    (_SETTINGS, 1.0, [1.0, 0.5], [0.375, -0.171875]),
    (dict(_SETTINGS, decay_times_rate=False, rate_in_velocity=False), 1.0, [1.0, 0.5], [0.25, -0.3125]),
]
