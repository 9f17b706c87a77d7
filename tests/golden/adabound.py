"""AdaBound, by hand: start 1, rate 0.5, beta_1 0.5, beta_2 0.75, epsilon 0.5, final_rate 0.25, gamma 1.

low = 0.125, 0.1666666667, 0.1875, 0.2;  high = 0.5, 0.375, 0.3333333333, 0.3125
gradients 1, 2, 0.5, 0.25:  m = 0.5, 1.25, 0.875, 0.5625;  v = 0.25, 1.1875, 0.953125, 0.73046875
    rate = 0.5, 0.2773804432, 0.2943091296, 0.3255088248 clipped to 0.3125
    1 - 0.5 * 0.5;  - 0.2773804432 * 1.25;  - 0.2943091296 * 0.875;  - 0.3125 * 0.5625
final_rate 1:  the rate is clipped to low = 0.5, 0.6666666667, 0.75, 0.8
amsgrad, gradients 2, 1, 0.5:  m = 1, 1, 0.75;  v_hat = 1, 1, 1 (v = 1, 1, 0.8125)
    rate = 0.3333333333, 0.2939723679, 0.4345187 / 1.5
"""
_SETTINGS = {
    "learning_rate": 0.5,
    "beta_1": 0.5,
    "beta_2": 0.75,
    "epsilon": 0.5,
    "final_rate": 0.25,
    "gamma": 1.0,
}
_GRADS = [1.0, 2.0, 0.5, 0.25]
CONFIGURATIONS = [{"gamma": 0.1, "final_rate": 0.05, "epsilon": 1e-3}]
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.75, 0.4032744460, 0.1457539575, -0.0300272925]),
    (dict(_SETTINGS, final_rate=1.0), 1.0, _GRADS, [0.75, -0.0833333333, -0.7395833333, -1.1895833333]),
    (dict(_SETTINGS, amsgrad=True), 1.0, [2.0, 1.0, 0.5], [0.6666666667, 0.3726942988, 0.1554527798]),
]
