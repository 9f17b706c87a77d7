"""Lion, by hand: start 1, gradients 1, -1, 2, -0.5, rate 0.5, beta_1 0.5, beta_2 0.75.

interpolated, then m:  0.5, 0.25;  -0.375, -0.0625;  0.96875, 0.453125;  -0.0234375, ...
    1 - 0.5 = 0.5;  + 0.5;  - 0.5;  + 0.5
weight_decay 0.25, the same signs:  1 - 0.5 (1 + 0.25) = 0.375;  0.375 - 0.5 (-1 + 0.09375);  ...
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75}
CONFIGURATIONS = [{"weight_decay": 0.1}]
GOLDEN = [
    (_SETTINGS, 1.0, [1.0, -1.0, 2.0, -0.5], [0.5, 1.0, 0.5, 1.0]),
    (dict(_SETTINGS, weight_decay=0.25), 1.0, [1.0, -1.0, 2.0, -0.5], [0.375, 0.828125, 0.224609375, 0.6965332031]),
]
