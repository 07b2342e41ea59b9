"""What became of a plan, as JSON and on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fusionscope.report.capture import capture_json
from fusionscope.report.text import print_hidden, safe, size

if TYPE_CHECKING:
    from rich.console import Console

    from fusionscope.history.kernels import Totals
    from fusionscope.rerun.rerun import Rerun, RerunPair

SCHEMA = "fusionscope.rerun/1"


def to_json(found: Rerun) -> dict[str, Any]:
    """The fields are documented in docs/json.md."""
    divergence = found.divergence
    return {
        "schema": SCHEMA,
        "module": found.module,
        "plan": found.plan,
        "holds": found.holds,
        "same_kernels": found.is_same,
        "baseline": _totals_json(found.baseline),
        "variant": None if found.variant is None else _totals_json(found.variant),
        "changed": [_pair_json(each) for each in found.changed],
        "unplanned": [_pair_json(each) for each in found.unplanned],
        "divergence": None
        if divergence is None
        else {
            "computation": divergence.computation,
            "what": divergence.what,
            "plan": divergence.ours,
            "compiler": divergence.theirs,
        },
        "problem": found.problem,
        "capture": None if found.captured is None else capture_json(found.captured),
    }


def _totals_json(totals: Totals) -> dict[str, int]:
    return {"launches": totals.launches, "bytes_moved": totals.bytes_moved}


def _pair_json(pair: RerunPair) -> dict[str, str]:
    return {
        "producer": pair.producer,
        "consumer": pair.consumer,
        "before": pair.before,
        "after": pair.after,
    }


def print_rerun(found: Rerun, console: Console, top: int) -> None:
    from rich.text import Text

    console.print(Text(f"{safe(found.module)}, compiled with {safe(found.plan)}", style="bold"))
    if found.variant is None:
        console.print(Text("  the compiler did not get to the end", style="red"))
        console.print(Text(f"  {safe(found.problem)}"))
        return
    before, after = found.baseline, found.variant
    console.print(
        Text(
            f"  launches {before.launches:,} → {after.launches:,}    "
            f"bytes moved {size(before.bytes_moved)} → {size(after.bytes_moved)}"
        )
    )
    if found.is_same:
        console.print(Text("  the same kernels as in the dump", style="green"))
    if found.holds:
        console.print(Text("  the final module is what was planned", style="green"))
    else:
        console.print(Text("  the final module is not what was planned", style="red"))
    if found.divergence is not None:
        console.print(Text(f"  the compiler took another module: {safe(found.divergence.theirs)}"))
    for title, pairs in (("changed", found.changed), ("not as planned", found.unplanned)):
        if pairs:
            console.print(Text(f"\n  {title.capitalize()}", style="bold"))
        for pair in pairs[:top]:
            console.print(
                Text(
                    f"  {safe(pair.producer)} -> {safe(pair.consumer)}  "
                    f"{pair.before} → {pair.after}"
                )
            )
        print_hidden(console, 2, len(pairs), top, "pair")
    if found.captured is not None:
        console.print(Text(f"  dumped in {safe(str(found.captured.directory))}", style="dim"))
