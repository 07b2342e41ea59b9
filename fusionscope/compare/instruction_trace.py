"""The trace of one instruction, from the first stage that has it to its kernel or its removal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fusionscope.compare.fusions import fusion_facts
from fusionscope.errors import UnusableInput, quoted
from fusionscope.facts.facts import Facts
from fusionscope.facts.result import Operation
from fusionscope.facts.source_lines import operation_of, user_line
from fusionscope.history.changes import updates
from fusionscope.history.kernels import is_launched, kind_and_emitter, operations_in
from fusionscope.history.lineage import Lineage
from fusionscope.history.matching import match
from fusionscope.history.operations import CONTROL, TRANSPARENT
from fusionscope.hlo import Instruction, Module
from fusionscope.reasons.recorded_decisions import FusionStep


class UnknownName(UnusableInput):
    """No instruction has the name. ``names`` are the existing ones."""

    def __init__(self, problem: str, names: set[str]) -> None:
        super().__init__(problem)
        self.names = names


class Event(Facts, frozen=True, rename={"pass_name": "pass"}):
    """The effect of one pass on the traced instruction.

    stage: label of the stage that the pass left behind
    pass_name: name of the pass
    names: its name in this stage, and those of its copies; empty if it is gone
    text: what happened, in words
    steps: the recorded steps that it took part in
    """

    stage: str
    pass_name: str
    names: tuple[str, ...]
    text: str
    steps: tuple[FusionStep, ...] = ()


class Ending(Facts, frozen=True):
    """The traced instruction at the end, and the kernel of the final module that computes it: name,
    kind, emitter and opcodes. All are None if nothing is launched for it.

    name: its name there
    kernel: the kernel that computes it; null if nothing is launched for it
    kind: kind of the kernel, as in ``kernels[].kind`` of ``explain``
    emitter: who makes its code
    members: opcodes in the kernel, without constants, tuples and bitcasts
    """

    name: str
    kernel: str | None
    kind: str | None
    emitter: str | None
    members: tuple[str, ...]


class InstructionTrace(Facts, frozen=True, kw_only=True):
    """The trace of one instruction, from the first stage that has it to the last.

    asked: the NAME, as it was given
    found_in: label of the first stage that has an instruction of this name, or of the stage that
        NAME@STAGE names
    origin: the instruction in the first stage that has it
    stack: the user's line, then the rest of the call stack, as ``file:line``; empty if the compiler
        does not say
    events: the passes that made something of it, in order
    endings: what it is in the last stage, copies too; empty if it is gone
    """

    asked: str
    found_in: str
    origin: Operation
    stack: tuple[str, ...]
    events: tuple[Event, ...]
    endings: tuple[Ending, ...]


def follow(
    lineage: Lineage, name: str, steps: dict[str, tuple[FusionStep, ...]]
) -> InstructionTrace:
    """Trace an instruction by its name in any stage, or ``NAME@STAGE``. ``steps`` are recorded
    fusions by the name of the pass. Raises ``UnknownName``, or ``UnusableInput`` for a stage that
    does not exist.
    """
    start, origin, found_in = _find(lineage, name)
    while start and (earlier := lineage.earlier(start - 1, origin)) is not None:
        start, origin = start - 1, earlier
    events: list[Event] = []
    if start:
        events.append(_beginning(lineage, start, origin, steps))
    current: tuple[Instruction, ...] = (origin,)
    for index in range(start, len(lineage.stages) - 1):
        stage = lineage.stages[index + 1]
        later: dict[Instruction, None] = {}
        texts: list[str] = []
        for instruction in current:
            became, text = _follow(lineage, index, instruction)
            later.update(dict.fromkeys(became))
            texts += [text] if text else []
        if texts:
            names = {instruction.name for instruction in (*current, *later)}
            steps_told = _steps_about(names, steps.get(stage.name.after, ()))
            pass_name = stage.pass_name
            later_names = tuple(instruction.name for instruction in later)
            events.append(Event(stage.label, pass_name, later_names, "; ".join(texts), steps_told))
        current = tuple(later)
        if not current:
            break
    return InstructionTrace(
        asked=name,
        found_in=found_in,
        origin=operation_of(origin),
        stack=tuple(str(place) for place in _own_lines(origin)),
        events=tuple(events),
        endings=tuple(
            ending for instruction in current for ending in _endings(lineage, instruction)
        ),
    )


def _steps_about(names: set[str], steps: Iterable[FusionStep]) -> tuple[FusionStep, ...]:
    """Return the recorded steps that involve one of ``names``, also as a part of a fusion."""
    parts = set(names)
    steps_about: list[FusionStep] = []
    for step in steps:
        if parts & {step.producer, step.consumer, step.fusion}:
            parts.add(step.fusion)
            steps_about.append(step)
    return tuple(steps_about)


def _find(lineage: Lineage, name_and_stage: str) -> tuple[int, Instruction, str]:
    """Return the first stage that has an instruction of this name, or the requested one; the
    instruction; and the label of the stage that it was found in.
    """
    name, _, stage_name = name_and_stage.lstrip("%").partition("@")
    module_name = lineage.dumped.name
    if not stage_name:
        for index, module in enumerate(lineage.modules):
            if (instruction := _named(module, name)) is not None:
                return index, instruction, lineage.stages[index].label
        names = {
            statement.name
            for module in lineage.modules
            for computation in module.reachable()
            for statement in computation.graph.statements
        }
        raise UnknownName(f"no stage of {module_name} has an instruction {quoted(name)}", names)
    stage = lineage.dumped.stage(stage_name)
    if stage in lineage.stages:
        index = lineage.stages.index(stage)
        if (instruction := _named(lineage.modules[index], name)) is not None:
            return index, instruction, stage.label
    else:
        # Printed between two passes, and its name does not tell which: the first stage, or else the
        # last one, has the instruction too.
        module = lineage.dumped.read(stage)
        instruction = _named(module, name)
        if instruction is not None:
            earlier = match(lineage.modules[0], module).before.get(instruction)
            if earlier is not None:
                return 0, earlier, stage.label
            later = match(module, lineage.modules[-1]).after.get(instruction)
            if later is not None:
                return len(lineage.stages) - 1, later, stage.label
            raise UnusableInput(
                f"{name} of {stage.label} is neither in the first stage nor in the last, and the "
                "position of that stage among the others is unknown: name another stage"
            )
    module = lineage.dumped.read(stage)
    names = {s.name for c in module.reachable() for s in c.graph.statements}
    raise UnknownName(f"{stage.label} of {module_name} has no instruction {quoted(name)}", names)


def _named(module: Module, name: str) -> Instruction | None:
    """Return the instruction of that name. Parameters come last: those of fusions share names."""
    matches = [
        computation.instruction(name)
        for computation in module.reachable()
        if any(statement.name == name for statement in computation.graph.statements)
    ]
    return (
        min(matches, key=lambda instruction: instruction.opcode == "parameter") if matches else None
    )


def _own_lines(instruction: Instruction) -> Iterator[object]:
    """Yield the user's line first, then the call stack that leads to it."""
    place = user_line(instruction.stack)
    if place is not None:
        yield place
        yield from (
            place_of_caller for place_of_caller in instruction.stack if place_of_caller != place
        )


