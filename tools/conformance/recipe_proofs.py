"""Proves the recipes: compiles the example of each, runs it, and compares the numbers.

The function before the edit, the one after it, and what the recipe makes of the HLO of the first
are compiled for a CPU, for an H100 and for a TPU v5e, and run on the CPU. The results have to be
equal up to the recipe's tolerance, the recipe may not fit what it made, and its rewriting has to
save what the edit saves, up to a tenth. On each backend of the recipe the edit has to take less
time. ``--update``
writes the figures to ``fusionscope/advise/recipes/proofs.json``, and the HLO of the examples for
the tests. Exit code 1 where a proof fails.
"""

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.findings import ROOT, Finding, counted, problem
from fusionscope.advise.recipes.catalogue import RECIPES
from fusionscope.advise.recipes.proofs import PROOFS, Proof, Side, read_proofs, write_proofs
from fusionscope.advise.recipes.recipe import Recipe, apply_recipe
from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Target, read_program, read_target
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.facts.times import estimate_final
from fusionscope.history.kernels import total_kernels
from fusionscope.hlo import Module, to_text
from fusionscope.rerun.injection import Injection
from fusionscope.rerun.programs import find_program
from fusionscope.rerun.racing import Race, Racer, race

_BACKENDS = {"cpu": "cpu", "h100": "gpu", "tpu:v5e": "tpu"}
PROGRAMS = ROOT / "tests" / "advise" / "recipes"
_METADATA = re.compile(r", metadata=\{(?:[^{}\"]|\"[^\"]*\")*\}")
ENOUGH = 0.9  # of what the edit saves, the rewriting saves so much


@dataclass
class Prover:
    """Proves with one Python. ``scratch`` is where dumps go, ``seconds`` how long each program
    runs, ``programs`` the HLO of examples by the names of files."""

    python: str
    scratch: Path
    seconds: float
    programs: dict[str, str]

    def prove(self, recipe: Recipe, targets: Sequence[str]) -> Iterator[Proof]:
        example = recipe.example
        for name in targets:
            target = read_target(name)
            modules: list[DumpedModule] = []
            for side, text in (("before", example.before), ("after", example.after)):
                file = self.scratch / f"{side}.py"
                file.write_text(example.module_of(text), encoding="utf-8")
                arguments = example.arguments
                if side == "after":
                    arguments = example.arguments_after or arguments
                module = self._compile(
                    f"{file}:program", target, f"{target.name}-{side}", arguments
                )
                modules.append(module)
                if name == "cpu" and self._is_newest():
                    self.programs[f"{recipe.id}-{side}.hlo"] = _plain(find_program(module))
            rewritten = apply_recipe(recipe, find_program(modules[0]), _BACKENDS[name])
            if rewritten is None:
                if _BACKENDS[name] not in recipe.backends:
                    continue
                raise SystemExit(f"{recipe.id}: the recipe does not fit its own example")
            file = self.scratch / f"{target.name}.hlo"
            file.write_text(to_text(rewritten.module), encoding="utf-8")
            modules.append(self._compile(str(file), target, f"{target.name}-rewritten"))
            is_raced = name == "cpu" and recipe.keeps_arguments
            races = self._race(modules) if is_raced else [None] * len(modules)
            before, after, by_recipe = map(_side, modules, races)
            yield Proof(
                jaxlib=self._jaxlib,
                target=target.name.removeprefix("tpu-"),
                before=before,
                after=after,
                rewritten=by_recipe,
            )

    def _is_newest(self) -> bool:
        """Whether no proof is by a newer version, so that the HLO is for the tests."""
        versions = [proof.jaxlib for proofs in read_proofs().values() for proof in proofs]
        return max(map(_numbers, versions), default=[]) <= _numbers(self._jaxlib)

    def _compile(
        self, program: str, target: Target, name: str, arguments: Sequence[str] = ()
    ) -> DumpedModule:
        captured = capture(
            read_program(program, arguments),
            target,
            self.scratch / name,
            python=self.python,
        )
        if captured.problem:
            raise SystemExit(f"{name}: {captured.problem}")
        self._jaxlib = captured.versions["jaxlib"]
        (module,) = open_dump(captured.directory).modules
        return module

    def _race(self, modules: list[DumpedModule]) -> list[Race | None]:
        racers = [Racer(module, Injection()) for module in modules]
        return race(racers, seconds=self.seconds, python=self.python, limit_s=600)


