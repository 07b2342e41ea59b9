"""Compares fusionscope's reading of HLO text with that of the compiler's own parser.

Needs a Python with jaxlib 0.12. Each of DUMPS is a file or a directory that is searched for HLO
text (`.txt`, `.txt.gz`); equal texts are compared once. For every text:

- both read it, or both refuse it;
- computations, instructions in their order, opcodes, shapes with layouts, and operands are the same
  (where two instructions of a module share a name, the compiler's parser numbers all that are
  called so, but for a number, anew);
- what fusionscope prints is read back as an equal module, and the compiler's parser makes of it
  what it makes of the original.

Prints every difference, then counts for each of DUMPS. Exits with 1 where there is one.
"""

import gzip
import re
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.findings import Finding, add_dumps, counted, problem
from fusionscope.errors import UnusableInput
from fusionscope.hlo import Computation, Module, parse, to_text

_NEGATIVE_ZERO = re.compile(r"(?<![\w.])-0(?![\w.])")
# Opcodes whose enumerator does not spell their name.
_NAMES = {
    "kClz": "count-leading-zeros",
    "kCos": "cosine",
    "kExp": "exponential",
    "kExpm1": "exponential-minus-one",
    "kLog1p": "log-plus-one",
    "kOptimizationBarrier": "opt-barrier",
    "kPopulationCount": "popcnt",
    "kSin": "sine",
    "kTopK": "topk",
}


def oracle(text: str) -> Any:
    """The compiler's module, or None where its parser refuses the text."""
    from jaxlib import _hlo

    try:
        return _hlo.hlo_module_from_text(text)
    except Exception:  # the binding raises various ones
        return None


def refusal(text: str) -> str:
    """The compiler's own words on why it refuses ``text``."""
    from jaxlib import _hlo

    try:
        _hlo.hlo_module_from_text(text)
    except Exception as error:
        match = re.search(r"was parsing ([\d:]+: error: .*)", str(error))
        return match[1] if match else " ".join(str(error).split())[:200]
    return ""


def differences(text: str) -> Iterator[str]:
    """How the two readings of ``text`` differ."""
    theirs = oracle(text)
    try:
        ours = parse(text)
    except UnusableInput as error:
        if theirs is not None:
            yield f"only fusionscope refuses: {error}"
        return
    if theirs is None:
        yield f"only the compiler refuses: {refusal(text)}"
        return
    yield from compare(theirs, ours)
    printed = to_text(ours)
    if parse(printed) != ours:
        yield "what fusionscope prints reads as another module"
    again = oracle(printed)
    if again is None:
        yield f"the compiler refuses what fusionscope prints: {refusal(printed)}"
    elif _printed(again) != _printed(theirs):
        yield "the compiler makes another module of what fusionscope prints"


def _printed(module: Any) -> str:
    """The compiler's own words, whatever the white space in JSON, without large constants, and with
    zeros for negative ones, which it prints as -0 and reads as 0.
    """
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_large_constants = False
    return _NEGATIVE_ZERO.sub("0", "".join(module.to_string(options).split()))


def compare(theirs: Any, ours: Module) -> Iterator[str]:
    """How the two modules differ."""
    if theirs.name != ours.name:
        yield f"module {theirs.name} is {ours.name}"
    computations = {computation.name: computation for computation in theirs.computations()}
    stem_counts = Counter(map(_stem, ours.by_name))
    if len(computations) == len(ours.by_name):  # it also numbers computations anew
        unmatched = [name for name in computations if name not in ours.by_name]
        for name in ours.by_name.keys() - computations.keys():
            same = [
                unmatched_name
                for unmatched_name in unmatched
                if _stem(unmatched_name) == _stem(name)
            ]
            if stem_counts[_stem(name)] > 1 and len(same) == 1:
                computations[name] = computations.pop(same[0])
    if computations.keys() != ours.by_name.keys():
        names = sorted(computations.keys() ^ ours.by_name.keys())
        yield f"computations of only one reading: {', '.join(names[:10])}"
        return
    names = Counter(_numbered(instruction.name.replace("#", "_")) for instruction in ours.walk())
    clashing = {_stem(name) for name, count in names.items() if count > 1}
    for computation in ours.computations:
        for difference in _compare(computations[computation.name], computation, clashing):
            yield f"computation {computation.name}: {difference}"


