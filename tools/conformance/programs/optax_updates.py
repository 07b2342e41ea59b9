"""Optimizer updates: element-wise work over a tree of many arrays."""

import jax
import optax

weights = {
    f"layer_{i}": {
        "kernel": jax.ShapeDtypeStruct((128, 128), "float32"),
        "bias": jax.ShapeDtypeStruct((128,), "float32"),
    }
    for i in range(4)
}


def update(optimizer):
    def step(gradients, state, weights):
        changes, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, changes), state

    return step, (weights, jax.eval_shape(optimizer.init, weights), weights), {"donate": (1, 2)}


clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))

programs = {
    "adam": update(optax.adam(1e-3)),
    "adamw_clipped": update(clipped),
    "lion": update(optax.lion(1e-4)),
    "adafactor": update(optax.adafactor(1e-3)),
}
