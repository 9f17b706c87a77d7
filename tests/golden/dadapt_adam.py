"""D-Adaptation Adam, from the authors' dadaptation 3.2 in float64: start 1, rate 2, betas 0.5, 0.75, epsilon 0.5.

The first two updates by hand, with d0 0.125 and gradients 1 and 2; sqrt(0.75) = 0.8660254:
t=1: product = 0, s = 0.1339746 * 0.25 = 0.0334936;  m = 0.125, v = 0.25;  1 - 0.125 / (0.5 + 0.5) = 0.875
t=2: product = 0.25 * 2 * 0.0334936 / 1, numerator = 0.1339746 * 0.0167468 = 0.0022436
     s = 0.8660254 * 0.0334936 + 0.1339746 * 0.25 * 2 = 0.0959936, estimate = 0.1744576
     m = 0.0625 + 0.25 = 0.3125, v = 0.1875 + 1 = 1.1875;  0.875 - 0.3125 / (1.0897247 + 0.5) = 0.6784251
So d is 0.1745 at the third update. Scalars are float32, which is seen in the ninth digit.
"""
_SETTINGS = {"learning_rate": 2.0, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5, "d0": 0.125}
_GRADS = [1.0, 2.0, 2.0, 1.0, -1.0, 0.5]
# The gradients of the shared tests never end, and d would grow without end by them: its rounding would grow too.
BASE = {"learning_rate": 1.125, "d0": 0.03125, "growth_rate": 1.0078125}
CONFIGURATIONS = [{"weight_decay": 0.01, "beta_2": 0.99}, {"bias_correction": True, "epsilon": 1e-3}]
GOLDEN = [
    (
        _SETTINGS,
        1.0,
        _GRADS,
        [0.8750000000, 0.6784250880, 0.4090036158, 0.0890102200, 0.1884861737, 0.0983531807],
    ),
    (
        dict(_SETTINGS, weight_decay=0.25),
        1.0,
        _GRADS,
        [0.8125000000, 0.5651438380, 0.2464255385, -0.1130803572, 0.0123048032, -0.0806474919],
    ),
    (
        dict(_SETTINGS, growth_rate=1.125),
        1.0,
        _GRADS,
        [0.8750000000, 0.6784250880, 0.4450917547, 0.2346795805, 0.2285942624, 0.1623314237],
    ),
    (
        dict(_SETTINGS, bias_correction=True),
        1.0,
        _GRADS,
        [0.8750000000, 0.6969947960, 0.4661172897, 0.2015250482, 0.2741287188, 0.1971303791],
    ),
]
CATCH_UP = None  # refused: it measures all rows of a step
