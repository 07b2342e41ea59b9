"""What an upgrade changed, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fusionscope.report.difference import module_sections, pass_of
from fusionscope.upgrade.figures import Figure, Verdict, differing, is_uncertain, judge
from fusionscope.upgrade.place import Where, is_same_program
from fusionscope.words.section import (
    Column,
    Entry,
    Lines,
    Section,
    Span,
    Table,
    Tone,
    command,
    line,
    lines,
    ranked,
    spans,
    strong,
)
from fusionscope.words.text import duration, percent_change, plural, size

if TYPE_CHECKING:
    from fusionscope.upgrade.figures import Side
    from fusionscope.upgrade.makers import MakerChange
    from fusionscope.upgrade.remedies import Remedy
    from fusionscope.upgrade.upgrade import Upgrade
    from fusionscope.upgrade.walk import Boundary

_TONES = {Verdict.SAME: Tone.PLAIN, Verdict.BETTER: Tone.GOOD, Verdict.WORSE: Tone.BAD}
_WHERE = {
    Where.NOWHERE: "the final HLO is the same",
    Where.LOWERING: "jax already hands another program to the compiler",
    Where.PASSES: "the compiler gets the same program, and makes other HLO of it",
    Where.BELOW: "HLO is the same: the difference is below it",
}
_LEAST_GROWTH = 0.02  # of a step of the compilation, of that of all
_FIGURES = {
    Figure.BYTES: "bytes moved",
    Figure.PEAK: "peak of memory",
    Figure.SWAPS: "compare-and-swap loops",
}


def sections_of(upgrade: Upgrade, top: int | None) -> Iterator[Section]:
    """Yield the verdict with its figures, since when, what gets it back, and what differs; ``top``
    limits every list.
    """
    is_nominal = upgrade.device == "cpu"
    yield _verdict(upgrade, is_nominal)
    if upgrade.boundary is not None:
        yield _boundary(upgrade.boundary, is_nominal)
    if upgrade.pin:
        yield _remedies(upgrade, top)
    if upgrade.makers:
        yield _makers(upgrade.makers, top)
    if judge(Figure.COMPILE_TIME, *upgrade.compared) is not Verdict.SAME:
        yield _compile_times(*upgrade.compared, top)
    if upgrade.code:
        rows = tuple(
            (change.kernel, change.trait, f"{change.before:,}", f"{change.after:,}")
            for change in upgrade.code[:top]
        )
        columns = (
            Column("kernel", is_flexible=True),
            Column("trait"),
            *(Column(side.jaxlib, is_number=True) for side in upgrade.compared),
        )
        hidden = len(upgrade.code) - len(rows)
        table = Table(columns=columns, rows=rows, noun="trait", hidden=hidden)
        yield Section(title="Code of kernels", blocks=(table,))
    for module in upgrade.difference.modules:
        if not is_same_program(module):
            yield from module_sections(module, top)
    dumps = tuple(str(side.dump) for side in upgrade.compared)
    commands = (("diff", *dumps), ("explain", dumps[1]))
    more = tuple(command(("fusionscope", *words)) for words in commands)
    yield Section(title="More", blocks=(Lines(more),))


def _verdict(upgrade: Upgrade, is_nominal: bool) -> Section:
    before, after = upgrade.before, upgrade.after
    rows = tuple(
        (
            _name(change.figure, is_nominal),
            _text(change.figure, change.before),
            _text(change.figure, change.after),
            percent_change(change.before, change.after)
            if change.before and change.after is not None
            else "",
            Span(str(change.verdict), _TONES[change.verdict]),
        )
        for change in upgrade.changes
        if change.before or change.after
    )
    columns = (
        Column("figure"),
        Column(before.jaxlib, is_number=True),
        Column(after.jaxlib, is_number=True),
        Column("change", is_number=True),
        Column("verdict"),
    )
    notes = [_place(upgrade), *_unfinished((before, after))]
    if is_uncertain(before, after):
        rounds = " and ".join(
            f"{_text(Figure.MEASURED_TIME, min(side.runs_us))} to "
            f"{_text(Figure.MEASURED_TIME, max(side.runs_us))}"
            for side in (before, after)
        )
        notes.append(f"the measured rounds overlap ({rounds}): on a quiet machine they may differ")
    return Section(
        title=f"{_headline(upgrade)}: {upgrade.program} for {upgrade.device}, jaxlib "
        f"{before.jaxlib} → {after.jaxlib}",
        blocks=(Table(columns=columns, rows=rows, noun="figure"), lines(notes)),
        is_heading=True,
    )


def _place(upgrade: Upgrade) -> str:
    """Return where the two sides that are compared differ."""
    words = _WHERE[upgrade.where]
    if upgrade.where is Where.NOWHERE and upgrade.code is not None:
        words += ", and so are the traits of its kernels' code"
    if upgrade.where is Where.LOWERING and (packages := _packages(*upgrade.compared)):
        words += f"; these differ, too: {packages}"
    if upgrade.is_below and upgrade.where in (Where.LOWERING, Where.PASSES):
        verdict = judge(Figure.MEASURED_TIME, *upgrade.compared)
        words += f"; no figure of that HLO is {verdict}, so the difference is below it"
    if upgrade.compared == (upgrade.before, upgrade.after):
        return words
    return f"{' → '.join(side.jaxlib for side in upgrade.compared)}: {words}"


def _packages(before: Side, after: Side) -> str:
    """Return the packages of the program of which the two sides have other versions."""
    return ", ".join(
        f"{name} {version} → {after.packages[name]}"
        for name, version in sorted(before.packages.items())
        if after.packages.get(name, version) != version
    )


def _headline(upgrade: Upgrade) -> str:
    if upgrade.verdict is not Verdict.SAME or upgrade.where is Where.NOWHERE:
        return str(upgrade.verdict)
    return f"same figures, other {'code' if upgrade.code else 'HLO'}"


def _name(figure: Figure, is_nominal: bool) -> str:
    if figure is Figure.TIME:
        return "nominal time" if is_nominal else "estimated time"
    return _FIGURES.get(figure, figure.replace("-", " "))


def _text(figure: Figure, value: float | None) -> str:
    if value is None:
        return "unknown"
    match figure:
        case Figure.MEASURED_TIME | Figure.TIME:
            return duration(value)
        case Figure.COMPILE_TIME:
            return duration(value * 1e6)
        case Figure.LAUNCHES | Figure.SWAPS | Figure.FAILURES:
            return f"{value:,}"
    return size(int(value))


def _unfinished(sides: Sequence[Side]) -> Iterator[str]:
    for side in sides:
        if side.problem:
            yield (
                f"jaxlib {side.jaxlib} did not finish, figures are of its last stage: "
                f"{side.problem}"
            )
        if side.run_problem:
            yield f"jaxlib {side.jaxlib} did not run it: {side.run_problem}"


def _boundary(boundary: Boundary, is_nominal: bool) -> Section:
    texts = {
        figure: [_text(figure, side.figure(figure)) for side in boundary.sides] for figure in Figure
    }
    columns = {figure: column for figure, column in texts.items() if len(set(column)) > 1}
    releases = [side.jaxlib for side in boundary.sides]
    by = _name(Figure(boundary.by), is_nominal) if boundary.by in set(Figure) else boundary.by
    return Section(
        title=f"Since jaxlib {boundary.first_after}",
        summary=spans(f"by {by}; jaxlib=={boundary.last_before} is the last before"),
        blocks=(
            Table(
                columns=(
                    Column("jaxlib"),
                    *(Column(_name(figure, is_nominal), is_number=True) for figure in columns),
                ),
                rows=tuple(zip(releases, *columns.values(), strict=True)),
                noun="release",
            ),
            lines(_unfinished(boundary.sides[1:-1]), Tone.WARNING),
            lines((f"not compiled: {words}" for words in boundary.skipped), Tone.WARNING),
        ),
    )


def _makers(makers: Sequence[MakerChange], top: int | None) -> Section:
    rows = tuple(
        (
            pass_of(change.maker),
            _arrow(change.before.launches, change.after.launches, "{:,}".format),
            _arrow(change.before.bytes_moved, change.after.bytes_moved, size),
            _arrow(change.before.time_us, change.after.time_us, duration),
        )
        for change in makers[:top]
    )
    columns = (
        Column("pass", is_flexible=True),
        *(Column(name, is_number=True) for name in ("launches", "bytes", "time")),
    )
    hidden = len(makers) - len(rows)
    return Section(
        title="Kernels by the pass that made them",
        blocks=(Table(columns=columns, rows=rows, noun="pass", hidden=hidden),),
    )


def _compile_times(before: Side, after: Side, top: int | None) -> Section:
    """Return the parts of both compilations, then the steps that make the difference."""
    sides = (before, after)
    ours, theirs = (
        {(step.is_code, step.step): step.seconds for step in side.compile_steps.steps}
        for side in sides
    )
    sign = 1 if judge(Figure.COMPILE_TIME, *sides) is Verdict.WORSE else -1
    growths = {step: sign * (theirs.get(step, 0.0) - ours.get(step, 0.0)) for step in ours | theirs}
    least = _LEAST_GROWTH * abs((after.compile_s or 0.0) - (before.compile_s or 0.0))
    steps = [step for step, growth in growths.items() if growth > least]
    steps.sort(key=lambda step: -growths[step])
    rows: list[tuple[str, *tuple[float | None, ...]]] = [
        ("passes", *(side.compile_steps.passes_s for side in sides)),
        ("code of kernels", *(side.compile_steps.code_s for side in sides)),
        ("before and after these", *map(_remaining_s, sides)),
    ]
    for is_code, name in steps[:top]:
        words = f"code of {name or 'all kernels'}" if is_code else name
        rows.append((words, *(spent.get((is_code, name)) for spent in (ours, theirs))))
    table = Table(
        columns=(
            Column("step", is_flexible=True),
            *(Column(side.jaxlib, is_number=True) for side in sides),
        ),
        rows=tuple(
            (words, *("-" if value is None else duration(value * 1e6) for value in values))
            for words, *values in rows
        ),
        noun="step",
        hidden=len(steps) - len(steps[:top]),
    )
    summary = spans("by the times of the files in both dumps")
    return Section(title="Where the time to compile went", summary=summary, blocks=(table,))


def _remaining_s(side: Side) -> float | None:
    if side.compile_s is None:
        return None
    return max(side.compile_s - side.compile_steps.passes_s - side.compile_steps.code_s, 0.0)


def _arrow(before: Any, after: Any, text: Callable[[Any], str]) -> str:
    if None in (before, after):
        return "unknown"
    return " → ".join(dict.fromkeys((text(before), text(after))))


def _remedies(upgrade: Upgrade, top: int | None) -> Section:
    counts = (upgrade.flags_tried, "flag"), (upgrade.edits_tried, "edit")
    compiled = " and ".join(plural(count, noun) for count, noun in counts if count)
    decisive = next(differing(upgrade.changes)).figure
    entries = [
        _remedy(rank, remedy, decisive, upgrade.device == "cpu")
        for rank, remedy in enumerate(upgrade.remedies[:top], 1)
    ]
    notes = [f"{upgrade.pin} is {'the last before' if upgrade.boundary else 'as before'}"]
    if compiled and not entries:
        notes.append(f"none of {compiled} that were compiled")
    summary = f"of {compiled} that were compiled, beside {upgrade.before.jaxlib}" if entries else ""
    return Section(
        title="What gets it back",
        summary=spans(summary),
        blocks=(ranked("change", entries, len(upgrade.remedies)), lines(notes)),
    )


def _remedy(rank: int, remedy: Remedy, decisive: Figure, is_nominal: bool) -> Entry:
    """Describe a remedy by the ``decisive`` figure, and those that still differ."""
    figures = ", ".join(
        f"{_name(change.figure, is_nominal)} "
        + _arrow(change.before, change.after, partial(_text, change.figure))
        for change in remedy.changes
        if change.figure is decisive or change.verdict is not Verdict.SAME
    )
    words = [f"{'wholly' if remedy.is_whole else 'in part'}: {figures}"]
    if remedy.recipe:
        words.append(f"{remedy.title} ({', '.join(remedy.sources) or 'no line known'})")
        words.append(f"fusionscope recipes {remedy.recipe.partition(',')[0]}")
    name = remedy.flag or remedy.recipe
    return Entry(label=f"{rank}.", name=strong(name), lines=tuple(map(line, words)))
