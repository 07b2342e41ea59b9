"""What a command imports: no more than its work needs. Most of a short command's time goes into
importing."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CODE = """
import sys
from fusionscope.__main__ import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def loaded(*command: str) -> set[str]:
    """The modules that are loaded when the command ends."""
    result = subprocess.run(
        [sys.executable, "-c", CODE, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    modules = set(result.stderr.split())
    assert "fusionscope.cli.main" in modules
    return modules


@cache
def loaded_by_explain(target: str) -> set[str]:
    dump = f"samples/dumps/{target}/concatenate"
    return loaded("explain", "--no-try", "--no-cache", dump)


def within(modules: set[str], *packages: str) -> set[str]:
    """Those of ``modules`` that are one of ``packages``, or in one."""
    return {
        name
        for name in modules
        if any(f"{name}.".startswith(f"{package}.") for package in packages)
    }


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_what_needs_no_dump_imports_no_reader(option):
    modules = loaded(option)
    assert within(modules, "fusionscope") == {
        "fusionscope",
        "fusionscope.__main__",
        "fusionscope.cli",
        "fusionscope.cli.main",
        "fusionscope.cli.streams",
        "fusionscope.errors",
        "fusionscope.words",
        "fusionscope.words.text",
        "fusionscope.system",
        "fusionscope.system.signals",
    }
    assert not within(modules, "rich", "lark", "msgspec", "networkx", "subprocess", "sqlite3")


@pytest.mark.parametrize("id", ["cpu-concat", "pf-negative"])
def test_the_page_of_a_rule_imports_no_rules(id):
    loaded("rules", id)  # caches what the rules say
    assert not within(
        loaded("rules", id),
        "fusionscope.dump",
        "fusionscope.hlo",
        "fusionscope.passes",
        "fusionscope.versions",
        "lark",
        "msgspec",
        "networkx",
    )


def test_a_dump_for_a_cpu_imports_nothing_about_gpus():
    modules = loaded_by_explain("cpu")
    assert "fusionscope.passes.cpu.instruction_fusion.run" in modules
    assert not within(
        modules,
        "fusionscope.dump.device",
        "fusionscope.dump.priority_fusion",
        "fusionscope.gpu",
        "fusionscope.passes.gpu",
        "fusionscope.passes.gpu_legacy",
    )
    versions = within(modules, "fusionscope.versions")
    assert {name for name in versions if name.endswith((".cpu", ".gpu"))} == {
        "fusionscope.versions.jaxlib_0_12.cpu"
    }


def test_a_dump_for_a_gpu_imports_no_older_version():
    modules = loaded_by_explain("h100")
    assert "fusionscope.passes.gpu.priority_fusion.run" in modules
    assert not within(modules, "fusionscope.passes.gpu_legacy")
    versions = within(modules, "fusionscope.versions")
    assert {name for name in versions if name.endswith(".gpu")} == {
        "fusionscope.versions.jaxlib_0_12.gpu"
    }


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_explain_imports_nothing_for_what_nobody_asked_for(target):
    """Changed rules, data movement, JSON, graphs, files of the user, stages dumped as protos."""
    assert not within(
        loaded_by_explain(target),
        "fusionscope.advise",
        "fusionscope.dump.protos",
        "fusionscope.findings.movements.find",
        "fusionscope.what_if.what_if",
        "fusionscope.history.matching",
        "fusionscope.report.documents",
        "fusionscope.system.processes",
        "fusionscope.system.user_files",
        "fusionscope.user_order",
        "networkx",
    )


@pytest.mark.parametrize("target", ["cpu", pytest.param("h100", marks=pytest.mark.slow)])
def test_another_question_imports_nothing_that_reads_a_dump(target):
    dump = f"samples/dumps/{target}/concatenate"
    loaded("explain", dump)
    modules = loaded("explain", dump, "--pair", "* -> *")
    assert within(modules, "fusionscope.hlo", "fusionscope.history") == {
        "fusionscope.hlo",
        "fusionscope.hlo.search",
        "fusionscope.hlo.source_location",
    }
    assert not within(
        modules,
        "fusionscope.advise",
        "fusionscope.dump.device",
        "fusionscope.explain.analyze_module",
        "fusionscope.graph",
        "fusionscope.passes",
        "fusionscope.rules",
        "fusionscope.versions",
        "lark",
        "networkx",
    )
