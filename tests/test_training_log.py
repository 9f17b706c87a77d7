"""`log_training`, `log_hook` and `average_checkpoint`: what they log and save, on every Keras here and in sessions."""
from __future__ import absolute_import, division, print_function

import glob
import os

import numpy as np
import pytest

import everstep
import harness
import small_model
from block_setups import v1
from everstep.compat.extras import event_file
from everstep.errors import HyperValueError, StateError, TargetError
from everstep.optimizers import SGD
from harness import detect

KERASES = sorted(harness.kerases())
NAMED = dict(detect.known_modules())
kerases = pytest.mark.parametrize("name", harness.share(KERASES, max(len(KERASES), 1)))
X, Y = small_model.IDS, small_model.TARGETS
pytestmark = [pytest.mark.shared, pytest.mark.filterwarnings("ignore")]  # warnings of Keras, about files and names


class Halves(everstep.Definition):
    """Has no rate."""

    def update(self, ops, grad, var, slots, hyper, t):
        return 0.5 * var, {}


def events(folder):
    """Returns [(step, {tag: value})] as TensorFlow reads them."""
    path, = glob.glob(os.path.join(str(folder), "events*"))
    summaries = [event for event in v1.train.summary_iterator(path) if event.summary.value]
    return [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in summaries]


def norm(arrays):
    return np.sqrt(sum((np.asarray(each, np.float64) ** 2).sum() for each in arrays))


def fitted(name, optimizer, callbacks, epochs=2):
    harness.clear_session(NAMED[name])
    model = small_model.build(NAMED[name], optimizer(NAMED[name]))
    history = model.fit(X, Y, epochs=epochs, batch_size=3, shuffle=False, verbose=0, callbacks=callbacks)
    return model, history.history


def weights_of(name, rule, epochs):
    """Returns the trained weights after each epoch, from 0 on."""
    return [small_model.EMBEDDINGS, small_model.KERNEL], [
        fitted(name, lambda keras: rule.bind(keras), [], count)[0].get_weights() for count in range(1, epochs + 1)]


@kerases
def test_figures_of_epochs(name, tmp_path):
    rule = SGD(everstep.PolynomialDecay(0.5, decay_steps=4, end=0.1))
    log = everstep.log_training(NAMED[name], log_dir=str(tmp_path / "logs"), each_variable=True)
    assert isinstance(log, NAMED[name].callbacks.Callback)
    model, history = fitted(name, lambda keras: rule.bind(keras), [log])
    start, after = weights_of(name, rule, 2)
    np.testing.assert_allclose(history["learning_rate"], [0.4, 0.3], rtol=1e-6)
    np.testing.assert_allclose(history["weight_norm"], [norm(each) for each in after], rtol=1e-6)
    changes = [norm(new - old for new, old in zip(*pair)) for pair in zip(after, [start] + after)]
    np.testing.assert_allclose(history["update_norm"], changes, rtol=1e-4)
    kernel, = [figure for figure in history if figure.startswith("weight_norm/") and "output" in figure]
    np.testing.assert_allclose(history[kernel], [norm(each[1:]) for each in after], rtol=1e-6)
    assert [record["step"] for record in log.records] == [1, 2]
    if v1 is not None:
        written = events(tmp_path / "logs")
        assert [step for step, _ in written] == [1, 2]
        assert set(written[0][1]) == set(log.records[0]) - {"step"}
        for (_, scalars), record in zip(written, log.records):
            np.testing.assert_allclose([scalars[tag] for tag in scalars], [record[tag] for tag in scalars], rtol=1e-6)


@kerases
def test_figures_of_batches_with_a_stock_optimizer(name):
    log = everstep.log_training(NAMED[name], every=2)
    harness.clear_session(NAMED[name])
    model = small_model.build(NAMED[name], small_model.stock_optimizer(
        NAMED[name].optimizers, "SGD", {"learning_rate": 0.5}))
    history = model.fit(X, Y, epochs=1, batch_size=1, shuffle=False, verbose=0, callbacks=[log]).history
    assert [record["step"] for record in log.records] == [2, 3] and list(history["learning_rate"]) == [0.5]
    assert abs(log.records[-1]["weight_norm"] / norm(model.get_weights()) - 1) < 1e-6
    of_batches, of_epoch = [record["update_norm"] for record in log.records]
    start = small_model.EMBEDDINGS, small_model.KERNEL
    changes = norm(value - old for value, old in zip(model.get_weights(), start))
    assert abs(of_epoch / changes - 1) < 1e-6 and 0 < of_batches != of_epoch


@kerases
def test_rates_of_branches_and_of_none(name):
    branches = everstep.partition({"table": ("embedding", SGD(0.25))}, default=SGD(0.5))
    log = everstep.log_training(NAMED[name])
    fitted(name, lambda keras: branches.bind(keras), [log], 1)
    rates = {figure: value for figure, value in log.records[0].items() if "rate" in figure}
    assert rates == {"learning_rate/table": 0.25, "learning_rate/default": 0.5}
    log = everstep.log_training(NAMED[name])
    fitted(name, lambda keras: Halves().bind(keras), [log], 1)
    assert set(log.records[0]) == {"step", "weight_norm", "update_norm"}


