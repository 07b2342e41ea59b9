"""A training step of a convolutional network (Keras)."""

import os

os.environ["KERAS_BACKEND"] = "jax"
import jax
import jax.numpy as jnp
import keras
from keras import layers

model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        layers.Conv2D(32, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.MaxPooling2D(),
        layers.Conv2D(64, 3, padding="same"),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.GlobalAveragePooling2D(),
        layers.Dense(10),
    ]
)


def loss(t, n, x, y):
    out, n = model.stateless_call(t, n, x, training=True)
    return -jnp.take_along_axis(jax.nn.log_softmax(out), y[:, None], 1).mean(), n


def step(t, n, x, y):
    (value, n), g = jax.value_and_grad(loss, has_aux=True)(t, n, x, y)
    return [a - 0.1 * b for a, b in zip(t, g, strict=True)], n, value


S = jax.ShapeDtypeStruct
example_args = (
    [S(v.shape, jnp.float32) for v in model.trainable_variables],
    [S(v.shape, v.value.dtype) for v in model.non_trainable_variables],
    S((64, 32, 32, 3), jnp.float32),
    S((64,), jnp.int32),
)
