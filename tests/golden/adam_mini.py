"""Adam-mini, from adam-mini 1.1.1 in float64: rate 0.5, beta_1 0.5, beta_2 0.75, epsilon 0.5.

Kernels are transposed for it. Start ((1, 2), (3, 4)), gradients ((1, -2), (0.5, 1)), ((-1, 0), (2, 3)). By hand:
t=1, outputs: the means of squares are 0.625 and 2.5, m_hat = grad;  1 - 0.5 / (sqrt(0.625) + 0.5) = 0.6125741133
    rows: 2.5 and 0.625;  the variable: 1.5625, 1 - 0.5 / 1.75 = 0.7142857143;  a vector's: 1 - 0.5 / 1.5
weight_decay 0.25:  0.125 * w less
heads, start (((1, 2)), ((3, 4))) of one head: as the variable;  of two heads, and columns: as outputs
"""
_SETTINGS = {"learning_rate": 0.5, "beta_1": 0.5, "beta_2": 0.75, "epsilon": 0.5}
_START = [[1.0, 2.0], [3.0, 4.0]]
_GRADS = [[[1.0, -2.0], [0.5, 1.0]], [[-1.0, 0.0], [2.0, 3.0]]]
_OUTPUTS = [
    [[0.6125741133, 2.4805061467], [2.8062870566, 3.7597469266]],
    [[0.7050398131, 2.6188975743], [2.3901914074, 3.2753769301]],
]
_WHOLE = [
    [[0.7142857143, 2.5714285714], [2.8571428571, 3.7142857143]],
    [[0.7923898150, 2.7276367728], [2.5056744040, 3.1675570094]],
]


def _kernel(rows, heads):
    """Returns the rows as those of a kernel of three axes."""
    return [[row] if heads == 1 else [[element] for element in row] for row in rows]


def _kernels(matrices, heads):
    return [_kernel(rows, heads) for rows in matrices]


CONFIGURATIONS = [{"block": "row", "weight_decay": 0.1}, {"block": "variable", "epsilon": 1e-3}, {"block": "column"}]
GOLDEN = [
    (_SETTINGS, _START, _GRADS, _OUTPUTS),
    (
        dict(_SETTINGS, weight_decay=0.25),
        _START,
        _GRADS,
        [
            [[0.4875741133, 2.2305061467], [2.4312870566, 3.2597469266]],
            [[0.5190930489, 2.0900843060], [1.7112805253, 2.3679085642]],
        ],
    ),
    (
        dict(_SETTINGS, block="row"),
        _START,
        _GRADS,
        [
            [[0.7597469266, 2.4805061467], [2.8062870566, 3.6125741133]],
            [[0.8598491463, 2.6807105861], [2.5057497826, 3.1450716870]],
        ],
    ),
    (dict(_SETTINGS, block="variable"), _START, _GRADS, _WHOLE),
    (dict(_SETTINGS, block="head"), _kernel(_START, 1), _kernels(_GRADS, 1), _kernels(_WHOLE, 1)),
    (dict(_SETTINGS, block="head"), _kernel(_START, 2), _kernels(_GRADS, 2), _kernels(_OUTPUTS, 2)),
    (dict(_SETTINGS, block="column"), _kernel(_START, 1), _kernels(_GRADS, 1), _kernels(_OUTPUTS, 1)),
    (_SETTINGS, [1.0, 2.0], [[1.0, -2.0], [-1.0, 0.0]], [[0.6666666667, 2.4], [0.7777777778, 2.5842325655]]),
]
CATCH_UP = None  # refused: the means are over all rows
