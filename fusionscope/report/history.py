"""The history of fusions as JSON, as Markdown, and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fusionscope.words.text import cell, code, counted, plural, print_hidden, safe, shorten

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.compare.instruction_trace import Ending, InstructionTrace
    from fusionscope.compare.module_history import History, ModuleHistory, PassFacts
    from fusionscope.reasons.recorded_decisions import FusionStep


def _step_text(step: FusionStep) -> str:
    estimate, times = step.estimate, ""
    if estimate is not None:
        times = f"  {estimate.fused_us:g} us fused, {estimate.unfused_us:g} us apart"
        if abs(estimate.benefit_us - (estimate.unfused_us - estimate.fused_us)) > 1e-6:
            times += f"; {estimate.benefit_us:.4g} us to gain after updates"
    return f"{step.producer} -> {step.consumer} = {step.fusion}{times}"


def place_of(stage: str) -> str:
    """Return where a pass ran that left the stage with this label behind. At the start of a
    pipeline it is a pass that runs the pipeline.
    """
    pipeline, _, after = stage.partition(".after_")
    return f"{'before' if after.startswith('pipeline-start') else 'in'} {pipeline}"


def _kinds(pass_facts: PassFacts) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in pass_facts.kinds.items())


def _summary(story: ModuleHistory) -> str:
    passes = plural(len(story.passes), "pass", "passes")
    quiet = plural(story.quiet or 0, "stage")
    return (
        f"{passes} changed fusions, {quiet} without such a change folded; "
        f"{plural(story.fusions, 'fusion')} at the end"
    )


def _ending_text(ending: Ending) -> str:
    if ending.kernel is None:
        return f"{ending.name} is not launched: it names, orders or forwards values"
    prefix = "" if ending.kernel == ending.name else f"{ending.name} ends in "
    return f"{prefix}{ending.kernel}: {ending.kind}, {ending.emitter}"


def to_markdown(history: History, *, top: int | None) -> str:
    """Yield headings and tables; ``top`` limits every list (None: no limit)."""
    return "\n".join(_markdown(history, top)) + "\n"


def _markdown(history: History, top: int | None) -> Iterator[str]:
    for story in history.modules:
        yield f"## {cell(story.module)}\n"
        for note in story.notes:
            yield f"> {cell(note)}\n"
        if story.trace is not None:
            yield from _trace_markdown(story.trace, top)
            continue
        yield f"{_summary(story)}.\n"
        if story.passes:
            yield "| pass | fusions | changes |\n|---|--:|---|"
        for fusion_pass in story.passes:
            lines_shown = [
                f"{cell(change.text)}{f' (x{change.count:,} alike)' if change.count > 1 else ''}"
                for change in fusion_pass.changes[:top]
            ]
            hidden = len(fusion_pass.changes) - len(lines_shown)
            lines_shown += [f"… and {hidden:,} more"] if hidden else []
            lines_shown += [
                f"recorded: {cell(_step_text(step))}" for step in fusion_pass.steps[:top]
            ]
            hidden = len(fusion_pass.steps) - len(fusion_pass.steps[:top])
            lines_shown += [f"… and {hidden:,} more"] if hidden else []
            yield (
                f"| {cell(fusion_pass.pass_name)} | {fusion_pass.fusions:,} "
                f"| **{_kinds(fusion_pass)}**<br>"
                f"{'<br>'.join(lines_shown)} |"
            )
        yield ""
    if history.folded:
        yield f"Not shown: {cell(', '.join(history.folded))}.\n"
    for problem in history.problems:
        yield f"> {cell(problem)}\n"


def _trace_markdown(trace: InstructionTrace, top: int | None) -> Iterator[str]:
    origin = trace.origin
    yield f"{code(origin.name)} {cell(origin.opcode)} {cell(origin.shape)}\n"
    yield f"{cell(trace.stack[0]) if trace.stack else 'source line unknown'}\n"
    yield "| pass | names | what happened |\n|---|---|---|"
    for event in trace.events:
        recorded = "".join(f"<br>{cell(_step_text(step))}" for step in event.steps[:top])
        hidden = len(event.steps) - len(event.steps[:top])
        recorded += f"<br>… and {hidden:,} more" if hidden else ""
        names = cell(", ".join(event.names[:top]))
        names += " …" if len(event.names) > len(event.names[:top]) else ""
        yield f"| {cell(event.pass_name)} | {names} | {cell(event.text)}{recorded} |"
    yield ""
    for ending in trace.endings:
        yield f"- {cell(_ending_text(ending))}"
    if not trace.endings:
        yield "- not in the final module"
    yield ""


def print_history(history: History, console: Console, *, top: int | None) -> None:
    """Print it to a terminal; ``top`` as in ``to_markdown``."""
    from rich.padding import Padding
    from rich.text import Text

    for story in history.modules:
        console.print(Text(safe(story.module), style="bold"))
        stages = f"{story.first} → {story.last}"
        console.print(Text(f"  {shorten(stages, console.width - 2)}", style="dim"))
        for note in story.notes:
            console.print(Padding(Text(f"note: {safe(note)}", style="yellow"), (0, 0, 0, 2)))
        if story.trace is not None:
            _print_trace(story.trace, console, top)
        else:
            console.print(Padding(Text(_summary(story)), (0, 0, 0, 2)))
            for fusion_pass in story.passes:
                _print_pass(fusion_pass, console, top)
        console.print()
    if history.folded:
        names = shorten(", ".join(history.folded), max(20, console.width - 40))
        console.print(Text(f"not shown: {names} (--module NAME, --all)", style="dim"))


def _print_pass(pass_facts: PassFacts, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    line = Text(safe(pass_facts.pass_name), style="bold")
    line.append(f" {safe(place_of(pass_facts.stage))}", style="not bold dim")
    line.append(
        f"  {_kinds(pass_facts)}; {plural(pass_facts.fusions, 'fusion')} now", style="not bold"
    )
    console.print(Padding(line, (1, 0, 0, 2)))
    for change in pass_facts.changes[:top]:
        alike = f"  x{change.count:,} alike" if change.count > 1 else ""
        console.print(Padding(Text(f"{safe(change.text)}{alike}"), (0, 0, 0, 4)))
    print_hidden(console, 4, len(pass_facts.changes), top, "kind", " of changes")
    if pass_facts.steps:
        console.print(
            Text(
                f"    recorded, in this order ({plural(len(pass_facts.steps), 'step')}):",
                style="dim",
            )
        )
        for number, step in enumerate(pass_facts.steps[:top], 1):
            console.print(Padding(Text(safe(f"{number}. {_step_text(step)}")), (0, 0, 0, 6)))
        print_hidden(console, 6, len(pass_facts.steps), top, "step")


def _print_trace(trace: InstructionTrace, console: Console, top: int | None) -> None:
    from rich.padding import Padding
    from rich.text import Text

    origin = trace.origin
    line = Text("\n  ")
    line.append(safe(origin.name), style="bold")
    line.append(f" {origin.opcode} {shorten(origin.shape, 60)}")
    console.print(line)
    console.print(f"  at {safe(trace.stack[0]) if trace.stack else 'source line unknown'}")
    if origin.op_name:
        console.print(Text(f"  {shorten(origin.op_name, console.width - 2)}", style="dim"))
    if not trace.events:
        console.print("  no pass changed it")
    for event in trace.events:
        line = Text("  ")
        line.append(safe(event.pass_name), style="bold")
        line.append(f" {safe(place_of(event.stage))}", style="dim")
        line.append(f"  {shorten(', '.join(event.names), 60) or 'gone'}")
        console.print(line)
        console.print(Padding(Text(safe(event.text)), (0, 0, 0, 4)))
        for step in event.steps[:top]:
            text = safe(f"recorded: {_step_text(step)}")
            console.print(Padding(Text(text, style="dim"), (0, 0, 0, 4)))
        print_hidden(console, 4, len(event.steps), top, "step")
    for ending in trace.endings:
        line = Text(f"  {safe(_ending_text(ending))}", style="green")
        console.print(line)
        if ending.members:
            console.print(Padding(Text(counted(ending.members), style="dim"), (0, 0, 0, 4)))
    if not trace.endings:
        console.print(Text("  not in the final module", style="red"))
