"""Ready maps between layers of Keras and modules of torch, beside real layers of both."""
from __future__ import absolute_import, division, print_function

from collections import OrderedDict

import numpy as np
import pytest

import everstep
from crafted_files import optional
from everstep.errors import StateError
from everstep.optimizers import Adafactor, Adam

torch, keras = optional("torch"), optional("keras")
BOTH = pytest.mark.skipif(torch is None or keras is None or keras.backend.backend() != "torch",
                          reason="needs Keras on torch")
RANDOM = np.random.RandomState(3)
# {case: (class in Keras, its arguments, class in torch, its arguments, shape of the input in Keras)}
CASES = OrderedDict([
    ("Dense", ((4,), {}, "Linear", (3, 4), {}, (5, 3))),
    ("Embedding", ((6, 3), {}, "Embedding", (6, 3), {}, None)),
    ("Conv1D", ((4, 3), {}, "Conv1d", (2, 4, 3), {}, (2, 7, 2))),
    ("Conv2D", ((4, (3, 2)), {}, "Conv2d", (2, 4, (3, 2)), {}, (2, 6, 5, 2))),
    ("Conv3D", ((3, (3, 2, 1)), {}, "Conv3d", (2, 3, (3, 2, 1)), {}, (1, 4, 5, 3, 2))),
    ("Conv1DTranspose", ((4, 3), {}, "ConvTranspose1d", (2, 4, 3), {}, (2, 5, 2))),
    ("Conv2DTranspose", ((3, (3, 2)), {}, "ConvTranspose2d", (2, 3, (3, 2)), {}, (2, 4, 5, 2))),
    ("DepthwiseConv2D", (((3, 2),), {"depth_multiplier": 2}, "Conv2d", (3, 6, (3, 2)), {"groups": 3}, (2, 5, 4, 3))),
    ("BatchNormalization", ((), {"epsilon": 1e-3}, "BatchNorm1d", (3,), {"eps": 1e-3}, (6, 3))),
    ("LayerNormalization", ((), {"epsilon": 1e-5}, "LayerNorm", (3,), {}, (6, 3))),
    ("GroupNormalization", ((2,), {"epsilon": 1e-5}, "GroupNorm", (2, 4), {}, (3, 5, 5, 4))),
    ("LSTM", ((4,), {"return_sequences": True}, "LSTM", (3, 4), {"batch_first": True}, (2, 6, 3))),
    ("GRU", ((4,), {"return_sequences": True}, "GRU", (3, 4), {"batch_first": True}, (2, 6, 3))),
])
HYPERS = dict(beta_1=0.875, beta_2=0.96875, epsilon=2.0**-40)  # hypers are float32, which holds these numbers exactly
# Keras on torch multiplies matrices and takes moments in float32, whatever the dtype of a layer is.
ROUNDED = ("Dense", "BatchNormalization", "LayerNormalization", "GroupNormalization")
OPTIONS = {"DepthwiseConv2D": {"depth_multiplier": 2}}


def layers_of(kind):
    given = (kind, "net") + ((OPTIONS[kind],) if kind in OPTIONS else ())
    return {"layer": given}


def names_of(layer):
    """Returns {variable as States name it: variable of Keras} of a layer."""
    return OrderedDict(("layer/" + weight.path.split("/", 1)[1], weight) for weight in layer.weights)


def gradients_of(output, tensors):
    """Returns the gradients of a loss that tells all outputs apart."""
    factors = torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype).reshape(output.shape)
    return [each.detach().numpy().copy() for each in torch.autograd.grad((output * factors).sum(), tensors)]


def in_keras_order(output, kind):
    """Returns an output of torch with the channels last, where Keras has them."""
    return torch.movedim(output, 1, -1) if "Conv" in kind or kind == "GroupNormalization" else output


def run_torch(module, kind, inputs):
    moved = "Conv" in kind or kind == "GroupNormalization"
    output = module(torch.movedim(inputs, -1, 1).contiguous() if moved else inputs)
    return in_keras_order(output[0] if kind in ("LSTM", "GRU") else output, kind)