def _beginning(
    lineage: Lineage,
    start: int,
    origin: Instruction,
    steps: dict[str, tuple[FusionStep, ...]],
) -> Event:
    """Return how a pass made an instruction that no earlier stage has."""
    stage = lineage.stages[start]
    texts = [
        change.text
        for change in fusion_facts(
            [c for c in lineage.changes(start - 1) if origin in c.after], lineage.dumped.backend
        )
    ]
    if not texts:
        read = ", ".join(operand.name for operand in origin.operands)
        texts = [f"inserted{f', reads {read}' if read else ''}"]
    steps_about = _steps_about({origin.name}, steps.get(stage.name.after, ()))
    return Event(stage.label, stage.pass_name, (origin.name,), "; ".join(texts), steps_about)


def _follow(
    lineage: Lineage, index: int, instruction: Instruction
) -> tuple[tuple[Instruction, ...], str]:
    """Return the successors in the next stage of an instruction of stage ``index``, and what
    happened to it ("" if nothing did).
    """
    if not lineage.touches_fusions(index):
        same = lineage.later(index, instruction)
        if len(same) == 1 and same[0].statement == instruction.statement:
            return same, ""
    matching = lineage.matching(index)
    later = lineage.later(index, instruction)
    concerned = [c for c in lineage.changes(index) if instruction in (*c.before, *c.lost)]
    if instruction.opcode == "fusion":
        successors = later or tuple(
            dict.fromkeys(h for c in concerned for h in c.after if h.opcode == "fusion")
        )
        texts = [fact.text for fact in fusion_facts(concerned, lineage.dumped.backend)]
        if not successors and not texts:
            texts = [_why_gone(lineage, index, instruction)]
        return successors, "; ".join(texts)
    if not later:
        return (), _why_gone(lineage, index, instruction)
    texts = []
    if instruction in matching.merged:
        texts.append(f"merged with {later[0].name}, which computes the same")
    else:
        texts += _differences(lineage, index, instruction, later[0])
        if along := lineage.sent_along(index, instruction, later[0]):
            texts.append(
                f"sent together with {_first([instruction_of.name for instruction_of in along])}"
            )
        if len(later) > 1:
            places = [f"{instruction_of.name}{_inside(instruction_of)}" for instruction_of in later]
            texts.append(f"computed {len(later)} times: {_first(places)}")
    return later, "; ".join(texts)


