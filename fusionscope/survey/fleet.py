"""What the tables of a survey say of a whole fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any, TypeVar

from fusionscope.dump.agreement import Agreement
from fusionscope.errors import UnusableInput, quoted
from fusionscope.facts.facts import Facts
from fusionscope.progress import Progress, silent
from fusionscope.survey.questions import Tables, connected
from fusionscope.survey.store import Store

Line = TypeVar("Line")


class Counts(Facts, frozen=True):
    """The size of a fleet.

    dumps: dumps with a module that could be read
    modules: modules of all dumps
    contents: different ones
    pairs: producers with one of their consumers
    not_fused: those of them that are not fused
    refused_bytes: bytes that fusing these could save
    unreadable: rows of the table ``unreadable``
    first_day: the first day of a dump; null if there is none
    last_day: the last one
    """

    dumps: int
    modules: int
    contents: int
    pairs: int
    not_fused: int
    refused_bytes: int
    unreadable: int
    first_day: str | None
    last_day: str | None


class RuleLine(Facts, frozen=True):
    """Pairs that one rule refused.

    reason: id of the rule
    title: the same in words
    pairs: refused pairs
    refused_bytes: bytes
    dumps: dumps that have such a pair
    contents: different modules that have one
    since: the oldest version of jaxlib among these dumps; null if none is known
    """

    reason: str
    title: str | None
    pairs: int
    refused_bytes: int
    dumps: int
    contents: int
    since: str | None


class PlaceLine(Facts, frozen=True):
    """Pairs that were refused in one scope, in which numbers are ``*``, or in one file.

    place: the scope
    pairs: refused pairs
    refused_bytes: bytes
    dumps: dumps that have such a pair
    reason: the rule that costs most there
    """

    place: str
    pairs: int
    refused_bytes: int
    dumps: int
    reason: str


class FaultLine(Facts, frozen=True):
    """A known fault of the compiler in a fleet.

    fault: its id
    title: what goes wrong
    certain: modules of all dumps that show it
    possible: modules that have what it needs, and may be of such a release
    dumps: dumps with such a module
    fixed_in: the first release of jaxlib without it
    thread: where it was reported, a URL
    """

    fault: str
    title: str
    certain: int
    possible: int
    dumps: int
    fixed_in: str
    thread: str


class VersionLine(Facts, frozen=True):
    """The modules of one version for one device.

    jaxlib: the version
    device: the device
    dumps: dumps
    modules: modules
    pairs: pairs
    not_fused: those that are not fused
    refused_bytes: bytes
    bytes_moved: bytes that all kernels move
    plans: plans of the replays, and how many are the compiler's
    """

    jaxlib: str
    device: str
    dumps: int
    modules: int
    pairs: int
    not_fused: int
    refused_bytes: int
    bytes_moved: int
    plans: Agreement


class SuggestionLine(Facts, frozen=True):
    """What a change saves in one run of every module that it helps; None if no time is known.

    change: a flag, options of ``rerun``, or a recipe
    kind: ``flag``, ``rule`` or ``recipe``
    evidence: ``replayed`` or ``untried``
    dumps: dumps that it helps
    contents: different modules that it helps
    time_saved_us: microseconds that it saves in one run of each; null if no time is known
    bytes_saved: bytes; null if it was not tried
    launches_saved: launches, in the same way
    """

    change: str
    kind: str
    evidence: str
    dumps: int
    contents: int
    time_saved_us: float | None
    bytes_saved: int | None
    launches_saved: int | None


class AgreementLine(Facts, frozen=True, rename={"pass_name": "pass"}):
    """The runs of one pass, those of equal modules once.

    pass_name: the pass
    rules: the book of rules
    runs: runs
    identical: runs with the compiler's plan; null for inferred rules
    pairs: pairs, and how many have the compiler's outcome in the replay
    decisions: recorded decisions, and how many the replay has in the same order
    """

    pass_name: str
    rules: str
    runs: int
    identical: int | None
    pairs: Agreement
    decisions: Agreement


class WorseLine(Facts, frozen=True):
    """A program that costs more than on an earlier day: figures of one run, the mean of its dumps.

    program: name of the program
    device: the device
    jaxlib_before: the version then
    jaxlib: the version on the later day
    refused_before: refused bytes then
    refused: on the later day
    time_before_us: estimated microseconds then; null if unknown
    time_us: on the later day
    launches_before: launches then
    launches: on the later day
    reason: the rule that refuses most more bytes; null if none does
    """

    program: str
    device: str
    jaxlib_before: str
    jaxlib: str
    refused_before: float
    refused: float
    time_before_us: float | None
    time_us: float | None
    launches_before: float
    launches: float
    reason: str | None


class Worse(Facts, frozen=True):
    """What got worse from one day to another, of ``programs`` that both have: same name, same
    arguments, same device.

    before: the earlier day
    after: the later one
    programs: programs (name, arguments, device) of both days
    worse: those that got worse
    lines: these, by how much, at most ``--top``; figures are means of the day's dumps
    """

    before: str
    after: str
    programs: int
    worse: int
    lines: tuple[WorseLine, ...]


class Fleet(
    Facts, frozen=True, kw_only=True, tag_field="schema", tag="fusionscope.survey-report/1"
):
    """Lists have the costliest first, and no more than ``top`` lines, but for ``faults``,
    ``versions``, the oldest first, and ``agreement``, the worst first, which are whole.

    directory: DIR
    counts: the figures of all dumps
    faults: known faults of the compilers, those that most modules show first
    rules: reasons of refusals, the costliest first, at most ``--top``
    scopes: scopes with refusals, numbers in them as ``*``, the costliest first, at most ``--top``
    files: files with refusals, in the same way
    versions: versions of jaxlib and devices, the oldest first
    suggestions: changes that help (``survey --try``), those that save most time first, at most
        ``--top``
    agreement: passes that were replayed, those that agree least first; equal modules count once
    worse: what got worse from one day to another; null if all dumps are of one day
    """

    internal = ("top",)

    directory: str
    top: int
    counts: Counts
    faults: tuple[FaultLine, ...]
    rules: tuple[RuleLine, ...]
    scopes: tuple[PlaceLine, ...]
    files: tuple[PlaceLine, ...]
    versions: tuple[VersionLine, ...]
    suggestions: tuple[SuggestionLine, ...]
    agreement: tuple[AgreementLine, ...]
    worse: Worse | None


_COUNTS = """
SELECT (SELECT count(DISTINCT dump) FROM dumps), count(*), count(DISTINCT content),
    coalesce(sum(pairs), 0)::BIGINT, coalesce(sum(not_fused), 0)::BIGINT,
    coalesce(sum(refused_bytes), 0)::BIGINT, (SELECT count(*) FROM unreadable),
    (SELECT min(day)::VARCHAR FROM dumps), (SELECT max(day)::VARCHAR FROM dumps)
