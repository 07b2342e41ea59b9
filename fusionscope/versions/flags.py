"""Reads the flags of a dump that its passes depend on."""

from __future__ import annotations

from fusionscope.dump import DumpedModule
from fusionscope.passes.context import PassContext

_YNN_FLAG = "xla_cpu_experimental_ynn_fusion_type"
_YNN_PREFIX = "LIBRARY_FUSION_TYPE_"


def read_flags(module: DumpedModule) -> PassContext:
    """Return the flags that CPU passes depend on, or defaults. Raises ``UnusableInput``."""
    flags = module.flags
    if flags is None:
        return PassContext()
    extra = {value.partition("=")[0] for value in flags.values.get("xla_backend_extra_options", ())}
    types = flags.values.get(_YNN_FLAG)
    has_emitters = "xla_cpu_disable_new_fusion_emitters" not in extra
    return PassContext(
        PassContext().ynn_types
        if types is None
        else frozenset(element_type.removeprefix(_YNN_PREFIX) for element_type in types),
        has_emitters,
        has_emitters and "xla_cpu_use_multi_output_fusion" in extra,
    )
