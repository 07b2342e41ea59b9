"""The compiler flags of a module: ``*.debug_options`` and ``*.config.pbtxt``.

The first lists the flags that differ from their defaults, a DebugOptions in text form; the second
is the whole HloModuleConfigProto, whose ``debug_options`` block lists every flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fusionscope.dump.text_proto import Message, parse, unquote
from fusionscope.errors import UnusableInput
from fusionscope.grouping import grouped


@dataclass(frozen=True, slots=True)
class DebugOptions:
    """Flags and their values as text; a map has ``key=value`` for each entry.

    ``complete`` is whether flags with their default values are listed too.
    """

    values: Mapping[str, tuple[str, ...]]
    complete: bool


def read_debug_options(data: bytes, file: str) -> DebugOptions:
    """Read either file. An empty one means that every flag has its default.

    Raises ``UnusableInput`` if it is not a text proto or names no compiler flag.
    """
    outermost = parse(data, file)
    block = outermost.message("debug_options")
    options = block or outermost
    values = grouped((name, _text(value)) for name, value in options.fields)
    if values and not any(name.startswith("xla_") for name in values):
        raise UnusableInput(
            "no compiler flag in it, expected lines like xla_gpu_autotune_level: 0",
            file=file,
            hint="the compiler writes them as *.debug_options and *.config.pbtxt",
        )
    frozen = {name: tuple(texts) for name, texts in values.items()}
    return DebugOptions(frozen, complete=block is not None)


def _text(value: str | Message) -> str:
    if isinstance(value, str):
        return unquote(value)
    entry = dict(value.fields)
    sides = (entry.get("key"), entry.get("value"))
    return "=".join(unquote(side) for side in sides if isinstance(side, str))


# Computes dots and convolutions of narrow types in f32, unless a library takes them as they are.
UPCASTING = "float-normalization-bf16"


# By a part of a flag's name. ``jf`` is the first TPU.
_BACKENDS = {"cpu": "cpu", "gpu": "gpu", "tpu": "tpu", "jf": "tpu"}


class FusionFlag(NamedTuple):
    """A flag that affects fusion. ``default`` is None if it is unknown.

    ``others`` are values to try instead of the current one; for a flag that is true or false, the
    opposite is implied. ``passes`` are all passes that read it, if fusionscope replays all of them.
    ``replaced`` are values, each with the pass that runs if the flag does not have it.
    """

    name: str
    default: tuple[str, ...] | None
    effect: str
    others: tuple[tuple[str, ...], ...] = ()
    passes: frozenset[str] = frozenset()
    replaced: tuple[tuple[str, str], ...] = ()

    @property
    def backend(self) -> str | None:
        """The one that it is for, None where it is for all."""
        return next((_BACKENDS[part] for part in self.name.split("_") if part in _BACKENDS), None)


def _ynn(*kinds: str) -> tuple[str, ...]:
    return tuple(f"LIBRARY_FUSION_TYPE_{kind}" for kind in kinds)


_YNN_DEFAULT = _ynn("INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE")

# Defaults: config.pbtxt of modules compiled by jaxlib 0.12.0.1 with no flag set, or by 0.10.2 if
# the flag is gone since. Flags in neither are older, or are not listed unless set. Those for TPUs:
# *.tpu_comp_env.txt of libtpu 0.0.50.1; of 51 whose names are about fusion, each was changed for 48
# refused pairs of eight programs, and these five made the compiler fuse one.
FUSION_FLAGS = (
    FusionFlag("xla_disable_hlo_passes", None, "leaves out the named passes and pipelines"),
    FusionFlag("xla_enable_hlo_passes_only", None, "runs only the named passes and pipelines"),
    FusionFlag("xla_backend_extra_options", None, "backend options, some of them about fusion"),
    FusionFlag(
        "xla_cpu_experimental_ynn_fusion_type",
        _YNN_DEFAULT,
        "which operations become YNN library fusions before the fusion pass sees them",
        others=(
            (),
            _ynn("INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION"),
            _ynn("INDIVIDUAL_CONVOLUTION", "REDUCE"),
            _ynn("DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE"),
            _ynn("DOT", "INDIVIDUAL_CONVOLUTION", "REDUCE", "ELTWISE"),
        ),
        passes=frozenset({"dot-library-rewriter"}),
        replaced=(
            ("LIBRARY_FUSION_TYPE_REDUCE", "tree_reduction_rewriter"),
            ("LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT", UPCASTING),
            ("LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION", UPCASTING),
        ),
    ),
    FusionFlag(
        "xla_cpu_experimental_onednn_fusion_type",
        None,
        "which operations become oneDNN library fusions before the fusion pass sees them",
    ),
    FusionFlag(
        "xla_cpu_use_fusion_emitters",
        ("true",),
        "whether single operations are wrapped in fusions to be emitted",
    ),
    FusionFlag("xla_gpu_enable_priority_fusion", None, "false restores the older passes"),
    FusionFlag(
        "xla_gpu_enable_reduction_epilogue_fusion",
        None,
        "whether the older passes fuse into the output of a reduction",
    ),
    FusionFlag(
        "xla_gpu_enable_triton_softmax_fusion",
        None,
        "whether normalizations become Triton fusions",
    ),
    FusionFlag("xla_gpu_enable_triton_gemm", ("true",), "whether dots become Triton fusions"),
    FusionFlag("xla_gpu_triton_gemm_any", ("true",), "whether any dot may become a Triton fusion"),
    FusionFlag(
        "xla_gpu_gemm_rewrite_size_threshold",
        ("100",),
        "dots of less work stay plain dots and are fused as such",
        others=(("0",), ("1000000",)),
    ),
    FusionFlag(
        "xla_gpu_experimental_gemm_fusion_v2",
        ("true",),
        "which of two algorithms fuses around a dot",
    ),
    FusionFlag(
        "xla_gpu_experimental_force_split_k",
        ("0",),
        "splits dots: adds a reduce to each",
        others=(("1",),),
    ),
    FusionFlag(
        "xla_gpu_cudnn_gemm_fusion_level",
        ("0",),
        "whether dots become cuDNN fusions",
        others=(("2",),),
    ),
    FusionFlag(
        "xla_gpu_experimental_enable_conv_fusion",
        ("false",),
        "whether convolutions take their epilogue into a cuDNN fusion",
    ),
    FusionFlag(
        "xla_gpu_enable_cudnn_layer_norm",
        ("false",),
        "whether normalizations become calls of cuDNN",
    ),
    FusionFlag(
        "xla_gpu_enable_dynamic_slice_fusion",
        ("true",),
        "whether library calls include slices of their operands",
    ),
    FusionFlag(
        "xla_gpu_enable_dus_accumulator_zero_init_elimination",
        ("false",),
        "whether an array that a loop overwrites completely is filled with zeros first",
    ),
    FusionFlag(
        "xla_gpu_autotune_level",
        ("4",),
        "whether candidates are measured: the tuner may replace a fusion by a library call",
    ),
    FusionFlag(
        "xla_gpu_experimental_enable_tiling_propagation",
        ("true",),
        "which analysis decides whether a Triton fusion can be tiled",
    ),
    FusionFlag(
        "xla_gpu_experimental_enable_triton_heroless_priority_fusion",
        ("false",),
        "lets PriorityFusion form Triton fusions of ordinary operations",
        passes=frozenset({"priority-fusion"}),
    ),
    FusionFlag(
        "xla_gpu_experimental_all_fusions_with_triton",
        ("false",),
        "emits every fusion that it can with Triton",
    ),
    FusionFlag(
        "xla_gpu_experimental_enable_fusion_block_level_rewriter",
        ("false",),
        "turns finished fusions into Triton fusions",
    ),
    FusionFlag(
        "xla_gpu_unsupported_enable_triton_multi_output_fusion",
        ("false",),
        "lets PriorityFusion form Triton fusions of several outputs",
    ),
    FusionFlag(
        "xla_gpu_experimental_enable_same_shape_multi_output_fusion",
        ("false",),
        "lets Triton fusions of several outputs of one shape be rewritten",
    ),
    FusionFlag(
        "xla_gpu_experimental_max_unroll_factor",
        ("32",),
        "limits unrolling, and with it the estimated time of a kernel",
        others=(("4",),),
        passes=frozenset({"priority-fusion", "multi_output_fusion"}),
    ),
    FusionFlag(
        "xla_jf_conv_input_fusion",
        ("true",),
        "whether a matrix product takes in what it reads",
    ),
    FusionFlag(
        "xla_jf_conv_output_fusion",
        ("true",),
        "whether a matrix product takes in what reads it",
    ),
    FusionFlag(
        "xla_jf_enable_producer_consumer_multi_output_fusion",
        ("true",),
        "whether a producer that others read becomes a second output of its consumer",
    ),
    FusionFlag(
        "xla_tpu_scoped_vmem_limit_kib",
        ("-1",),
        "how much vector memory a kernel may take, and with it how large its windows are",
        others=(("32768",), ("65536",)),
    ),
    FusionFlag(
        "xla_tpu_dot_dot_fusion_duplicated",
        ("false",),
        "whether a matrix product is computed again for another one that reads it",
    ),
    FusionFlag(
        "xla_tpu_enable_experimental_fusion_cost_model",
        ("false",),
        "which cost model decides",
    ),
)


def flags_that_matter(options: DebugOptions) -> tuple[tuple[FusionFlag, tuple[str, ...]], ...]:
    """Return the flags that affect fusion and do not have their default, with their values."""
    return tuple(
        (flag, options.values[flag.name])
        for flag in FUSION_FLAGS
        if flag.name in options.values
        and not (options.complete and options.values[flag.name] == flag.default)
    )
