"""Other texts made of an HLO module: some that say the same, some with one known change.

Knows nothing of how stages are compared. Every function reads a text and gives one in the
compiler's own form, as the ``Random`` that is passed in chooses. ``renamed``, ``shuffled`` and
``stripped`` keep the meaning. The others make one change, at a place picked among all that allow it
and that the module's result depends on; they give None where there is no such place.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from fusionscope.hlo import Computation, Instruction, Module, parse
from fusionscope.hlo.attributes import CALLS, cut_attributes, read_names
from fusionscope.hlo.model import Statement


@dataclass(frozen=True, slots=True)
class Injected:
    """A text with one change.

    ``before`` are the names of the instructions concerned in the original text, ``after`` those in
    this one.
    """

    text: str
    what: str
    before: tuple[str, ...]
    after: tuple[str, ...]


_WAITS_FOR = "control-predecessors"
_SAYS_WHENCE = frozenset({"metadata", "origin"})
_NOT_OF_THE_VALUE = _SAYS_WHENCE | {"backend_config", "sharding", _WAITS_FOR}
_CONTROL = frozenset({"call", "conditional", "while"})
_NO_WORK = frozenset({"bitcast", "constant", "get-tuple-element", "parameter", "tuple"})
_SAME_VALUE = frozenset({"bitcast", "copy", "reshape"})  # where the shape is the same, too
_COMMUTATIVE = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})
_ORDERED = frozenset({"atan2", "divide", "power", "remainder", "subtract"})
_CHEAP = frozenset(
    """abs add and ceil clamp compare convert floor maximum minimum multiply negate not or select
    sign subtract xor""".split()
)
_INTEGERS = (-1, 0, 1, 2, 3, 5, 100)
_FLOATS = ("0.5", "1", "2", "4")  # every floating-point type has them


@dataclass(slots=True)
class _Body:
    """A computation that can be changed. ``root`` is the name of its root."""

    statements: list[Statement]
    root: str
    footer: str

    def replace(self, name: str, *statements: Statement) -> None:
        """Puts ``statements`` in the place of the one called ``name``."""
        index = [s.name for s in self.statements].index(name)
        self.statements[index : index + 1] = statements

    def without_unread(self, operands: Sequence[str]) -> list[str]:
        """Drops parameters and constants that nothing reads.

        ``operands`` are what a caller passes, the result is what it shall pass.
        """
        read = {name.partition("#")[0] for s in self.statements for name in s.operands}
        statements = [
            s
            for s in self.statements
            if s.name in read or s.opcode not in ("constant", "parameter")
        ]
        numbers_kept = sorted(int(s.inside) for s in statements if s.opcode == "parameter")
        self.statements = [
            s._replace(inside=str(numbers_kept.index(int(s.inside))))
            if s.opcode == "parameter"
            else s
            for s in statements
        ]
        return [operands[number] for number in numbers_kept]

    def lines(self, name: str) -> Iterator[str]:
        parameters = sorted(
            (s for s in self.statements if s.opcode == "parameter"), key=lambda s: int(s.inside)
        )
        declared = ", ".join(f"{s.name}: {_without_layouts(s.shape)}" for s in parameters)
        (result,) = (_without_layouts(s.shape) for s in self.statements if s.name == self.root)
        yield f"%{name} ({declared}) -> {result} {{\n"
        for s in self.statements:
            root = "ROOT " if s.name == self.root else ""
            yield f"  {root}%{s.name} = {s.shape} {s.opcode}({s.inside}){s.attributes}\n"
        yield f"}}{self.footer}\n\n"


class _Draft:
    """A module that can be changed."""

    def __init__(self, module: Module) -> None:
        self.opening = f"HloModule {module.name}{module.header}\n\n"
        self.frames = f"{module.frames.text}\n\n" if module.frames else ""
        self.entry = module.entry.name
        self.bodies = {
            c.name: _Body([*c.body.written], c.root.name, c.body.footer)
            for c in module.computations
        }
        self.taken = {*self.bodies, *(i.name for i in module.walk())}

    def fresh(self, name: str) -> str:
        """A new name that looks like ``name``."""
        stem = re.sub(r"(\.\d+)+$", "", name)
        number = 1
        while f"{stem}.{number}" in self.taken:
            number += 1
        self.taken.add(f"{stem}.{number}")
        return f"{stem}.{number}"

    def put(self, name: str, body: _Body, caller: str) -> None:
        """Puts a computation right above the one that calls it."""
        self.bodies.pop(name, None)
        order = [*self.bodies.items()]
        order.insert([*self.bodies].index(caller), (name, body))
        self.bodies = dict(order)

    def replace(self, instruction: Instruction, *statements: Statement) -> None:
        self.bodies[instruction.computation.name].replace(instruction.name, *statements)

    def text(self) -> str:
        lines = [self.opening, self.frames]
        for name, body in self.bodies.items():
            lines += ["ENTRY " if name == self.entry else "", *body.lines(name)]
        return "".join(lines)


def renamed(text: str, random: Random) -> str:
    """Every instruction and every computation gets another name."""
    draft = _Draft(parse(text))
    count = len(draft.bodies) + sum(len(body.statements) for body in draft.bodies.values())
    numbers = iter(random.sample(range(10 * count), count))
    words = ("add", "copy", "fusion", "n", "region", "value")
    computations = {name: f"{random.choice(words)}.{next(numbers)}" for name in draft.bodies}
    for body in draft.bodies.values():
        names = {s.name: f"{random.choice(words)}.{next(numbers)}" for s in body.statements}
        body.root = names[body.root]
        body.statements = [_named(_naming(s, computations, names), names) for s in body.statements]
    draft.bodies = {computations[name]: body for name, body in draft.bodies.items()}
    draft.entry = computations[draft.entry]
    return draft.text()


def shuffled(text: str, random: Random) -> str:
    """Instructions and computations stand in another order; what they need is still above them."""
    module = parse(text)
    draft = _Draft(module)
    for body in draft.bodies.values():
        statements = {s.name: s for s in body.statements}
        needed_names = {
            s.name: {name.partition("#")[0] for name in s.operands} | {*_waits_for(s)}
            for s in body.statements
        }
        body.statements = [statements[name] for name in _any_order(needed_names, random)]
    calls = {c.name: {callee.name for callee in c.calls} for c in module.computations}
    calls[draft.entry] = calls.keys() - {draft.entry}
    draft.bodies = {name: draft.bodies[name] for name in _any_order(calls, random)}
    return draft.text()


def stripped(text: str) -> str:
    """Nothing tells where in the user's program an instruction comes from."""
    draft = _Draft(parse(text))
    draft.frames = ""
    for body in draft.bodies.values():
        body.statements = [
            s._replace(attributes="".join(_attributes(s, _SAYS_WHENCE).values()))
            for s in body.statements
        ]
    return draft.text()


