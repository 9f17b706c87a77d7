# runs in: py39-tf2.8
"""A GAN with two optimizers.

A generator turns noise into points of the plane, and a discriminator tells them from real ones. Each has its own
optimizer: call `bind` twice, with a `name` that keeps them apart in files. An optimizer has slots and a count of
updates only for the variables that you give it.

The generator of a GAN moves around its goal, so people sample from a moving average of its weights. Here a wrapper
around the generator's rule keeps that average; the discriminator's rule has none. `everstep.averaged` puts the averages
into the generator while points are drawn. The real points lie on a ring.
"""
from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

import everstep
from everstep.optimizers import Adam

STEPS, BATCH, NOISE = 2000, 128, 4
RANDOM = np.random.RandomState(1)
dense = tf.keras.layers.Dense


def real_points(count):
    angle, radius = RANDOM.uniform(0, 2 * np.pi, count), RANDOM.normal(1, 0.05, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype("float32")


def network(size_in, size_out):
    model = tf.keras.Sequential([dense(64, "relu", input_shape=(size_in,)), dense(64, "relu"), dense(size_out)])
    model.set_weights([RANDOM.normal(0, len(value) ** -0.5, value.shape) if value.ndim == 2 else value
                       for value in model.get_weights()])
    return model


generator, discriminator = network(NOISE, 2), network(2, 1)
rule = Adam(1e-3, beta_1=0.5)
of_generator = everstep.moving_average(rule, 0.995).bind(tf.keras, name="generator")
of_discriminator = rule.bind(tf.keras, name="discriminator")


@tf.function
def step(noise, real):
    with tf.GradientTape(persistent=True) as tape:
        on_fake, on_real = discriminator(generator(noise)), discriminator(real)
        loss = tf.reduce_mean(tf.nn.softplus(on_fake)) + tf.reduce_mean(tf.nn.softplus(-on_real))
        generator_loss = tf.reduce_mean(tf.nn.softplus(-on_fake))
    for optimizer, model, its_loss in (
            (of_discriminator, discriminator, loss), (of_generator, generator, generator_loss)):
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(its_loss, variables), variables))
    return loss, generator_loss


def drawn(count=2000):
    return generator(RANDOM.normal(0, 1, (count, NOISE)).astype("float32")).numpy()


def looks(label, points):
    """Prints how far points are from the ring, and how they are spread over eight parts of it. Returns both."""
    distance = np.abs(np.hypot(*points.T) - 1)
    parts = np.histogram(np.arctan2(*points.T), 8, (-np.pi, np.pi))[0] / float(len(points))
    print("%-26s %.3f from the ring on average; eighths of it have %2.0f to %2.0f %% of the points" % (
        label, distance.mean(), 100 * parts.min(), 100 * parts.max()))
    return distance.mean(), parts.min()


losses = []
looks("before training:", drawn())
for _ in range(STEPS):
    noise = RANDOM.normal(0, 1, (BATCH, NOISE)).astype("float32")
    losses.append([float(value) for value in step(noise, real_points(BATCH))])
looks("the weights as they train:", drawn())
with everstep.averaged(of_generator, generator.trainable_variables):
    generated = drawn()
far, fewest = looks("their averages:", generated)
looks("real points:", real_points(2000))
for name, optimizer, model in (
        ("generator", of_generator, generator), ("discriminator", of_discriminator, discriminator)):
    state = everstep.capture(optimizer, model.trainable_variables)
    print("the optimizer of the %s made %d updates, and has slots %s" % (
        name, state.updates, ", ".join(sorted(list(state.slots.values())[0]))))
    assert state.updates == STEPS and len(state.slots) == len(model.trainable_variables) == 6
assert far < 0.15 and fewest > 0.04

means = np.mean(np.reshape(losses, (-1, 20, 2)), 1).T.tolist()
CURVES, AXES = {"of the discriminator": means[0], "of the generator": means[1]}, ("20 steps each", "loss")
POINTS = {"real": real_points(400).tolist(), "generated": generated[:400].tolist()}
