"""Stages that were dumped in binary form only: jaxlib, where it is installed, prints them."""

from __future__ import annotations

from fusionscope.dump.instruction_ids import module_part
from fusionscope.errors import UnusableInput


def proto_text(data: bytes, file: str) -> str:
    """The HLO text of a ``.hlo.pb`` file.

    Raises ``UnusableInput``, also where jaxlib is missing.
    """
    module = module_part(data, file)
    try:
        from jaxlib import _hlo
    except ImportError:
        raise UnusableInput(
            "this stage was dumped as proto only, and reading that needs jaxlib",
            file=file,
            hint="pip install 'fusionscope[jax]', or dump again with --xla_dump_hlo_as_text",
        ) from None
    try:
        text: str = _hlo.HloModule.from_serialized_hlo_module_proto(module).to_string()
    except Exception as error:  # jaxlib's own, of no common type
        problem = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnusableInput(f"jaxlib cannot read it: {problem}", file=file) from None
    return text