def _plain(program: Module) -> str:
    """Its text without the places in files from which it comes."""
    return _METADATA.sub("", to_text(replace(program, frames=None)))


def _side(module: DumpedModule, raced: Race | None) -> Side:
    assert module.final is not None
    totals = total_kernels(module.read(module.final), module.backend)
    estimate = estimate_final(module)
    differences = [result.difference for result in raced.results] if raced is not None else []
    return Side(
        launches=totals.launches,
        bytes_moved=totals.bytes_moved,
        time_us=raced.run_ns / 1e3 if raced else estimate.microseconds if estimate else None,
        ratio=(raced.ratio.low, raced.ratio.value, raced.ratio.high) if raced else None,
        difference=max(
            (1.0 if difference is None else difference for difference in differences), default=None
        ),
    )


def _line(proof: Proof) -> str:
    sides = {"before": proof.before, "after": proof.after, "rewritten": proof.rewritten}
    words = (
        f"{name} {side.launches} launches {side.bytes_moved / 1e6:.3f} MB {side.time_us or 0:.1f} "
        "us"
        + (f" x{side.ratio[0]:.3f}..{side.ratio[2]:.3f}" if side.ratio else "")
        + (f" differs {side.difference:.1e}" if side.difference else "")
        for name, side in sides.items()
        if side is not None
    )
    return f"{proof.jaxlib} {proof.target}: {'; '.join(words)}"


def find_problems(recipe: Recipe, proof: Proof) -> Iterator[str]:
    before, rewritten = proof.before, proof.rewritten
    assert rewritten is not None
    for words, side in (("the edit", proof.after), ("the rewriting", rewritten)):
        if side.difference is not None and side.difference > recipe.tolerance:
            yield f"{words} changes results by {side.difference:.2g}, over {recipe.tolerance:.2g}"
    if proof.backend in recipe.backends:
        if not proof.helps:
            yield f"it does not help on {proof.backend}"
        for words, of in (("launches", "launches"), ("bytes", "bytes_moved")):
            edited = getattr(before, of) - getattr(proof.after, of)
            saved = getattr(before, of) - getattr(rewritten, of)
            if edited > 0 and saved < ENOUGH * edited:
                yield f"the edit saves {edited} {words}, the rewriting {saved}"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", help="of recipes")
    parser.add_argument("--python", default=sys.executable, help="one that has jax")
    parser.add_argument("--seconds", type=float, default=1.0, help="that each program runs")
    parser.add_argument("--target", action="append", choices=_BACKENDS, help="default: all")
    parser.add_argument("--update", action="store_true", help="write the figures")


def findings(options: Namespace) -> Iterator[Finding]:
    programs: dict[str, str] = {}
    proofs_by_recipe = read_proofs()
    for recipe in RECIPES:
        if options.ids and recipe.id not in options.ids:
            continue
        with TemporaryDirectory() as scratch:
            prover = Prover(options.python, Path(scratch), options.seconds, programs)
            proofs = list(prover.prove(recipe, options.target or list(_BACKENDS)))
        for proof in proofs:
            yield counted("proofs", f"{recipe.id} {_line(proof)}")
            for line in find_problems(recipe, proof):
                yield problem("recipes that are not proven", f"{recipe.id} {proof.target}: {line}")
        # In the place of those by the same version for the same target.
        replaced = {(proof.jaxlib, proof.target) for proof in proofs}
        older_proofs = [
            proof_kept
            for proof_kept in proofs_by_recipe.get(recipe.id, ())
            if (proof_kept.jaxlib, proof_kept.target) not in replaced
        ]
        proofs_by_recipe[recipe.id] = tuple(
            sorted([*older_proofs, *proofs], key=lambda proof_kept: _numbers(proof_kept.jaxlib))
        )
    if options.update:
        write_proofs(PROOFS, proofs_by_recipe)
        _write_programs(programs)


def _write_programs(programs: dict[str, str]) -> None:
    """Those of the newest version are what the tests read."""
    for name, text in programs.items():
        (PROGRAMS / name).write_text(text, encoding="utf-8")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
