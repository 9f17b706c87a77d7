"""NovoGrad, by hand: start (1, 2), gradients (3, 4), (0, 2), (-1, 0), rate 0.5, beta_1 0.5, beta_2 0.75, epsilon 0.5.

v = 25;  0.75 * 25 + 0.25 * 4 = 19.75;  0.75 * 19.75 + 0.25 = 15.0625;  roots 5, 4.4440972, 3.8810437
m, without the rate:  (3, 4) / 5.5;  m / 2 + (0, 2) / 4.9440972;  m / 2 - (1, 0) / 4.3810437
weight_decay 0.25, grad_averaging:  (3, 4) / 5.5 + (0.25, 0.5);  m / 2 + ((0, 2) / 4.9440972 + 0.25 var) / 2;  ...
amsgrad:  the root stays 5
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5}
_GRADS = [[3.0, 4.0], [0.0, 2.0], [-1.0, 0.0]]
_WANTED = [[0.7272727273, 1.6363636364], [0.5909090909, 1.2522840592], [0.6368553292, 1.0602442707]]
BASE = {"learning_rate": 60.0}
CONFIGURATIONS = [{"weight_decay": 0.01, "grad_averaging": True}]
GOLDEN = [
    (_SETTINGS, [1.0, 2.0], _GRADS, _WANTED),
    (dict(_SETTINGS, rate_in_velocity=False), [1.0, 2.0], _GRADS, _WANTED),  # the same while the rate is constant
    (
        dict(_SETTINGS, weight_decay=0.25, grad_averaging=True),
        [1.0, 2.0],
        _GRADS,
        [[0.6022727273, 1.3863636364], [0.3657670455, 0.8917670296], [0.2817177925, 0.5887332869]],
    ),
    (
        dict(_SETTINGS, amsgrad=True),
        [1.0, 2.0],
        _GRADS,
        [[0.7272727273, 1.6363636364], [0.5909090909, 1.2727272727], [0.6136363636, 1.0909090909]],
    ),
]
CATCH_UP = None  # refused: the rule needs the whole variable
