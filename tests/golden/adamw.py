"""AdamW, by hand: as Adam's first two lines (steps 0.05 and 0.1193451108), weight_decay 0.5 or 0.125 without the rate.

scaled by the rate:  1 - 0.05 - 0.05 = 0.9;  0.9 - 0.045 - 0.0693451108
without:  1 - 0.125 - 0.05 = 0.825;  0.825 - 0.103125 - 0.0693451108
"""
_SETTINGS = {"learning_rate": 0.1, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5}
CONFIGURATIONS = [{"amsgrad": True, "weight_decay": 0.1}, {"decay_times_rate": False, "weight_decay": 1e-3}]
GOLDEN = [
    (dict(_SETTINGS, weight_decay=0.5), 1.0, [1.0, 2.0], [0.9, 0.7856548892]),
    (dict(_SETTINGS, weight_decay=0.125, decay_times_rate=False), 1.0, [1.0, 2.0], [0.825, 0.6525298892]),
]
