"""AddSign, by hand: start 1, gradients 1, -2, -1, 0.5, rate 0.5, beta 0.5;  m = 0.5, -0.75, -0.875, -0.1875.

alpha 1:  1 - 0.5 * 2 * 1 = 0;  + 0.5 * 2 * 2;  + 0.5 * 2 * 1;  - 0.5 * 0 * 0.5
alpha 2, sign_decay 0.5:  1 - 0.5 * 2.5;  + 0.5 * 2.5 * 2;  + 0.5 * 2.5;  - 0.5 * 1.5 * 0.5
"""
_SETTINGS = {"learning_rate": 0.5, "beta": 0.5}
_GRADS = [1.0, -2.0, -1.0, 0.5]
CONFIGURATIONS = [{"alpha": 2.0, "sign_decay": 0.5}]
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.0, 2.0, 3.0, 3.0]),
    (dict(_SETTINGS, alpha=2.0, sign_decay=0.5), 1.0, _GRADS, [-0.25, 2.25, 3.5, 3.125]),
]
