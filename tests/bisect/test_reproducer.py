"""The script that runs a kernel alone: names of a dump are text in it, and no code."""

from __future__ import annotations

import ast
from pathlib import Path

from fusionscope.bisect.fused_plan import FusedPlan
from fusionscope.bisect.reproducer import script_for
from fusionscope.dump import open_dump
from fusionscope.rerun.plans import own_plan

SAMPLE = Path(__file__).parents[2] / "samples" / "dumps" / "cpu" / "elementwise"


def test_the_name_of_a_module_is_no_code(tmp_path: Path) -> None:
    name = 'jit_program"""\nopen("made","w")\n"""'
    for file in SAMPLE.iterdir():
        (tmp_path / file.name.replace("jit_program", name)).symlink_to(file)
    (module,) = open_dump(tmp_path).modules
    plan = FusedPlan(module, own_plan(module))
    kernel = plan.fuse(plan.parts).kernels[0]
    about, *_ = body = ast.parse(script_for(module, kernel, ["float32"], [([8], "float32")])).body
    assert isinstance(about, ast.Expr)
    assert name in str(ast.literal_eval(about.value))
    callees = {ast.unparse(item.func) for part in body for item in ast.walk(part) if is_call(item)}
    assert "numpy.load" in callees
    assert "open" not in callees


def is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call)
