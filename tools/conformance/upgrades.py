"""Compares neighbouring releases of jaxlib on ten programs: what ``upgrade`` says must be there.

python -m conformance upgrades OUT 0.9.1=PATH 0.9.2=PATH     (a Python with jax for each release)

A pair whose figures, HLO and code are the same is counted. Any other is a problem, for a person to
judge: the verdict, the figures that differ, and the traits of code.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from conformance.findings import Finding, counted, problem
from fusionscope.capture.targets import read_program, read_target
from fusionscope.errors import UnusableInput
from fusionscope.upgrade.figures import Verdict
from fusionscope.upgrade.place import Where
from fusionscope.upgrade.trial import Trial
from fusionscope.upgrade.upgrade import Upgrade, upgrade

_HEAD = "import jax\nimport jax.numpy as jnp\n\n\ndef program("
PROGRAMS = {
    "softmax": "x: f32[512,384]\n    return jax.nn.softmax(x * 2.0)",
    "norm": "x: f32[256,512]\n    y = x - x.mean(-1, keepdims=True)\n"
    "    return y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True))",
    "dense": "x: bf16[128,256], w: bf16[256,512]\n    return jax.nn.gelu(x @ w)",
    "gradient": "x: f32[64,96], w: f32[96,80]\n"
    "    return jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)",
    "scan": "x: f32[50,128]\n    return jax.lax.scan(lambda c, y: (jnp.sin(c) + y, c), x[0], x)",
    "scatter": "x: f32[300,64], i: s32[900], u: f32[900,64]\n    return x.at[i].add(u)",
    "gather": "x: f32[1000,64], i: s32[200]\n    return jnp.sort(x[i], axis=-1)",
    "joined": "x: f32[128,96], y: f32[128,32]\n"
    "    return jnp.concatenate([jnp.exp(x), y * 2], axis=1).sum(0)",
    "window": "x: f32[2,32,32,8], w: f32[3,3,8,16]\n"
    '    return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (1, 1), "SAME",\n'
    '        dimension_numbers=("NHWC", "HWIO", "NHWC")))',
    "update": "x: f32[40,1000], y: f32[1000]\n"
    "    return jax.lax.fori_loop(0, 40, lambda i, x: x.at[i].add(jnp.cos(x[i]) * y), x)",
}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("out", type=Path)
    parser.add_argument("releases", nargs="+", metavar="RELEASE=PYTHON")
    parser.add_argument("--targets", default="cpu,h100", metavar="NAME,NAME")


def findings(options: Namespace) -> Iterator[Finding]:
    releases = [entry.partition("=")[::2] for entry in options.releases]
    for name, source in PROGRAMS.items():
        signature, _, body = source.partition("\n")
        arguments = [argument.split(": ") for argument in signature.split(", ")]
        file = options.out / f"{name}.py"
        options.out.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{_HEAD}{', '.join(argument for argument, _ in arguments)}):\n{body}\n")
        program = read_program(f"{file}:program", [shape for _, shape in arguments])
        for target in options.targets.split(","):
            for (old, before), (new, after) in pairwise(releases):
                trial = Trial(
                    program=program,
                    target=read_target(target),
                    folder=options.out / f"{name}-{target}-{old}-{new}",
                    runs=target == "cpu",
                )
                place = f"{name}, {target}, {old} to {new}"
                try:
                    yield _judged(place, upgrade(trial, (before, after)))
                except UnusableInput as error:
                    yield problem("not compared", f"{place}: {error}")


def _judged(place: str, result: Upgrade) -> Finding:
    changes = [
        f"{change.figure} {change.before} to {change.after}"
        for change in result.changes
        if change.verdict is not Verdict.SAME
    ]
    traits = [f"{c.kernel}: {c.trait} {c.before} to {c.after}" for c in result.code or ()]
    if not changes and not traits and result.where is Where.NOWHERE:
        return counted("the same", place)
    words = "; ".join([result.where, *changes, *traits])
    return problem(f"differs, {result.verdict}", f"{place}: {result.verdict}: {words}")