FROM modules
"""
_FAULTS = """
SELECT fault, any_value(title), count(*) FILTER (is_certain), count(*) FILTER (NOT is_certain),
    count(DISTINCT dump), any_value(fixed_in), any_value(thread)
FROM advisories GROUP BY fault ORDER BY 3 DESC, 4 DESC, fault
"""
_RULES = """
SELECT reason, any_value(title), sum(pairs)::BIGINT, sum(bytes_saved)::BIGINT,
    count(DISTINCT dump), count(DISTINCT content), arg_min(jaxlib, jaxlib_order)
FROM refusals GROUP BY reason ORDER BY 4 DESC, reason LIMIT ?
"""
_PLACES = """
WITH parts AS (
    SELECT coalesce({place}, '{none}') AS place, reason, dump, sum(pairs) AS pairs,
        sum(bytes_saved) AS bytes
    FROM refusals GROUP BY ALL
), rules AS (SELECT place, reason, sum(bytes) AS bytes FROM parts GROUP BY ALL)
SELECT place, sum(pairs)::BIGINT, sum(bytes)::BIGINT, count(DISTINCT dump),
    (SELECT arg_max(reason, r.bytes) FROM rules AS r WHERE r.place = parts.place)
FROM parts GROUP BY place ORDER BY 3 DESC, place LIMIT ?
"""
_SCOPES = _PLACES.format(place="regexp_replace(scope, '[0-9]+', '*', 'g')", none="(in no scope)")
_FILES = _PLACES.format(
    place="regexp_replace(source, ':[0-9]+$', '')", none="(no line of the program)"
)
_VERSIONS = """
SELECT jaxlib, device, count(DISTINCT dump), count(*), sum(pairs)::BIGINT, sum(not_fused)::BIGINT,
    sum(refused_bytes)::BIGINT, sum(bytes_moved)::BIGINT, coalesce(sum(plans), 0)::BIGINT,
    coalesce(sum(plans_agreeing), 0)::BIGINT
FROM modules GROUP BY jaxlib, device ORDER BY max(jaxlib_order) NULLS FIRST, jaxlib, device
"""
_SUGGESTIONS = """
SELECT change, kind, evidence, count(DISTINCT dump), count(DISTINCT content), sum(time_saved_us),
    sum(bytes_saved)::BIGINT, sum(launches_saved)::BIGINT
FROM suggestions WHERE helps GROUP BY ALL ORDER BY 6 DESC NULLS LAST, 7 DESC, change LIMIT ?
"""
_AGREEMENT = """
SELECT pass_name, rules, count(*), sum(identical::INT)::BIGINT, sum(pairs)::BIGINT,
    sum(pairs_agreeing)::BIGINT, sum(decisions)::BIGINT, sum(decisions_agreeing)::BIGINT
