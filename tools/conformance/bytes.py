"""Holds the bytes of each launch against the compiler's own count.

Each of DUMPS is a dump, or a directory with dumps in it. Each launch of a final module is cut out
into a module of its own, which ``hlo_module_cost_analysis`` of jaxlib counts.

Prints both totals over all runs of all launches that both count, the spread of ours over theirs by
dump and by launch that differs, and how many launches differ for which cause. ``--show`` lists the
launches of one cause by the start of its name. The compiler's count is no judge: docs/bytes.md says
which is right. Exits with 1 where a launch differs for no cause that is known.
"""

import statistics
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
from jaxlib import _hlo, _jax

from conformance.findings import Finding, add_dumps, note, problem
from conformance.findings import counted as finding
from conformance.outcomes import dumps
from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.history import Kernel, Numbering, find_kernels
from fusionscope.hlo import Computation, Instruction
from fusionscope.hlo.printer import computation_text

PARTS = frozenset({"dynamic-slice", "gather", "slice"})
UNKNOWN = "UNKNOWN"


class Counted(NamedTuple):
    where: str
    kernel: Kernel
    ours: int
    theirs: int | None  # None where the compiler does not count


def module_of(launch: Instruction) -> str:
    """A module that does nothing but this launch."""
    callees: dict[Computation, None] = {}
    pending = list(launch.called)
    while pending:
        computation = pending.pop()
        callees.pop(computation, None)
        callees[computation] = None  # callees come last
        pending.extend(computation.calls)
    names = {operand: f"p{number}" for number, operand in enumerate(dict.fromkeys(launch.operands))}
    operands = ", ".join(f"%{names[operand]}" for operand in launch.operands)
    attributes = "".join(
        f", {key}={value}"
        for key, value in launch.attributes.items()
        if key not in ("control-predecessors", "metadata")
    )
    return "\n".join(
        [
            "HloModule launch\n",
            *(computation_text(computation) for computation in reversed(callees)),
            "ENTRY %main {",
            *(f"  %{p} = {o.shape} parameter({p[1:]})" for o, p in names.items()),
            f"  ROOT %launch = {launch.shape} {launch.opcode}({operands}){attributes}",
            "}",
        ]
    )


class Compiler:
    """The count of the compiler."""

    def __init__(self) -> None:
        self._client = jax.local_devices(backend="cpu")[0].client
        self._known: dict[str, int | None] = {}

    def count(self, launch: Instruction) -> int | None:
        text = module_of(launch)
        if text not in self._known:
            module = _hlo.hlo_module_from_text(text)
            byte_count = _jax.hlo_module_cost_analysis(self._client, module).get(
                "bytes accessed", 0
            )
            self._known[text] = int(byte_count) if byte_count >= 0 else None
        return self._known[text]


def origin(operand: Instruction) -> Instruction:
    """The buffer that an operand is a view of."""
    while operand.opcode == "bitcast":
        operand = operand.operands[0]
    return operand


def cause(launch: Instruction, difference: int) -> str:
    """Why the two differ by ``difference`` (ours more), as far as the kernel tells."""
    inside = [i for computation in launch.called for i in computation.instructions] or [launch]
    opcodes = {instruction.opcode for instruction in inside}
    read = [i.operands[0] for i in inside if i.opcode in PARTS]
    shapes = [launch.shape, *launch.shape.elements, *(o.shape for o in launch.operands)]
    if launch.opcode.endswith("-start"):
        return "start of a copy: they count all of its tuple"
    if any(shape.layout and shape.layout.tiles for shape in shapes):
        return "tiled layout: they count the padding"
    if "scatter" in opcodes and difference < 0:
        return "scatter in a fusion: they count the whole buffer, read and written"
    if "dynamic-update-slice" in opcodes and difference > 0:
        return "update that is not in place: they count neither the buffer nor the copy of it"
    updated = [i.operands[0].opcode for i in inside if i.opcode == "dynamic-update-slice"]
    if "bitcast" in updated and difference < 0:
        return "update of a view in place: they count the whole buffer"
    if "gather" in opcodes and difference < 0:
        return "gather in a fusion: they count the whole table"
    if any(operand.opcode != "parameter" for operand in read) and difference < 0:
        return "part of what is not a parameter: they count whole parameters"
    if read and difference < 0:
        return "parts that overlap: they count each"
    if len({origin(operand) for operand in launch.operands}) < len(launch.operands):
        return "operands that are one buffer: they count each"
    broadcast = [i.operands[0] for i in inside if i.opcode in ("bitcast", "broadcast", "reshape")]
    if any(o.opcode == "parameter" and len(o.users) > 1 for o in broadcast) and difference < 0:
        return "parameter with several users, broadcast for one: they count each"
    return UNKNOWN


def counted(directory: Path, compiler: Compiler) -> Iterator[Counted]:
    for module in open_dump(directory).modules:
        if module.final is None:
            continue
        numbered = Numbering().number(module.read(module.final))
        for kernel in find_kernels(numbered, module.backend):
            ours = kernel.bytes_read + kernel.bytes_written
            where = f"{directory}:{module.number}"
            yield Counted(where, kernel, ours, compiler.count(kernel.instruction))


def spread(ratios: list[float]) -> str:
    if len(ratios) < 2:
        return "too few"
    quartiles = statistics.quantiles(ratios, method="inclusive")
    return "  ".join(f"{ratio:.4g}" for ratio in (min(ratios), *quartiles, max(ratios)))


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    parser.add_argument("--show", metavar="CAUSE")


def findings(options: Namespace) -> Iterator[Finding]:
    compiler = Compiler()
    apart: Counter[str] = Counter()  # bytes
    totals: dict[Path, tuple[int, int]] = {}
    ratios: list[float] = []
    for directory in (dump for root in options.dumps for dump in dumps(root)):
        try:
            launches = list(counted(directory, compiler))
        except UnusableInput as error:
            yield finding("dumps not readable", f"{directory}: {error}")
            continue
        both = [launch for launch in launches if launch.theirs is not None]
        uncounted = len(launches) - len(both)
        yield finding("custom call: they do not count it", count=uncounted)
        totals[directory] = (
            sum(comparison.ours * comparison.kernel.runs for comparison in both),
            sum((comparison.theirs or 0) * comparison.kernel.runs for comparison in both),
        )
        for comparison in both:
            difference = comparison.ours - (comparison.theirs or 0)
            # They add up in single precision.
            if abs(difference) <= (comparison.theirs or 0) / 2**22:
                yield finding("equal")
                continue
            why = cause(comparison.kernel.instruction, difference)
            apart[why] += difference * comparison.kernel.runs
            ratios.append(comparison.ours / max(comparison.theirs or 0, 1))
            counts = f"{comparison.ours:,}, they {comparison.theirs:,}"
            line = f"{comparison.where} {comparison.kernel.name}: {counts}: {why}"
            yield (problem if why == UNKNOWN else finding)(why, line)
            if options.show is not None and why.startswith(options.show):
                yield note(line)
    ours, theirs = (sum(total[side] for total in totals.values()) for side in (0, 1))
    yield note(f"bytes of {len(totals)} dumps: ours {ours:,}, theirs {theirs:,}")
    yield note("ours / theirs: least, quartiles, most")
    yield note(f"  by dump:                {spread([o / t for o, t in totals.values() if t])}")
    yield note(f"  by launch that differs: {spread(ratios)}")
    for why, size in apart.most_common():
        yield note(f"  {size:18,} bytes more: {why}")
