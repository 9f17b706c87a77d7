"""SGD, by hand: start 1, gradients 1, 0.5, -1, rate 0.1.

plain:     1 - 0.1 = 0.9;  0.9 - 0.05 = 0.85;  0.85 + 0.1 = 0.95
momentum 0.9:  a = -0.1, w = 0.9;  a = -0.09 - 0.05 = -0.14, w = 0.76;  a = -0.126 + 0.1 = -0.026, w = 0.734
nesterov:  a as above; w += 0.9 a - 0.1 g:  1 - 0.09 - 0.1 = 0.81;  0.81 - 0.126 - 0.05 = 0.634;
           0.634 - 0.0234 + 0.1 = 0.7106
"""
CONFIGURATIONS = [
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.9, "nesterov": True, "rate_in_velocity": False},
]
_OUTSIDE = {"learning_rate": 0.1, "momentum": 0.9, "rate_in_velocity": False}  # the same while the rate is constant
GOLDEN = [
    (_OUTSIDE, 1.0, [1.0, 0.5, -1.0], [0.9, 0.76, 0.734]),
    (dict(_OUTSIDE, nesterov=True), 1.0, [1.0, 0.5, -1.0], [0.81, 0.634, 0.7106]),
    ({"learning_rate": 0.1}, 1.0, [1.0, 0.5, -1.0], [0.9, 0.85, 0.95]),
    ({"learning_rate": 0.1, "momentum": 0.9}, 1.0, [1.0, 0.5, -1.0], [0.9, 0.76, 0.734]),
    ({"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}, 1.0, [1.0, 0.5, -1.0], [0.81, 0.634, 0.7106]),
]
