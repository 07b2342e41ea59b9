"""What moves a library boundary: flags and other ways to write a program.

Each was held against the compiler: the same program compiled with and without it by jaxlib 0.12 for
a GPU that was described (an H100 unless said otherwise), and the kernels compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fusionscope.explain.libraries import EpilogueStep
from fusionscope.explain.result import Boundary, Neighbour
from fusionscope.hlo import Instruction
from fusionscope.hlo.opcodes import BINARY, UNARY


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a lever depends on beside what is told of a boundary.

    ``hero`` is what the call computes in the first place, ``makers`` are the launches that make its
    operands, ``readers`` those that read its results, ``reading`` the operations in these that do;
    ``is_sole`` says whether each result has one reader. ``flags`` are those of the dump.
    """

    hero: Instruction | None
    makers: frozenset[Instruction]
    readers: frozenset[Instruction]
    reading: frozenset[Instruction]
    is_sole: bool
    flags: Mapping[str, tuple[str, ...]]

    @property
    def target(self) -> str:
        """What a custom call calls, here or inside a fusion; empty where it is none."""
        hero = self.hero
        return hero.attributes.get("custom_call_target", "").strip('"') if hero is not None else ""

    def is_set(self, flag: str, value: str) -> bool:
        return self.flags.get(flag) == (value,)


Lever = Callable[[Boundary, Surroundings], str | None]


def levers_for(boundary: Boundary, around: Surroundings) -> tuple[str, ...]:
    """What to try, for each lever that applies."""
    return tuple(text for lever in _LEVERS if (text := lever(boundary, around)))


def _rearranges(sides: tuple[Neighbour, ...], opcode: str) -> bool:
    """Whether a kernel that serves the call alone does this."""
    return any(side.serves and opcode in side.members for side in sides)


def _is_chain(launch: Instruction) -> bool:
    """Whether it computes elementwise operations one after the other."""
    inside = launch.called[0].instructions if launch.called else (launch,)
    return all(
        i.opcode in _IN_A_CHAIN and (len(i.users) < 2 or i.opcode in ("constant", "broadcast"))
        for i in inside
    )


_IN_A_CHAIN = UNARY | BINARY | {"bitcast", "broadcast", "clamp", "constant", "parameter"}


def _triton_product(boundary: Boundary, around: Surroundings) -> str | None:
    is_product = around.target.startswith(("__cublas$gemm", "__cublas$lt$matmul"))
    is_complex = any(shape.startswith(("c64", "c128")) for shape in boundary.operands)
    is_off = around.is_set("xla_gpu_enable_triton_gemm", "false")
    chains = [*around.makers, *(around.readers if around.is_sole else ())]
    if is_off and is_product and not is_complex and any(map(_is_chain, chains)):
        return (
            "XLA_FLAGS=--xla_gpu_enable_triton_gemm=true (the default) lets Triton emit the "
            "product, which then includes a chain of elementwise operations on either side unless "
            "it is split"
        )
    return None


def adds_up_parts(operation: Instruction) -> bool:
    """Whether it is the reduce that the compiler puts behind a product which it splits; only its
    name tells (xla/backends/gpu/transforms/splitk_rewriter.cc)."""
    reducer = operation.attributes.get("to_apply", "").lstrip("%")
    return reducer.startswith("dot") and "reduce_sub_computation" in reducer


def _whole_product(boundary: Boundary, around: Surroundings) -> str | None:
    is_product = around.hero is not None and around.hero.opcode == "dot"
    is_split = is_product and any(map(adds_up_parts, around.reading))
    if is_split and not around.is_set("xla_gpu_experimental_force_split_k", "1"):
        return (
            "the compiler split the product along the contracted dimension, and what follows waits "
            "for the sum of the parts: XLA_FLAGS=--xla_gpu_experimental_force_split_k=1 keeps it "
            "whole, so that elementwise operations can be fused into it (measure: a split product "
            "fills the GPU better)"
        )
    return None


def _gelu(boundary: Boundary, around: Surroundings) -> str | None:
    if EpilogueStep.GELU in boundary.left_out:
        return "jax.nn.gelu(approximate=True) is fused into the call (its results differ slightly)"
    return None


def _order_of_convolution(boundary: Boundary, around: Surroundings) -> str | None:
    labels = around.hero.attributes.get("dim_labels", "") if around.hero is not None else ""
    wanted = _DIMENSION_NUMBERS.get(labels)
    transposes = _rearranges((*boundary.before, *boundary.after), "transpose")
    if wanted and transposes and around.target.startswith("__cudnn$conv"):
        return f"dimension_numbers={wanted} is the order that the call reads: no transposes"
    return None


