"""Changes that make a program worse, and changes that do not: a baseline has to tell them apart.

Every program is compiled as it is and as changed, and the second dump is checked against a baseline
of the first. A change for the worse has to be found, at a pair that is named here and with a reason
that the explanation of that dump gives, too; a harmless one must not be reported. Exit code 1 where
that is not so.
"""

# ruff: noqa: E501  (a table of changes, a line each)
import fnmatch
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.findings import Finding, counted, problem
from fusionscope import Selection
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import read_program, read_target
from fusionscope.check.as_before import Tolerance
from fusionscope.check.baseline import read_baseline, record_all, write_baseline
from fusionscope.check.checking import check
from fusionscope.check.expectation import Violation
from fusionscope.check.record import key_of
from fusionscope.check.subject import Cell
from fusionscope.dump import open_dump
from fusionscope.explain import Explanation
from fusionscope.explain import explain as explain_dump

HEAD = "import jax\nimport jax.numpy as jnp\n\n"
SOFTMAX = """
def program(x, scale):
    y = x * scale
    e = jnp.exp(y - y.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)

example_args = (jnp.ones((512, 384)), jnp.ones((384,)))
"""
CHAIN = """
def program(x, y):
    a = jnp.tanh(x) + y
    b = a * 2 - y
    c = jnp.sqrt(jnp.abs(b)) + 1
    return c

example_args = (jnp.ones((512, 384)), jnp.ones((512, 384)))
"""
NORM = """
def program(x, gain):
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = (centred * centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(spread + 1e-5) * gain

example_args = (jnp.ones((256, 512)), jnp.ones((512,)))
"""
DENSE = """
def program(x, w, b):
    return jnp.maximum(x @ w + b, 0)

example_args = (jnp.ones((256, 512)), jnp.ones((512, 384)), jnp.ones((384,)))
"""
JOINED = """
def program(x, y):
    wide = jnp.concatenate([jnp.sin(x), y * 2], axis=1)
    return wide * 3

example_args = (jnp.ones((512, 128)), jnp.ones((512, 64)))
"""
SUMS = """
def program(x, y):
    a = jnp.abs(x) + y
    return a.sum(axis=1), (a * a).sum(axis=1)

example_args = (jnp.ones((512, 2048)), jnp.ones((512, 2048)))
"""
LOOP = """
def program(x):
    def step(i, x):
        return jnp.sin(x) * 0.5 + jnp.roll(x, 1) * 0.25

    return jax.lax.fori_loop(0, 20, step, x)

example_args = (jnp.ones((4096,)),)
"""
SPLIT = """
def program(x, w):
    heads = (x @ w).reshape(35, 3, 5, 12)
    return jnp.transpose(heads, (1, 0, 2, 3)) + 1

example_args = (jnp.ones((105, 64)), jnp.ones((64, 60)))
"""
PROGRAMS = {
    "split": SPLIT,
    "softmax": SOFTMAX,
    "chain": CHAIN,
    "norm": NORM,
    "dense": DENSE,
    "joined": JOINED,
    "sums": SUMS,
    "loop": LOOP,
}


@dataclass(frozen=True)
class Change:
    """The first text of each of ``edits`` becomes the second in the source, or the compilation is
    another one. ``pair`` is what has to be found, in opcodes, and ``reason`` the rule that refuses
    it, empty where it is duplicated or gone."""

    name: str
    program: str
    target: str
    pair: str = ""
    reason: str = ""
    edits: tuple[tuple[str, str], ...] = ()
    flags: tuple[str, ...] = ()
    base_flags: tuple[str, ...] = ()
    version: str = "0.12"
    base_version: str = "0.12"
    device: str = ""
    bare: bool = False  # the changed dump has no metadata


def off(name: str) -> tuple[str, ...]:
    return (f"--xla_disable_hlo_passes={name}",)


