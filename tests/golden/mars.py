"""MARS, from pytorch-optimizer 4.1.0 in float64: start (3, 4), rate 0.125, beta_1 0.5, beta_2 0.75, gamma 0.5.

epsilon is 0, because the reference adds 1e-15 to v. Gradients (1, -1), (0.25, 0.5), (-0.5, 0.25). By hand:
t=1: corrected = (1.5, -1.5) / 2.1213203 = (0.7071067812, -0.7071067812);  3 - 0.125, 4 + 0.125
t=2: corrected = (0.25, 0.5) + 0.5 * (-0.75, 1.5) = (-0.125, 1.25) / 1.2562345 = (-0.0995037190, 0.9950371902)
     m = (0.1270248358, 0.3207419...);  3 - 0.125 - 0.125 * m_hat / sqrt(v_hat) = 2.8298578851
"""
_SETTINGS = {"learning_rate": 0.125, "beta_1": 0.5, "beta_2": 0.75, "gamma": 0.5, "epsilon": 0.0}
_GRADS = [[1.0, -1.0], [0.25, 0.5], [-0.5, 0.25]]
CONFIGURATIONS = [{"weight_decay": 0.1, "epsilon": 1e-3}]
GOLDEN = [
    (_SETTINGS, [3.0, 4.0], _GRADS, [[2.875, 4.125], [2.8298578851, 4.0644740806], [2.9089836200, 4.0169849030]]),
    (
        dict(_SETTINGS, weight_decay=0.25),
        [3.0, 4.0],
        _GRADS,
        [[2.78125, 4.0], [2.6491938226, 3.8144740806], [2.6455322505, 3.6477825880]],
    ),
    (
        dict(_SETTINGS, amsgrad=True),
        [3.0, 4.0],
        _GRADS,
        [[2.875, 4.125], [2.8353930487, 4.0644740806], [2.9145187836, 4.0230346080]],
    ),
]
CATCH_UP = None  # refused: the rule needs the whole variable
