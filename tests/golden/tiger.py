"""Tiger, from pytorch-optimizer 4.1.0 in float64, and relative rates by hand: rate 0.25, beta 0.5.

Start 1, gradients 1, -2, 0.5, 3:  m = 0.5, -0.75, -0.125, 1.4375;  1 - 0.25 = 0.75;  + 0.25;  + 0.25;  - 0.25
weight_decay 0.25:  1 - 0.25 (1 + 0.25) = 0.6875;  0.6875 - 0.25 (-1 + 0.171875) = 0.89453125;  ...
relative_rate="variable", start (3, 4), gradients (1, -1):  rate = 0.25 * sqrt(12.5) = 0.8838834765
    3 - 0.8838834765 (1 + 0.75) = 1.4532039161, 4 - 0.8838834765 (-1 + 1) = 4
relative_rate="row", start ((3, 4), (1, -1)), gradients 1:  rates 0.8838834765, 0.25
    3 - 1.5467960839, 4 - 0.8838834765 * 2 = 2.2322330470;  1 - 0.25 * 1.25, -1 - 0.25 * 0.75
"""
_SETTINGS = {"learning_rate": 0.25, "beta": 0.5, "weight_decay": 0.0}
_DECAYED = dict(_SETTINGS, weight_decay=0.25)
_GRADS = [1.0, -2.0, 0.5, 3.0]
START = (-0.8, -0.2)
CONFIGURATIONS = [{"relative_rate": "variable"}, {"relative_rate": "row"}, {"weight_decay": 0.1}]
GOLDEN = [
    (_SETTINGS, 1.0, _GRADS, [0.75, 1.0, 1.25, 1.0]),
    (_DECAYED, 1.0, _GRADS, [0.6875, 0.89453125, 1.0886230469, 0.7705841064]),
    (dict(_DECAYED, relative_rate="variable"), [3.0, 4.0], [[1.0, -1.0]], [[1.4532039161, 4.0]]),
    (
        dict(_DECAYED, relative_rate="row"),
        [[3.0, 4.0], [1.0, -1.0]],
        [[[1.0, 1.0], [1.0, 1.0]]],
        [[[1.4532039161, 2.2322330470], [0.6875, -1.1875]]],
    ),
]
