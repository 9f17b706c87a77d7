"""NadamW, by hand: as in nadam.py, a third gradient -1, and weight_decay 0.25.

momentum_decay 0.5:  m_bar = 1.1392329947, 1.9220936977, -0.7144329632;  the third root sqrt(1.9729730) + 0.5
    1 - 0.5 * 1.1392329947 / 1.5 - 0.125;  - 0.5 m_bar / 2.1475089 - 0.125 var;  - 0.5 m_bar / 1.9046256 - 0.125 var
momentum_decay 1, without the rate:  1 - 0.5 * 1.1449612003 / 1.5 - 0.25;  ...
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5, "weight_decay": 0.25}
CONFIGURATIONS = [{"momentum_decay": 1.0, "epsilon": 1e-3}]
GOLDEN = [
    (dict(_SETTINGS, momentum_decay=0.5), 1.0, [1.0, 2.0, -1.0], [0.4952556684, -0.0141683319, 0.1751547873]),
    (
        dict(_SETTINGS, momentum_decay=1.0, decay_times_rate=False),
        1.0,
        [1.0, 2.0, -1.0],
        [0.3683462666, -0.1722557917, 0.0544133981],
    ),
]
