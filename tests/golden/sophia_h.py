"""Sophia-H, by hand from algorithm 3: start 1, rate, beta_1, epsilon and distance 0.5, beta_2 0.75, gamma 2.

Every second gradient is that of the second point. u of the one element in the first four updates, which
tests/test_random.py draws from the seed "array_0/0": -0.9901203, -0.6650848, 0.8209148, 0.2075554.
t=1: 1 - 0.5 * 0.9901203 = 0.5049399;  curvature = -0.9901203 * (-3 - 0.5) / 0.5 = 6.9308421, h = 1.7327105
     m = 0.25, step = 0.25 / 3.4654210 = 0.0721413;  1 - 0.5 * 0.0721413 = 0.9639293
t=2: 0.9639293 - 0.5 * 0.6650848 = 0.6313869;  curvature = 3.9905088, h = 1.2995329 + 0.9976272 = 2.2971601
     m = 0.125 - 0.5 = -0.375, step = -0.375 / 4.5943202 = -0.0816225;  0.9639293 + 0.0408112 = 1.0047406
weight_decay 0.25:  0.125 * w less. signs: u is -1, -1, 1, 1; in the last update h is below 0, and the step is 1
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "gamma": 2.0, "epsilon": 0.5, "distance": 0.5}
_GRADS = [0.5, -3.0, -1.0, -4.0, 2.0, 3.0, 0.25, -9.0]
BASE = {"distance": 1.0, "epsilon": 0.1, "beta_1": 0.9}  # the gradients of the shared tests do not depend on the point
CONFIGURATIONS = [{"weight_decay": 0.1, "gamma": 0.5}, {"noise": "signs", "beta_2": 0.9}]
GOLDEN = [
    (
        _SETTINGS,
        1.0,
        _GRADS,
        [
            0.5049398586, 0.9639293464, 0.6313869418, 1.0047406075, 1.4151980268, 0.9095255027, 1.0133031993,
            0.7020228045,
        ],
    ),
    (
        dict(_SETTINGS, weight_decay=0.25),
        1.0,
        _GRADS,
        [
            0.5049398586, 0.8389293464, 0.5063869418, 0.7748744392, 1.1853318585, 0.5828000295, 0.6865777261,
            0.3024473276,
        ],
    ),
    (
        dict(_SETTINGS, noise="signs"),
        1.0,
        _GRADS,
        [
            0.5000000000, 0.9642857143, 0.4642857143, 0.9976190476, 1.4976190476, 0.9197747362, 1.4197747362,
            0.4197747362,
        ],
    ),
]
CATCH_UP = None  # refused, as "rows": a row may have a gradient at one of the two points only
