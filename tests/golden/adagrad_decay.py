"""AdagradDecay, by hand: start 2, rate 0.5, decay 0.5 every 2 updates, accumulators from 1, gradients 1, 2, 1, 3, 0.5.

t=1: a = 1 + 1 = 2,                          w = 2 - 0.5 / sqrt(2) = 1.6464466094
t=2: a = 2 + 4 = 6,                          w = 1.6464466094 - 1 / sqrt(6) = 1.2381983190
t=3: first decay, a = max(3, 1) + 1 = 4,     w = 1.2381983190 - 0.5 / 2 = 0.9881983190
t=4: a = 4 + 9 = 13,                         w = 0.9881983190 - 1.5 / sqrt(13) = 0.5721731718
t=5: second decay, a = 6.5 + 0.25 = 6.75,    w = 0.5721731718 - 0.25 / sqrt(6.75) = 0.4759481269
"""
CONFIGURATIONS = [{"decay_steps": 7, "decay_rate": 0.5}]
GOLDEN = [
    (
        {"learning_rate": 0.5, "decay_rate": 0.5, "decay_steps": 2, "initial_accumulator_value": 1.0},
        2.0,
        [1.0, 2.0, 1.0, 3.0, 0.5],
        [1.6464466094, 1.2381983190, 0.9881983190, 0.5721731718, 0.4759481269],
    )
]
