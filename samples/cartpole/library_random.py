"""The baseline: the same as ``cartpole.drawn_inside``, with random numbers from a kernel of a
library, which on GPUs is JAX's own for Threefry where this is asked for."""

import jax
from cartpole import drawn_inside

jax.config.update("jax_threefry_gpu_kernel_lowering", True)

program = drawn_inside
arguments = (("f32", (4, 2048)), ("f32", (20, 2048)), ("u32", (2,)))  # of the dump in samples/dumps
