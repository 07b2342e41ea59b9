"""Compiles many small programs in one process, each in several shapes: a fleet for `surveys.py`.

    PYTHON tools/conformance/survey_programs.py OUT [--target cpu|h100|…] [--shapes N]

PYTHON is one that has jax, of any version. Each dump goes to OUT/<program>-<shape>/. No accelerator
is needed: a GPU is described by samples/devices/.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
OPTIONS = {
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_pass_re": ".*",
    "xla_dump_module_metadata": True,
}
GPU_OPTIONS = {"xla_dump_hlo_as_proto": True, "xla_gpu_autotune_level": 0}


def softmax(x):
    shifted = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def layer_norm(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)


def siblings(x):
    scaled = x * 0.5 + 1.0
    return (
        scaled.sum(axis=1),
        (scaled * scaled).sum(axis=1),
        scaled.max(axis=1),
        scaled.mean(axis=0),
    )


def joined(x):
    return jnp.concatenate([jnp.tanh(x), x * 2.0, jnp.exp(x)], axis=1).sum(axis=1)


def dense(x):
    return jax.nn.gelu(x @ x.T * 0.125 + 1.0)


def attention(x):
    return softmax(jnp.where(x @ x.T > 0, x @ x.T, -1e9)) @ x


def loop(x):
    return lax.fori_loop(0, 10, lambda _, y: jnp.sin(y) * 0.9 + y.mean(), x)


def gathered(x):
    return jnp.take(jnp.cumsum(x, axis=0), jnp.arange(0, x.shape[0], 2), axis=0) + 1.0


def rolled(x):
    return sum(jnp.roll(x, shift, axis=1) * (shift + 1) for shift in range(4))


def loss_gradient(x):
    return jax.grad(lambda y: jnp.log(softmax(jnp.tanh(y @ y.T)) + 1e-6).mean())(x)


PROGRAMS = (
    softmax, layer_norm, siblings, joined, dense, attention, loop, gathered, rolled, loss_gradient,
)  # fmt: skip


def shapes(count: int) -> Iterator[tuple[int, int]]:
    """Different ones, from small to large."""
    for number in range(count):
        yield 32 + 48 * (number % 7) + 16 * (number // 7), 64 << (number % 5)


def argument_maker(target: str) -> Callable[[tuple[int, int]], Any]:
    """What describes an argument on the target."""
    if target == "cpu":
        return lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    sys.path.insert(0, str(SAMPLES))
    import numpy
    from compile import device_description
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = topologies.get_topology_desc(
        topology_name=target,
        platform="cuda",
        target_config=device_description(
            SAMPLES / "devices" / f"{target}.txtpb", jax.__version_info__
        ),
        topology="1x1x1",
    ).devices
    sharding = NamedSharding(Mesh(numpy.array(devices[:1]), ("x",)), PartitionSpec())
    return lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--shapes", type=int, default=10)
    options = parser.parse_args()
    argument = argument_maker(options.target)
    for shape in shapes(options.shapes):
        for program in PROGRAMS:
            directory = options.out / f"{program.__name__}-{shape[0]}x{shape[1]}"
            chosen = OPTIONS | {"xla_dump_to": str(directory)}
            if options.target != "cpu":
                chosen |= GPU_OPTIONS
            jax.jit(program).lower(argument(shape)).compile(compiler_options=chosen)
    print(f"{options.out}: {len(list(options.out.iterdir()))} dumps by jaxlib {jax.__version__}")


if __name__ == "__main__":
    main()
