"""Nadam, by hand: start 1, gradients 1, 2, rate 0.5, beta_1 0.5, beta_2 0.75, epsilon 0.5.

m = 0.5, 1.25;  v / (1 - beta_2^t) = 1, 1.1875 / 0.4375 = 2.7142857143
momentum_decay 0.5:  mu = 0.5 (1 - 0.5 * 0.96^0.5) = 0.2550510257, 0.26, 0.2648489949
    product 0.2550510257, 0.0663132667
    m_bar = 0.7449489743 / 0.7449489743 + 0.26 * 0.5 / 0.9336867333 = 1.1392329942;  1 - 0.5 m_bar / 1.5
    m_bar = 0.74 * 2 / 0.9336867333 + 0.2648489949 * 1.25 / 0.9824370019 = 1.9220925;  - 0.5 m_bar / 2.1475089
momentum_decay 1:  mu = 0.26, 0.2696, ...
without schedule:  m_bar = 0.5 + 0.25 = 0.75, rate 0.5 * 0.5 / 0.5, root 0.5:  1 - 0.5 * 0.75 / 1
    m_bar = 1 + 0.625, rate 0.5 sqrt(0.4375) / 0.75, root sqrt(1.1875):  - 0.4409585518 * 1.625 / 1.5897247359
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5}
CONFIGURATIONS = [{"momentum_decay": 1.0, "epsilon": 1e-3}]
GOLDEN = [
    (dict(_SETTINGS, momentum_decay=0.5), 1.0, [1.0, 2.0], [0.6202556684, 0.1727386267]),
    (dict(_SETTINGS, momentum_decay=1.0), 1.0, [1.0, 2.0], [0.6183462666, 0.1698307749]),
    (dict(_SETTINGS, momentum_schedule=False), 1.0, [1.0, 2.0], [0.625, 0.1742567798]),
]
