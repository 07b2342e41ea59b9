"""Who stands in one kernel, told from names and metadata: a second opinion on outcomes.

Shares no code with fusionscope, not even the reading of text. It knows an instruction of the stage
before fusion again by what the compiler keeps on the way: on GPUs, where one pass gives every
instruction a number of its own, the name without the number behind it; elsewhere opcode, shape,
framework name, source line and the attributes that say what is computed. Where several instructions
look alike, they are judged together, and nothing is said unless all of them fared alike.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple


class Line(NamedTuple):
    """One instruction. ``inside`` is what stands in the parentheses of parameters, constants."""

    computation: str
    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    inside: str
    attributes: str
    is_root: bool


Kernel = tuple[str, str]  # computation and name of the instruction that is launched

_FUSIONS = ("async-start", "fusion")
_NOT_COMPARED = (*_FUSIONS, "conditional", "get-tuple-element", "parameter", "tuple", "while")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_SAYS_WHAT = re.compile(
    r"(?:^|, )((?:dimensions|slice|direction|dynamic_slice_sizes|iota_dimension|window|padding|"
    r"lhs_contracting_dims|rhs_contracting_dims)=[^=]*?)(?=, \w+=|$)"
)


@dataclass
class Text:
    """A module as the compiler prints it."""

    computations: dict[str, dict[str, Line]] = field(default_factory=dict)
    entry: str = ""
    tables: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def read(self, text: str) -> "Text":
        table = computation = ""
        for line in text.split("\n"):
            if line in _TABLES:
                table = line
            elif table and re.match(r"\d+ ", line):
                number, _, row = line.partition(" ")
                self.tables[table][number] = row
            elif head := re.match(r"(ENTRY )?%?([^\s(]+) \(.*\{$", line):
                table, computation = "", head[2]
                self.computations[computation] = {}
                if head[1]:
                    self.entry = computation
            elif computation and (match := re.match(r"  (ROOT )?%?(\S+) = ", line)):
                self.computations[computation][match[2]] = _line(line, match, computation)
        return self

    def __post_init__(self) -> None:
        self._kernels: dict[str, set[Kernel | None]] | None = None
        self._callers: dict[str, set[Kernel]] = defaultdict(set)

    @property
    def kernels(self) -> dict[str, set[Kernel | None]]:
        """The kernels that run each computation; None where each instruction is one itself."""
        if self._kernels is None:
            self._kernels = defaultdict(set)
            pending: list[tuple[str, Kernel | None]] = [(self.entry, None)]
            while pending:
                name, kernel = pending.pop()
                if name not in self.computations or kernel in self._kernels[name]:
                    continue
                self._kernels[name].add(kernel)
                for line in self.computations[name].values():
                    if line.opcode in _FUSIONS:
                        inner: Kernel | None = kernel or (name, line.name)
                    elif line.opcode in ("call", "conditional", "while"):
                        inner = kernel
                    else:
                        continue
                    for callee in _called(line):
                        self._callers[callee].add((name, line.name))
                        pending.append((callee, inner))
        return self._kernels

    def kernels_of(self, line: Line) -> set[Kernel]:
        place = (line.computation, line.name)
        return {kernel or place for kernel in self.kernels[line.computation]}

    def lines(self) -> Iterator[Line]:
        """Every instruction that is executed and computes something."""
        for name in self.kernels:
            for line in self.computations[name].values():
                if line.opcode not in _NOT_COMPARED:
                    yield line

    def read_in(self, line: Line, kernel: Kernel, through: Callable[[Line], bool]) -> set[Line]:
        """What ``line`` reads inside ``kernel``, directly or through such instructions."""
        lines_read: set[Line] = set()
        pending = [(line.computation, operand) for operand in line.operands]
        visited: set[tuple[str, str]] = set()
        while pending:
            place = pending.pop()
            if place in visited:
                continue
            visited.add(place)
            computation = place[0]
            read = self.computations[computation].get(place[1].partition("#")[0])
            if read is None:
                continue
            if read.opcode == "parameter":
                for caller in self._callers[computation]:
                    if caller != kernel and kernel in self.kernels[caller[0]]:
                        outer = self.computations[caller[0]][caller[1]].operands
                        pending += [(caller[0], o) for o in outer[int(read.inside) :][:1]]
            elif read.opcode in _FUSIONS:
                if kernel in self.kernels[computation]:  # one fusion inside another
                    for callee in _called(read):
                        lines = self.computations.get(callee, {}).values()
                        pending += [(callee, inner.name) for inner in lines if inner.is_root]
            elif read.opcode in ("get-tuple-element", "tuple"):
                pending += [(computation, operand) for operand in read.operands]
            else:
                if kernel in self.kernels_of(read):
                    lines_read.add(read)
                if through(read):
                    pending += [(computation, operand) for operand in read.operands]
        return lines_read

    def first_half(self, line: Line) -> Line:
        """The reduction whose result a reduction goes on to reduce, if a pass split it in two."""
        pending = [(line.computation, operand) for operand in line.operands]
        visited = set(pending)
        while pending:
            computation, name = pending.pop()
            read = self.computations[computation].get(name.partition("#")[0])
            behind: list[tuple[str, str]] = []
            if read is None:
                continue
            if read.opcode == "reduce" and _op_name(read) == _op_name(line):
                return read
            if read.opcode == "parameter":
                for caller in self._callers[computation]:
                    outer = self.computations[caller[0]][caller[1]]
                    if outer.opcode in _FUSIONS:
                        behind += [(caller[0], o) for o in outer.operands[int(read.inside) :][:1]]
            elif read.opcode in _FUSIONS:
                element = name.rpartition("#")[2] if "#" in name else ""
                for callee in _called(read):
                    lines = self.computations.get(callee, {}).values()
                    for root in (inner for inner in lines if inner.is_root):
                        if root.opcode == "tuple" and element:
                            behind.append((callee, root.operands[int(element)]))
                        else:
                            behind.append((callee, root.name))
            elif read.opcode == "get-tuple-element":
                index = re.search(r"index=(\d+)", read.attributes)
                behind = [(computation, f"{read.operands[0]}#{index[1] if index else 0}")]
            elif _is_view(read) or read.opcode == "tuple":
                behind = [(computation, operand) for operand in read.operands]
            pending += set(behind) - visited
            visited |= set(behind)
        return line

    def place(self, line: Line) -> Hashable:
        """The user's call stack, as the tables before the computations have it."""
        match = re.search(r"stack_frame_id=(\d+)", line.attributes)
        if match is None:
            old = re.search(r'source_file="([^"]*)".*?source_line=(\d+)', line.attributes)
            return old.groups() if old else None
        places, number = [], match[1]
        while number in self.tables["StackFrames"] and len(places) < 100:
            frame = dict(re.findall(r"(\w+)=(\d+)", self.tables["StackFrames"][number]))
            row = self.tables["FileLocations"].get(frame["file_location_id"], "")
            location = dict(re.findall(r"(\w+)=(\d+)", row))
            file = self.tables["FileNames"].get(location.get("file_name_id", ""))
            places.append((file, location.get("line"), location.get("column")))
            if frame.get("parent_frame_id") == number:
                break
            number = frame.get("parent_frame_id", "")
        return tuple(places)

    def source(self, line: Line) -> Hashable:
        """What an instruction keeps when it is reshaped."""
        dimensions = re.findall(r"\[([\d,]*)\]", line.shape)
        counts = tuple(prod(map(int, part.split(","))) if part else 1 for part in dimensions)
        return line.opcode, counts, _op_name(line), self.place(line)

    def signature(self, line: Line) -> Hashable:
        shape = re.sub(r"\{[^{}]*\}|/\*.*?\*/|\s", "", line.shape)
        if line.opcode == "constant":
            return "constant", shape, line.inside
        op_name = re.search(r'op_name="((?:[^"\\]|\\.)*)"', line.attributes)
        if op_name is None:
            return line.opcode, shape, re.sub(r"(\.\d+)+$", "", _without_clones(line.name))
        attributes = tuple(_SAYS_WHAT.findall(line.attributes))
        return line.opcode, shape, op_name[1], self.place(line), attributes