def operands_swapped(text: str, random: Random) -> Injected | None:
    """An operation that is not commutative reads two different values the other way round."""
    module = parse(text)
    values = _values(module)
    places = []
    for instruction in _live(module):
        if instruction.opcode == "select" or _is_ordered(instruction):
            first_operand, second_operand = instruction.operands[-2:]
            if (
                first_operand.shape.compatible(second_operand.shape)
                and values[first_operand] != values[second_operand]
            ):
                places.append(instruction)
    if not places:
        return None
    choice = random.choice(places)
    *first, one_name, other_name = choice.statement.operands
    draft = _Draft(module)
    draft.replace(choice, _with_operands(choice.statement, [*first, other_name, one_name]))
    what = f"{choice.opcode} {choice.name} of {choice.computation.name} reads its operands swapped"
    return Injected(draft.text(), what, (choice.name,), (choice.name,))


def constant_changed(text: str, random: Random) -> Injected | None:
    """A scalar number is another one."""
    module = parse(text)
    places = [(i, literals) for i in _live(module) if (literals := _other_literals(i))]
    if not places:
        return None
    choice, literals = random.choice(places)
    literal = random.choice(literals)
    draft = _Draft(module)
    draft.replace(choice, choice.statement._replace(inside=literal))
    what = f"{choice.name} of {choice.computation.name} is {literal}, was {choice.literal}"
    return Injected(draft.text(), what, (choice.name,), (choice.name,))


