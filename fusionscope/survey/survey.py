"""Turns many dumps into tables.

A step at a time for some hundred dumps: first each is looked into, which tells what modules it
holds; then each content that nobody has analysed is, wherever it was seen first. Both steps yield
their results in the order of the dumps, so the tables are the same however many processes work.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts
from fusionscope.progress import Progress, silent
from fusionscope.survey.engines import Engine
from fusionscope.survey.sources import Source, find_sources
from fusionscope.survey.store import Batch, Store, first_places
from fusionscope.survey.tables import UnreadableRow, as_unicode
from fusionscope.survey.work import (
    Analysed,
    Held,
    Partition,
    Place,
    analyse,
    look_into,
    without_rows,
)

_STEP = 256  # dumps
_MOST_ROWS = 200_000  # of a batch
_LONGEST_S = 30.0  # until a batch is written, and the most that a kill costs
_BAR = 20  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``memory`` are the bytes that a process may take, None for no limit. ``tries`` is whether to
    try what could help. ``sample`` is the share of the dumps to take, from 0 to 1; ``limit`` is the
    most to take.
    """

    memory: int | None = None
    tries: bool = False
    sample: float | None = None
    limit: int | None = None


class Surveyed(Facts, frozen=True, kw_only=True, tag_field="schema", tag="fusionscope.survey/1"):
    """What a run did.

    directory: DIR
    dumps: folders, archives and files with dumps
    earlier: those of them that an earlier run had done
    modules: modules in the others
    analysed: contents that were analysed: those that were new
    unreadable: one line for each thing that could not be read
    seconds: how long it took
    """

    directory: str
    dumps: int
    earlier: int
    modules: int
    analysed: int
    unreadable: tuple[str, ...]
    seconds: float


def survey(
    addresses: Iterable[str],
    directory: Path,
    engine: Engine,
    options: Options,
    *,
    resumes: bool = False,
    progress: Progress = silent,
) -> Surveyed:
    """Survey the dumps behind ``addresses`` into ``directory``. With ``resumes``, what is done
    there already is not done again. Raises ``UnusableInput`` if there is no dump, if ``directory``
    holds a survey and this is not to go on with it, if another run writes it, or if it cannot be
    written.
    """
    begin = time.monotonic()
    store = Store(directory)
    if not resumes and not store.is_empty():
        raise UnusableInput(
            "there is a survey in it",
            file=str(directory),
            hint="go on with it by --resume, or name another directory",
        )
    progress("listing dumps")
    listed, problems = find_sources(addresses)
    if not listed:
        address, problem = next(iter(problems.items()))
        raise UnusableInput(problem, file=address)
    sources = list(_selected(listed, options))
    run = _Run(store, engine, options, progress, begin)
    with store.locked():
        store.remove_rest()
        run.go(sources, problems)
    return Surveyed(
        directory=str(directory),
        dumps=len(sources),
        earlier=run.earlier,
        modules=run.modules,
        analysed=run.analysed,
        unreadable=tuple(run.unreadable),
        seconds=time.monotonic() - begin,
    )


def _selected(sources: Sequence[Source], options: Options) -> Iterator[Source]:
    """Yield the dumps to take. A larger sample contains a smaller one."""
    count = 0
    for source in sources:
        if options.limit is not None and count >= options.limit:
            return
        address = as_unicode(source.address).encode()
        place = int.from_bytes(hashlib.sha256(address).digest()[:8]) / (1 << 64)
        if options.sample is None or place < options.sample:
            count += 1
            yield source


