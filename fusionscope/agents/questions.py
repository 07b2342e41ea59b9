"""What an agent can ask about dumps: each method is a tool, and its docstring the tool's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fusionscope.agents.answers import answer, bounded, call
from fusionscope.errors import UnusableInput, expected_one_of, quoted
from fusionscope.explain import Selection, sheets
from fusionscope.facts.pair_names import read_pair
from fusionscope.findings import NAMES, sheets_of
from fusionscope.system.roots import Roots

if TYPE_CHECKING:
    from fusionscope.explain import Explanation, ModuleFacts

_TOP = 5  # entries of a list
_DEPTH = 4  # levels of a breakdown
_COMPILES_NOTHING = "none"  # the installation that tries changes


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions about the dumps below ``roots``. Each method raises ``UnusableInput``."""

    roots: Roots

    @property
    def tools(self) -> tuple[Callable[..., str], ...]:
        return (
            self.open,
            self.explain,
            self.pairs,
            self.kernel,
            self.by,
            self.finding,
            self.history,
            self.diff,
            self.what_if,
            self.rule,
        )

    def open(self, dump: str) -> str:
        """List the modules of a dump: name, number, backend, device, stages, and the compiler's
        flags that differ from their defaults. Begin here if you do not know what the dump has.
        `dump` is a directory that XLA wrote with --xla_dump_to, or an HLO file.
        """
        from fusionscope.dump import open_dump

        opened = open_dump(self.roots.find(dump))
        lines = []
        for module in opened.modules:
            stages = (
                f"{len(module.stages)} stages, {sum(map(len, module.files.values()))} more files"
            )
            device = module.device.name if module.device is not None else "no GPU described"
            lines.append(f"{module.name} ({module.number}): {module.backend}, {device}, {stages}")
            if module.flags is not None:
                flags = ((name, ",".join(texts)) for name, texts in module.flags.values.items())
                lines.append("  flags: " + " ".join(f"{name}={text}" for name, text in flags))
        return bounded("\n".join(lines), [call("explain", dump=dump)])

    def explain(self, dump: str, module: str = "", whole: bool = False) -> str:
        """Say what limits a compiled program: time, launches, bytes, where they go, the costliest
        producer-consumer pairs that were not fused and why, memory, and changes that help, which
        were tried by a replay of the compiler's rules. `module` is a name, glob or number, by
        default the costliest. `whole` gives the long report.
        """
        selection = Selection(module=module or None, most_modules=1)
        explanation = self._explain(dump, selection, tries=True)
        pages = (
            sheets.report(explanation, _TOP, pairs=False) if whole else sheets.overview(explanation)
        )
        calls = _after_explain(dump, explanation.modules[0])
        return answer(pages, explanation.problems, calls)

    def pairs(
        self,
        dump: str,
        pair: str = "",
        source: str = "",
        reason: str = "",
        outcome: str = "",
        module: str = "",
        top: int = _TOP,
    ) -> str:
        """Say of producer-consumer pairs whether one kernel computes both, and why not, the
        costliest first. Select them by `pair` ('P -> C': names or opcodes, with * and ?), `source`
        (FILE or FILE:LINE of the program), `reason` (id of a rule), `outcome` (fused, duplicated,
        not-fused, gone). `top` is the number of pairs.
        """
        producer, consumer = read_pair(pair or None)
        selection = Selection(
            module=module or None,
            producer=producer or "*",
            consumer=consumer,
            source=source or None,
            reason=reason or None,
            outcome=outcome or None,
        )
        explanation = self._explain(dump, selection, tries=True)
        what = ", ".join(map(quoted, filter(None, (pair, source, reason, outcome))))
        _require(explanation, any(m.pairs for m in explanation.modules), what)
        calls = (
            following
            for facts in explanation.modules
            for refusal in facts.pairs[:_TOP]
            for following in _after_pair(dump, refusal.kernel, refusal.reason)
        )
        return answer(sheets.selected(explanation, max(top, 1)), explanation.problems, calls)

    def kernel(self, dump: str, kernel: str, module: str = "") -> str:
        """Show kernels of the final module: time, inputs, outputs, HLO, source lines, and the pairs
        at which each begins and ends. `kernel` is a name or a glob.
        """
        explanation = self._explain(dump, Selection(module=module or None, kernel=kernel))
        _require(explanation, any(m.kernel_pages for m in explanation.modules), quoted(kernel))
        calls = (
            call("history", dump=dump, name=page.kernel.name)
            for facts in explanation.modules
            for page in facts.kernel_pages
        )
        return answer(sheets.kernel_pages(explanation, _TOP), explanation.problems, calls)

    def by(self, dump: str, by: str = "file", sort: str = "time", module: str = "") -> str:
        """Show where time, launches and bytes go, by `file` (source lines), `scope`, `stack` or
        `kind`, sorted by `time`, `bytes`, `launches` or `headroom`.
        """
        from fusionscope.facts.result import Grouping, SortedBy

        for value, values in ((by, [*Grouping]), (sort, [*SortedBy])):
            if value not in values:
                raise UnusableInput(f"{quoted(value)}, {expected_one_of(value, values)}")
        selection = Selection(module=module or None, by=Grouping(by), sorted_by=SortedBy(sort))
        explanation = self._explain(dump, selection)
        calls = [call("pairs", dump=dump, source="FILE:LINE")]
        return answer(sheets.breakdowns(explanation, _DEPTH, _TOP), explanation.problems, calls)

    def finding(self, dump: str, name: str, module: str = "") -> str:
        """Show one finding of the long report: advisories (known faults of the compiler), headroom,
        opportunities, kernels, refusals, libraries (calls of cuBLAS, cuDNN, ..., and what could be
        fused with them), epilogues, float8, recomputed, memory, autotuned, compile_time,
        suggestions.
        """
        if name not in NAMES:
            raise UnusableInput(f"{quoted(name)}, {expected_one_of(name, NAMES)}")
        explanation = self._explain(dump, Selection(module=module or None), tries=True)
        (facts, *_) = explanation.modules
        found_sections = list(sheets_of((name,), facts, 2 * _TOP))
        if not found_sections:
            return bounded(f"{facts.name}: nothing about {name}", _after_explain(dump, facts))
        return answer(found_sections, explanation.problems, _after_explain(dump, facts))

    def history(self, dump: str, name: str = "", module: str = "") -> str:
        """Show which passes formed fusions, or, with the `name` of an instruction or kernel
        (NAME or NAME@STAGE), where it came from and what each pass did to it.
        """
        from fusionscope.compare.module_history import history_of
        from fusionscope.dump import open_dump
        from fusionscope.report.history import sections_of

        opened = open_dump(self.roots.find(dump))
        history = history_of(opened, name or None, module=module or None)
        calls = [call("diff", before=f"{dump}@pre-fusion", after=f"{dump}@final")]
        return answer(sections_of(history, _TOP), history.problems, calls)

    def diff(self, before: str, after: str, module: str = "") -> str:
        """Say what changed between two dumps, two HLO files, or two stages (DUMP@pre-fusion,
        DUMP@final, DUMP@NUMBER): time by line, lost and gained fusions with the reasons, the pass
        at which they diverge, flags.
        """
        from fusionscope.compare.difference import compare
        from fusionscope.report.difference import sections_of

        sides = (self.roots.find_side(before), self.roots.find_side(after))
        difference = compare(*sides, module=module or None)
        problems = (*difference.problems, *difference.notes)
        dumps = (side.partition("@")[0] for side in (before, after))
        calls = (call("explain", dump=dump) for dump in dumps)
        return answer(sections_of(difference, _TOP), problems, calls)

    def what_if(
        self,
        dump: str,
        allow: list[str] | None = None,
        forbid: list[str] | None = None,
        set: list[str] | None = None,
        disable: list[str] | None = None,
        device: str = "",
        module: str = "",
    ) -> str:
        """Show what would be fused under changed rules, or on another GPU, by replay: `allow` and
        `forbid` take pairs ('P -> C'), `set` thresholds (ID.NAME=N), `disable` ids of rules,
        `device` a name such as b200.
        """
        from fusionscope.dump.device import known_device
        from fusionscope.rules.changes import read_changes

        changes = read_changes(set or (), disable or (), allow or (), forbid or ())
        if not changes and not device:
            raise UnusableInput(
                "no change is given: expected allow, forbid, set, disable or device"
            )
        selection = Selection(
            module=module or None,
            changes=changes or None,
            device=known_device(device) if device else None,
        )
        explanation = self._explain(dump, selection)
        return answer(
            sheets.what_if(explanation, _TOP), explanation.problems, [call("explain", dump=dump)]
        )

    def rule(self, id: str) -> str:
        """Print the page of a rule, by the id that a refusal names: what it refuses and why, where
        it is in XLA, its thresholds, what you can do.
        """
        from fusionscope.report.rules import page_to_markdown
        from fusionscope.rules.facts import find_facts

        return bounded(page_to_markdown(find_facts(id)), [call("pairs", dump="DUMP", reason=id)])

    def _explain(self, dump: str, selection: Selection, *, tries: bool = False) -> Explanation:
        from fusionscope.advise.suggest import suggester
        from fusionscope.dump import open_dump
        from fusionscope.dump.cache import DumpCache, user_cache
        from fusionscope.explain import explain

        selection = replace(selection, compiler=_COMPILES_NOTHING)
        # Answers call the dump as the agent does.
        opened = replace(open_dump(self.roots.find(dump)), path=Path(dump))
        suggest = suggester(selection) if tries else None
        return explain(opened, selection, suggest=suggest, cache=DumpCache(opened, user_cache()))


def _require(explanation: Explanation, is_matched: bool, what: str) -> None:
    if not is_matched:
        raise UnusableInput(sheets.unmatched(explanation, what))


def _after_explain(dump: str, module: ModuleFacts) -> Iterator[str]:
    for refusal in module.alike.refusals[:1]:
        pair = refusal.example
        yield call("pairs", dump=dump, pair=f"{pair.producer.name} -> {pair.consumer.name}")
        yield from _after_pair(dump, None, pair.reason)
    for kernel in sorted(module.kernels, key=lambda kernel: -kernel.time_us)[:1]:
        yield call("kernel", dump=dump, kernel=kernel.name)
    yield call("by", dump=dump, by="file")


def _after_pair(dump: str, kernel: str | None, reason: str | None) -> Iterator[str]:
    if kernel is not None:
        yield call("kernel", dump=dump, kernel=kernel)
    if reason is not None and reason != "unknown":
        yield call("rule", id=reason)
