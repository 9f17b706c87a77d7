"""Prodigy, from prodigyopt 1.1.2 in float64: start 1, rate 0.5, betas 0.5, 0.75, epsilon 0.5, d0 0.125, d_coef 4.

The first two updates by hand, with gradients 1 and 2:
t=1: numerator = 0, s = 0.0625, estimate = 0, d = 0.125;  m = 0.0625, v = 0.25 * 0.015625 = 0.00390625
     1 - 0.0625 * 0.0625 / (0.0625 + 0.0625) = 0.96875
t=2: numerator = 0.0625 * 2 * 0.03125 = 0.00390625, s = 0.8660254 * 0.0625 + 0.125 = 0.1791265877
     estimate = 4 * 0.00390625 / 0.1791265877 = 0.0872288 < d;  m = 0.15625, v = 0.0185546875
     0.96875 - 0.0625 * 0.15625 / (0.1362156 + 0.0625) = 0.9196062720
The fourth gradient raises d to 0.2. Scalars are float32, which is seen in the ninth digit.
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5, "d0": 0.125, "d_coef": 4.0}
_GRADS = [1.0, 2.0, 2.0, 1.0, -1.0, 0.5]
# The gradients of the shared tests never end, and d would grow without end by them: its rounding would grow too.
BASE = {"learning_rate": 1.0, "d0": 0.03125, "growth_rate": 1.0078125}
CONFIGURATIONS = [
    {"weight_decay": 0.01, "beta_3": 0.9, "d_coef": 2.0},
    {"learning_rate": 2.0, "bias_correction": True, "safeguard_warmup": True, "epsilon": 1e-3},
]
GOLDEN = [
    (
        _SETTINGS,
        1.0,
        _GRADS,
        [0.9687500000, 0.9196062720, 0.8721958764, 0.8153742365, 0.8393050836, 0.8179584711],
    ),
    (
        dict(_SETTINGS, weight_decay=0.25, beta_3=0.5),
        1.0,
        _GRADS,
        [0.9531250000, 0.8919970805, 0.8282887949, 0.7013160231, 0.7216238547, 0.6328726157],
    ),
    (
        dict(_SETTINGS, growth_rate=1.25),
        1.0,
        _GRADS,
        [0.9687500000, 0.9196062720, 0.8721958764, 0.8084236329, 0.8157813089, 0.7874762283],
    ),
    (
        dict(_SETTINGS, bias_correction=True),
        1.0,
        _GRADS,
        [0.9687500000, 0.9254093057, 0.8830148639, 0.8353491923, 0.8507461083, 0.8323431944],
    ),
    (
        dict(_SETTINGS, bias_correction=True, safeguard_warmup=True),
        1.0,
        _GRADS,
        [0.9687500000, 0.9254093057, 0.8783403100, 0.8379580509, 0.8328548973, 0.8209757127],
    ),
]
CATCH_UP = None  # refused: it measures all rows of a step
