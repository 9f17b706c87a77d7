"""RMSprop, by hand: start 1, gradients 1, 2, rate 0.5, rho 0.5, epsilon 0.25; ms and mg are the averages.

ms = 0.5, then 0.25 + 2 = 2.25
outside:  1 - 0.5 / (sqrt(0.5) + 0.25) = 0.4775922501;  - 1 / (1.5 + 0.25)
in root:  1 - 0.5 / sqrt(0.75) = 0.4226497308;  - 1 / sqrt(2.5)
momentum 0.5, in root by itself:  steps 0.5 / sqrt(0.75) = 0.5773502692, 1 / sqrt(2.5) = 0.6324555320;
    velocities 0.5773502692, 0.9211306666
centered:  mg = 0.5, then 1.25;  ms - mg^2 = 0.25, 0.6875;  1 - 0.5 / (0.5 + 0.25);  - 1 / (sqrt(0.6875) + 0.25)
tf.train, momentum 0.5 and centered:  ms = 1 then 2.5, ms - mg^2 = 0.75, 0.9375, roots 1 and sqrt(1.1875);
    velocities 0.5, 0.25 + 1 / sqrt(1.1875)
"""
_SETTINGS = {"learning_rate": 0.5, "rho": 0.5, "epsilon": 0.25}
_CENTERED = {"momentum": 0.5, "centered": True, "initial_mean_square": 1.0}
CONFIGURATIONS = [
    {"epsilon": 1e-3},
    {"epsilon": 1e-3, "epsilon_in_root": True, "initial_mean_square": 1.0},
    {"momentum": 0.9, "centered": True, "epsilon": 1e-3},
]
GOLDEN = [
    (_SETTINGS, 1.0, [1.0, 2.0], [0.4775922501, -0.0938363214]),
    (dict(_SETTINGS, epsilon_in_root=True), 1.0, [1.0, 2.0], [0.4226497308, -0.2098058012]),
    (dict(_SETTINGS, momentum=0.5), 1.0, [1.0, 2.0], [0.4226497308, -0.4984809358]),
    (dict(_SETTINGS, centered=True), 1.0, [1.0, 2.0], [0.3333333333, -0.5933165828]),
    (dict(_SETTINGS, **_CENTERED), 1.0, [1.0, 2.0], [0.5, -0.6676629355]),
]