def _line(text: str, match: re.Match[str], computation: str) -> Line:
    start = match.end()
    end = _closing(text, start) + 1 if text[start] == "(" else text.index(" ", start)
    parenthesis = text.index("(", end)
    closing = _closing(text, parenthesis)
    opcode, inside = text[end + 1 : parenthesis], text[parenthesis + 1 : closing]
    plain = opcode not in ("constant", "parameter")
    operands = re.findall(r"%([^\s,()]+)", re.sub(r"/\*.*?\*/", "", inside)) if plain else []
    return Line(
        computation,
        match[2],
        text[start:end],
        opcode,
        tuple(operands),
        "" if plain else inside,
        text[closing + 1 :],
        bool(match[1]),
    )


def _closing(text: str, start: int) -> int:
    depth = 0
    for position in range(start, len(text)):
        if text[position] in "([{":
            depth += 1
        elif text[position] in ")]}":
            depth -= 1
            if not depth:
                return position
    return len(text) - 1


def _called(line: Line) -> list[str]:
    single = re.findall(
        r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([^\s,{}]+)",
        line.attributes,
    )
    lists = re.findall(r"(?:branch_computations|calls)=\{([^}]*)\}", line.attributes)
    return single + [name for names in lists for name in re.findall(r"%?([^\s,]+)", names)]


def _without_clones(name: str) -> str:
    while (shorter := re.sub(r"\.(?:clone|remat\d*|sunk)(?:\.\d+)?$", "", name)) != name:
        name = shorter
    return name


def _base(line: Line) -> str:
    return re.sub(r"\.\d+$", "", _without_clones(line.name.partition("#")[0]))


def _is_view(line: Line) -> bool:
    return line.opcode in ("bitcast", "copy", "pad", "reshape")


