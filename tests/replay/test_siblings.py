"""Siblings that the rules of multi-output fusion see as equal get one answer."""

from pathlib import Path

import pytest

from fusionscope.dump import open_dump
from fusionscope.hlo import Module, parse
from fusionscope.passes.gpu.multi_output_fusion import run
from fusionscope.passes.gpu.multi_output_fusion.rules import OutputPairRule
from fusionscope.passes.gpu.priority_fusion.rules import GpuPairRule
from fusionscope.passes.plan import PairDecision
from fusionscope.passes.rule import Rule
from fusionscope.versions.choice import choose_compiler
from fusionscope.versions.compiler import Compiler
from fusionscope.versions.context import read_context
from fusionscope.versions.known import all_compilers
from fusionscope.versions.runs import find_runs, replay

PASS = "multi_output_fusion"
BASES = (OutputPairRule, GpuPairRule)
DUMPS = Path(__file__).parent.parent.parent / "samples" / "dumps"
H100 = sorted(path for folder in DUMPS.glob("h100*") for path in folder.iterdir())
COMPILERS = [
    compiler
    for compiler in all_compilers()
    if compiler.gpu is not None and any(step.name == PASS for step in compiler.passes)
]
ARRAY = "f32[256,64]{1,0}"


def module() -> Module:
    """One value that very many read, in every way that a rule about siblings tells apart."""
    computations, lines, results = [], [], []
    for index in range(90):
        start = (0, 64, 8)[index // 9 % 3]
        shape, more = [
            ("f32[256]{0}", "reduce(%p, %zero), dimensions={1}, to_apply=%sum"),
            ("f32[]", "reduce(%p, %zero), dimensions={0,1}, to_apply=%sum"),
            ("f32[64]{0}", "reduce(%p, %zero), dimensions={0}, to_apply=%sum"),
            ("f32[64,256]{1,0}", "transpose(%p), dimensions={1,0}"),
            (ARRAY, "negate(%p)"),
            ("f32[512,64]{1,0}", "concatenate(%p, %p), dimensions={0}"),
            ("f32[16,64]{1,0}", f"slice(%p), slice={{[{start}:{start + 16}], [0:64]}}"),
            (ARRAY, "abs(%p)"),
            (ARRAY, "dynamic-update-slice(%p, %row, %one, %one)"),
        ][index % 9]
        kind = "kInput" if "reduce" in more or "transpose" in more else "kLoop"
        computations.append(f"""%fused.{index} (p: {ARRAY}, q: f32[]) -> {shape} {{
  %p = {ARRAY} parameter(0)
  %q = f32[] parameter(1)
  %zero = f32[] constant(0)
  %one = s32[] constant({index})
  %row = f32[1,64]{{1,0}} broadcast(%q), dimensions={{}}
  ROOT %root = {shape} {more}
}}
""")
        lines.append(
            f"  %fusion.{index} = {shape} fusion(%value, %scalar.{index // 30}), kind={kind}, "
            f"calls=%fused.{index}"
        )
        results.append((f"%fusion.{index}", shape))
    scalars = [f"  %scalar.{number} = f32[] parameter({number + 1})" for number in range(3)]
    names, shapes = (", ".join(item) for item in zip(*results, strict=True))
    return parse(
        "\n".join(
            [
                "HloModule siblings\n",
                "%sum (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)",
                "  %b = f32[] parameter(1)\n  ROOT %add = f32[] add(%a, %b)\n}\n",
                *computations,
                f"ENTRY %main {{\n  %value = {ARRAY} parameter(0)",
                *scalars,
                *lines,
                f"  ROOT %results = ({shapes}) tuple({names})\n}}\n",
            ]
        )
    )


def decide(
    before: Module, dump: Path, compiler: Compiler | None = None
) -> tuple[PairDecision, ...]:
    (dumped,) = open_dump(dump).modules
    compiler = compiler or choose_compiler(dumped).compiler
    return replay(PASS, before, read_context(dumped), compiler).decisions


def ask_about_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        run._Judge,
        "find_kinds",
        lambda judge, siblings, parent, state: {sibling: n for n, sibling in enumerate(siblings)},
    )


@pytest.mark.parametrize("path", H100, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_dump(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (dumped,) = open_dump(path).modules
    stages = [dumped.read(item.before) for item in find_runs(dumped) if item.pass_name == PASS]
    reported = [decide(stage, path) for stage in stages]
    ask_about_each(monkeypatch)
    assert reported == [decide(stage, path) for stage in stages]


@pytest.mark.parametrize("compiler", COMPILERS, ids=lambda compiler: compiler.name)
def test_all_kinds_of_siblings(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = DUMPS / "h100" / "reductions"
    reported = decide(module(), dump, compiler)
    refusals = {item.decision.rule for item in reported if not item.decision.allow}
    assert {"mof-heroes", "mof-loop-shape", "mof-dus", "budget-reductions"} <= refusals
    ask_about_each(monkeypatch)
    assert reported == decide(module(), dump, compiler)


@pytest.mark.parametrize("compiler", COMPILERS, ids=lambda compiler: compiler.name)
def test_a_rule_says_what_its_own_check_looks_at(compiler: Compiler) -> None:
    def origin(rule: Rule, name: str) -> type:
        return next(item for item in type(rule).__mro__ if name in vars(item))

    (book,) = (fusion_pass.book for fusion_pass in compiler.passes if fusion_pass.name == PASS)
    count = 0
    for rule in book:
        if isinstance(rule, BASES) and all(
            type(rule).looks_at is not base.looks_at for base in BASES
        ):
            count += 1
            assert origin(rule, "looks_at") is origin(rule, "check"), rule.id
    assert count