FROM once.verify GROUP BY pass_name, rules
ORDER BY sum(identical::INT) / count(*) NULLS LAST, 3 DESC, pass_name, rules
"""
_DAYS = "SELECT DISTINCT day FROM dumps ORDER BY day"
_WORSE = """
WITH programs AS (
    SELECT program, arguments, device, day, count(*) AS dumps, max(jaxlib) AS jaxlib,
        avg(refused_bytes) AS refused, avg(time_us) AS time_us, avg(launches) AS launches
    FROM modules WHERE day IN ($1, $2) GROUP BY ALL
), both_days AS (
    SELECT old.program, old.arguments, old.device, old.jaxlib AS old_jaxlib, new.jaxlib,
        old.refused AS old_refused, new.refused, old.time_us AS old_time_us, new.time_us,
        old.launches AS old_launches, new.launches
    FROM programs AS old JOIN programs AS new USING (program, arguments, device)
    WHERE old.day = $1 AND new.day = $2
), rules AS (
    SELECT program, arguments, device, reason,
        sum(CASE WHEN r.day = $2 THEN bytes_saved / dumps ELSE -bytes_saved / dumps END) AS more
    FROM refusals AS r JOIN once.modules USING (content)
    JOIN programs USING (program, arguments, device, day)
    GROUP BY ALL
), worst AS (
    SELECT program, arguments, device, arg_max(reason, more) AS reason
    FROM rules WHERE more > 0 GROUP BY ALL
)
SELECT program, device, old_jaxlib, jaxlib, old_refused, refused, old_time_us, time_us,
    old_launches, launches, reason, count(*) OVER () AS worse
FROM both_days LEFT JOIN worst USING (program, arguments, device)
WHERE refused > old_refused OR time_us > 1.01 * old_time_us
ORDER BY greatest(coalesce(time_us / nullif(old_time_us, 0), 0),
    coalesce(refused / nullif(old_refused, 0), 0)) DESC, refused - old_refused DESC, program
LIMIT $3
"""
_COMMON = """
SELECT count(*) FROM (
    SELECT program, arguments, device FROM modules WHERE day IN ($1, $2)
    GROUP BY ALL HAVING count(DISTINCT day) = 2
)
"""


def read_fleet(
    store: Store,
    before: str | None = None,
    after: str | None = None,
    top: int = 10,
    *,
    progress: Progress = silent,
) -> Fleet:
    """Sum up the tables of ``store``. ``before`` and ``after`` are the days to compare, as in
    2026-11-25; None for the last two. Raises ``UnusableInput`` if there is no such day.
    """
    with connected(store) as tables:

        def lines(
            what: str, kind: Callable[..., Line], question: str, *values: object
        ) -> tuple[Line, ...]:
            progress(what)
            return tuple(kind(*row) for row in tables.ask(question, values).rows)

        (counts,) = lines("counting", Counts, _COUNTS)
        return Fleet(
            directory=str(store.directory),
            top=top,
            counts=counts,
            faults=lines("known faults", FaultLine, _FAULTS),
            rules=lines("refusals by rule", RuleLine, _RULES, top),
            scopes=lines("refusals by scope", PlaceLine, _SCOPES, top),
            files=lines("refusals by file", PlaceLine, _FILES, top),
            versions=lines("versions and devices", _version, _VERSIONS),
            suggestions=lines("suggestions", SuggestionLine, _SUGGESTIONS, top),
            agreement=lines("agreement of the replay", _agreement, _AGREEMENT),
            worse=_worse(tables, before, after, top, progress),
        )


def _version(*row: Any) -> VersionLine:
    return VersionLine(*(*row[:-2], Agreement(*row[-2:])))


def _agreement(*row: Any) -> AgreementLine:
    return AgreementLine(*(*row[:-4], Agreement(*row[-4:-2]), Agreement(*row[-2:])))


def _worse(
    tables: Tables, before: str | None, after: str | None, top: int, progress: Progress
) -> Worse | None:
    progress("what got worse")
    days = [row[0] for row in tables.ask(_DAYS).rows]
    if before is None and after is None and len(days) < 2:
        return None
    new = _day(after, days) if after is not None else days[-1]
    earlier = [day for day in days if day < new]
    if before is None and not earlier:
        raise UnusableInput(f"no day before {new}, expected one of {_words(days)}")
    old = _day(before, days) if before is not None else earlier[-1]
    rows: tuple[tuple[Any, ...], ...] = tables.ask(_WORSE, (old, new, top)).rows
    return Worse(
        before=str(old),
        after=str(new),
        programs=tables.ask(_COMMON, (old, new)).rows[0][0],
        worse=rows[0][-1] if rows else 0,
        lines=tuple(WorseLine(*row[:-1]) for row in rows),
    )


def _day(text: str, days: list[date]) -> date:
    match = next((day for day in days if str(day) == text), None)
    if match is None:
        raise UnusableInput(f"no dump is of {quoted(text)}, expected one of {_words(days)}")
    return match


def _words(days: list[date]) -> str:
    return ", ".join(map(str, days[-8:])) or "none: there is no dump"