@kerases
@pytest.mark.parametrize("update_weights", harness.share([False, True], 2))
def test_checkpoints_have_averages(name, update_weights, tmp_path):
    keras, path = NAMED[name], str(tmp_path / "{epoch}.weights.h5")
    pytest.importorskip("h5py")
    checkpoint = everstep.average_checkpoint(keras, path, update_weights=update_weights, save_weights_only=True)
    assert isinstance(checkpoint, keras.callbacks.ModelCheckpoint)
    seen = []
    look = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(look.model.get_weights()))
    rule = everstep.moving_average(SGD(0.5), 0.5)
    model, _ = fitted(name, lambda keras: rule.bind(keras), [look, checkpoint, look])
    assert not harness.bound(model.optimizer).is_averaged
    _, after = weights_of(name, SGD(0.5), 2)
    averages = [small_model.EMBEDDINGS, small_model.KERNEL]
    first = 0 if os.path.exists(path.format(epoch=0)) else 1  # Keras 2.0 counts epochs from 0
    other = small_model.build(keras, "sgd")
    for epoch in range(2):
        before_saving, after_saving = seen[2 * epoch : 2 * epoch + 2]
        if not update_weights:
            for mine, theirs in zip(before_saving, after[epoch]):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        averages = [0.5 * average + 0.5 * value for average, value in zip(averages, before_saving)]
        other.load_weights(path.format(epoch=epoch + first))
        for saved, average in zip(other.get_weights(), averages):
            np.testing.assert_allclose(saved, average, rtol=1e-5, atol=1e-6)
        for mine, theirs in zip(after_saving, averages if update_weights else before_saving):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@kerases
def test_a_checkpoint_without_averages_is_refused_when_training_begins(name, tmp_path):
    checkpoint = everstep.average_checkpoint(NAMED[name], str(tmp_path / "a.weights.h5"), save_weights_only=True)
    with pytest.raises(StateError, match="keeps no averages; bind everstep.moving_average"):
        fitted(name, lambda keras: SGD(0.5).bind(keras), [checkpoint])
    assert not list(tmp_path.iterdir())


@pytest.mark.shared(False)
def test_a_hook_logs_a_session(tmp_path):
    if not hasattr(v1, "Session"):
        pytest.skip("needs TensorFlow")
    with v1.Graph().as_default():
        weights = v1.get_variable("w", initializer=np.float32([3.0, 4.0]))
        step = v1.train.get_or_create_global_step()
        optimizer = SGD(everstep.PolynomialDecay(1.0, decay_steps=10, end=0.0)).bind(v1.train)
        train_op = optimizer.minimize(weights[0] * 3.0 + weights[1] * 4.0, step)
        hook = everstep.log_hook(v1.train, optimizer, str(tmp_path), every=2, each_variable=True)
        assert isinstance(hook, v1.train.SessionRunHook)
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(5):
                session.run(train_op)
    # The gradient has norm 5, and the rates are 1, 0.9, 0.8, 0.7; the weights are (3, 4) * (1 - their sum).
    expected = [dict(step=2, learning_rate=0.8, weight_norm=4.5, update_norm=9.5),
                dict(step=4, learning_rate=0.6, weight_norm=12.0, update_norm=7.5)]
    assert [set(record) for record in hook.records] == [set(expected[0]) | {"update_norm/w", "weight_norm/w"}] * 2
    for record, figures in zip(hook.records, expected):
        for figure, value in figures.items():
            assert abs(record[figure] - value) < 1e-5, (figure, record)
    assert [step for step, _ in events(tmp_path)] == [2, 4]


def test_what_is_no_module_or_number_is_an_error():
    for make in (everstep.log_training, lambda module: everstep.average_checkpoint(module, "a")):
        with pytest.raises(TargetError, match="numpy has no callbacks"):
            make(np)
    with pytest.raises(TargetError, match="numpy has no SessionRunHook; give tf.train"):
        everstep.log_hook(np, None)
    for every in (0, True, 1.5):
        with pytest.raises(HyperValueError, match="every is a number of batches or steps"):
            everstep.log_training(np, every=every)


def test_events_are_records_that_tensorboard_reads(tmp_path):
    """The bytes, by hand from record_writer.h and event.proto, and a known checksum."""
    # RFC 3720, B.4: 32 bytes of zeros have 0x8a9136aa. Masked, as in crc32c.h of TensorFlow.
    crc = 0x8A9136AA
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert event_file._checksum(b"\0" * 32) == bytes(bytearray((masked >> shift & 255) for shift in (0, 8, 16, 24)))
    file = event_file.EventFile(str(tmp_path / "new" / "logs"))
    file.add(300, {u"rate": 0.5})
    file.close()
    with open(file.path, "rb") as written:
        data = written.read()
    assert b"brain.Event:2" in data
    assert data[:-4].endswith(b"\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04rate\x15\0\0\0\x3f")