def dropped_from_fusion(text: str, random: Random) -> Injected | None:
    """What a fusion does first of all is done before it. Names: the operation, the fusion."""
    module = parse(text)
    live = {*_live(module)}
    places = [
        (fusion, inner)
        for fusion in _fusions(module)
        if _work(fusion.called[0].instructions) > 2
        for inner in fusion.called[0].instructions
        if inner in live
        and inner.opcode not in _NO_WORK | {"fusion"}
        and inner.shape.is_array
        and not inner.is_root
        and inner.operands
        and all(operand.opcode == "parameter" for operand in inner.operands)
    ]
    if not places:
        return None
    fusion, inner = random.choice(places)
    draft = _Draft(module)
    operands = fusion.statement.operands
    body = draft.bodies[fusion.called[0].name]
    parameter = _parameter(draft.fresh("param"), inner, len(operands))
    body.replace(inner.name, parameter)
    body.statements = [_reading(s, {inner.name: parameter.name}) for s in body.statements]
    name = draft.fresh(inner.name)
    moved = _reading(inner.statement, _passed(fusion))._replace(name=name)
    reads = body.without_unread([*operands, name])
    draft.replace(fusion, moved, _with_operands(fusion.statement, reads))
    what = f"{inner.opcode} {inner.name} of {fusion.name} is done before it"
    return Injected(draft.text(), what, (inner.name, fusion.name), (name, fusion.name))


def fusion_split(text: str, random: Random) -> Injected | None:
    """A fusion becomes two, the first of which makes one array for the second.

    Names: the fusion, and the operation behind which it is cut; the two fusions.
    """
    module = parse(text)
    live = {*_live(module)}
    places = []
    for fusion in _fusions(module):
        inner = fusion.called[0].instructions
        if "kind=kCustom" in fusion.statement.attributes or _work(inner) < 4:
            continue
        if all(i.shape.is_array for i in inner):
            for middle in inner:
                above = _above(middle)
                only_one = all(above.issuperset(i.users) for i in above if i is not middle)
                enough = _work(above) > 1 and _work(inner) - _work(above) > 1
                if only_one and enough and middle in live and not middle.is_root:
                    places.append((fusion, middle))
    if not places:
        return None
    fusion, middle = random.choice(places)
    draft = _Draft(module)
    operands = fusion.statement.operands
    body_name = fusion.called[0].name
    body = draft.bodies[body_name]
    above = _above(middle)
    members = {i.name for i in above}
    names_needed = members.union(operand.name for i in above for operand in i.operands)
    names = {s.name: draft.fresh(s.name) for s in body.statements if s.name in names_needed}
    copies = [_named(s, names) for s in body.statements if s.name in names_needed]
    first = _Body(copies, names[middle.name], body.footer)
    parameter = _parameter(draft.fresh("param"), middle, len(operands))
    left = [parameter, *(s for s in body.statements if s.name not in members)]
    body.statements = [_reading(s, {middle.name: parameter.name}) for s in left]

    name, first_name = draft.fresh(fusion.name), draft.fresh(body_name)
    draft.put(first_name, first, fusion.computation.name)
    upper = _naming(fusion.statement, {body_name: first_name}, {})
    upper = upper._replace(name=name, shape=middle.statement.shape)
    draft.replace(
        fusion,
        _with_operands(upper, first.without_unread(operands)),
        _with_operands(fusion.statement, body.without_unread([*operands, name])),
    )
    what = f"{fusion.name} is cut behind {middle.opcode} {middle.name}"
    return Injected(draft.text(), what, (fusion.name, middle.name), (name, fusion.name))


def producer_duplicated(text: str, random: Random) -> Injected | None:
    """One user of an operation reads a copy of it. Names: the operation, the user, the copy."""
    module = parse(text)
    live = dict.fromkeys(_live(module))
    computations = _reached(module, _CONTROL | {"async-start", "fusion"})
    places = [
        producer
        for producer in live
        if producer.opcode in _CHEAP
        and producer.shape.is_array
        and len(producer.users) > 1
        and producer.computation in computations
    ]
    if not places:
        return None
    producer = random.choice(places)
    user = random.choice([user for user in producer.users if user in live])
    draft = _Draft(module)
    copy = producer.statement._replace(name=draft.fresh(producer.name))
    draft.replace(producer, producer.statement, copy)
    draft.replace(user, _reading(user.statement, {producer.name: copy.name}))
    what = f"{user.name} of {user.computation.name} reads a copy of {producer.name}"
    names = (producer.name, user.name)
    return Injected(draft.text(), what, names, (*names, copy.name))


