"""What a person finds in a short while, as a measure of what `tune` has to find by itself.

    python tools/conformance/tune_by_hand.py FILE.py [NAME ...] --output by_hand.json

Nothing of the search is used. For each program with ``draw`` (tune_programs/), in a new process:

1. loops are unrolled as with ``unroll=``, by 2, 4, 8, 16, and 32;
2. for the program as it is, and with the best of these factors, each pass that fuses is disabled,
   each of the rules that refuse the most bytes in `explain`, and all operations with as many
   elements as the largest result become one kernel, without and with those that move data;
3. the best is compiled three times in another process, and runs in turns with the program as it is
   (``--rounds``), compiled three times, and three times through a hook that changes nothing, as in
   tune_judge.py.

All variants of a step run in turns; the time of each is the lower decile. Writes the best edit, the
ratio of times, and the ratio of the time to compile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tune_judge import (
    COPIES,
    LARGEST_DIFFERENCE,
    compile_unchanged,
    distance,
    load,
    means,
    take_times,
)

FACTORS = (2, 4, 8, 16, 32)
RULES = 4
LONGEST_COMPILE_S = 15.0
PASSES = ("fusion", "dot-library-rewriter")
MOVES = frozenset("broadcast concatenate iota pad reshape reverse slice transpose bitcast".split())
OTHERS = frozenset(
    """call constant convolution copy custom-call dot dynamic-slice dynamic-update-slice fusion
    gather get-tuple-element parameter reduce reduce-window scatter sort tuple while""".split()
)
LINE = re.compile(r"  (ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\(")


def compile_unrolled(file: Path, name: str, factor: int):
    import jax
    import numpy

    os.environ["UNROLL"] = str(factor)
    function = getattr(load(file), name)
    inputs = [jax.numpy.asarray(each) for each in function.draw(numpy.random.default_rng(0))]
    begin = time.perf_counter()
    made = jax.jit(function).lower(*inputs).compile()
    return made, inputs, time.perf_counter() - begin


def compile_planned(file: Path, name: str, factor: int, plan: Path):
    import fusionscope

    with fusionscope.apply(plan) as applied:
        found = compile_unrolled(file, name, factor)
    return found if applied.programs else None


def edits(file: Path, name: str, factor: int, scratch: Path) -> list[tuple[str, Path]]:
    """Dump the program, and write a plan for each edit."""
    dump = scratch / f"{name}-{factor}"
    command = [sys.executable, "-m", "fusionscope"]
    subprocess.run(
        [
            *command,
            "capture",
            f"{file}:{name}",
            "--no-explain",
            "--output",
            dump,
            "--flag",
            "xla_dump_large_constants=true",
        ],
        env=os.environ | {"UNROLL": str(factor)},
        check=True,
        capture_output=True,
    )
    explained = subprocess.run(
        [*command, "explain", dump, "--no-try", "--format", "json"], capture_output=True, check=True
    )
    (module,) = json.loads(explained.stdout)["modules"]
    rules = [
        rule
        for rule in module["summary"]["reasons"]
        if not rule.startswith(("never-", "base-", "inplace-"))
    ]
    found = {f"without {each}": {"disable": [each]} for each in (*PASSES, *rules[:RULES])}
    text = next(dump.rglob(f"*{module['stages']['pre_fusion']}*.txt")).read_text()
    for words, kernel in kernels(text):
        found[words] = {"kernel": kernel}
    plans = []
    for words, plan in found.items():
        path = scratch / f"{name}-{factor}-{len(plans)}.toml"
        lines = [f'module = "{module["name"]}"', f'dump = "{dump}"']
        if "disable" in plan:
            lines.append(f"disable = {json.dumps(plan['disable'])}")
        else:
            lines += ["[[kernel]]", f"members = {json.dumps(plan['kernel'])}"]
        path.write_text("\n".join(lines) + "\n")
        plans.append((words, path))
    return plans


def kernels(text: str) -> list[tuple[str, list[str]]]:
    """Return what a person selects in the text of the longest computation that is not fused."""
    blocks = [block for block in re.split(r"\n(?=\S)", text) if block.count("\n") > 2]
    longest = max(blocks, key=lambda block: block.count("\n"))
    found = []
    sizes: dict[str, int] = {}
    lines = [each for each in map(LINE.match, longest.splitlines()) if each]
    for each in lines:
        shape = re.search(r"\[[\d,]*\]", each[3])
        if each[4] not in OTHERS | MOVES and shape:
            sizes[shape[0]] = sizes.get(shape[0], 0) + 1
    if not sizes:
        return []
    common = max(sizes, key=lambda each: sizes[each])
    for words, moves in (("", frozenset()), (" with what moves data", MOVES)):
        members = [
            each[2]
            for each in lines
            if (
                (each[4] not in OTHERS | MOVES or (each[4] == "broadcast"))
                and re.search(r"\[[\d,]*\]", each[3])[0] == common
            )
            or each[4] in moves
        ]
        if len(members) > 1:
            found.append((f"one kernel of all of {common}{words}", members))
    return found


def search(file: Path, name: str, rounds: int, scratch: Path) -> dict:
    import jax

    plain, inputs, _ = compile_unrolled(file, name, 1)
    variants = {"as it is": (plain, 1, None)}
    texts = {plain.as_text()}
    for factor in FACTORS:
        made, _, took = compile_unrolled(file, name, factor)
        if made.as_text() in texts:
            break
        texts.add(made.as_text())
        variants[f"unroll={factor}"] = (made, factor, None)
        if took > LONGEST_COMPILE_S:
            break
    tried = race(variants, inputs, rounds)
    best = min(tried, key=lambda each: tried[each])
    expected = jax.tree.leaves(plain(*inputs))
    variants = {each: variants[each] for each in dict.fromkeys(("as it is", best))}
    for factor in dict.fromkeys((1, variants[best][1])):
        for words, plan in edits(file, name, factor, scratch):
            title = words if factor == 1 else f"unroll={factor}, {words}"
            try:
                made = compile_planned(file, name, factor, plan)
                if made is None or made[0].as_text() in texts:
                    continue
                difference = distance(expected, jax.tree.leaves(made[0](*inputs)))
            except Exception as error:
                print(f"{name}: {title}: {str(error)[:100]}", file=sys.stderr)
                continue
            texts.add(made[0].as_text())
            if difference > LARGEST_DIFFERENCE:
                print(f"{name}: {title}: differs by {difference:.1e}", file=sys.stderr)
                continue
            variants[title] = (made[0], factor, plan)
    tried |= race(variants, inputs, rounds)
    best = min(tried, key=lambda each: tried[each])
    _, factor, plan = variants[best]
    return {"best": best, "factor": factor, "plan": plan and str(plan), "tried": tried}


def race(variants, inputs, rounds: int) -> dict[str, float]:
    low = take_times([made for made, _, _ in variants.values()], inputs, rounds)
    return {words: each / low[0] for words, each in zip(variants, low, strict=True)}


def confirm(file: Path, name: str, rounds: int, found: dict) -> dict:
    plain, planned, seconds = [], [], ([], [])
    passed = compile_unchanged(lambda: compile_unrolled(file, name, 1)[0])
    for _ in range(COPIES):
        made, inputs, took = compile_unrolled(file, name, 1)
        plain.append(made)
        seconds[0].append(took)
        if found["plan"]:
            made, _, took = compile_planned(file, name, found["factor"], Path(found["plan"]))
        else:
            made, _, took = compile_unrolled(file, name, found["factor"])
        planned.append(made)
        seconds[1].append(took)
    times = means(take_times([*plain, *passed, *planned], inputs, rounds))
    compiled = [min(each) for each in seconds]
    return {"ratio": times[2] / min(times[:2]), "compile_s": compiled}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--do", choices=["search", "confirm"], help="in this process; prints JSON")
    parser.add_argument("--found", help="for confirm: what the search printed")
    parser.add_argument("--scratch", type=Path)
    asked = parser.parse_args()
    file = asked.file.resolve()
    if asked.do:
        (name,) = asked.names
        if asked.do == "search":
            told = search(file, name, asked.rounds, asked.scratch)
        else:
            told = confirm(file, name, asked.rounds * 2, json.loads(asked.found))
        print(json.dumps(told))
        return 0
    results = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    for name in asked.names or list(load(file).PROGRAMS):
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, __file__, str(file), name, "--output", str(asked.output)]
            command += ["--rounds", str(asked.rounds), "--scratch", scratch]
            done = subprocess.run([*command, "--do", "search"], stdout=subprocess.PIPE, text=True)
            if done.returncode:
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            more = ["--do", "confirm", "--found", json.dumps(found)]
            done = subprocess.run([*command, *more], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            continue
        again = json.loads(done.stdout.splitlines()[-1])
        tried = {words: round(each, 3) for words, each in found["tried"].items()}
        compiled = [round(each, 2) for each in again["compile_s"]]
        ratio = round(again["ratio"], 3)
        results[name] = {
            "edit": found["best"],
            "ratio": ratio,
            "compile_s": compiled,
            "tried": tried,
        }
        asked.output.write_text(json.dumps(results, indent=1) + "\n")
        print(
            f"{name:20} {ratio:.3f}  compile {compiled[0]:.2f} → {compiled[1]:.2f} s  "
            f"{found['best']}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
