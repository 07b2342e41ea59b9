"""Compiles programs with arguments donated whose memory an output could have.

Each of DUMPS is a dump for a CPU or an NVIDIA GPU, or a directory with dumps in it. Modules with
such outputs are compiled again: once with the arguments donated that nothing reads any more when
the output is written, and once with the others. Prints by how much the total and the peak are
lower, and the bytes of the outputs, and whether the peak is the predicted one. Exit code 1 if a
total is higher, or nothing was compared.
"""

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.findings import Finding, add_dumps, counted, note, problem
from conformance.outcomes import dumps
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.findings.memory.facts import Donation, MemoryFacts
from fusionscope.findings.memory.savings import position_of
from fusionscope.hlo import to_text
from fusionscope.rerun.programs import find_program, find_target, own_flags


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)


def findings(options: Namespace) -> Iterator[Finding]:
    is_compared = False
    for directory in (dump for root in options.dumps for dump in dumps(root)):
        dump = open_dump(directory)
        for module in dump.modules:
            try:
                (facts,) = explain(dump, Selection(module=str(module.number))).modules
                for is_free in (True, False):
                    if facts.memory is not None:
                        for finding in compare(directory, module, facts.memory, is_free):
                            is_compared = is_compared or finding.kind.endswith("outputs")
                            yield finding
            except UnusableInput as error:
                yield counted("unusable", f"{directory} {module.number}: {error}")
    if not is_compared:
        yield problem("nothing compared", "nothing was compared")


def compare(
    directory: Path, module: DumpedModule, memory: MemoryFacts, is_free: bool
) -> Iterator[Finding]:
    donated = [donation for donation in memory.donations if (donation.read_by is None) is is_free]
    if not donated or memory.peak_bytes is None:
        return
    remade = compiled(module, donated)
    if remade is None or remade.peak_bytes is None:
        yield counted("not compiled")
        return
    kind = "free" if is_free else "read"
    total, peak = memory.total_bytes - remade.total_bytes, memory.peak_bytes - remade.peak_bytes
    size = sum(donation.bytes for donation in donated)
    yield counted(f"{kind}, outputs", count=len(donated))
    if is_free:
        is_right = remade.peak_bytes == memory.donated_peak
        line = f"  peak predicted {memory.donated_peak:,}, made {remade.peak_bytes:,}"
        yield counted(f"peak {'as' if is_right else 'not as'} predicted", line)
    line = (
        f"{directory} {module.number}: {kind}: {len(donated)} outputs of {size:,} bytes, total "
        f"{memory.total_bytes:,} lower by {total:,}, peak {memory.peak_bytes:,} by {peak:,}"
    )
    yield note(line)
    if total < 0:
        yield problem(f"{kind}, total higher", line)
    else:
        yield counted(f"{kind}, total {'lower' if total else 'the same'}")


def compiled(module: DumpedModule, donations: Sequence[Donation]) -> MemoryFacts | None:
    """Return the memory of the module with parameters donated."""
    final = module.read(module.last)
    root = final.entry.root
    parts = root.operands if root.opcode == "tuple" else (root,)
    places = {str(position_of(part)): place for place, part in reversed([*enumerate(parts)])}
    parameters_in_order = reversed(final.entry.parameters)
    parameters = {
        donation.op_name or donation.name: donation.parameter_number
        for donation in parameters_in_order
    }
    aliases = ", ".join(
        f"{{{places[donation.output] if root.opcode == 'tuple' else ''}}}: "
        f"({parameters[donation.parameter]}, {{}}, may-alias)"
        for donation in donations
    )
    text = to_text(find_program(module))
    head, line, remaining = text.partition("\n")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "program.hlo"
        file.write_text(f"{head}, input_output_alias={{ {aliases} }}{line}{remaining}")
        captured = capture(
            Program(kind=ProgramKind.HLO, file=file),
            find_target(module),
            Path(scratch) / "dump",
            flags=list(own_flags(module)),
            python=sys.executable,
        )
        if not captured.has_stages:
            return None
        return explain(open_dump(captured.directory), Selection()).modules[0].find(MemoryFacts)