def pair_fused(text: str, random: Random) -> Injected | None:
    """A fusion goes into the only one that reads it. Names: both; the one that is left."""
    module = parse(text)
    fusions = dict.fromkeys(_fusions(module))
    places = [
        fusion
        for fusion in fusions
        if fusion.shape.is_array
        and not fusion.is_root
        and len(fusion.users) == 1
        and fusion.users[0] in fusions
        and not _waits_for(fusion.statement)
        and not any(
            fusion.name in _waits_for(waiting.statement)
            for waiting in fusion.computation.instructions
        )
    ]
    if not places:
        return None
    upper = random.choice(places)
    (lower,) = upper.users
    draft = _Draft(module)
    body_name = lower.called[0].name
    inlined, body = draft.bodies.pop(upper.called[0].name), draft.bodies[body_name]
    names = {s.name: draft.fresh(s.name) for s in inlined.statements}
    parameters = {read: parameter for parameter, read in _passed(lower).items()}
    for parameter, read in _passed(upper).items():
        names[parameter] = parameters.get(read, names[parameter])
    result = {p: names[inlined.root] for p, read in _passed(lower).items() if read == upper.name}
    moved = []
    for s in inlined.statements:
        if s.opcode != "parameter":
            moved.append(_named(s, names))
        elif names[s.name] not in parameters.values():
            number = len(lower.operands) + int(s.inside)
            moved.append(s._replace(name=names[s.name], inside=str(number)))
    statements = [*moved, *(_reading(s, result) for s in body.statements)]
    body.statements = sorted(statements, key=lambda s: s.opcode != "parameter")
    draft.put(body_name, body, lower.computation.name)
    operands = (*lower.statement.operands, *upper.statement.operands)
    draft.replace(upper)
    draft.replace(lower, _with_operands(lower.statement, body.without_unread(operands)))
    what = f"{upper.name} is fused into {lower.name}"
    return Injected(draft.text(), what, (upper.name, lower.name), (lower.name,))


def _any_order(operands_of: Mapping[str, Collection[str]], random: Random) -> list[str]:
    """The keys, each after those that it needs."""
    users: dict[str, list[str]] = defaultdict(list)
    for name, operands in operands_of.items():
        for operand in operands:
            users[operand].append(name)
    missing = {name: len(operands) for name, operands in operands_of.items()}
    ready = [name for name, count in missing.items() if not count]
    order = []
    while ready:
        name = ready.pop(random.randrange(len(ready)))
        order.append(name)
        for user in users[name]:
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return order


def _live(module: Module) -> list[Instruction]:
    """What the module's result depends on, in the order of the text."""
    visited: set[Instruction] = set()
    pending = [module.entry.root]
    while pending:
        instruction = pending.pop()
        if instruction not in visited:
            visited.add(instruction)
            pending += instruction.operands
            pending += [computation.root for computation in instruction.called]
    return [instruction for instruction in module.walk() if instruction in visited]


def _reached(module: Module, opcodes: Collection[str]) -> set[Computation]:
    """The entry, and what it reaches by calls of these ``opcodes`` alone."""
    visited: set[Computation] = set()
    pending = [module.entry]
    while pending:
        computation = pending.pop()
        if computation not in visited:
            visited.add(computation)
            pending += [
                c for i in computation.instructions if i.opcode in opcodes for c in i.called
            ]
    return visited


def _fusions(module: Module) -> list[Instruction]:
    """Live fusions that stand in no kernel and share their computation with no other."""
    launching = _reached(module, _CONTROL)
    calls = Counter(name for instruction in module.walk() for name in instruction.statement.calls)
    return [
        i
        for i in _live(module)
        if i.opcode == "fusion"
        and i.computation in launching
        and calls[i.called[0].name] == 1
        and i.called[0].root.opcode not in ("constant", "parameter")
        and "output_to_operand_aliasing=" not in i.statement.attributes  # counts operands
    ]


def _passed(fusion: Instruction) -> dict[str, str]:
    """What the caller calls the parameters of a fusion's computation."""
    parameters = (parameter.name for parameter in fusion.called[0].parameters)
    return dict(zip(parameters, fusion.statement.operands, strict=True))


def _work(instructions: Collection[Instruction]) -> int:
    return sum(instruction.opcode not in _NO_WORK for instruction in instructions)


def _above(instruction: Instruction) -> set[Instruction]:
    """The instruction and all that it depends on, but for parameters and constants."""
    visited: set[Instruction] = set()
    pending = [instruction]
    while pending:
        current = pending.pop()
        if current not in visited and current.opcode not in ("constant", "parameter"):
            visited.add(current)
            pending += current.operands
    return visited


def _is_ordered(instruction: Instruction) -> bool:
    if instruction.opcode == "compare":
        return instruction.attributes["direction"] in ("LT", "GT", "LE", "GE")
    return instruction.opcode in _ORDERED


