"""How the fusions of a module formed, pass by pass, and the trace of one instruction."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches

from fusionscope.compare.fusions import FusionFacts, fusion_facts
from fusionscope.compare.instruction_trace import InstructionTrace, UnknownName, follow
from fusionscope.dump import Dump, DumpedModule
from fusionscope.errors import UnusableInput
from fusionscope.explain.modules import NO_FINAL, rank_modules
from fusionscope.facts.facts import Facts
from fusionscope.history.changes import FusionChange
from fusionscope.history.flow import ACTING
from fusionscope.history.lineage import Lineage, read_lineage
from fusionscope.hlo import Instruction, Module
from fusionscope.progress import Progress, about, counted, silent
from fusionscope.reasons.recorded_decisions import FusionStep, read_fusion_steps


class PassFacts(Facts, frozen=True, kw_only=True, rename={"pass_name": "pass"}):
    """The effect of one pass on fusions.

    stage: label of the stage that the pass left behind
    pass_name: name of the pass
    fusions: fusions in this stage
    kinds: changes of this kind (see ``changes[].kind``)
    changes: the changes, those that look alike once
    steps: the single fusions in the order of the compiler's record; empty if there is no record of
        this pass
    """

    stage: str
    pass_name: str
    fusions: int
    kinds: dict[str, int]
    changes: tuple[FusionFacts, ...]
    steps: tuple[FusionStep, ...]


class Stages(Facts, frozen=True):
    """The labels of the first and the last stage.

    first: label of the first stage
    last: label of the last stage
    quiet: stages after the first that are not in ``passes``; null with a NAME
    """

    first: str
    last: str
    quiet: int | None


class ModuleHistory(Facts, frozen=True, kw_only=True, rename={"module": "name"}):
    """``passes`` changed fusions, in order.

    number: its number in the dump
    module: name of the module, from the names of its files
    backend: ``cpu``, ``gpu`` or ``tpu``
    stages: the first and the last stage, and how many are left out
    fusions: fusions in the last stage, wrapped operations and library calls that are written as
        fusions among them
    passes: the passes that changed fusions, in order; empty if a NAME was given
    trace: the trace of the requested instruction; null without a NAME
    notes: what could not be found or read, one line each
    """

    number: int
    module: str
    backend: str | None
    stages: Stages
    fusions: int
    passes: tuple[PassFacts, ...]
    trace: InstructionTrace | None
    notes: tuple[str, ...]


class History(Facts, frozen=True, tag_field="schema", tag="fusionscope.history/1"):
    """Histories of modules, the costliest first.

    path: the dump, as it was named on the command line
    modules: the modules shown, those that move most bytes first
    folded: names of the modules that were omitted: ``--all`` shows them, ``--module`` one of them
    problems: one line for each module that could not be read, with the file; one on operations that
        no rule covers
    """

    path: str
    modules: tuple[ModuleHistory, ...]
    folded: tuple[str, ...]
    problems: tuple[str, ...]


def history_of(
    dump: Dump,
    name: str | None = None,
    *,
    module: str | None = None,
    all_modules: bool = False,
    progress: Progress = silent,
) -> History:
    """Return the history of the costliest module, or of all that ``module`` (a glob, or a number)
    names. With ``name``, of those that have this instruction.

    Raises ``UnusableInput`` if there is nothing to show.
    """
    ranked, problems = rank_modules(dump, module, progress=progress)
    stories: list[ModuleHistory] = []
    histories: list[DumpedModule] = []
    unknown: list[UnknownName] = []
    for dumped in ranked:
        try:
            stories.append(module_history(dumped, name, progress=about(dumped.name, progress)))
            histories.append(dumped)
        except UnknownName as error:
            unknown.append(error)
        except UnusableInput as error:
            problems.append(str(error))
        if stories and module is None and not all_modules:
            break
    if not stories:
        if unknown:
            raise _nothing_named(name or "", unknown)
        raise UnusableInput(problems[0])
    problems += dump.unreported_problems(
        [*problems, *(note for story in stories for note in story.notes)]
    )
    folded = [
        dumped_module.name
        for dumped_module in dump.modules
        if module is None and dumped_module not in histories
    ]
    return History(str(dump.path), tuple(stories), tuple(folded), tuple(problems))


def _nothing_named(name: str, unknown: list[UnknownName]) -> UnusableInput:
    names = sorted(set().union(*(error.names for error in unknown)))
    bare_name = name.lstrip("%").partition("@")[0]
    close = ", ".join(get_close_matches(bare_name, names, 3, 0.6))
    more = f" and {len(unknown) - 1} other modules have none" if len(unknown) > 1 else ""
    hint = f"; similar names: {close}" if close else "; there is no similar name"
    return UnusableInput(f"{unknown[0].problem}{more}{hint}")


def module_history(
    dumped: DumpedModule,
    name: str | None = None,
    *,
    progress: Progress = silent,
) -> ModuleHistory:
    """Return how the fusions of a module formed or, with ``name``, the trace of one instruction.

    ``name`` may end in ``@STAGE`` if several stages use it for different instructions. Raises
    ``UnusableInput`` if no stage can be read, or none has that name.
    """
    lineage = read_lineage(dumped, for_changes=name is None, progress=progress)
    notes = list(lineage.notes)
    if dumped.final is None and len(lineage.stages) > 1:
        notes.append(NO_FINAL.format(stage=lineage.stages[-1].label))
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
    trace: InstructionTrace | None = None
    if name is None:
        for index, _ in enumerate(counted(lineage.stages[1:], "comparing stage", progress)):
            changes = lineage.changes(index)
            if changes:
                passes.append(_pass_facts(lineage, index, changes, steps))
    else:
        trace = follow(lineage, name, steps)
    quiet = len(lineage.stages) - 1 - len(passes) if name is None else None
    return ModuleHistory(
        number=dumped.number,
        module=dumped.name,
        backend=dumped.backend,
        stages=Stages(lineage.stages[0].label, lineage.stages[-1].label, quiet),
        fusions=_count_fusions(lineage.modules[-1]),
        passes=tuple(passes),
        trace=trace,
        notes=tuple(notes),
    )


def _count_fusions(module: Module) -> int:
    """Return the number of live fusions. A fusion in a fusion is part of the outer one."""
    count = 0
    for computation in module.reachable():
        if computation in module.outermost_fusions:
            continue
        unread: set[Instruction] = set()
        for instruction in reversed(computation.instructions):
            if (
                not instruction.is_root
                and instruction.opcode not in ACTING
                and unread.issuperset(instruction.users)
            ):
                unread.add(instruction)
            elif instruction.opcode == "fusion":
                count += 1
    return count


def _pass_facts(
    lineage: Lineage,
    index: int,
    changes: tuple[FusionChange, ...],
    steps: dict[str, tuple[FusionStep, ...]],
) -> PassFacts:
    stage = lineage.stages[index + 1]
    return PassFacts(
        stage=stage.label,
        pass_name=stage.pass_name,
        fusions=_count_fusions(lineage.modules[index + 1]),
        kinds=dict(Counter(change.kind.value for change in changes)),
        changes=fusion_facts(changes, lineage.dumped.backend),
        steps=steps.get(stage.name.after, ()),
    )