def _op_name(line: Line) -> str | None:
    match = re.search(r'op_name="((?:[^"\\]|\\.)*)"', line.attributes)
    return match[1] if match else None


class Judge:
    """Says of pairs of the stage before fusion what became of them in the final one."""

    def __init__(self, before: str, final: str) -> None:
        self.before, self.final = Text().read(before), Text().read(final)
        self._bases: dict[str, list[Line]] = defaultdict(list)
        self._signatures: dict[Hashable, list[Line]] = defaultdict(list)
        self._sources: dict[Hashable, list[Line]] = defaultdict(list)
        for line in self.final.lines():
            self._sources[self.final.source(line)].append(line)
            self._bases[_base(line)].append(line)
            self._signatures[self.final.signature(line)].append(line)
        self._base_counts = Counter(map(_base, self.before.lines()))
        self._signature_counts = Counter(map(self.before.signature, self.before.lines()))

    def _identity(self, line: Line) -> tuple[str, Hashable]:
        numbered = line.opcode != "constant" and re.search(r"\.\d+\.\d+$", line.name)
        if numbered and self._base_counts[_base(line)] == 1:
            return "name", _base(line)
        return "signature", self.before.signature(line)

    def _alike(self, line: Line, second: Line) -> bool:
        """Whether one may be the other, reshaped: passes that do so may drop metadata."""
        names = [
            re.search(r'op_name="((?:[^"\\]|\\.)*)"', side.attributes) for side in (line, second)
        ]
        with_names = [
            (n[1], self.final.place(e)) for n, e in zip(names, (line, second), strict=True) if n
        ]
        return line.opcode == second.opcode and (
            len(with_names) < 2 or with_names[0] == with_names[1]
        )

    def _reshaped(self, lines: list[Line]) -> list[Line]:
        """Copies of ``lines`` that have another shape: passes reshape inside some kernels alone."""
        sources = {self.final.source(line) for line in lines if _op_name(line)}
        return [line for source in sources for line in self._sources[source] if line not in lines]

    def _again(self, identity: tuple[str, Hashable]) -> list[Line]:
        if identity[0] == "name":
            return self._bases.get(str(identity[1]), [])
        return self._signatures.get(identity[1], [])

    def verdicts(self, pairs: Iterable[tuple[str, str, str]]) -> list[str]:
        """For each pair (computation, producer, consumer) one of

        - ``together``: in a kernel that computes the producer, the consumer reads it;
        - ``apart``: both are there, and that is so in none;
        - ``lost``: one of the two is not found again;
        - ``unclear``: instructions that look alike fared differently, or cannot be told apart.
        """
        pairs = list(pairs)
        groups: dict[Hashable, list[int]] = defaultdict(list)
        verdicts = ["unclear"] * len(pairs)
        ends: dict[Hashable, tuple[tuple[str, Hashable], tuple[str, Hashable]]] = {}
        for number, (computation, producer, consumer) in enumerate(pairs):
            lines = self.before.computations.get(computation, {})
            two = [lines.get(producer), lines.get(consumer)]
            if any(line is None or line.opcode in _NOT_COMPARED for line in two):
                continue
            key = tuple(self._identity(line) for line in two if line is not None)
            groups[key].append(number)
            ends[key] = (key[0], key[1])
        for key, numbers in groups.items():
            producer_identity, consumer_identity = ends[key]
            consumers = {pairs[number][2] for number in numbers}
            expected = (
                1
                if consumer_identity[0] == "name"
                else self._signature_counts[consumer_identity[1]]
            )
            # Each of the consumers must read just one of the producers.
            if len(consumers) == expected == len(numbers):
                verdict = self._verdict(
                    self._again(producer_identity), self._again(consumer_identity), expected
                )
                for number in numbers:
                    verdicts[number] = verdict
        return verdicts

    def _verdict(self, producers: list[Line], consumers: list[Line], count: int) -> str:
        """``count`` is how many of the consumers there were before."""
        if not producers or not consumers:
            return "lost"
        if len(consumers) < count:
            return "unclear"
        joined = list(self._joined(producers, consumers))
        if all(joined):
            return "together"
        reshaped = self._joined(producers, self._reshaped(consumers))
        return (
            "apart" if all(is_joined is False for is_joined in (*joined, *reshaped)) else "unclear"
        )

    def _joined(self, producers: list[Line], consumers: list[Line]) -> Iterator[bool | None]:
        """Whether each of the consumers reads a producer in each of its kernels; None where
        something stands between them, or the producer was reshaped."""
        for consumer in consumers:
            if consumer.opcode == "reduce":
                consumer = self.final.first_half(consumer)
            for kernel in self.final.kernels_of(consumer):
                if not self.final.read_in(consumer, kernel, _is_view).isdisjoint(producers):
                    yield True
                    continue
                around = self.final.read_in(consumer, kernel, lambda line: True)
                is_alike = any(
                    self._alike(line, producer) for line in around for producer in producers
                )
                yield None if is_alike else False