def _other_literals(instruction: Instruction) -> list[str]:
    """Other numbers that a scalar constant could hold; none for what is no scalar number."""
    shape, literal = instruction.shape, instruction.literal
    if literal is None or not shape.is_array or shape.rank:
        return []
    kind, bits = shape.element_type[:1], shape.element_type[1:]
    if kind in ("f", "b"):
        return [number for number in _FLOATS if float(number) != float(literal.partition("(")[0])]
    if kind in ("s", "u"):
        low = -(2 ** (int(bits) - 1)) if kind == "s" else 0
        high = low + 2 ** int(bits)
        return [str(n) for n in _INTEGERS if low <= n < high and n != int(literal)]
    return []


def _values(module: Module) -> dict[Instruction, int]:
    """A number for each instruction; those of a computation that have one make the same value."""
    values = _numbers(module, {})
    read: dict[Instruction, list[int]] = defaultdict(list)
    for instruction in module.walk():
        if instruction.opcode in ("call", "fusion"):
            parameters = instruction.called[0].parameters
            for parameter, operand in zip(parameters, instruction.operands, strict=True):
                read[parameter].append(values[operand])
    # Two parameters for which every caller passes one value are one value.
    return _numbers(module, {parameter: tuple(passed) for parameter, passed in read.items()})


def _numbers(module: Module, passed: Mapping[Instruction, Hashable]) -> dict[Instruction, int]:
    numbers: dict[Hashable, int] = {}
    values: dict[Instruction, int] = {}
    for instruction in module.walk():
        operands = [values[operand] for operand in instruction.operands]
        shape = _without_layouts(instruction.statement.shape)
        if instruction.opcode in _COMMUTATIVE:
            operands.sort()
        if instruction.opcode in _SAME_VALUE and shape == _without_layouts(
            instruction.operands[0].statement.shape
        ):
            values[instruction] = operands[0]
            continue
        key = (
            instruction.opcode,
            shape,
            passed.get(instruction) or (not operands and instruction.statement.inside),
            tuple(operands),
            tuple(values[computation.root] for computation in instruction.called),
            *_attributes(instruction.statement, _NOT_OF_THE_VALUE | CALLS).values(),
        )
        values[instruction] = numbers.setdefault(key, len(numbers))
    return values


def _attributes(statement: Statement, left_out: Collection[str] = ()) -> dict[str, str]:
    """The attributes but for some, each from its comma on."""
    pieces = cut_attributes(statement.attributes)
    assert pieces is not None, statement
    keyed = {piece.strip(", ").partition("=")[0]: piece for piece in pieces}
    return {key: piece for key, piece in keyed.items() if key not in left_out}


def _waits_for(statement: Statement) -> tuple[str, ...]:
    return read_names(_attributes(statement).get(_WAITS_FOR, "").partition("=")[2])


def _without_layouts(shape: str) -> str:
    return re.sub(r"\{[^{}]*\}", "", shape)


def _parameter(name: str, value: Instruction, number: int) -> Statement:
    return Statement("", name, value.statement.shape, "parameter", str(number), "")


def _with_operands(statement: Statement, names: Sequence[str]) -> Statement:
    return statement._replace(inside=", ".join(f"%{name}" for name in names))


def _reading(statement: Statement, names: Mapping[str, str]) -> Statement:
    """The statement with other names for those of its operands that ``names`` knows."""
    if not statement.operands:
        return statement
    parts = [name.partition("#") for name in statement.operands]
    return _with_operands(
        statement, [names.get(name, name) + mark + index for name, mark, index in parts]
    )


def _named(statement: Statement, names: Mapping[str, str]) -> Statement:
    """The statement with other names for itself and its operands."""
    return _reading(statement, names)._replace(name=names[statement.name])


def _naming(
    statement: Statement, computations: Mapping[str, str], instructions: Mapping[str, str]
) -> Statement:
    """The statement with other names in its attributes."""
    pieces = []
    for key, piece in _attributes(statement).items():
        if key in CALLS or key == _WAITS_FOR:
            names = computations if key in CALLS else instructions
            names_read = [
                f"%{names.get(name, name)}" for name in read_names(piece.partition("=")[2])
            ]
            value = ", ".join(names_read)
            piece = f", {key}={{{value}}}" if "{" in piece else f", {key}={value}"
        pieces.append(piece)
    return statement._replace(attributes="".join(pieces))
