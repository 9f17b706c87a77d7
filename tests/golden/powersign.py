"""PowerSign, by hand: start 1, gradients 1, -2, -1, 0.5, rate 0.5, beta 0.5;  m = 0.5, -0.75, -0.875, -0.1875.

power_base 2:  1 - 0.5 * 2 * 1 = 0;  + 0.5 * 2 * 2;  + 0.5 * 2 * 1;  - 0.5 * 0.5 * 0.5
power_base 4, sign_decay 0.25:  1 - 0.5 sqrt(2);  + sqrt(2);  + 0.5 sqrt(2);  - 0.25 / sqrt(2)
"""
_SETTINGS = {"learning_rate": 0.5, "beta": 0.5, "power_base": 2.0}
_GRADS = [1.0, -2.0, -1.0, 0.5]
CONFIGURATIONS = [{"power_base": 2.0, "sign_decay": 0.5}]
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.0, 2.0, 3.0, 2.875]),
    (
        dict(_SETTINGS, power_base=4.0, sign_decay=0.25),
        1.0,
        _GRADS,
        [0.2928932188, 1.7071067812, 2.4142135624, 2.2374368671],
    ),
]
