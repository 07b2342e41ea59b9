"""Two changes of a module at once, at places that have to do with each other.

As ``mutations.py``, this knows nothing of how modules are compared.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from conformance import mutations
from fusionscope.hlo import Instruction, parse
from fusionscope.hlo.model import Statement


@dataclass(frozen=True, slots=True)
class Doubled:
    """A text with two changes: for each, the names of the computation and of the instruction, and
    the field that differs.
    """

    text: str
    what: str
    changes: tuple[tuple[str, str, str], ...]


_LAYOUT = re.compile(r"([a-z]\w*\[\d+(?:,\d+)+\])\{(\d+(?:,\d+)+)([^}]*)\}")
_OPCODES = {
    "sine": "cosine", "cosine": "sine", "add": "subtract", "subtract": "add", "multiply": "divide",
    "maximum": "minimum", "minimum": "maximum", "exponential": "negate", "negate": "abs",
    "divide": "multiply",
}  # fmt: skip


def _layout(statement: Statement) -> Statement | None:
    array = _LAYOUT.fullmatch(statement.shape)
    if array is None or statement.opcode == "bitcast":
        return None
    order = ",".join(reversed(array[2].split(",")))
    return statement._replace(shape=f"{array[1]}{{{order}{array[3]}}}")


def _memory_space(statement: Statement) -> Statement | None:
    array = re.fullmatch(r"(\w+\[[\d,]+\]\{[\d,]+)\}", statement.shape)
    return statement._replace(shape=f"{array[1]}:S(5)}}") if array else None


def _with(statement: Statement, key: str, value: str) -> Statement | None:
    pieces = mutations._attributes(statement)
    changed = {**pieces, key: f", {key}={value}"}
    if changed == pieces:
        return None
    return statement._replace(attributes="".join(changed.values()))


def _sharding(statement: Statement) -> Statement | None:
    return _with(statement, "sharding", "{manual}")


def _frontend(statement: Statement) -> Statement | None:
    return _with(statement, "frontend_attributes", '{_another="1"}')


def _opcode(statement: Statement) -> Statement | None:
    opcode = _OPCODES.get(statement.opcode)
    return statement._replace(opcode=opcode) if opcode else None


def _operands(statement: Statement) -> Statement | None:
    names = statement.operands
    if statement.opcode not in ("subtract", "divide", "power", "dot") or len({*names}) != 2:
        return None
    return mutations._with_operands(statement, names[::-1])


CHANGES: dict[str, tuple[str, Callable[[Statement], Statement | None]]] = {
    "layout": ("layout", _layout),
    "space": ("layout", _memory_space),
    "sharding": ("sharding", _sharding),
    "frontend": ("frontend_attributes", _frontend),
    "opcode": ("opcode", _opcode),
    "operands": ("operands", _operands),
}


def _itself(instruction: Instruction) -> list[Instruction]:
    return [instruction]


def _operand(instruction: Instruction) -> list[Instruction]:
    return [*instruction.operands]


def _user(instruction: Instruction) -> list[Instruction]:
    return [*instruction.users]


def _of_body(instruction: Instruction) -> list[Instruction]:
    return [*instruction.called[0].instructions] if instruction.opcode == "fusion" else []


def _passed_parameter(instruction: Instruction) -> list[Instruction]:
    """A parameter of the fusion that reads the instruction."""
    return [
        user.called[0].parameters[slot]
        for user in instruction.users
        if user.opcode == "fusion"
        for slot, operand in enumerate(user.operands)
        if operand is instruction
    ]


PLACES: dict[str, Callable[[Instruction], list[Instruction]]] = {
    "itself": _itself,
    "operand": _operand,
    "user": _user,
    "body": _of_body,
    "parameter": _passed_parameter,
}


def doubled(text: str, random: Random, place: str) -> Doubled | None:
    """Two changes, the second one at a ``place`` of the first one's instruction."""
    module = parse(text)
    live = dict.fromkeys(i for i in mutations._live(module) if "#" not in i.name)
    ways = [
        (first, second, names)
        for first in live
        for second in PLACES[place](first)
        if second in live
        for names in _ways(first, second)
    ]
    if not ways:
        return None
    first, second, names = random.choice(ways)
    draft = mutations._Draft(module)
    statements = {first: first.statement, second: second.statement}
    for instruction, name in zip((first, second), names, strict=True):
        changed = CHANGES[name][1](statements[instruction])
        if changed is None:
            return None
        statements[instruction] = changed
    for instruction, statement in statements.items():
        draft.replace(instruction, statement)
    what = f"{names[0]} of {first.name}, {names[1]} of {second.name}"
    changes = tuple(
        (instruction.computation.name, instruction.name, CHANGES[name][0])
        for instruction, name in zip((first, second), names, strict=True)
    )
    if place == "parameter" and names[0] == names[1] and names[0] in ("layout", "space"):
        changes = changes[:1]  # the parameter follows what is passed
    return Doubled(draft.text(), what, changes)


def changed_near(injected: mutations.Injected, random: Random) -> Doubled | None:
    """One more change at the instructions of an injected one, their operands and their bodies. The
    names are those of the changed text.
    """
    module = parse(injected.text)
    names = {name.partition("#")[0] for name in injected.after}
    around = [i for i in mutations._live(module) if i.name in names]
    near = dict.fromkeys(
        neighbour
        for i in around
        for neighbour in (i, *i.operands, *_of_body(i))
        if "#" not in neighbour.name
    )
    ways = [
        (instruction, name)
        for instruction in near
        for name, (_, change) in CHANGES.items()
        if name not in ("opcode", "operands") and change(instruction.statement) is not None
    ]
    if not ways:
        return None
    choice, name = random.choice(ways)
    field, change = CHANGES[name]
    changed = change(choice.statement)
    assert changed is not None
    draft = mutations._Draft(module)
    draft.replace(choice, changed)
    where = choice.computation.name, choice.name, field
    return Doubled(draft.text(), f"{injected.what}; {name} of {choice.name}", (where,))


def _ways(first: Instruction, second: Instruction) -> list[tuple[str, str]]:
    """The names of two changes that are possible at both instructions and differ in their field."""
    possible = [
        [name for name, (_, change) in CHANGES.items() if change(i.statement) is not None]
        for i in (first, second)
    ]
    return [
        (first_change, second_change)
        for first_change in possible[0]
        for second_change in possible[1]
        if first is not second or CHANGES[first_change][0] != CHANGES[second_change][0]
    ]