@dataclass(slots=True)
class _Run:
    """One run: what is done so far, and what is to be written next."""

    store: Store
    engine: Engine
    options: Options
    progress: Progress
    begin: float
    earlier: int = 0
    modules: int = 0
    analysed: int = 0
    unreadable: list[str] = field(default_factory=list)
    _finished: int = 0
    _total: int = 0
    _batch: Batch = field(default_factory=Batch)
    _written: float = field(default_factory=time.monotonic)
    _known: dict[str, Partition] = field(default_factory=dict)  # contents that are, or will be

    def go(self, sources: Sequence[Source], problems: dict[str, str]) -> None:
        rows_done = list(self.store.done())
        analysed = {row_done.content for row_done in rows_done if row_done.content is not None}
        sources_done = {row_done.source for row_done in rows_done if row_done.source is not None}
        remaining = [source for source in sources if source.key not in sources_done]
        self.earlier = len(sources) - len(remaining)
        for address, problem in problems.items():
            row = _unreadable(address, problem)
            self._tell([row])
            if row.dump not in sources_done:  # of which there is a row
                self._batch.add_held(row.dump, Held((), (row,)))
        self._total = len(remaining)
        unanalysed: dict[str, list[Place]] = defaultdict(list)
        for place, stamp, partition in first_places(self.store):
            self._known[place.content] = partition
            if place.content not in analysed:
                unanalysed[stamp].append(place)
        self._analyse(
            [
                (source, tuple(unanalysed[source.stamp]))
                for source in sources
                if source.stamp in unanalysed
            ]
        )
        for start in range(0, len(remaining), _STEP):
            self._analyse(list(self._look_into(remaining[start : start + _STEP])))
        self._batch.write(self.store)

    def _is_new(self, content: str, partition: Partition) -> bool:
        """Return whether a content is seen for the first time, and where: its rows belong there."""
        is_new = content not in self._known
        self._known.setdefault(content, partition)
        return is_new

    def _look_into(self, sources: Sequence[Source]) -> Iterator[tuple[Source, tuple[Place, ...]]]:
        """Yield dumps with the modules in them that are new."""
        work = partial(_look_into, self.options.memory)
        for source, contents in zip(sources, self.engine.map(work, sources), strict=True):
            if isinstance(contents, UnusableInput):
                contents = Held((), (_unreadable(source.address, contents.problem, source.stamp),))
            new = [
                Place(row.content, row.dump, row.number, row.module)
                for row, partition in contents.modules
                if self._is_new(row.content, partition)
            ]
            self._finished += not new
            self.modules += len(contents.modules)
            self._tell(contents.unreadable)
            self._batch.add_held(source.key, contents)
            self._write_if_due()
            if new:
                yield source, tuple(new)

    def _analyse(self, tasks: Sequence[tuple[Source, tuple[Place, ...]]]) -> None:
        # What it was found in is written first: it says where the rows of a content belong.
        self._batch.write(self.store)
        work = partial(_analyse, self.options.memory, self.options.tries)
        for (source, places), analysed in zip(tasks, self.engine.map(work, tasks), strict=True):
            self._finished += 1
            if isinstance(analysed, UnusableInput):
                analysed = tuple(without_rows(source, place, analysed.problem) for place in places)
            for analysed_place in analysed:
                self.analysed += 1
                self._tell(analysed_place.unreadable)
                self._batch.add_analysed(analysed_place, self._known[analysed_place.content])
            self._write_if_due()

    def _write_if_due(self) -> None:
        self._report()
        now = time.monotonic()
        if self._batch.rows > _MOST_ROWS or now - self._written > _LONGEST_S:
            self._batch.write(self.store)
            self._written = now

    def _tell(self, rows: Iterable[UnreadableRow]) -> None:
        self.unreadable += (f"{row.dump}: {row.reason}" for row in rows)

    def _report(self) -> None:
        share = min(self._finished / self._total, 1.0) if self._total else 1.0
        seconds = time.monotonic() - self.begin
        full = round(_BAR * share)
        rate = ""
        if share:
            remaining_s = seconds * (1 - share) / share
            rate = f" {self._finished / seconds:.1f}/s, {remaining_s / 60:.0f} min left;"
        self.progress(
            f"{'━' * full}{'╌' * (_BAR - full)} {self._finished:,} of {self._total:,} dumps;{rate} "
            f"{self.analysed:,} modules analysed of {self.modules:,}, "
            f"{len(self.unreadable):,} unreadable"
        )


def _unreadable(address: str, reason: str, stamp: str = "") -> UnreadableRow:
    return UnreadableRow(
        content=None,
        dump=as_unicode(address),
        stamp=stamp,
        module=None,
        reason=as_unicode(reason),
    )


# In any process:


def _look_into(memory: int | None, source: Source) -> Held:
    return look_into(source, memory)


def _analyse(
    memory: int | None, tries: bool, task: tuple[Source, tuple[Place, ...]]
) -> tuple[Analysed, ...]:
    source, places = task
    return analyse(source, places, memory, tries)
