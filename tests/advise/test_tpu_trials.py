"""Changes tried on all of a program for a TPU, by a compiler that says how many cycles it takes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from fusionscope.advise.recipes import region_trials
from fusionscope.advise.recipes.region_trials import RegionTrial
from fusionscope.advise.recipes.trying import Compilation, find_offers
from fusionscope.advise.split_products import find_flag_offers
from fusionscope.advise.worth import why_not_better
from fusionscope.capture.capture import environment_without_dump
from fusionscope.capture.targets import Target
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.facts.suggestions import Figures, HowTried, Suggestion
from fusionscope.facts.times import count_figures
from fusionscope.rerun.programs import find_program, find_target
from fusionscope.versions.context import read_target

SAMPLES = Path(__file__).parents[2] / "samples" / "dumps" / "tpu-v5e"
PROGRAM = Path(__file__).parent / "recipes" / "remove-barrier-before.hlo"
NAME = "module_0001.jit_program.cl_1"
FLAG = "xla_tpu_scoped_vmem_limit_kib"


def final(*cycles: int | None) -> str:
    """A chain of as many kernels on one array; None is one whose cycles are not known."""
    lines = ["  v0 = f32[2048,2048] parameter(0)"]
    for number, count in enumerate(cycles, 1):
        root = "ROOT " if number == len(cycles) else ""
        operation = "copy" if count is None else "tanh"
        config = (
            f', backend_config={{"window_config":{{"estimated_cycles":"{count}"}}}}'
            if count is not None
            else ""
        )
        lines.append(f"  {root}v{number} = f32[2048,2048] {operation}(v{number - 1}){config}")
    body = "\n".join(lines)
    return f"HloModule jit_program, is_scheduled=true\n\nENTRY main {{\n{body}\n}}\n"


class Compiler:
    """``before`` is what it makes of the program as it is, ``after`` what it makes of others or
    with a flag."""

    versions: ClassVar[dict[str, str]] = {}

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = before, after

    def __enter__(self) -> Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile(self, text: str, options: Mapping[str, str]) -> SimpleNamespace:
        is_same = "opt-barrier" in text and not options
        return SimpleNamespace(text=self.before if is_same else self.after, problem="")


def dumped(directory: Path, final_text: str) -> DumpedModule:
    (target,) = (SAMPLES / "softmax").glob("*target_arguments.txt")
    shutil.copy(target, directory / f"{NAME}.target_arguments.txt")
    shutil.copy(PROGRAM, directory / f"{NAME}.before_optimizations.txt")
    (directory / f"{NAME}.after_codegen.txt").write_text(final_text)
    (module,) = open_dump(directory).modules
    return module


def tried(
    monkeypatch: pytest.MonkeyPatch, module: DumpedModule, compiler: Compiler, most: int | None
) -> tuple[RegionTrial, list[Suggestion]]:
    monkeypatch.setattr(region_trials, "_open_compiler", lambda *_: compiler)
    assert module.final is not None
    figures = count_figures(module.read(module.final), "tpu", read_target(module))
    trial = RegionTrial(module, figures, Compilation(sys.executable), most)
    return trial, list(trial.run([*find_offers(module), *find_flag_offers(module)], ()))


def test_recipes_and_flags_are_compiled_with_all_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = dumped(tmp_path, final(30_000, 30_000))
    compiler = Compiler(final(30_000, 30_000), final(45_000))
    _, suggestions = tried(monkeypatch, module, compiler, None)
    changes = {suggestion.change for suggestion in suggestions}
    assert changes == {"remove-barrier", f"--{FLAG}=32768", f"--{FLAG}=65536"}
    array = 2048 * 2048 * 4
    for suggestion in suggestions:
        assert suggestion.evidence is HowTried.COMPILED
        assert suggestion.before == Figures(2, 4 * array, 40.0)  # 60,000 clocks of 1.5 GHz
        assert suggestion.after == Figures(1, 2 * array, 30.0)
        assert not suggestion.why_not


def test_a_dump_of_other_flags_is_not_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = dumped(tmp_path, final(30_000, 30_000))
    compiler = Compiler(final(30_000, 30_001), final(45_000))
    with pytest.raises(UnusableInput, match="compiled here, the program is not as in the dump"):
        tried(monkeypatch, module, compiler, 1_000)


def test_launches_of_unknown_time_may_take_what_a_change_saves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A copy of 33.6 MB counts 40.92 µs, 61,380 clocks; another 2 µs, 3,000 clocks, are allowed for.
    module = dumped(tmp_path, final(300_000, 30_000))
    for cycles, is_certain in ((330_000 - 64_500, True), (330_000 - 64_300, False)):
        compiler = Compiler(final(300_000, 30_000), final(cycles, None))
        _, (first, *_) = tried(monkeypatch, module, compiler, 1_000)
        assert first.after.time_us is not None and first.before.time_us is not None
        assert first.after.time_us < first.before.time_us
        assert bool(first.why_not) is not is_certain


def test_more_launches_may_take_less_time_by_what_the_compiler_says_of_its_code() -> None:
    before, after = Figures(5, 100, 10.0), Figures(6, 101, 9.0)
    assert why_not_better(before, after, "gpu") and not why_not_better(before, after, "tpu")


def test_what_is_beyond_the_limit_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = dumped(tmp_path, final(30_000, 30_000))
    compiler = Compiler(final(30_000, 30_000), final(45_000))
    with pytest.raises(UnusableInput, match="within the limit"):
        tried(monkeypatch, module, compiler, 105)


def test_the_target_is_that_of_the_dump(tmp_path: Path) -> None:
    module = dumped(tmp_path, final(1))
    assert find_target(module).topology == "v5e:1x1"
    assert find_program(module).entry.root.opcode == "add"
    (tmp_path / f"{NAME}.target_arguments.txt").unlink()
    (module,) = open_dump(tmp_path).modules
    with pytest.raises(UnusableInput, match="does not tell for which TPU"):
        find_target(module)


def test_flags_of_libtpu_are_not_for_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_jf_conv_input_fusion=false")
    target = Target("tpu-v5e", "tpu", topology="v5e:1x1")
    environment = environment_without_dump(target, [f"--{FLAG}=65536", "--xla_dump_to=here"])
    arguments = f"--xla_jf_conv_input_fusion=false --{FLAG}=65536"
    assert environment["LIBTPU_INIT_ARGS"] == arguments
    assert FLAG not in environment["XLA_FLAGS"]
    assert '--xla_dump_to="here"' in environment["XLA_FLAGS"]
