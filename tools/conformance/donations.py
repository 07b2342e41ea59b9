"""Compiles programs with arguments donated whose memory an output could have.

    python tools/conformance/donations.py DUMPS...

Each of DUMPS is a dump for a CPU or an NVIDIA GPU, or a directory with dumps in it. Modules with
such outputs are compiled again: once with the arguments donated that nothing reads any more when
the output is written, and once with the others. Prints by how much the total and the peak are
lower, and the bytes of the outputs, and whether the peak is the predicted one. Exit code 1 if a
total is higher, or nothing was compared.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from outcomes import dumps

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Selection, explain
from fusionscope.facts.memory import Donation, MemoryFacts
from fusionscope.findings.memory.savings import position_of
from fusionscope.hlo import to_text
from fusionscope.rerun.programs import find_program, find_target, own_flags


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dumps", nargs="+", type=Path)
    counts: Counter[str] = Counter()
    for directory in (each for root in parser.parse_args().dumps for each in dumps(root)):
        dump = open_dump(directory)
        for module in dump.modules:
            try:
                (facts,) = explain(dump, Selection(module=str(module.number))).modules
                for is_free in (True, False):
                    if facts.memory is not None:
                        compare(directory, module, facts.memory, is_free, counts)
            except UnusableInput as error:
                print(f"{directory} {module.number}: {error}")
                counts["unusable"] += 1
    for what, count in sorted(counts.items()):
        print(f"{count:6,} {what}")
    is_compared = any(what.endswith("outputs") for what in counts)
    sys.exit(not is_compared or any(what.endswith("higher") for what in counts))


def compare(
    directory: Path,
    module: DumpedModule,
    memory: MemoryFacts,
    is_free: bool,
    counts: Counter[str],
) -> None:
    chosen = [each for each in memory.donations if (each.read_by is None) is is_free]
    if not chosen or memory.peak_bytes is None:
        return
    made = compiled(module, chosen)
    if made is None or made.peak_bytes is None:
        counts["not compiled"] += 1
        return
    kind = "free" if is_free else "read"
    total, peak = memory.total_bytes - made.total_bytes, memory.peak_bytes - made.peak_bytes
    of = sum(each.bytes for each in chosen)
    counts[f"{kind}, outputs"] += len(chosen)
    counts[f"{kind}, total {'higher' if total < 0 else 'lower' if total else 'the same'}"] += 1
    if is_free:
        counts[
            f"peak {'as' if made.peak_bytes == memory.donated_peak else 'not as'} predicted"
        ] += 1
        print(f"  peak predicted {memory.donated_peak:,}, made {made.peak_bytes:,}")
    print(
        f"{directory} {module.number}: {kind}: {len(chosen)} outputs of {of:,} bytes, total "
        f"{memory.total_bytes:,} lower by {total:,}, peak {memory.peak_bytes:,} by {peak:,}"
    )


def compiled(module: DumpedModule, chosen: Sequence[Donation]) -> MemoryFacts | None:
    """Return the memory of the module with parameters donated."""
    final = module.read(module.last)
    root = final.entry.root
    parts = root.operands if root.opcode == "tuple" else (root,)
    places = {str(position_of(part)): place for place, part in reversed([*enumerate(parts)])}
    known = reversed(final.entry.parameters)
    parameters = {each.op_name or each.name: each.parameter_number for each in known}
    aliases = ", ".join(
        f"{{{places[each.output] if root.opcode == 'tuple' else ''}}}: "
        f"({parameters[each.parameter]}, {{}}, may-alias)"
        for each in chosen
    )
    text = to_text(find_program(module))
    head, line, rest = text.partition("\n")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "program.hlo"
        file.write_text(f"{head}, input_output_alias={{ {aliases} }}{line}{rest}")
        captured = capture(
            Program(kind=ProgramKind.HLO, file=file),
            find_target(module),
            Path(scratch) / "dump",
            flags=list(own_flags(module)),
            python=sys.executable,
        )
        if not captured.has_stages:
            print(captured.problem)
            return None
        return explain(open_dump(captured.directory), Selection()).modules[0].memory


if __name__ == "__main__":
    main()