# By the order in which cuDNN is given arrays: an H100 wants the first, an A100 with f32 the second.
_DIMENSION_NUMBERS = {
    "b01f_o01i->b01f": "('NHWC', 'OHWI', 'NHWC')",
    "bf01_oi01->bf01": "('NCHW', 'OIHW', 'NCHW')",
}

# Seen to go into a cuDNN fusion, as parts of ReLU, ReLU6, SiLU and GELU by tanh.
_WITH_CONVOLUTION = frozenset(
    "add broadcast clamp divide exponential maximum multiply negate tanh".split()
)


def _convolution_fusion(boundary: Boundary, around: Surroundings) -> str | None:
    is_forward = around.target in ("__cudnn$convForward", "__cudnn$convBiasActivationForward")
    follows = boundary.after[0] if len(boundary.after) == 1 and around.is_sole else None
    if (
        is_forward
        and follows is not None
        and not follows.serves
        and _WITH_CONVOLUTION.issuperset(follows.members)
        and not around.is_set("xla_gpu_experimental_enable_conv_fusion", "true")
    ):
        return (
            "XLA_FLAGS=--xla_gpu_experimental_enable_conv_fusion=true builds a cuDNN fusion that "
            "includes what follows (experimental; compiling it needs cuDNN)"
        )
    return None


def _padding(boundary: Boundary, around: Surroundings) -> str | None:
    is_product = around.target.startswith(("__cublas$gemm", "__cublas$lt$matmul"))
    if is_product and _rearranges(boundary.before, "pad"):
        shapes = " and ".join(boundary.operands[:2])
        return f"arrays of {shapes} from the start need no padding"
    return None


def _contracted_last(boundary: Boundary, around: Surroundings) -> str | None:
    is_product = around.target.startswith("__cublas$lt$matmul")
    narrow = boundary.operands[1:2] and boundary.operands[1].startswith(("s8", "f8e"))
    if is_product and narrow and _rearranges(boundary.before, "transpose"):
        return (
            "cuBLASLt multiplies 8-bit numbers along the last dimension of both operands: "
            "an operand that is stored this way ('mk,nk->mn') needs no transpose"
        )
    return None


def _batch_first(boundary: Boundary, around: Surroundings) -> str | None:
    hero = around.hero
    if hero is None:
        return None
    batch: object = hero.attribute("lhs_batch_dims") if hero.opcode == "dot" else None
    if around.target.startswith(("__cublas$gemm", "__cublas$lt$matmul")):
        config = hero.attribute("backend_config")
        for name in ("gemm_backend_config", "dot_dimension_numbers", "lhs_batch_dimensions"):
            config = config.get(name) if isinstance(config, dict) else None
        batch = config
    # Where the compiler splits a product, the parts are a batch that does not come first.
    if batch in ((0,), ["0"]) and _rearranges((*boundary.before, *boundary.after), "transpose"):
        return (
            "a product whose batch dimensions come first in both operands and the result "
            "('bhqd,bhkd->bhqk', not 'bqhd,bkhd->bhqk') needs no transpose"
        )
    return None


def _slices(boundary: Boundary, around: Surroundings) -> str | None:
    slicing = any(
        {"dynamic-slice", "dynamic-update-slice"}.intersection(side.members)
        for side in (*boundary.before, *boundary.after)
    )
    is_off = around.is_set("xla_gpu_enable_dynamic_slice_fusion", "false")
    if is_off and slicing and around.target.startswith("__cublas$lt$matmul"):
        return (
            "XLA_FLAGS=--xla_gpu_enable_dynamic_slice_fusion=true (the default) lets the call read "
            "and write slices of larger arrays"
        )
    return None


def _norm(boundary: Boundary, around: Surroundings) -> str | None:
    if around.target == "__cudnn$norm":
        return (
            "XLA_FLAGS=--xla_gpu_enable_cudnn_layer_norm=false (the default) leaves the "
            "normalization to the compiler's own fusions"
        )
    return None


def _random(boundary: Boundary, around: Surroundings) -> str | None:
    if around.target.startswith("cu_threefry2x32"):
        return (
            "JAX_THREEFRY_GPU_KERNEL_LOWERING=0 (the default) makes random bits with ordinary "
            "operations, which fuse with their users"
        )
    return None


def _largest(boundary: Boundary, around: Surroundings) -> str | None:
    slices = [reader.called[0].root if reader.called else reader for reader in around.readers]
    first = all(found.attributes.get("slice", "").endswith("[0:1]}") for found in slices)
    if boundary.computes in ("sort", "top-k") and slices and first:
        return "jnp.max and jnp.argmax (for top_k of 1) are reductions, which fuse with others"
    return None


_LEVERS: tuple[Lever, ...] = (
    _triton_product,
    _whole_product,
    _gelu,
    _order_of_convolution,
    _convolution_fusion,
    _padding,
    _contracted_last,
    _batch_first,
    _slices,
    _norm,
    _random,
    _largest,
)