BARRIER = "jax.lax.optimization_barrier"
TURNED = "    return c, t[::-1] * 3"
WORSE = (
    Change("softmax rewriter off", "softmax", "h100", "reduce -> broadcast", "pf-two-reduces", flags=off("triton-softmax-rewriter")),
    Change("norm without its rewriter", "norm", "h100", "reduce -> multiply", "pf-reduce-to-loop", flags=off("triton-softmax-rewriter")),
    Change("priority fusion off", "chain", "h100", "tanh -> add", "pass-off", flags=off("priority-fusion")),
    Change("priority fusion off in a loop", "loop", "h100", "sine -> multiply", "pass-off", flags=off("priority-fusion")),
    Change("multi-output fusion off", "sums", "h100", "abs -> add", flags=off("multi_output_fusion")),
    Change("products to a library", "dense", "h100", "add -> maximum", flags=("--xla_gpu_enable_triton_gemm=false",)),
    Change("a GPU without that emitter", "softmax", "h100", "reduce -> broadcast", "pf-two-reduces", device="v100"),
    Change("a GPU without that emitter, norm", "norm", "h100", "reduce -> multiply", "pf-reduce-to-loop", device="v100"),
    Change("a GPU whose products go to a library", "split", "h100", "dot -> add", device="v100"),
    Change("an older compiler", "split", "h100", "add -> transpose", "gf-dimensions", version="0.10"),
    Change("rows too long for a tile", "softmax", "h100", "reduce -> broadcast", "pf-two-reduces", (("(512, 384)", "(8, 300000)"), ("(384,)", "(300000,)"))),
    Change("a barrier", "chain", "h100", "tanh -> add", "never-barrier", (("jnp.tanh(x) + y", f"{BARRIER}(jnp.tanh(x)) + y"),)),
    Change("a barrier in a loop", "loop", "h100", "sine -> multiply", "never-barrier", (("jnp.sin(x) * 0.5", f"{BARRIER}(jnp.sin(x)) * 0.5"),)),
    Change("a concatenate with more users", "joined", "h100", "sine -> concatenate", "pf-negative", (("    return wide * 3", "    return wide * 3, wide.sum(axis=1), wide[::-1] - 1"),)),
    Change("library fusions off", "softmax", "cpu", "reduce -> broadcast", "cpu-expensive-reuse", flags=off("dot-library-rewriter")),
    Change("the fusion pass off", "chain", "cpu", "tanh -> add", "pass-off", flags=off("fusion")),
    Change("the fusion pass off in a loop", "loop", "cpu", "sine -> multiply", "pass-off", flags=off("fusion")),
    Change("norm without the fusion pass", "norm", "cpu", "add -> rsqrt", "pass-off", flags=off("fusion")),
    Change("a barrier on a CPU", "chain", "cpu", "tanh -> add", "cpu-expensive-reuse", (("jnp.tanh(x) + y", f"{BARRIER}(jnp.tanh(x)) + y"),)),
    Change("a barrier in a loop on a CPU", "loop", "cpu", "sine -> multiply", "never-barrier", (("jnp.sin(x) * 0.5", f"{BARRIER}(jnp.sin(x)) * 0.5"),)),
    Change("a second user", "chain", "cpu", "tanh -> add", "base-expensive-dup", (("    a = jnp.tanh(x) + y", "    t = jnp.tanh(x)\n    a = t + y"), ("    return c", TURNED))),
    Change("a second user of the last but one", "chain", "cpu", "sqrt -> add", "base-expensive-dup", (("    c = jnp.sqrt(jnp.abs(b)) + 1\n    return c", "    t = jnp.sqrt(jnp.abs(b))\n    c = t + 1\n" + TURNED),)),
    Change("a value read twice", "chain", "cpu", "tanh -> add", "base-expensive-dup", (("    return c", "    return c, b[::-1]"),)),
    Change("a library takes over on a CPU", "norm", "cpu", "subtract -> multiply", "lib-one-user", base_flags=off("dot-library-rewriter")),
)  # fmt: skip

_RENAMES = {
    "chain": (("def program(x, y)", "def program(first, second)"), ("tanh(x) + y", "tanh(first) + second"), ("a * 2 - y", "a * 2 - second")),
    "softmax": (("y = x * scale", "logits = x * scale"), ("jnp.exp(y - y.max", "jnp.exp(logits - logits.max")),
    "norm": (("centred", "moved"), ("spread", "variance")),
    "dense": (("x @ w + b", "inputs @ w + b"), ("(x, w, b)", "(inputs, w, b)")),
    "sums": ((" a = ", " total = "), ("return a.sum(axis=1), (a * a)", "return total.sum(axis=1), (total * total)")),
    "loop": (("def step(i, x)", "def advance(i, x)"), ("20, step, x", "20, advance, x")),
}  # fmt: skip
_ADDED = {
    "chain": (("    return c", "    return c, jnp.cos(y[0]).sum()"),),
    "softmax": (("    return e / e.sum(axis=-1, keepdims=True)", "    return e / e.sum(axis=-1, keepdims=True), jnp.log(scale + 3)"),),
    "norm": (("rsqrt(spread + 1e-5) * gain", "rsqrt(spread + 1e-5) * gain, jnp.sinh(gain)"),),
    "dense": (("    return jnp.maximum(x @ w + b, 0)", "    return jnp.maximum(x @ w + b, 0), jnp.cosh(b)"),),
    "sums": (("    return a.sum(axis=1)", "    return jnp.cos(y[:, 0]) * 2, a.sum(axis=1)"),),
    "loop": (("    return jax.lax.fori_loop(0, 20, step, x)", "    return jax.lax.fori_loop(0, 20, step, x), jnp.exp(x[:7]) + 1"),),
}  # fmt: skip