def _compare(theirs: Any, ours: Computation, clashing: set[str]) -> Iterator[str]:
    # Parameters come first: the compiler's parser appends those that it finds late.
    instructions = sorted(
        theirs.instructions(), key=lambda instruction_of: opcode(instruction_of) != "parameter"
    )
    our_instructions = sorted(
        ours.instructions, key=lambda instruction_of: instruction_of.opcode != "parameter"
    )
    place = {ours_one.index: index for index, ours_one in enumerate(our_instructions)}
    if len(instructions) != len(ours.instructions):
        yield f"{len(instructions)} instructions, {len(ours.instructions)} for fusionscope"
        return
    index = {instruction.name: i for i, instruction in enumerate(instructions)}
    for theirs_one, ours_one in zip(instructions, our_instructions, strict=True):
        name = ours_one.name.replace("#", "_")
        if theirs_one.name != name and not (
            _stem(theirs_one.name) == _stem(name) and _stem(name) in clashing
        ):
            yield f"instruction {theirs_one.name} is {ours_one.name}"
            return
        if opcode(theirs_one) != ours_one.opcode:
            yield f"{ours_one.name}: opcode {opcode(theirs_one)} is {ours_one.opcode}"
        if _plain(str(theirs_one.shape)) != _plain(str(ours_one.shape)):
            yield f"{ours_one.name}: shape {theirs_one.shape} is {ours_one.shape}"
        operands = [index[operand.name] for operand in theirs_one.operands()]
        if operands != [place[operand.index] for operand in ours_one.operands]:
            names = [operand.name for operand in theirs_one.operands()]
            yield f"{ours_one.name}: operands {names} are {[i.name for i in ours_one.operands]}"


def _numbered(name: str) -> str:
    """A name as the compiler numbers it: a.0 is a, and a.01 is a.1."""
    stem, dot, number = name.rpartition(".")
    if not dot or not number.isdecimal():
        return name
    return f"{stem}.{int(number)}" if int(number) else stem


def _stem(name: str) -> str:
    return re.sub(r"(\.\d+)*$", "", name)


def opcode(instruction: Any) -> str:
    """The name of the compiler's opcode as text has it."""
    name = instruction.opcode.name
    return _NAMES.get(name) or re.sub(r"(?<!^)([A-Z])", r"-\1", name[1:]).lower()


def _plain(shape: str) -> str:
    """A shape without comments and default layouts: the compiler gives every array a layout."""
    shape = re.sub(r"/\*.*?\*/| ", "", shape)
    return re.sub(
        r"\{([\d,]*)\}", lambda layout: "" if _is_default(layout[1]) else layout[0], shape
    )


def _is_default(order: str) -> bool:
    dimensions = [int(dimension) for dimension in order.split(",") if dimension]
    return dimensions == list(reversed(range(len(dimensions))))


def texts(root: Path) -> Iterator[tuple[Path, str]]:
    """HLO texts under ``root``, equal ones once."""
    files = [root] if root.is_file() else sorted(root.rglob("*.txt*"))
    visited: set[str] = set()
    for file in files:
        content = file.read_bytes()
        if file.suffix == ".gz":
            content = gzip.decompress(content)
        text = content.decode("utf-8", "replace")
        if text.startswith("HloModule") and text not in visited:
            visited.add(text)
            yield file, text


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)


def findings(options: Namespace) -> Iterator[Finding]:
    for root in options.dumps:
        for file, text in texts(root):
            ways = list(differences(text))
            yield from (problem("differences", f"{file}: {way}") for way in ways)
            yield counted("texts read otherwise" if ways else "texts read alike")
