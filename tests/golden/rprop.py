"""Rprop, by hand: start 1, gradients 1, 2, -1, -1, -3, 0, 2, rate 0.5, step sizes of 0.2 to 0.7.

step 0.5:   1 - 0.5 = 0.5
step 0.6:   0.5 - 0.6 = -0.1
the sign has changed: step 0.3, which stands still
the gradient before counts as 0: step 0.3, 0.2
step 0.36:  0.56
gradients of 0 stand still, and their signs agree with none: step 0.36, 0.56;  step 0.36, 0.2
eta_minus 0.25, eta_plus 2, gradients 1, 1, -1, -1: steps 0.5, 0.7 (not 1), 0.2 (not 0.175), 0.2
"""
_SETTINGS = {"learning_rate": 0.5, "step_size_min": 0.2, "step_size_max": 0.7}
BASE = {"learning_rate": 1.0}
CONFIGURATIONS = [{"eta_minus": 0.75, "eta_plus": 1.5, "step_size_max": 0.5}]
GOLDEN = [
    (_SETTINGS, 1.0, [1.0, 2.0, -1.0, -1.0, -3.0, 0.0, 2.0], [0.5, -0.1, -0.1, 0.2, 0.56, 0.56, 0.2]),
    (dict(_SETTINGS, eta_minus=0.25, eta_plus=2.0), 1.0, [1.0, 1.0, -1.0, -1.0], [0.5, -0.2, -0.2, 0.0]),
]
