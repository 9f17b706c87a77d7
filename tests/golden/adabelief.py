"""AdaBelief, by hand: start 1, rate 0.5, beta_1 0.5, beta_2 0.875, epsilon 0.25, threshold 4; r as in radam.py.

gradients 1, 2, -1, 1, 0.5, 2:  m = 0.5, 1.25, 0.125, 0.5625, 0.53125, 1.265625;  grad - m = 0.5, 0.75, -1.125, ...
    v = 0.03125 + 0.25 = 0.28125, 0.56640625, 0.9038085938, 1.0647583008, 1.1817855835, 1.3514757156
    as RAdam up to t=4;  - 0.5 * 0.1650441778 * 0.5483870968 / 1.8076298545;  - 0.5 * 0.2822149 * 1.2857143 / 1.8158411
rectify=False:  1 - 0.5 * 1 / (1.5 + 0.25) = 0.7142857143;  - 0.5 * 1.6666666667 / 1.8045631755;  - ... / 1.9047403665
    amsgrad, weight_decay 0.25, corrected_root=False, gradients 2, -2, 1:  v = 0.375, 0.859375, 1.072265625
    1 - 0.5 (2 / ((0.6123724 + 0.25) / 0.3535534) + 0.25) = 0.4650223894;  ...
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.875, "epsilon": 0.25, "sma_threshold": 4.0}
_PLAIN = dict(_SETTINGS, rectify=False)
BASE = {"learning_rate": 0.5}
CONFIGURATIONS = [{"weight_decay": 0.1, "corrected_root": False, "epsilon": 1e-3, "amsgrad": True}]
GOLDEN = [
    (
        _SETTINGS,
        1.0,
        [1.0, 2.0, -1.0, 1.0, 0.5, 2.0],
        [0.5, -0.3333333333, -0.4047619048, -0.7047619048, -0.7297969243, -0.8297086910],
    ),
    (_PLAIN, 1.0, [1.0, 2.0, -1.0], [0.7142857143, 0.2524934398, 0.2149930157]),
    (
        dict(_PLAIN, amsgrad=True, weight_decay=0.25, corrected_root=False),
        1.0,
        [2.0, -2.0, 1.0],
        [0.4650223894, 0.5439981629, 0.4121518515],
    ),
]