@BOTH
@pytest.mark.parametrize("kind", CASES)
def test_a_layer_goes_on_in_torch(kind):
    """Same weights, same outputs, same gradients, and the same next step of Adam, torch's own, in float64."""
    arguments, keywords, name, torch_arguments, torch_keywords, shape = CASES[kind]
    layer = getattr(keras.layers, kind)(*arguments, dtype="float64", name="layer", **keywords)
    inputs = torch.randint(0, 6, (2, 5)) if shape is None else torch.tensor(RANDOM.randn(*shape))
    layer(inputs)
    variables = names_of(layer)
    for variable in variables.values():
        variable.assign(np.abs(RANDOM.randn(*variable.shape)) + 0.1)
    trained = [name for name, variable in variables.items() if variable.trainable]
    optimizer = Adam(0.0625, **HYPERS).bind(np)
    values = OrderedDict((name, variables[name].numpy().copy()) for name in trained)
    for _ in range(2):
        output = layer(inputs, training=False)
        found = gradients_of(output, [variables[name].value for name in trained])
        optimizer.apply_gradients(list(zip(found, values.values())))
        for name in trained:
            variables[name].assign(values[name])
    state = everstep.capture(optimizer, values, weights=True)
    for name, variable in variables.items():  # moving averages have values, and no slots
        state.variables[name] = variable.numpy().copy()
    moved = state.to_torch(layers_of(kind))

    module = getattr(torch.nn, CASES[kind][2])(*torch_arguments, dtype=torch.float64, **torch_keywords).eval()
    loaded = {name[len("net.") :]: torch.tensor(np.asarray(value)) for name, value in moved.variables.items()}
    left = module.load_state_dict(loaded, strict=False)
    assert not left.unexpected_keys and set(left.missing_keys) <= {"num_batches_tracked"}
    output, expected = run_torch(module, kind, inputs), layer(inputs, training=False)
    near = 1e-5 if kind in ROUNDED else 1e-9
    np.testing.assert_allclose(output.detach().numpy(), expected.detach().numpy(), rtol=near, atol=near)
    names = [each[len("net.") :] for each in moved.slots]
    parameters = [dict(module.named_parameters())[each] for each in names]
    theirs = gradients_of(output, parameters)
    ours = gradients_of(expected, [variables[name].value for name in trained])
    turned = everstep.State(variables=zip(trained, ours)).to_torch(layers_of(kind)).variables
    for each, gradient in zip(names, theirs):
        np.testing.assert_allclose(gradient, np.asarray(turned["net." + each]), rtol=near, atol=near, err_msg=each)

    stepper = torch.optim.Adam(parameters, lr=0.0625, betas=(0.875, 0.96875), eps=2.0**-40)
    for each, parameter, gradient in zip(moved.slots, parameters, theirs):
        slots = moved.slots[each]
        stepper.state[parameter] = dict(step=torch.tensor(2.0), exp_avg=torch.tensor(np.asarray(slots["m"])),
                                        exp_avg_sq=torch.tensor(np.asarray(slots["v"])))
        parameter.grad = torch.tensor(gradient)
    stepper.step()
    optimizer.apply_gradients(list(zip(ours, values.values())))
    after = everstep.capture(optimizer, values, weights=True)
    for each, parameter in zip(moved.slots, parameters):
        np.testing.assert_allclose(
            parameter.detach().numpy(), np.asarray(after.to_torch(layers_of(kind)).variables[each]), rtol=near,
            atol=near, err_msg=each)

    back = moved.to_keras(layers_of(kind))
    paths = {name.replace("/lstm_cell/", "/").replace("/gru_cell/", "/"): name for name in variables}
    assert {name for name in back.variables} == set(paths)
    for name, path in paths.items():
        assert np.array_equal(np.asarray(back.variables[name]), np.asarray(state.variables[path]))
        for slot, array in state.slots.get(path, {}).items():
            assert np.array_equal(np.asarray(back.slots[name][slot]), np.asarray(array))


def weights(**shapes):
    return OrderedDict((name.replace("_x_", "/").replace("_dot_", "."), np.asarray(RANDOM.randn(*shape)))
                       for name, shape in sorted(shapes.items()))


def state_of(variables, definition=None):
    optimizer = (definition or Adam(0.1)).bind(np)
    optimizer.apply_gradients([(np.ones_like(array), array) for array in variables.values()])
    return everstep.capture(optimizer, variables, weights=True)


