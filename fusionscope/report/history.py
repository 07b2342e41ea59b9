"""The history of fusions in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fusionscope.words.section import (
    Block,
    Entry,
    Line,
    Lines,
    Section,
    Tone,
    line,
    lines,
    ranked,
    spans,
)
from fusionscope.words.text import counted, hidden_entries, plural, shorten

if TYPE_CHECKING:
    from fusionscope.compare.fusions import FusionFacts
    from fusionscope.compare.instruction_trace import Ending, Event, InstructionTrace
    from fusionscope.compare.module_history import History, ModuleHistory, PassFacts
    from fusionscope.reasons.recorded_decisions import FusionStep


def sections_of(history: History, top: int | None) -> Iterator[Section]:
    """Yield the passes that changed fusions, or what became of one instruction; ``top`` limits
    every list (None: no limit).
    """
    for story in history.modules:
        yield _head(story)
        if story.trace is not None:
            yield _trace(story.trace, top)
        else:
            yield from (_pass(facts, top) for facts in story.passes)
    if history.folded:
        names = f"not shown: {', '.join(history.folded)} (--module NAME, --all)"
        yield Section(blocks=(lines([names], Tone.QUIET),), is_heading=True)


def _head(story: ModuleHistory) -> Section:
    texts = [line(f"{story.stages.first} → {story.stages.last}", Tone.QUIET, is_cut=True)]
    texts += [line(f"note: {note}", Tone.WARNING) for note in story.notes]
    if story.trace is None:
        texts.append(line(_summary(story)))
    return Section(title=story.module, blocks=(Lines(tuple(texts)),), is_heading=True)


def _summary(story: ModuleHistory) -> str:
    passes = plural(len(story.passes), "pass", "passes")
    quiet = plural(story.stages.quiet or 0, "stage")
    return (
        f"{passes} changed fusions, {quiet} without such a change folded; "
        f"{plural(story.fusions, 'fusion')} at the end"
    )


def _pass(facts: PassFacts, top: int | None) -> Section:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in facts.kinds.items())
    changes = [change_entry(change) for change in facts.changes[:top]]
    steps = [
        Entry(label=f"{number}.", name=spans(_step_text(step)))
        for number, step in enumerate(facts.steps[:top], 1)
    ]
    blocks: list[Block] = [ranked("change", changes, len(facts.changes), ("alike",))]
    if steps:
        recorded = f"recorded, in this order ({plural(len(facts.steps), 'step')}):"
        blocks += [lines([recorded], Tone.QUIET), ranked("step", steps, len(facts.steps))]
    now = f"  {kinds}; {plural(facts.fusions, 'fusion')} now"
    return Section(
        title=facts.pass_name,
        summary=spans((place_of(facts.stage), Tone.QUIET), now),
        blocks=tuple(blocks),
    )


def change_entry(change: FusionFacts, below: Sequence[Line] = ()) -> Entry:
    """Return a change of fusions, with lines on it."""
    return Entry(
        label=change.kind,
        name=spans(change.text),
        figures=(f"x{change.count:,} alike" if change.count > 1 else "",),
        lines=tuple(below),
    )


def place_of(stage: str) -> str:
    """Return where a pass ran that left the stage with this label behind. At the start of a
    pipeline it is a pass that runs the pipeline.
    """
    pipeline, _, after = stage.partition(".after_")
    return f"{'before' if after.startswith('pipeline-start') else 'in'} {pipeline}"


def _step_text(step: FusionStep) -> str:
    words = f"{step.producer} -> {step.consumer} = {step.fusion}"
    if step.fused_us is None or step.unfused_us is None or step.benefit_us is None:
        return words
    words += f"  {step.fused_us:g} us fused, {step.unfused_us:g} us apart"
    if abs(step.benefit_us - (step.unfused_us - step.fused_us)) > 1e-6:
        words += f"; {step.benefit_us:.4g} us to gain after updates"
    return words


def _trace(trace: InstructionTrace, top: int | None) -> Section:
    origin = trace.origin
    at = [f"at {trace.stack[0] if trace.stack else 'source line unknown'}"]
    events = [_event(rank, event, top) for rank, event in enumerate(trace.events, 1)]
    endings = [part for ending in trace.endings for part in _ending(ending)]
    return Section(
        title=origin.name,
        summary=spans(f"{origin.opcode} {shorten(origin.shape, 60)}"),
        blocks=(
            lines([*at, *([origin.op_name] if origin.op_name else [])], Tone.QUIET, is_cut=True),
            ranked("pass", events, len(events), ("names",))
            if events
            else lines(["no pass changed it"]),
            Lines(tuple(endings or [line("not in the final module", Tone.BAD)])),
        ),
    )


def _event(rank: int, event: Event, top: int | None) -> Entry:
    steps = [line(f"recorded: {_step_text(step)}", Tone.QUIET) for step in event.steps[:top]]
    if hidden := len(event.steps) - len(steps):
        steps.append(line(hidden_entries(hidden, "step"), Tone.QUIET))
    return Entry(
        label=f"{rank}.",
        name=spans((event.pass_name, Tone.STRONG), (f" {place_of(event.stage)}", Tone.QUIET)),
        figures=(shorten(", ".join(event.names), 60) or "gone",),
        lines=(line(event.text), *steps),
    )


def _ending(ending: Ending) -> Iterator[Line]:
    """Yield where an instruction ended, and what its kernel computes."""
    if ending.kernel is None:
        yield line(f"{ending.name} is not launched: it names, orders or forwards values", Tone.GOOD)
        return
    prefix = "" if ending.kernel == ending.name else f"{ending.name} ends in "
    yield line(f"{prefix}{ending.kernel}: {ending.kind}, {ending.emitter}", Tone.GOOD)
    if ending.members:
        yield line(counted(ending.members), Tone.QUIET)
