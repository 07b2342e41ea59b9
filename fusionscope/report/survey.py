"""Surveys in words: what a run did, what a fleet says, and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fusionscope.words.section import Block, Column, Lines, Section, Table, Tone, command, lines
from fusionscope.words.text import Figure, duration, or_dash, plural, size

if TYPE_CHECKING:
    from fusionscope.dump.agreement import Agreement
    from fusionscope.survey.fleet import Fleet, PlaceLine, Worse, WorseLine
    from fusionscope.survey.questions import Answer
    from fusionscope.survey.survey import Surveyed

_SHOWN = 5  # things that could not be read
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL")


def surveyed_sections(result: Surveyed) -> Iterator[Section]:
    """Yield what a run of a survey did."""
    new = result.dumps - result.earlier
    texts = [
        f"{plural(new, 'dump')} with {plural(result.modules, 'module')}; "
        f"{plural(result.analysed, 'different module')} analysed, in {result.seconds:.1f} s"
    ]
    if result.earlier:
        texts.append(f"{plural(result.earlier, 'dump')} done before")
    if result.unreadable:
        texts.append(f"{len(result.unreadable):,} unreadable (table unreadable):")
    messages = list(result.unreadable[:_SHOWN])
    if len(result.unreadable) > _SHOWN:
        messages.append(f"… and {len(result.unreadable) - _SHOWN:,} more")
    following = command(("fusionscope", "survey", "report", result.directory))
    blocks = (lines(texts), lines(messages, Tone.QUIET), Lines((following,)))
    yield Section(title=result.directory, blocks=blocks, is_heading=True)


def fleet_sections(fleet: Fleet) -> Iterator[Section]:
    """Yield the size of a fleet, and its tables."""
    title, summary = fleet.directory, lines([headline(fleet)])
    yield Section(title=title, blocks=(summary,), is_heading=True)
    yield from tables_of(fleet)


def headline(fleet: Fleet) -> str:
    counts = fleet.counts
    days = counts.first_day or "no day"
    if counts.last_day != counts.first_day:
        days = f"{counts.first_day} to {counts.last_day}"
    return (
        f"{plural(counts.dumps, 'dump')} of {days}, {plural(counts.modules, 'module')} "
        f"({counts.contents:,} different), {plural(counts.pairs, 'pair')}: "
        f"{_share(counts.not_fused, counts.pairs)} not fused, "
        f"{size(counts.refused_bytes)} refused; {counts.unreadable:,} unreadable"
    )


def tables_of(fleet: Fleet) -> Iterator[Section]:
    """Yield the tables of a fleet."""
    if fleet.faults:
        yield _faults(fleet)
    yield _rules(fleet)
    yield _places("Refusals by scope", fleet.scopes)
    yield _places("Refusals by file", fleet.files)
    yield _versions(fleet)
    yield _suggestions(fleet)
    yield _agreement(fleet)
    if fleet.worse is not None:
        yield _worse(fleet.worse)


def _section(
    title: str, columns: Sequence[Column], rows: Sequence[tuple[str, ...]], empty: str = "none"
) -> Section:
    table: Block = Table(columns=tuple(columns), rows=tuple(rows))
    return Section(title=title, blocks=(table if rows else lines([empty], Tone.QUIET),))


def _columns(titles: str, *, texts: int = 1, last: str = "") -> tuple[Column, ...]:
    """Return columns of figures, of which the first ``texts`` are texts, and a last one of text."""
    names = titles.split(", ")
    return (
        *(Column(name, wraps=True) for name in names[:texts]),
        *(Column(name, is_number=True) for name in names[texts:]),
        *([Column(last, wraps=True)] if last else []),
    )


def _faults(fleet: Fleet) -> Section:
    rows = [
        (
            fault.fault,
            f"{fault.certain:,}",
            f"{fault.possible:,}",
            f"{fault.dumps:,}",
            fault.fixed_in,
            f"{fault.title}: {fault.thread}",
        )
        for fault in fleet.faults
    ]
    columns = _columns("fault, modules, possibly, dumps, fixed in", last="what goes wrong")
    return _section("Known faults of these compilers", columns, rows)


def _rules(fleet: Fleet) -> Section:
    rows = [
        (
            rule.reason,
            size(rule.refused_bytes),
            f"{rule.pairs:,}",
            f"{rule.dumps:,}",
            f"{rule.contents:,}",
            rule.since or "-",
            rule.title or "",
        )
        for rule in fleet.rules
    ]
    columns = _columns("rule, bytes, pairs, dumps, modules, since", last="because")
    return _section("Refusals by rule", columns, rows)


def _places(title: str, places: Sequence[PlaceLine]) -> Section:
    rows = [
        (
            place.place,
            size(place.refused_bytes),
            f"{place.pairs:,}",
            f"{place.dumps:,}",
            place.reason,
        )
        for place in places
    ]
    noun = title.rpartition(" ")[2]
    return _section(title, _columns(f"{noun}, bytes, pairs, dumps", last="mostly by"), rows)


def _versions(fleet: Fleet) -> Section:
    rows = [
        (
            version.jaxlib,
            version.device,
            f"{version.dumps:,}",
            f"{version.modules:,}",
            _share(version.not_fused, version.pairs),
            size(version.refused_bytes),
            _share(version.refused_bytes, version.bytes_moved),
            _agreeing(version.plans),
        )
        for version in fleet.versions
    ]
    titles = "jaxlib, device, dumps, modules, not fused, refused, of moved, plans"
    return _section("Versions and devices", _columns(titles, texts=2), rows)


def _suggestions(fleet: Fleet) -> Section:
    rows = [
        (
            suggestion.change,
            or_dash(suggestion.time_saved_us, duration),
            or_dash(suggestion.bytes_saved, size),
            or_dash(suggestion.launches_saved, lambda count: f"{count:,}"),
            f"{suggestion.dumps:,}",
            f"{suggestion.contents:,}",
            suggestion.evidence,
        )
        for suggestion in fleet.suggestions
    ]
    columns = _columns("change, time, bytes, launches, dumps, modules", last="evidence")
    empty = "nothing was tried, or nothing helps: fusionscope survey … --try"
    return _section("What to try", columns, rows, empty)


def _agreement(fleet: Fleet) -> Section:
    identical = sum(agreement.identical or 0 for agreement in fleet.agreement)
    plans = sum(agreement.runs for agreement in fleet.agreement if agreement.identical is not None)
    rows = [
        (
            agreement.pass_name,
            agreement.rules,
            f"{agreement.runs:,}",
            _share(agreement.identical, agreement.runs),
            _agreeing(agreement.pairs),
            _agreeing(agreement.decisions),
        )
        for agreement in fleet.agreement[: fleet.top]
    ]
    title = f"Agreement of the replay: {_share(identical, plans)} of {plural(plans, 'plan')}"
    titles = "pass, rules, runs, identical, pairs, decisions"
    return _section(title, _columns(titles, texts=2), rows)


def _worse(worse: Worse) -> Section:
    title = (
        f"Worse on {worse.after} than on {worse.before}: {worse.worse:,} of "
        f"{plural(worse.programs, 'program')}"
    )
    titles = "program, device, jaxlib, refused, time, launches"
    columns = _columns(titles, texts=3, last="mostly by")
    return _section(title, columns, [_worse_cells(line) for line in worse.lines])


def _worse_cells(line: WorseLine) -> tuple[str, ...]:
    time = "-"
    if line.time_us is not None and line.time_before_us is not None:
        time = _more(line.time_us - line.time_before_us, duration)
    return (
        line.program,
        line.device,
        _change(line.jaxlib_before, line.jaxlib),
        _more(round(line.refused) - round(line.refused_before), size),
        time,
        _change(f"{line.launches_before:,.0f}", f"{line.launches:,.0f}"),
        line.reason or "-",
    )


def _more(figure: Figure, format_figure: Callable[[Figure], str]) -> str:
    """Return a difference with its sign; a dash if it is zero."""
    if not figure:
        return "-"
    return f"{'+' if figure > 0 else '-'}{format_figure(abs(figure))}"


def _change(before: str, after: str) -> str:
    return after if before == after else f"{before} → {after}"


def _agreeing(part: Agreement) -> str:
    return _share(part.agreeing, part.compared)


def _share(part: int | None, whole: int) -> str:
    """Return per cent, rounded down so that 100% is all."""
    return f"{1000 * part // whole / 10:g}%" if whole and part is not None else "-"


def answer_section(answer: Answer) -> Section:
    """Return the rows of an answer."""
    columns = (
        Column(name, is_number=is_number, wraps=not is_number)
        for name, kind in zip(answer.columns, answer.types, strict=True)
        for is_number in [any(number in kind for number in _NUMBERS)]
    )
    rows = tuple(tuple(map(_word, row)) for row in answer.rows)
    table = Table(columns=tuple(columns), rows=rows)
    count = lines([plural(len(answer.rows), "row")], Tone.QUIET)
    return Section(blocks=(table, count), is_heading=True)


def _word(value: Any) -> str:
    return "" if value is None else str(value)