def test_names_of_the_cells_and_of_directions():
    """Keras 2 names an LSTM's variables after the layer, Keras 3 after its cell."""
    for cell in ("", "lstm_cell_x_"):
        shapes = {"kernel": (3, 8), "recurrent_kernel": (2, 8), "bias": (8,)}
        state = state_of(weights(**{"one_x_" + cell + part: shape for part, shape in shapes.items()}))
        moved = state.to_torch({"one": ("LSTM", "rnn", {"suffix": "_l1_reverse"})})
        assert set(moved.slots) == {"rnn.weight_ih_l1_reverse", "rnn.weight_hh_l1_reverse", "rnn.bias_ih_l1_reverse"}
        assert set(moved.variables) - set(moved.slots) == {"rnn.bias_hh_l1_reverse"}
        assert not np.asarray(moved.variables["rnn.bias_hh_l1_reverse"]).any()
        assert moved.slots["rnn.weight_hh_l1_reverse"]["m"].shape == (8, 2)


def test_factored_slots():
    state = state_of(weights(b_x_kernel=(3, 4), a_x_kernel=(2, 3, 5, 6)), Adafactor(0.1))
    moved = state.to_torch({"a": None, "b": ("Dense", "y")})
    assert list(moved.slots) == list(moved.variables) == ["y.weight"]
    assert [moved.slots["y.weight"][slot].shape for slot in ("rows", "columns")] == [(4, 1), (1, 3)]
    assert np.array_equal(np.asarray(moved.slots["y.weight"]["rows"]), state.slots["b/kernel"]["columns"].T)
    with pytest.raises(StateError, match="rows of a/kernel has the shape"):
        state.to_torch({"b": ("Dense", "y"), "a": ("Conv2D", "x")})


BIASES = {"rnn_dot_weight_ih_l0": (8, 3), "rnn_dot_weight_hh_l0": (8, 2), "rnn_dot_bias_ih_l0": (8,),
          "rnn_dot_bias_hh_l0": (8,)}


def test_two_biases_of_a_trained_lstm():
    state = state_of(weights(**BIASES))
    with pytest.raises(StateError, match="were both trained, and Keras's LSTM has one bias"):
        state.to_keras({"lstm": ("LSTM", "rnn")})
    one = OrderedDict((name, slots) for name, slots in state.slots.items() if "bias_hh" not in name)
    back = state.replace(slots=one).to_keras({"lstm": ("LSTM", "rnn")})
    total = np.asarray(state.variables["rnn.bias_ih_l0"]) + np.asarray(state.variables["rnn.bias_hh_l0"])
    assert np.array_equal(np.asarray(back.variables["lstm/bias"]), total)
    assert np.array_equal(np.asarray(back.slots["lstm/bias"]["v"]), np.asarray(one["rnn.bias_ih_l0"]["v"]))


@pytest.mark.parametrize("variables, layers, message", [
    ({"gru_x_bias": (6,)}, {"gru": ("GRU", "rnn")}, "reset_after=False"),
    ({"a_x_kernel": (3, 4)}, {"b": ("Dense", "fc")}, "the state has no variable of b, a Dense; it has a/kernel"),
    ({"a_x_kernel": (3, 4)}, {}, "layers= says nothing of a/kernel"),
    ({"a_x_kernel": (3, 4), "b_x_kernel": (3, 4)}, {"a": ("Dense", "fc"), "b": ("Dense", "fc")}, "one name: fc.weight"),
    ({"a_x_kernel": (3, 4)}, {"a": ("Attention", "fc")}, "no map for Attention; it knows BatchNormalization, Conv1D"),
    ({"a_x_kernel": (3, 4)}, {"a": "fc"}, "layers= is {layer of Keras"),
    ({"a_x_kernel": (3, 4)}, {"a": ("Dense", "fc", {"suffix": "_l1"})}, "Dense has no option suffix"),
    ({"a_x_kernel": (3, 4, 5)}, {"a": ("Dense", "fc")}, "the axes (1, 0) do not fit a/kernel"),
])
def test_what_has_no_place(variables, layers, message):
    with pytest.raises(StateError) as info:
        state_of(weights(**variables)).to_torch(layers)
    assert message in str(info.value)


def test_slots_that_a_gate_cannot_have():
    state = everstep.State(slots={"gru/kernel": {"m": np.zeros((3, 6)), "touched": np.zeros(3, np.int64)}})
    with pytest.raises(StateError, match="touched of gru/kernel"):
        state.to_torch({"gru": ("GRU", "rnn")})
