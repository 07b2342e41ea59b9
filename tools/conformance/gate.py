"""A project's pull requests, harmless and not: what `check --against main` says of each.

The project is `tools/conformance/gate/`: five functions and three targets. Each change is a branch
of a repository that is made of it, and is checked as a pull request would be. A harmless change
must not be reported; one for the worse must be, of the functions that it is about and no others,
in the words that are named here. OUT/NAME.md has the comments. Exit code 1 where that is not so.
"""

# ruff: noqa: E501  (a table of changes, a line each)
import fnmatch
import json
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.findings import Finding, counted
from conformance.findings import problem as told_wrongly

PROJECT = Path(__file__).with_name("gate")
NN, TOML = "nn.py", "fusionscope.toml"


@dataclass(frozen=True)
class Change:
    """A branch. The first text of each of ``edits`` becomes the second in ``file``. ``programs`` are
    those that become worse; ``finds`` are words of what must be said, all in one violation, on
    ``target``.
    """

    name: str
    edits: tuple[tuple[str, str], ...]
    programs: str = ""
    target: str = ""
    finds: tuple[str, ...] = ()
    file: str = NN


TANH = "jnp.tanh(rows) + others"
LAST_OF_MIX = "    return jnp.sqrt(jnp.abs(moved)) + 1"
LAST_OF_LOSS = "    return (total - picked).mean()"
H100 = 'device = "h100"\n'

HARMLESS = (
    Change("other names", (("scaled", "logits"), ("moved", "shifted_twice"))),
    Change("comments and other lines", (('import jax\n', '# Imports.\nimport jax\n'), ("    scaled =", "    # The scale is that of the heads.\n\n    scaled ="))),
    Change("swapped operands", ((TANH, "others + jnp.tanh(rows)"),)),
    Change("a helper function", (("def mix(", "def blend(rows, others):\n    return jnp.tanh(rows) + others\n\n\ndef mix("), (f"    blended = {TANH}", "    blended = blend(rows, others)"))),
    Change("a jitted helper function", (("def mix(", "@jax.jit\ndef blend(rows, others):\n    return jnp.tanh(rows) + others\n\n\ndef mix("), (f"    blended = {TANH}", "    blended = blend(rows, others)"))),
    Change("square instead of a product", (("(centred * centred)", "jnp.square(centred)"),)),
    Change("relu instead of a maximum", (("jnp.maximum(rows @ weights + bias, 0)", "jax.nn.relu(rows @ weights + bias)"),)),
    Change("type annotations", (("def dense(rows, weights, bias):", "def dense(rows: jax.Array, weights: jax.Array, bias: jax.Array) -> jax.Array:"),)),
    Change("statements in another order", (("    total = jnp.log(jnp.exp(shifted).sum(axis=-1))\n    picked = (shifted * labels).sum(axis=-1)\n", "    picked = (shifted * labels).sum(axis=-1)\n    total = jnp.log(jnp.exp(shifted).sum(axis=-1))\n"),)),
    Change("named scopes", ((f"    blended = {TANH}", f'    with jax.named_scope("blend"):\n        blended = {TANH}'),)),
)  # fmt: skip
WORSE = (
    Change("a barrier", ((TANH, "jax.lax.optimization_barrier(jnp.tanh(rows)) + others"),), "mix", "h100", ("was fused by priority-fusion, and is not: tanh", "never-barrier")),
    Change("a second user", ((LAST_OF_MIX, "    return jnp.sqrt(jnp.abs(moved)) + 1, blended[::-1]"),), "mix", "cpu", ("tanh", "base-expensive-dup")),
    Change("a sort", ((LAST_OF_LOSS, "    return jnp.sort(total - picked).mean()"),), "loss", "h100", ("launches 3 → 4",)),
    Change("a pass switched off", ((H100, H100 + 'flags = ["xla_disable_hlo_passes=triton-softmax-rewriter"]\n'),), "softmax normalize loss", "h100", ("was fused by triton-softmax-rewriter, and is not", "pf-two-reduces"), TOML),
    Change("rows too long for a tile", (('["f32[512,384]", "f32[384]"]', '["f32[8,300000]", "f32[300000]"]'),), "softmax", "h100", ("was fused by triton-softmax-rewriter, and is not", "pf-two-reduces"), TOML),
    Change("a loop over rows", (("    return centred * jax.lax.rsqrt(spread + 1e-5) * gain", "    scaled = centred * jax.lax.rsqrt(spread + 1e-5)\n    return jax.lax.map(lambda row: jnp.sin(row) * gain, scaled)"),), "normalize", "h100", ("launches",)),
    Change("a gather of labels", (("(shifted * labels).sum(axis=-1)", "jnp.take_along_axis(shifted, labels.argmax(axis=-1)[:, None], axis=-1)[:, 0]"),), "loss", "h100", ("launches",)),
    Change("products to a library", ((H100, H100 + 'flags = ["xla_gpu_enable_triton_gemm=false"]\n'),), "dense", "h100", ("is a new call to __cublas$lt$matmul, and what was fused is gone: add",), TOML),
    Change("a concatenate", (("rows @ weights + bias", "jnp.concatenate([rows, rows], axis=1) @ jnp.concatenate([weights, weights]) + bias"),), "dense", "h100", ("launches 2 → 4",)),
    Change("a mistake", (("rows @ weights", "rows @ weights.T"),), "dense", "cpu", ("TypeError",)),
)  # fmt: skip


