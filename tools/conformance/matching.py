"""Holds matched stages against what must be true of them, whatever the compiler did.

Each of DUMPS is a dump, or a directory with dumps in it. Every stage is matched with the next one:
each instruction of both must have exactly one fate, each opcode that changed and each fusion that
came or went must be told. With ``--mutants``, the first, the pre-fusion and the final stage of each
module are also matched with other texts made of them (``mutations.py``): those that
say the same must show no difference, those with one known change exactly that one. So is the final
stage with other notations, and with other attributes, roots and elements of tuples
(``notations.py``): whatever is another notation must show no difference, and for all
else something must be told of the instructions concerned. ``--final-mutants`` does the latter, and
no stages.

Prints everything that is not so, and counts for each dump and in total. Exits with 1 where there is
anything that is not so.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from operator import attrgetter
from random import Random

from conformance import double_changes, mutations, notations
from conformance.findings import Finding, add_dumps, counted, problem, tally
from conformance.mutations import Injected
from conformance.outcomes import dumps
from fusionscope.compare.difference import compare_headers
from fusionscope.dump import DumpedModule, Stage, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.history.changes import (
    ChangeKind,
    Edit,
    EditKind,
    FusionChange,
    find_changes,
    find_edits,
    find_fusion_changes,
    is_idle,
    is_incidental,
    is_of_shared,
)
from fusionscope.history.matching import Matching, match
from fusionscope.history.pairing import CERTAIN
from fusionscope.history.sameness import check_sameness
from fusionscope.hlo import Instruction, Module, parse, to_text

# They compute nothing: what becomes of them follows from what stands around them.
COMPUTES_NOTHING = frozenset({"fusion", "get-tuple-element", "parameter", "tuple"})


def faults(
    matching: Matching, edits: Iterable[Edit], changes: Iterable[FusionChange]
) -> Iterator[str]:
    """What is not as it must be, of two modules of which nothing else is known."""
    before, after = ({*module.walk()} for module in matching.modules)
    sides = (
        ("before", before, matching.after, matching.merged, {*matching.removed}),
        ("after", after, matching.before, matching.copies, {*matching.inserted}),
    )
    for side, instructions, matched, double, lone in sides:
        fates = Counter([*matched, *double, *lone])
        yield from (f"{i!r} of {side} has no fate" for i in instructions - fates.keys())
        yield from (f"{i!r} is not of {side}" for i in fates.keys() - instructions)
        yield from (f"{i!r} of {side} has {n} fates" for i, n in fates.items() if n > 1)
    if {second: first for first, second in matching.after.items()} != matching.before:
        yield "'after' and 'before' are not inverse"
    if matching.steps.keys() != matching.after.keys():
        yield "'steps' are not those of what is matched"
    if len({*matching.computations.values()}) != len(matching.computations):
        yield "two computations are matched with one"
    matched_instructions = [i for matched in matching.after.items() for i in matched]
    without = {
        o for i in matched_instructions for o in (i, *i.operands) if o not in matching.values
    }
    yield from (f"{i!r} is matched, or read by what is, and carries no value" for i in without)

    by_kind: dict[EditKind, list[Edit]] = {kind: [] for kind in EditKind}
    for edit in edits:
        by_kind[edit.kind].append(edit)
    edited = {edit.before for edit in by_kind[EditKind.UPDATED] if "opcode" in fields(edit)}
    for first, second in matching.after.items():
        if (first.opcode != second.opcode) != (first in edited):
            yield f"{first!r} became {second!r}: the change of opcode is reported incorrectly"
    swapped = by_kind[EditKind.SWAPPED]
    yield from (f"{e.before!r} is told as swapped" for e in swapped if not is_swapped(e))
    for kind, expected in (
        (EditKind.REMOVED, before - matching.after.keys() - matching.merged.keys()),
        (EditKind.INSERTED, after - matching.before.keys() - matching.copies.keys()),
        (EditKind.MERGED, {*matching.merged}),
        (EditKind.COPIED, {*matching.copies}),
    ):
        if Counter(edit.instruction for edit in by_kind[kind]) != Counter(expected):
            yield f"what is told as {kind.value} is not what was found"

    changes = list(changes)
    for side, instructions_found, matched, instructions_named in (
        ("before", before, matching.after, {i for change in changes for i in change.before}),
        ("after", after, matching.before, {i for change in changes for i in change.after}),
    ):
        yield from (
            f"{i!r} of a change is not of {side}" for i in instructions_named - instructions_found
        )
        for fusion in fusions(instructions_found):
            counterpart = matched.get(fusion)
            became_other = counterpart is None or counterpart.opcode != "fusion"
            # One that nothing reads any more waits for dead code elimination.
            is_told = fusion in instructions_named or is_idle(matching, fusion)
            if became_other and not is_told and computes(fusion):
                yield f"no change tells of the fusion {fusion!r} of {side}"


def is_swapped(edit: Edit) -> bool:
    """Whether an edit is of an operation of two operands, other ones on both sides."""
    ends = [end for end in (edit.before, edit.after) if end is not None]
    return len(ends) == 2 and all(len({*end.operands}) == 2 for end in ends)


def fusions(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    """Those that stand in no other."""
    all_fusions = [i for i in instructions if i.opcode == "fusion"]
    inner = {i.called[0] for i in all_fusions}
    return (i for i in all_fusions if i.computation not in inner)


def inside(fusion: Instruction) -> list[Instruction]:
    """What is in a fusion, and in those that are in it."""
    contents: list[Instruction] = []
    pending = [fusion]
    while pending:
        instructions = pending.pop().called[0].instructions
        contents += instructions
        pending += [i for i in instructions if i.opcode == "fusion"]
    return contents


def computes(fusion: Instruction) -> bool:
    return any(i.opcode not in COMPUTES_NOTHING | {"bitcast", "constant"} for i in inside(fusion))


def fields(edit: Edit) -> tuple[str, ...]:
    return tuple(name for name, _, _ in edit.fields)


def describe_edit(edit: Edit) -> str:
    fields = ", ".join(f"{name}: {old} => {new}" for name, old, new in edit.fields)
    return f"{edit.kind.value} {edit.before!r} -> {edit.after!r} ({fields})"


def describe_change(change: FusionChange) -> str:
    before, after, gained, lost = (
        " ".join(i.name for i in side)
        for side in (change.before, change.after, change.gained, change.lost)
    )
    return f"{change.kind.value} {before} -> {after} (+ {gained}) (- {lost})"


class Compared:
    """Two modules, and what is told of them. A fusion that has another name is nothing to tell."""

    def __init__(self, before: Module, after: Module, backend: str | None) -> None:
        self.matching = match(before, after)
        self.all_edits = find_edits(self.matching)
        self.edits = tuple(
            edit
            for edit in self.all_edits
            if edit.kind is not EditKind.SWAPPED and not is_of_shared(self.matching, edit)
        )
        self.changes = find_fusion_changes(self.matching, backend)
        self.told = [e for e in self.edits if e.instruction.opcode not in COMPUTES_NOTHING]
        self.not_renamed = [c for c in self.changes if c.kind is not ChangeKind.RENAMED]

    def faults(self) -> Iterator[str]:
        return faults(self.matching, self.all_edits, self.changes)

    def __str__(self) -> str:
        lines = [*map(describe_edit, self.told), *map(describe_change, self.not_renamed)]
        more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
        return ("; ".join(lines[:5]) or "nothing") + more


def same_meaning(text: str, random: Random) -> dict[str, str]:
    """Other texts that say the same."""
    everything = mutations.shuffled(mutations.renamed(text, random), random)
    return {
        "printed": text,
        "renamed": mutations.renamed(text, random),
        "shuffled": mutations.shuffled(text, random),
        "stripped": mutations.stripped(text),
        "renamed, shuffled and stripped": mutations.stripped(everything),
    }


INJECTIONS = {
    function.__name__: function
    for function in (
        mutations.operands_swapped,
        mutations.constant_changed,
        mutations.dropped_from_fusion,
        mutations.fusion_split,
        mutations.producer_duplicated,
        mutations.pair_fused,
    )
}


def check_same(module: Module, text: str, backend: str | None, *, same_names: bool) -> str | None:
    """What is told of a module and a text that says the same; None where it is nothing."""
    after = parse(text)
    compared = Compared(module, after, backend)
    problem = next(compared.faults(), None)
    sameness = check_sameness(module, after)
    if not sameness.is_same or compare_headers(module, after):
        problem = f"both are told to differ: {sameness.begins}"
    if problem is None and (compared.edits or compared.not_renamed):
        edits = "; ".join(map(describe_edit, compared.edits[:3]))
        problem = f"{len(compared.edits)} edits and {len(compared.not_renamed)} changes: {edits}"
    if problem is None and same_names:
        pairs = compared.matching.after.items()
        problem = next((f"{a!r} became {b!r}" for a, b in pairs if a.name != b.name), None)
    return problem


def disguised(injected: Injected, random: Random) -> Injected:
    """The same change, in a text that is renamed, shuffled and stripped as well."""
    text = mutations.renamed(injected.text, random)  # keeps the order
    statements = (
        (s for body in parse(t).bodies for s in body.written) for t in (injected.text, text)
    )
    names = {old.name: new.name for old, new in zip(*statements, strict=True)}
    text = mutations.stripped(mutations.shuffled(text, random))
    parts = [name.partition("#") for name in injected.after]
    after = tuple(names[name] + mark + index for name, mark, index in parts)
    return Injected(text, injected.what, injected.before, after)


def check_injected(
    kind: str, module: Module, injected: Injected, backend: str | None
) -> str | None:
    """What is told of a change that is known, where it is not exactly that change."""
    compared = Compared(module, parse(injected.text), backend)
    problem = next(compared.faults(), None)
    if problem is None and not _EXPECTED[kind](compared, injected):
        problem = f"{injected.what}; told: {compared}"
    return problem


def _names(instructions: Iterable[Instruction]) -> tuple[str, ...]:
    return tuple(instruction.name for instruction in instructions)


def _only(edits: Collection[Edit], kind: EditKind) -> Edit | None:
    return next(iter(edits)) if [e.kind for e in edits] == [kind] else None


def _only_change(
    compared: Compared,
    kind: ChangeKind,
    before: tuple[str, ...],
    after: Collection[str],
    lost: Collection[str] = (),
) -> bool:
    if [change.kind for change in compared.not_renamed] != [kind]:
        return False
    (change,) = compared.not_renamed
    return (
        _names(change.before) == before
        and Counter(_names(change.after)) == Counter(after)
        and Counter(_names(change.lost)) == Counter(lost)
        and not change.gained
    )


def _updated(compared: Compared, injected: Injected, field: str) -> bool:
    edit = _only(compared.told, EditKind.UPDATED)
    return (
        edit is not None
        and edit.before is not None
        and edit.after is not None
        and (edit.before.name,) == injected.before
        and (edit.after.name,) == injected.after
        and fields(edit) == (field,)
        and not compared.not_renamed
    )


def _is_operands_swapped(compared: Compared, injected: Injected) -> bool:
    return _updated(compared, injected, "operands")


def _is_constant_changed(compared: Compared, injected: Injected) -> bool:
    return _updated(compared, injected, "literal")


def _is_producer_duplicated(compared: Compared, injected: Injected) -> bool:
    producer, _ = injected.before
    edit = _only(compared.told, EditKind.COPIED)
    if edit is None or edit.before is None or edit.after is None:
        return False
    remaining = compared.matching.after[edit.before]
    both = {injected.after[0], injected.after[2]}  # nothing says which of the two is the copy
    return (
        edit.before.name == producer
        and {remaining.name, edit.after.name} == both
        and not compared.not_renamed
    )


def _is_dropped_from_fusion(compared: Compared, injected: Injected) -> bool:
    inner, fusion = injected.before
    edit = _only(compared.told, EditKind.MOVED)
    return (
        edit is not None
        and edit.before is not None
        and edit.after is not None
        and (edit.before.name, edit.after.name) == (inner, injected.after[0])
        and _only_change(compared, ChangeKind.SHRUNK, (fusion,), injected.after, (inner,))
    )


def _is_fusion_split(compared: Compared, injected: Injected) -> bool:
    """Either half may be what the fusion is now; the operations of the other one moved."""
    halves = [
        {
            i
            for i in fusion.called[0].instructions
            if i.opcode not in COMPUTES_NOTHING | {"constant"}
        }
        for fusion in compared.matching.modules[1].walk()
        if fusion.name in injected.after
    ]
    moved = {e.after for e in compared.told if e.kind is EditKind.MOVED}
    other_parts = [
        e
        for e in compared.told
        if e.kind is not EditKind.MOVED
        and not (e.kind is EditKind.COPIED and e.instruction.opcode == "constant")
    ]
    return (
        {i for i in moved if i is not None and i.opcode != "constant"} in halves
        and not other_parts
        and _only_change(compared, ChangeKind.SPLIT, injected.before[:1], injected.after)
    )


def _is_pair_fused(compared: Compared, injected: Injected) -> bool:
    """The upper fusion is no more: all that it had moved into the lower one."""
    upper, _ = injected.before
    (fusion,) = (i for i in compared.matching.modules[0].walk() if i.name == upper)
    members = [i for i in fusion.called[0].instructions if i.opcode not in COMPUTES_NOTHING]
    lost = [
        i.name for i in inside(fusion) if i.opcode not in COMPUTES_NOTHING | {"bitcast", "constant"}
    ]
    return (
        {e.kind for e in compared.told} <= {EditKind.MOVED}
        and Counter(e.before for e in compared.told) == Counter(members)
        and _only_change(compared, ChangeKind.MERGED, (upper,), injected.after, lost)
    )


_EXPECTED = {
    "operands_swapped": _is_operands_swapped,
    "constant_changed": _is_constant_changed,
    "dropped_from_fusion": _is_dropped_from_fusion,
    "fusion_split": _is_fusion_split,
    "producer_duplicated": _is_producer_duplicated,
    "pair_fused": _is_pair_fused,
}


def check_found(module: Module, injected: Injected, backend: str | None) -> str | None:
    """Whether `diff` tells of a change that is known, and of the instructions concerned; what is
    wrong where it does not."""
    changes_found = find_changes(module, parse(injected.text), backend)
    edits_shown = [edit for edit in changes_found.edits if not is_incidental(edit)]
    changes = tuple(
        change for change in changes_found.fusions if change.kind is not ChangeKind.RENAMED
    )
    if not edits_shown and not changes:
        return f"nothing is told of it: {injected.what}"
    concerned = {*injected.before, *injected.after}
    names_shown = {i.name for e in edits_shown for i in (e.before, e.after) if i is not None}
    names_shown |= {
        word.strip("(),%")
        for e in edits_shown
        for f in e.fields
        for t in f[1:]
        for word in t.split()
    }
    names_shown |= {i.name for c in changes for i in (*c.before, *c.after, *c.gained, *c.lost)}
    if names_shown.isdisjoint(concerned):
        words_shown = "; ".join(
            [*map(describe_edit, edits_shown[:3]), *map(describe_change, changes[:3])]
        )
        return f"told elsewhere: {injected.what}; told: {words_shown}"
    return None


def reported_fields(
    edits: Iterable[Edit], side: Callable[[Edit], Instruction | None]
) -> set[tuple[str, str, str]]:
    """Return computation, instruction and field of each edit of an instruction on one ``side``."""
    return {
        (instruction.computation.name, instruction.name, name)
        for edit in edits
        if (instruction := side(edit)) is not None
        for name in fields(edit)
    }


def check_doubled(
    module: DumpedModule, seeds: Iterable[int], counts: Counter[str]
) -> Iterator[str]:
    """Two changes at once in the main stages: `diff` must tell of both."""
    for stage in main_stages(module):
        text = to_text(module.read(stage))
        original = parse(text)
        for seed in seeds:
            for place in double_changes.PLACES:
                doubled = double_changes.doubled(text, Random(seed), place)
                if doubled is None:
                    continue
                counts[f"mutants: two changes, {place}"] += 1
                changes_found = find_changes(original, parse(doubled.text), module.backend)
                edits_shown = [edit for edit in changes_found.edits if not is_incidental(edit)]
                changes_told = reported_fields(edits_shown, attrgetter("before"))
                changes_told |= {
                    (edit.before.computation.name, edit.before.name, name)
                    for edit in changes_found.edits
                    if edit.before is not None and edit.kind is EditKind.REMOVED
                    for name in ("opcode", "operands")
                }
                missed = [change for change in doubled.changes if change not in changes_told]
                if missed:
                    counts[f"mutants: two changes, {place} FAILED"] += 1
                    edits = "; ".join(map(describe_edit, edits_shown[:4]))
                    yield (
                        f"{stage.label}: two changes, {place}, seed {seed}: {doubled.what}: not "
                        f"told: {missed}; told: {edits}"
                    )


def check_changed_near(
    module: DumpedModule, seeds: Iterable[int], counts: Counter[str]
) -> Iterator[str]:
    """A known change of fusions, constants or operands, and another change at the same place."""
    for stage in main_stages(module):
        text = to_text(module.read(stage))
        original = parse(text)
        for seed in seeds:
            for kind, inject in INJECTIONS.items():
                injected = inject(text, Random(seed))
                doubled = injected and double_changes.changed_near(injected, Random(seed))
                if not doubled:
                    continue
                counts[f"mutants: {kind} and another"] += 1
                changes_found = find_changes(original, parse(doubled.text), module.backend)
                edits_shown = [edit for edit in changes_found.edits if not is_incidental(edit)]
                changes_told = reported_fields(edits_shown, attrgetter("after"))
                changes_told |= {
                    (edit.after.computation.name, edit.after.name, doubled.changes[0][2])
                    for edit in edits_shown
                    if edit.after is not None and edit.kind is EditKind.INSERTED
                }
                changes_told |= {  # a new fusion is reported as a whole
                    (fusion.computation.name, fusion.name, doubled.changes[0][2])
                    for change in changes_found.fusions
                    for fusion in change.after
                    if changes_found.matching and fusion not in changes_found.matching.before
                }
                if not changes_told.issuperset(doubled.changes):
                    counts[f"mutants: {kind} and another FAILED"] += 1
                    edits = "; ".join(map(describe_edit, edits_shown[:4]))
                    yield (
                        f"{stage.label}: {kind} and another, seed {seed}: {doubled.what}: not told "
                        f"in {doubled.changes}; told: {edits}"
                    )


def check_notations(
    module: DumpedModule, seed: int, counts: Counter[str], *, plain: bool = True
) -> Iterator[str]:
    """The final stage in other notations, and with changes that `diff` must find: plain, and in
    texts that are renamed, shuffled and stripped as well."""
    if module.final is None:
        return
    random = Random(seed)
    text = to_text(module.read(module.final))
    original = parse(text)
    problems_found: list[tuple[str, str | None]] = []
    for write in notations.HARMLESS:
        rewritten = write(text, random)
        if rewritten is not None:
            hidden = mutations.shuffled(mutations.renamed(rewritten, random), random)
            for what, text_checked in (("", rewritten), (", disguised", hidden)):
                if plain or what:
                    problem = check_same(original, text_checked, module.backend, same_names=False)
                    problems_found.append((f"{write.__name__}{what}", problem))
    injected = [(change.__name__, change(text, random)) for change in notations.CHANGES]
    injected += [
        (f"attribute {key}", notations.attribute_changed(text, random, key))
        for key in notations.changeable_keys(text)
    ]
    for kind, injected_text in injected:
        if injected_text is not None:
            if plain:
                problems_found.append((kind, check_found(original, injected_text, module.backend)))
            hidden_one = disguised(injected_text, random)
            problem = check_found(original, hidden_one, module.backend)
            problems_found.append((f"{kind}, disguised", problem))
    changed, key = notations.header_changed(text, random)
    keys_told = [name for name, _, _ in compare_headers(original, parse(changed))]
    problems_found.append(
        ("header", None if keys_told == [key] else f"{key} of the header: told {keys_told}")
    )
    for what, fault in problems_found:
        counts[f"mutants: {what}"] += 1
        if fault is not None:
            counts[f"mutants: {what} FAILED"] += 1
            yield f"{module.final.label}: {what}, seed {seed}: {fault}"


def main_stages(module: DumpedModule) -> tuple[Stage, ...]:
    """The first stage, the one before fusion and the final one."""
    stages = (module.stages[0], module.pre_fusion, module.final)
    return tuple(dict.fromkeys(stage for stage in stages if stage is not None))


def check_mutants(module: DumpedModule, seed: int, counts: Counter[str]) -> Iterator[str]:
    """Texts that are made of the stages of one module."""
    for stage in main_stages(module):
        random = Random(seed)
        text = to_text(module.read(stage))
        original = parse(text)
        results: list[tuple[str, str | None]] = [
            (what, check_same(original, rewritten, module.backend, same_names=what == "printed"))
            for what, rewritten in same_meaning(text, random).items()
        ]
        for kind, inject in INJECTIONS.items():
            injected = inject(text, random)
            if injected is not None:
                for what, mutant_text in (
                    (kind, injected),
                    (f"{kind}, disguised", disguised(injected, random)),
                ):
                    results.append(
                        (what, check_injected(kind, original, mutant_text, module.backend))
                    )
        for what, fault in results:
            counts[f"mutants: {what}"] += 1
            if fault is not None:
                counts[f"mutants: {what} FAILED"] += 1
                yield f"{stage.label}: {what}, seed {seed}: {fault}"


def check_stages(module: DumpedModule, counts: Counter[str]) -> Iterator[str]:
    """Every stage with the next one. Most passes change nothing: pairs with the same two texts are
    checked once, and count as often as there are such pairs.
    """
    pairs: dict[tuple[str, str], list[tuple[Stage, Stage]]] = {}
    for before, after in pairwise(module.stages):
        pairs.setdefault((before.file.text(), after.file.text()), []).append((before, after))
    for alike in pairs.values():
        first_counts: Counter[str] = Counter()
        before, after = alike[0]
        for fault in check_pair(module.read(before), module.read(after), module, first_counts):
            counts["FAULTS"] += 1
            yield f"{after.label}: {fault}"
        counts.update({what: count * len(alike) for what, count in first_counts.items()})


def check_pair(
    before: Module, after: Module, module: DumpedModule, counts: Counter[str]
) -> Iterator[str]:
    """Two stages that follow each other."""
    matching = match(before, after)
    try:
        edits, changes = find_edits(matching), find_fusion_changes(matching, module.backend)
    except Exception as error:  # one more fault, and no reason not to look for others
        yield repr(error)
        return
    counts["stage pairs"] += 1
    counts["instructions"] += sum(1 for _ in before.walk())
    counts["certain"] += sum(step in CERTAIN for step in matching.steps.values())
    counts.update(f"matched by {step.value}" for step in matching.steps.values())
    counts["removed"] += sum(1 for _ in matching.removed)
    counts["inserted"] += sum(1 for _ in matching.inserted)
    counts["copies"] += len(matching.copies)
    counts["merged"] += len(matching.merged)
    counts["changes of fusions"] += len(changes)
    yield from faults(matching, edits, changes)


def add_options(parser: ArgumentParser) -> None:
    add_dumps(parser)
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--final-mutants", action="store_true")


def findings(options: Namespace) -> Iterator[Finding]:
    counts: Counter[str] = Counter()
    for directory in (dump for root in options.dumps for dump in dumps(root)):
        try:
            modules = open_dump(directory).modules
        except UnusableInput as error:
            yield counted("dumps not readable", f"{directory}: {error}")
            continue
        for module in modules:
            counts["modules"] += 1
            checks = [] if options.final_mutants else [check_stages(module, counts)]
            if options.mutants:
                checks.append(check_mutants(module, 0, counts))
                checks.append(check_doubled(module, range(4), counts))
                checks.append(check_changed_near(module, range(4), counts))
            if options.mutants or options.final_mutants:
                checks.append(check_notations(module, 0, counts))
            for check in checks:
                try:
                    for fault in check:
                        yield problem("faults", f"{directory} {module.number}: {fault}")
                except UnusableInput as error:
                    yield counted("checks not possible", f"{directory} {module.number}: {error}")
    if not counts["modules"]:
        yield problem("faults", "there is no module")
    yield from tally(counts)
