"""ASGD, by hand: start 1, gradients 1, -2, 0.5, 1, rate 0.5, lambd 0.5, t0 1, alpha 1: eta = 0.5 / (1 + 0.25 (t - 1)).

eta = 0.5:    1 - 0.5 (1 + 0.5) = 0.25
eta = 0.4:    0.25 - 0.4 (-2 + 0.125) = 1
eta = 1/3:    1 - (0.5 + 0.5) / 3 = 0.6666666667
eta = 0.2857142857:  0.6666666667 - eta (1 + 0.3333333333) = 0.2857142857
alpha 0.75: eta = 0.5, 0.4229485054, 0.3688939732, 0.3286180906;  lambd 0: eta = 0.5
"""
_SETTINGS = {"learning_rate": 0.5, "lambd": 0.5, "t0": 1.0}
_GRADS = [1.0, -2.0, 0.5, 1.0]
CONFIGURATIONS = [{"t0": 20.0, "lambd": 0.01, "alpha": 0.5}]
GOLDEN = [
    (dict(_SETTINGS, alpha=1.0), 1.0, _GRADS, [0.25, 1.0, 0.6666666667, 0.2857142857]),
    (_SETTINGS, 1.0, _GRADS, [0.25, 1.0430284476, 0.6661980069, 0.2281175578]),
    (dict(_SETTINGS, lambd=0.0), 1.0, _GRADS, [0.5, 1.5, 1.25, 0.75]),
]
CATCH_UP = None  # refused: a row that missed updates would need the rates that they had
