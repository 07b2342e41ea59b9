"""Compiles attention and a normalization for an H100: as one kernel, and as the compiler does it.

    python compile_kernels.py [FOLDER]

Covers kernels of cuDNN and of Pallas. Needs neither a GPU nor cuDNN: the script answers what JAX
asks about them.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "wasteful"))
import jax
import jax.numpy as jnp
import make_examples
from jax import lax
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from jax._src.mesh import AbstractDevice
from jax._src.pallas.triton.pallas_call_registration import gpu_info_lib
from jax.experimental import pallas
from jax.experimental.pallas import triton
from jax.experimental.pallas.ops.gpu.attention import mha
from jax.sharding import AbstractMesh, use_abstract_mesh
from programs import spec

BF16 = jnp.bfloat16
H100 = AbstractDevice("NVIDIA H100", 132, "cuda")
HEADS, FEWER = (spec(4, 2048, heads, 64, dtype=BF16) for heads in (16, 4))
ROWS, SCALE = spec(8192, 1024, dtype=BF16), spec(1024)
BLOCK = pallas.BlockSpec((16, 1024), lambda number: (number, 0))


def info(read=gpu_info_lib.get_gpu_info):
    with use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=H100)):
        return read()


cudnn.check_cudnn_version = lambda: 91000
cudnn.check_compute_capability = lambda capability: True
gpu_info_lib.get_gpu_info = info


def gradient(attention, *operands):
    return jax.grad(lambda *a: attention(*a).astype("float32").sum(), (0, 1, 2))(*operands)


def normal(rows, scale):
    rows = rows.astype("float32")
    root = lax.rsqrt(jnp.mean(rows * rows, -1, keepdims=True) + 1e-6)
    return (rows * lax.optimization_barrier(root) * scale).astype(BF16)


def normal_kernel(rows, scale, result):
    values = rows[...].astype(jnp.float32)
    root = lax.rsqrt(jnp.mean(values * values, -1, keepdims=True) + 1e-6)
    result[...] = (values * root * scale[...][None]).astype(BF16)


def normal_by_pallas(rows, scale):
    whole = pallas.BlockSpec((1024,), lambda number: (0,))
    specs = {"in_specs": [BLOCK, whole], "out_specs": BLOCK, "out_shape": ROWS}
    parameters = triton.CompilerParams(num_warps=4)
    kernel = pallas.pallas_call(
        normal_kernel, grid=(8192 // 16,), compiler_params=parameters, **specs
    )
    return kernel(rows, scale)


LIBRARY, XLA = (
    partial(jax.nn.dot_product_attention, implementation=name) for name in ("cudnn", "xla")
)
PALLAS = partial(mha, segment_ids=None, sm_scale=0.125, causal=False)
EXAMPLES = {
    "attention": (XLA, (HEADS,) * 3),
    "attention-cudnn": (LIBRARY, (HEADS,) * 3),
    "attention-pallas": (PALLAS, (HEADS,) * 3),
    "grouped": (XLA, (HEADS, FEWER, FEWER)),
    "grouped-cudnn": (LIBRARY, (HEADS, FEWER, FEWER)),
    "gradient": (partial(gradient, XLA), (HEADS,) * 3),
    "gradient-cudnn": (partial(gradient, LIBRARY), (HEADS,) * 3),
    "normal": (normal, (ROWS, SCALE)),
    "normal-pallas": (normal_by_pallas, (ROWS, SCALE)),
}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent
    make_examples.main(folder, {name: (*example, ()) for name, example in EXAMPLES.items()})
