"""How the fusions of a module formed, pass by pass, and the life of one instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fusionscope.dump import Dump, DumpedModule, Stage
from fusionscope.errors import UnusableInput
from fusionscope.explain.evidence import FusionStep, read_fusion_steps
from fusionscope.explain.explain import operation_of, rank_modules, user_line
from fusionscope.explain.fusions import FusionFacts, fusion_facts
from fusionscope.explain.result import Operation
from fusionscope.history.changes import FusionChange, updates
from fusionscope.history.kernels import NOT_LAUNCHED, kind_and_emitter, operations_in
from fusionscope.history.lineage import Lineage, read_lineage
from fusionscope.hlo import Instruction, Module


@dataclass(frozen=True, slots=True)
class PassFacts:
    """What one pass did to fusions. ``fusions`` counts those that there are after it, ``kinds``
    the changes of each kind; ``steps`` are the single fusions in the order of the compiler's
    record, where there is one."""

    stage: str
    pass_name: str
    fusions: int
    kinds: dict[str, int]
    changes: tuple[FusionFacts, ...]
    steps: tuple[FusionStep, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """What one pass made of the instruction that is followed. ``names`` are its names (and those of
    its copies) afterwards; ``text`` says what happened, ``steps`` are the compiler's own words."""

    stage: str
    pass_name: str
    names: tuple[str, ...]
    text: str
    steps: tuple[FusionStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """An instruction at the end, and the kernel of the final module that computes it: a name, its
    kind, who makes its code and the opcodes in it. All None where nothing is launched for it."""

    name: str
    kernel: str | None
    kind: str | None
    emitter: str | None
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """One instruction from the first stage that has it to the last."""

    asked: str
    found_in: str
    origin: Operation
    stack: tuple[str, ...]
    events: tuple[Event, ...]
    endings: tuple[Ending, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """``passes`` changed fusions, in order; ``quiet`` counts the stages of those that did not.
    ``life`` is that of the instruction that was asked for."""

    number: int
    module: str
    backend: str | None
    first: str
    last: str
    fusions: int
    passes: tuple[PassFacts, ...]
    quiet: int
    life: Life | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Stories of modules, the costliest first. ``folded`` are the names of the others, ``problems``
    one line for each that cannot be read."""

    path: str
    modules: tuple[Story, ...]
    folded: tuple[str, ...]
    problems: tuple[str, ...]


def tell_history(
    dump: Dump,
    name: str | None = None,
    *,
    module: str | None = None,
    all_modules: bool = False,
    progress: Callable[[Iterable[Stage]], Iterable[Stage]] = iter,
) -> History:
    """The story of the module that costs most, or of all that ``module`` (a glob, or a number)
    names. With ``name``, of those that have this instruction.

    Raises ``UnusableInput`` where there is nothing to tell.
    """
    ranked, problems = rank_modules(dump, module)
    stories: list[Story] = []
    for index, dumped in enumerate(ranked):
        try:
            stories.append(tell(dumped, name, progress=progress))
        except UnusableInput as error:
            problems.append(str(error))
        if stories and module is None and not all_modules:
            ranked = ranked[: index + 1]
            break
    if not stories:
        raise UnusableInput(problems[0])
    shown = {(story.number, story.module) for story in stories}
    folded = [m.name for m in dump.modules if module is None and (m.number, m.name) not in shown]
    # A module that lacks the instruction asked for is no problem where another one has it.
    return History(
        str(dump.path), tuple(stories), tuple(folded), () if name is not None else tuple(problems)
    )


def tell(
    dumped: DumpedModule,
    name: str | None = None,
    *,
    progress: Callable[[Iterable[Stage]], Iterable[Stage]] = iter,
) -> Story:
    """How the fusions of a module formed or, with ``name``, the life of one instruction.

    ``name`` may end in ``@STAGE`` where several stages use it for different things. Raises
    ``UnusableInput`` where no stage can be read, or none has that name.
    """
    lineage = read_lineage(dumped, progress=progress)
    notes = list(lineage.notes)
    try:
        steps = read_fusion_steps(dumped)
    except UnusableInput as error:
        steps = {}
        notes.append(str(error))
    if len(lineage.stages) == 1:
        notes.append(
            "one stage only, so nothing can be followed: dump with --xla_dump_hlo_pass_re=.*"
        )
    passes: list[PassFacts] = []
    life: Life | None = None
    if name is None:
        for index in progress_over(lineage, progress):
            changes = lineage.changes(index)
            if changes:
                passes.append(_pass_facts(lineage, index, changes, steps))
    else:
        life = _life(lineage, name, steps)
    return Story(
        dumped.number,
        dumped.name,
        dumped.backend,
        lineage.stages[0].label,
        lineage.stages[-1].label,
        _count_fusions(lineage.modules[-1]),
        tuple(passes),
        len(lineage.stages) - 1 - len(passes),
        life,
        tuple(notes),
    )


def progress_over(
    lineage: Lineage, progress: Callable[[Iterable[Stage]], Iterable[Stage]]
) -> Iterator[int]:
    """The numbers of the stages but the last, shown as work on the next."""
    for index, _ in enumerate(progress(lineage.stages[1:])):
        yield index


def _count_fusions(module: Module) -> int:
    """Those in fusions do not count: they are a part of the outer one."""
    return sum(
        statement.opcode == "fusion"
        for computation in module.reachable()
        if computation.name not in module.fused_computations
        for statement in computation.body.written
    )


def _pass_facts(
    lineage: Lineage,
    index: int,
    changes: tuple[FusionChange, ...],
    steps: dict[str, tuple[FusionStep, ...]],
) -> PassFacts:
    stage = lineage.stages[index + 1]
    return PassFacts(
        stage.label,
        stage.name.after or stage.label,
        _count_fusions(lineage.modules[index + 1]),
        dict(Counter(change.kind.value for change in changes)),
        fusion_facts(changes, lineage.dumped.backend),
        steps.get(stage.name.after, ()),
    )


def _life(lineage: Lineage, name: str, steps: dict[str, tuple[FusionStep, ...]]) -> Life:
    found_at, found = _find(lineage, name)
    start, origin = found_at, found
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
            names = {each.name for each in (*current, *later)}
            told = _steps_about(names, steps.get(stage.name.after, ()))
            pass_name = stage.name.after or stage.label
            named = tuple(each.name for each in later)
            events.append(Event(stage.label, pass_name, named, "; ".join(texts), told))
        current = tuple(later)
        if not current:
            break
    return Life(
        name,
        lineage.stages[found_at].label,
        operation_of(origin),
        tuple(str(place) for place in _own_lines(origin)),
        tuple(events),
        tuple(_ending(lineage, instruction) for instruction in current),
    )


def _steps_about(names: set[str], steps: Iterable[FusionStep]) -> tuple[FusionStep, ...]:
    """The recorded steps that one of ``names`` took part in, also as a part of a fusion."""
    parts = set(names)
    told: list[FusionStep] = []
    for step in steps:
        if parts & {step.producer, step.consumer, step.fusion}:
            parts.add(step.fusion)
            told.append(step)
    return tuple(told)


def _find(lineage: Lineage, asked: str) -> tuple[int, Instruction]:
    """The first stage that has an instruction of this name, and the instruction."""
    name, _, stage_name = asked.lstrip("%").partition("@")
    stages: Sequence[Stage] = lineage.stages
    if stage_name:
        stages = (lineage.dumped.stage(stage_name),)
    for stage in stages:
        if stage not in lineage.stages:
            continue
        index = lineage.stages.index(stage)
        found = [
            computation.instruction(name)
            for computation in lineage.modules[index].reachable()
            if any(statement.name == name for statement in computation.graph.statements)
        ]
        if found:
            return index, min(found, key=lambda each: each.opcode == "parameter")
    names = {s.name for module in lineage.modules for c in module.reachable() for s in c.graph[0]}
    from difflib import get_close_matches

    close = ", ".join(get_close_matches(name, names, 3, 0.6)) or "none is close to it"
    raise UnusableInput(
        f"no stage of {lineage.dumped.name} has an instruction {name!r}, there are: {close}"
    )


def _own_lines(instruction: Instruction) -> Iterator[object]:
    """The user's line first, then the call stack that leads to it."""
    place = user_line(instruction.stack)
    if place is not None:
        yield place
        yield from (other for other in instruction.stack if other != place)


def _beginning(
    lineage: Lineage,
    start: int,
    origin: Instruction,
    steps: dict[str, tuple[FusionStep, ...]],
) -> Event:
    """How a pass made an instruction that no stage before has."""
    stage = lineage.stages[start]
    texts = [
        change.text
        for change in fusion_facts(
            [c for c in lineage.changes(start - 1) if origin in c.after], lineage.dumped.backend
        )
    ]
    if not texts:
        read = ", ".join(operand.name for operand in origin.operands)
        texts = [f"put in{f', reads {read}' if read else ''}"]
    told = _steps_about({origin.name}, steps.get(stage.name.after, ()))
    return Event(
        stage.label, stage.name.after or stage.label, (origin.name,), "; ".join(texts), told
    )


def _follow(
    lineage: Lineage, index: int, instruction: Instruction
) -> tuple[tuple[Instruction, ...], str]:
    """What an instruction of stage ``index`` is in the next, and what happened to it ("" where
    nothing did)."""
    if not lineage.touches_fusions(index):
        same = lineage.later(index, instruction)
        if len(same) == 1 and same[0].statement == instruction.statement:
            return same, ""
    matching = lineage.matching(index)
    later = lineage.later(index, instruction)
    concerned = [c for c in lineage.changes(index) if instruction in (*c.before, *c.lost)]
    if instruction.opcode == "fusion":
        heirs = later or tuple(
            dict.fromkeys(h for c in concerned for h in c.after if h.opcode == "fusion")
        )
        texts = [fact.text for fact in fusion_facts(concerned, lineage.dumped.backend)]
        if not heirs and not texts:
            texts = [_why_gone(lineage, index, instruction)]
        return heirs, "; ".join(texts)
    if not later:
        return (), _why_gone(lineage, index, instruction)
    texts = []
    if instruction in matching.merged:
        texts.append(f"the same as {later[0].name}, so only that one is left")
    else:
        texts += _differences(lineage, index, instruction, later[0])
        if len(later) > 1:
            places = ", ".join(f"{each.name}{_inside(each)}" for each in later)
            texts.append(f"computed {len(later)} times: {places}")
    return later, "; ".join(texts)


def _differences(
    lineage: Lineage, index: int, one: Instruction, other: Instruction
) -> Iterator[str]:
    matching = lineage.matching(index)
    if one.name != other.name:
        yield f"renamed {other.name}"
    for name, old, new in updates(matching, one, other):
        if name == "backend_config":
            yield "another backend_config"
        else:
            yield f"{name} {old or 'none'} → {new or 'none'}"
    homes = _home(one), _home(other)
    if homes[1] is None and homes[0] is not None:
        yield f"out of {homes[0].name}"
    elif homes[1] is not None and (
        homes[0] is None or matching.after.get(homes[0]) is not homes[1]
    ):
        others = [m for m in operations_in(homes[1]) if m != other.opcode]
        along = f" with {', '.join(dict.fromkeys(others))}" if others else ""
        yield f"into {homes[1].name}{along}"


def _home(instruction: Instruction) -> Instruction | None:
    """The outermost fusion that an instruction is in."""
    module = instruction.computation.module
    home: Instruction | None = None
    computation = instruction.computation
    while not computation.is_entry:
        caller = next(
            (
                each
                for other in module.computations
                if computation.name in other.body.calls
                for each in other.instructions
                if each.opcode == "fusion" and computation in each.called
            ),
            None,
        )
        if caller is None:
            break
        home, computation = caller, caller.computation
    return home


def _inside(instruction: Instruction) -> str:
    home = _home(instruction)
    return f" in {home.name}" if home is not None else ""


def _why_gone(lineage: Lineage, index: int, instruction: Instruction) -> str:
    """Why a pass could remove an instruction."""
    matching = lineage.matching(index)
    if not instruction.users and not instruction.is_root:
        return "removed: nothing read it any more"
    read: dict[str, None] = {}
    for user in instruction.users:
        later = matching.after.get(user)
        if later is None or len(later.operands) != len(user.operands):
            continue
        for old, new in zip(user.operands, later.operands, strict=True):
            if old is instruction:
                read[f"{later.name} reads {new.opcode} {new.name} instead"] = None
    if read:
        return f"removed: {', '.join(read)}"
    gone = [user.name for user in instruction.users if user not in matching.after]
    if gone:
        return f"removed together with what read it: {', '.join(gone[:5])}"
    return "removed"


def _ending(lineage: Lineage, instruction: Instruction) -> Ending:
    kernel = _home(instruction) or instruction
    if kernel.opcode in NOT_LAUNCHED:
        return Ending(instruction.name, None, None, None, ())
    kind, emitter = kind_and_emitter(kernel, lineage.dumped.backend)
    return Ending(instruction.name, kernel.name, kind, emitter, operations_in(kernel))
