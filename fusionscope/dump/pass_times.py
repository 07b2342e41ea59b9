"""The times of passes: ``module_NNNN.metadata.textproto``.

A HloModuleMetadataProto in text form, written with ``--xla_dump_module_metadata``. It lists every
pass of the module in order, including those that changed nothing and therefore have no dump file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from fusionscope.dump.text_proto import parse
from fusionscope.errors import UnusableInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTime:
    """One run of one pass. ``start_us`` and ``end_us`` are microseconds since 1970.

    A pass that did not end has ``end_us`` 0. ``module_changed`` is only recorded if true.
    ``dump_files`` are names without their folder, which is that of the machine that dumped them.
    """

    pass_id: int
    pipeline: str
    name: str
    start_us: int
    end_us: int
    module_changed: bool
    dump_files: tuple[str, ...]


def read_pass_times(data: bytes, file: str) -> tuple[PassTime, ...]:
    """Return every pass in order. Raises ``UnusableInput`` if ``data`` lists none."""
    passes = tuple(
        PassTime(
            pass_id=entry.integer("pass_id"),
            pipeline=entry.string("pipeline_name"),
            name=entry.string("pass_name"),
            start_us=entry.integer("start_timestamp_usec"),
            end_us=entry.integer("end_timestamp_usec"),
            module_changed=entry.boolean("module_changed"),
            dump_files=tuple(PurePath(name).name for name in entry.strings("dump_filenames")),
        )
        for entry in parse(data, file).messages("pass_metadata")
    )
    if not passes:
        raise UnusableInput(
            "no pass_metadata in it, expected the passes of a module",
            file=file,
            hint="the compiler writes them with --xla_dump_module_metadata",
        )
    return passes