def harmless() -> Iterator[Change]:
    for target in ("cpu", "h100"):
        for program, edits in _RENAMES.items():
            yield Change("other names", program, target, edits=edits)
        for program, edits in _ADDED.items():
            yield Change("unrelated code", program, target, edits=edits)
        for program in ("chain", "softmax", "norm", "dense", "sums", "loop"):
            yield Change(
                "other lines",
                program,
                target,
                edits=(("\ndef program", "\n\n# moved\n\n\ndef program"),),
            )
            yield Change("no metadata", program, target, bare=True)
            if target == "cpu" and program != "norm":  # which that makes other kernels of
                yield Change(
                    "a patch of the compiler",
                    program,
                    target,
                    version="0.10",
                    base_version="0.10.1",
                )
        yield Change("the same again", "joined", target)
        yield Change(
            "sum the other way round",
            "chain",
            target,
            edits=(("jnp.tanh(x) + y", "y + jnp.tanh(x)"),),
        )


def compile_to(
    directory: Path, source: str, target: str, python: str, flags: tuple[str, ...]
) -> Path:
    directory.mkdir(parents=True)
    (directory / "model.py").write_text(HEAD + source)
    program = read_program(f"{directory / 'model.py'}:program")
    captured = capture(program, read_target(target), directory / "dump", flags=flags, python=python)
    if not captured.has_stages:
        raise SystemExit(f"{directory}: {captured.problem}")
    return captured.directory


def strip(dump: Path) -> None:
    """Takes out where operations come from."""
    import re

    for file in dump.glob("*.txt"):
        text = file.read_text()
        file.write_text(re.sub(r", metadata=\{[^{}]*\}", "", text))


def explained(dump: Path) -> Explanation:
    return explain_dump(open_dump(dump), Selection(all_modules=True))


def violations(change: Change, out: Path, pythons: dict[str, str]) -> list[Violation]:
    source = PROGRAMS[change.program]
    base = compile_to(
        out / "base", source, change.target, pythons[change.base_version], change.base_flags
    )
    for old, new in change.edits:
        assert old in source, f"{change.name}: {old!r} is not in {change.program}"
        source = source.replace(old, new)
    other_dump = compile_to(
        out / "changed",
        source,
        change.device or change.target,
        pythons[change.version],
        change.flags,
    )
    if change.bare:
        strip(other_dump)
    file = out / "baseline.json"
    file.write_text(write_baseline(record_all([Cell(explained(base))])))
    baseline = read_baseline(file, Tolerance(allow_better=True))
    now = Cell(explained(other_dump))
    ((_, before),), (subject,) = baseline.modules, now.subjects
    # As if another device or another shape made no other module: the pairs are what is asked for.
    baseline = replace(baseline, modules=((key_of(subject), before),))
    return list(check([now], [], baseline).violations)


def fits(violation: Violation, change: Change) -> bool:
    """Whether it is about that pair, and for that reason."""
    key = violation.what.rpartition(": ")[2]
    ends = [end.split()[0] for end in key.split(" -> ")]
    return ends == change.pair.split(" -> ") and (violation.reason or "") == change.reason


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PATH")
    parser.add_argument("--only", default="*", metavar="GLOB")


def findings(options: Namespace) -> Iterator[Finding]:
    pythons = {"0.12": sys.executable} | dict(
        violation.split("=", 1) for violation in options.python
    )
    for kind, changes in (("worse", list(WORSE)), ("harmless", list(harmless()))):
        for number, change in enumerate(changes):
            versions = {change.version, change.base_version}
            if not fnmatch.fnmatch(change.name, options.only) or not versions <= set(pythons):
                continue
            violations_found = violations(change, options.out / f"{kind}-{number:02d}", pythons)
            good = [violation for violation in violations_found if fits(violation, change)]
            is_right = bool(good) if kind == "worse" else not violations_found
            violations_shown = (good or violations_found)[:1]
            words = (
                f"{violations_shown[0].about} {violations_shown[0].what} ({violations_shown[0].reason})"
                if violations_shown
                else "nothing"
            )
            line = f"{kind}: {change.name}, {change.program} on {change.target}: {words}"
            if is_right:
                yield counted(f"{kind}, correct", line)
            else:
                yield problem(f"{kind}, wrong", line)