def _differences(
    lineage: Lineage, index: int, before: Instruction, after: Instruction
) -> Iterator[str]:
    matching = lineage.matching(index)
    if before.name != after.name:
        yield f"renamed {after.name}"
    fields = tuple(updates(matching, before, after))
    configured = [name for name, _, _ in fields if name.startswith("backend_config")]
    for name, old, new in fields:
        if name not in configured or len(configured) <= _MOST_SETTINGS:
            yield f"{name} {old or 'none'} → {new or 'none'}"
    if len(configured) > _MOST_SETTINGS:
        yield f"{len(configured)} settings of backend_config"
    homes = _home(before), _home(after)
    if homes[1] is None and homes[0] is not None:
        yield f"out of {homes[0].name}"
    elif homes[1] is not None and (
        homes[0] is None or matching.after.get(homes[0]) is not homes[1]
    ):
        other_opcodes = [m for m in operations_in(homes[1]) if m != after.opcode]
        along = f" with {', '.join(dict.fromkeys(other_opcodes))}" if other_opcodes else ""
        yield f"into {homes[1].name}{along}"


_MOST_SETTINGS = 3  # more of them say how a pass writes them, not what it decided


def _home(instruction: Instruction) -> Instruction | None:
    """Return the outermost fusion that an instruction is in."""
    return instruction.computation.module.outermost_fusions.get(instruction.computation)


def _inside(instruction: Instruction) -> str:
    home = _home(instruction)
    return f" in {home.name}" if home is not None else ""


def _why_gone(lineage: Lineage, index: int, instruction: Instruction) -> str:
    """Return why a pass could remove an instruction: the replacement of it, or of its users."""
    if not instruction.users and not instruction.is_root:
        return "removed: nothing read it any more"
    gone, reached = [instruction], {instruction}
    for dead in gone:  # grows on the way
        reasons = tuple(dict.fromkeys(_instead(lineage, index, dead)))
        if reasons:
            along = "" if dead is instruction else f" together with {dead.name}"
            return f"removed{along}: {_first(reasons)}"
        gone += [user for user in dead.users if user not in reached]
        reached.update(dead.users)
    unread = [dead.name for dead in gone if not dead.users and not dead.is_root]
    if unread:
        return f"removed together with {_first(unread)}: nothing read it any more"
    return f"removed together with what read it: {_first([dead.name for dead in gone[1:]])}"


def _first(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _instead(lineage: Lineage, index: int, instruction: Instruction) -> Iterator[str]:
    """Yield the replacements in the next stage of an instruction that it no longer has."""
    for user in instruction.users:
        for later in lineage.later(index, user):
            if len(later.operands) != len(user.operands):
                yield f"{later.name} does not read it any more"
                continue
            for old, new in zip(user.operands, later.operands, strict=True):
                if old is instruction:
                    yield f"{later.name} reads {new.name} ({new.opcode}) instead"
    if instruction.is_root:
        computation = instruction.computation
        counterpart = lineage.matching(index).computations.get(computation)
        if counterpart is None or not lineage.is_called(index + 1, counterpart):
            yield f"nothing calls {computation.name} any more"
        else:
            root = counterpart.root
            yield f"{counterpart.name} gives {root.name} ({root.opcode}) instead"


def _endings(lineage: Lineage, instruction: Instruction) -> Iterator[Ending]:
    """Yield the kernels that compute an instruction of the last stage."""
    for kernel in _kernels(instruction):
        if not is_launched(kernel):
            yield Ending(instruction.name, None, None, None, ())
        else:
            kind, emitter = kind_and_emitter(kernel, lineage.dumped.backend)
            yield Ending(instruction.name, kernel.name, kind, emitter, operations_in(kernel))


def _kernels(instruction: Instruction) -> tuple[Instruction, ...]:
    """Return the launches for an instruction: the fusion that it is in, or itself. The computation
    of a reduction, sort or scatter is part of that operation.
    """
    applied = instruction.computation.module.callers
    pending, kernels = [instruction], dict[Instruction, None]()
    for current in pending:  # grows on the way
        callers = [
            caller
            for caller in applied.get(current.computation, ())
            if caller.opcode not in CONTROL | TRANSPARENT
        ]
        if callers:
            pending += [caller for caller in callers if caller not in pending]
        else:
            kernels[_home(current) or current] = None
    return tuple(kernels)