def git(repository: Path, *arguments: str) -> None:
    identity = (
        "-c",
        "user.name=gate",
        "-c",
        "user.email=gate@localhost",
        "-c",
        "commit.gpgsign=false",
    )
    subprocess.run(["git", *identity, *arguments], cwd=repository, check=True, capture_output=True)


def make_repository(directory: Path, targets: list[str]) -> None:
    shutil.copytree(PROJECT, directory)
    file = directory / TOML
    tables = file.read_text().split("\n\n")
    if targets:  # the others cannot be compiled for here
        keys = ("name", "device")
        tables = [
            table
            for table in tables
            if not table.startswith("[[target]]")
            or any(f'{key} = "{name}"' in table for key in keys for name in targets)
        ]
    file.write_text("\n\n".join(tables))
    git(directory, "init", "--quiet", "--initial-branch", "main")
    git(directory, "add", ".")
    git(directory, "commit", "--quiet", "--message", "The project")


def check(repository: Path, change: Change, out: Path, options: list[str]) -> tuple[int, dict]:
    """Check the branch of a change. Return the exit code, and the result as JSON."""
    git(repository, "checkout", "--quiet", "-b", change.name.replace(" ", "-"), "main")
    file = repository / change.file
    text = file.read_text()
    for old, new in change.edits:
        assert old in text, f"{change.name}: {old!r} is not in {change.file}"
        text = text.replace(old, new)
    file.write_text(text)
    git(repository, "commit", "--quiet", "--all", "--message", change.name)
    place = out / change.name.replace(" ", "-")
    process = subprocess.run(
        [
            *(sys.executable, "-m", "fusionscope", "check", "--against", "main", "--jobs", "2"),
            *("--format", "markdown", "--output", f"{place}.md", "--also", f"json={place}.json"),
            *("--also", f"sarif={place}.sarif", "--also", f"junit={place}.xml", *options),
        ],
        cwd=repository,
        capture_output=True,
        text=True,
    )
    git(repository, "checkout", "--quiet", "main")
    if process.returncode == 2:
        raise SystemExit(f"{change.name}: {process.stderr.strip()}")
    return process.returncode, json.loads(Path(f"{place}.json").read_text())


def problem(change: Change, code: int, result: dict, targets: list[str]) -> str:
    """Return what is wrong with the result, or ""."""
    violations = [
        violation for verdict in result["expectations"] for violation in verdict["violations"]
    ]
    programs = {violation["module"].partition(" on ")[0] for violation in violations}
    expected = set(change.programs.split())
    if code != bool(expected):
        return f"the exit code is {code}"
    if programs != expected:
        return f"it is about {', '.join(sorted(programs)) or 'nothing'}"
    if not expected or (targets and change.target not in targets):
        return ""
    lines = [
        f"{violation['about']} {violation['what']} {violation['reason']}"
        for violation in violations
        if violation["module"].endswith(f" on {change.target}")
    ]
    if not any(all(words in line for words in change.finds) for line in lines):
        return f"no violation on {change.target} has {' and '.join(change.finds)}"
    return ""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", action="append", default=[], metavar="[TARGET=]PATH")
    parser.add_argument("--target", action="append", default=[], metavar="NAME")
    parser.add_argument("--only", default="*", metavar="GLOB")


def findings(options: Namespace) -> Iterator[Finding]:
    out = options.out.absolute()
    out.mkdir(parents=True)
    repository = out / "project"
    make_repository(repository, options.target)
    pythons = [word for python in options.python for word in ("--python", python)]
    for kind, changes in (("harmless", HARMLESS), ("worse", WORSE)):
        for change in changes:
            if fnmatch.fnmatch(change.name, options.only):
                code, result = check(repository, change, out, pythons)
                why = problem(change, code, result, options.target)
                line = f"{kind}: {change.name}: {why or 'as it should be'}"
                finding = told_wrongly if why else counted
                yield finding(f"{kind}, told {'wrongly' if why else 'right'}", line)
