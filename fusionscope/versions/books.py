"""All rule books, and which of them are those of one version."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from fusionscope.errors import UnusableInput, quoted
from fusionscope.passes.cpu.fusion_wrapper.rules import CPU_WRAPPER
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.passes.cpu.library_fusion.rules import YNN
from fusionscope.passes.cpu.multi_output_fusion.rules import CPU_MULTI_OUTPUT
from fusionscope.passes.gpu.block_level.rules import GPU_BLOCK_LEVEL
from fusionscope.passes.gpu.copy_fusion.rules import GPU_COPY_FUSION
from fusionscope.passes.gpu.fusion_wrapper.rules import GPU_WRAPPER
from fusionscope.passes.gpu.gemm_fusion.rules_v1 import GPU_GEMM_V1
from fusionscope.passes.gpu.gemm_fusion.rules_v2 import GPU_GEMM_V2
from fusionscope.passes.gpu.multi_output_fusion.rules import GPU_MULTI_OUTPUT
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.softmax_fusion.rules import GPU_SOFTMAX
from fusionscope.passes.gpu.sort_iota_fusion.rules import GPU_SORTING
from fusionscope.passes.gpu.variadic_op_splitter.rules import GPU_SPLITTER
from fusionscope.passes.gpu_before_priority_fusion.fusion_merger.rules import FUSION_MERGER
from fusionscope.passes.gpu_before_priority_fusion.horizontal_fusion.rules import (
    HORIZONTAL_INPUT,
    HORIZONTAL_LOOP,
)
from fusionscope.passes.gpu_before_priority_fusion.instruction_fusion.rules import (
    GPU_DUPLICATING_FUSION,
    GPU_INSTRUCTION_FUSION,
)
from fusionscope.passes.gpu_before_priority_fusion.multi_output_fusion.rules import (
    MULTI_OUTPUT_BEFORE_PRIORITY_FUSION,
)
from fusionscope.passes.rule import Rule, RuleBook
from fusionscope.versions import (
    jaxlib_0_4_34,
    jaxlib_0_4_35,
    jaxlib_0_10,
    jaxlib_0_11,
    jaxlib_0_12,
    xla_2023,
)
from fusionscope.versions.jaxlib_0_4_34 import HORIZONTAL_LOOP_0_4_34
from fusionscope.versions.jaxlib_0_10 import (
    CPU_FUSION_0_10,
    CPU_WRAPPER_0_10,
    GPU_GEMM_V1_0_10,
    YNN_0_10,
)
from fusionscope.versions.jaxlib_0_11 import CPU_FUSION_0_11, YNN_0_11
from fusionscope.versions.xla_2023.rules import (
    FUSION_MERGER_2023,
    GPU_DUPLICATION_2023,
    GPU_FUSION_2023,
    HORIZONTAL_INPUT_2023,
    HORIZONTAL_LOOP_2023,
    MULTI_OUTPUT_2023,
)

Books = tuple[RuleBook[Any], ...]

# By version of jaxlib, the newest first; each in the order in which the passes run.
CPU_BOOKS: dict[str, Books] = {
    "cpu-0.12": (YNN, CPU_FUSION, CPU_WRAPPER, CPU_MULTI_OUTPUT),
    "cpu-0.11": (YNN_0_11, CPU_FUSION_0_11, CPU_WRAPPER, CPU_MULTI_OUTPUT),
    "cpu-0.10": (YNN_0_10, CPU_FUSION_0_10, CPU_WRAPPER_0_10, CPU_MULTI_OUTPUT),
}
_ON_EVERY_GPU: Books = (
    GPU_SOFTMAX, GPU_SPLITTER, GPU_SORTING, GPU_FUSION, GPU_MULTI_OUTPUT, GPU_COPY_FUSION,
    GPU_WRAPPER, GPU_BLOCK_LEVEL,
)  # fmt: skip
# The passes that priority fusion replaced; newer versions have them no more.
_BEFORE_PRIORITIES: Books = (
    GPU_SPLITTER, GPU_INSTRUCTION_FUSION, GPU_DUPLICATING_FUSION, FUSION_MERGER,
    MULTI_OUTPUT_BEFORE_PRIORITY_FUSION,
)  # fmt: skip
_OF_2023: Books = (
    GPU_SPLITTER, GPU_FUSION_2023, GPU_DUPLICATION_2023, FUSION_MERGER_2023, MULTI_OUTPUT_2023,
    HORIZONTAL_LOOP_2023, HORIZONTAL_INPUT_2023,
)  # fmt: skip
GPU_BOOKS: dict[str, Books] = {
    "gpu-0.12": (GPU_GEMM_V2, *_ON_EVERY_GPU),
    "gpu-0.11": (GPU_GEMM_V1, *_ON_EVERY_GPU),
    "gpu-0.10": (GPU_GEMM_V1_0_10, *_ON_EVERY_GPU),
    "gpu-0.4.35": (*_BEFORE_PRIORITIES, HORIZONTAL_LOOP, HORIZONTAL_INPUT),
    "gpu-0.4.34": (*_BEFORE_PRIORITIES, HORIZONTAL_LOOP_0_4_34, HORIZONTAL_INPUT),
    "gpu-2023": _OF_2023,
}
# The release of jaxlib that each was held against.
RELEASES = {
    "cpu-0.12": jaxlib_0_12.RELEASE,
    "cpu-0.11": jaxlib_0_11.RELEASE,
    "cpu-0.10": jaxlib_0_10.RELEASE,
    "gpu-0.12": jaxlib_0_12.RELEASE,
    "gpu-0.11": jaxlib_0_11.RELEASE,
    "gpu-0.10": jaxlib_0_10.RELEASE,
    "gpu-0.4.35": jaxlib_0_4_35.RELEASE,
    "gpu-0.4.34": jaxlib_0_4_34.RELEASE,
    "gpu-2023": xla_2023.RELEASE,
}
BEFORE_PRIORITY_FUSION = frozenset({"gpu-0.4.35", "gpu-0.4.34", "gpu-2023"})
BOOKS: dict[str, Books] = {**CPU_BOOKS, **GPU_BOOKS}


def books_named(name: str | None) -> Books | None:
    """The books of a version, None where ``name`` is None. Raises ``UnusableInput``."""
    if name is None or name in BOOKS:
        return BOOKS[name] if name else None
    raise UnusableInput(f"no rules are called {quoted(name)}, there are {', '.join(BOOKS)}")


def find_book(books: Books, pass_name: str, backend: str) -> RuleBook[Any]:
    """That of one pass. Raises ``UnusableInput`` where there is none."""
    for book in books:
        if (book.pass_name, book.backend) == (pass_name, backend):
            return book
    names = " and ".join(sorted({book.backend for book in books}))
    raise UnusableInput(f"the rules to go by are those of {names}, which has no pass {pass_name}")


def books_at_work(id: str) -> Iterator[tuple[str, RuleBook[Any]]]:
    """Those with the rule of this ``id``, each with the release in whose dumps they were at work,
    the newest first."""
    for name, books in BOOKS.items():
        for book in books:
            # No dump from before priority fusion has a concatenate of so many arrays.
            is_idle = book is GPU_SPLITTER and name in BEFORE_PRIORITY_FUSION
            if book.find(id) is not None and not is_idle:
                yield RELEASES[name], book


def _each_once() -> Iterator[Rule]:
    seen: set[str] = set()
    for book in chain(*BOOKS.values()):
        for rule in book:
            if rule.id not in seen:
                seen.add(rule.id)
                yield rule


# Each rule once, as the newest version that has it.
RULES: tuple[Rule, ...] = tuple(_each_once())
