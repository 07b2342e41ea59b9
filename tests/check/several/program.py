"""The program of this dump, whose stages around fusion are here (JAX_NUM_CPU_DEVICES=2)."""

from functools import partial

import jax
import numpy
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec


@partial(jax.jit, static_argnums=1)
def step(x, count):
    for _ in range(count):
        x = jnp.tanh(x) + 1
    return x * x.sum(axis=0)


small, large = numpy.ones((8, 16), "float32"), numpy.ones((64, 64), "float32")
halves = NamedSharding(jax.make_mesh((2,), ("half",)), PartitionSpec("half", None))
step(small, 1)
step(small, 2)
step(large, 1)
step.lower(jax.ShapeDtypeStruct((16, 16), "float32", sharding=halves), 1).compile()
