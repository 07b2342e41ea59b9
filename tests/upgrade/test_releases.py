"""What an upgrade changed: the verdict, the place, the code below HLO, and the walk."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from fusionscope.capture.capture import Captured
from fusionscope.capture.targets import Program, ProgramKind, Target
from fusionscope.errors import UnusableInput
from fusionscope.hlo import parse
from fusionscope.passes.overrides import PairPattern
from fusionscope.report.upgrade import sections_of
from fusionscope.upgrade import environments, measured
from fusionscope.upgrade import remedies as remedies_module
from fusionscope.upgrade import trial as trial_module
from fusionscope.upgrade import walk as walk_module
from fusionscope.upgrade.below import CodeChange, compare_code, same_kernels, swap_loops
from fusionscope.upgrade.environments import find_python, releases_between
from fusionscope.upgrade.figures import (
    Figure,
    Side,
    Verdict,
    compare_figures,
    is_uncertain,
    judge,
    module_of,
    overall,
    side_of,
)
from fusionscope.upgrade.makers import compare_makers
from fusionscope.upgrade.place import Where
from fusionscope.upgrade.strides import strided_bytes
from fusionscope.upgrade.trial import Trial
from fusionscope.upgrade.upgrade import Upgrade, upgrade
from fusionscope.upgrade.walk import find_boundary
from fusionscope.words.section import Lines, Table

TESTS = Path(__file__).parents[1]
DUMPS = TESTS.parent / "samples" / "dumps"
DONATED = TESTS / "explain" / "data" / "donated"
CPU = Target("cpu", "cpu")


def side(dump: Path, jaxlib: str = "0.1", problem: str = "") -> Side:
    return side_of(
        Captured(
            directory=dump,
            program="program",
            target="cpu",
            flags=(),
            program_flags="",
            notes=(),
            arguments=(),
            python="python",
            versions={"jaxlib": jaxlib},
            problem=problem,
            compile_s=None if problem else 1.0,
        ),
        "python",
        60.0,
    )


class Stored(Trial, frozen=True):
    """Dumps that are there already, by release."""

    dumps: dict[str, Path]

    def compile(self, python: str, name: str, more: object = ()) -> Side:
        return replace(side(self.dumps[python], python), python=python)


def compared(before: Path, after: Path, **options: object) -> Upgrade:
    trial = Stored(
        program=Program(kind=ProgramKind.FUNCTION, name="program"),
        target=CPU,
        folder=Path(),
        dumps={"0.1": before, "0.2": after},
    )
    return upgrade(trial, ("0.1", "0.2"), **options)


def verdicts(result: Upgrade) -> dict[Figure, Verdict]:
    return {change.figure: change.verdict for change in result.changes}


def test_a_lost_fusion_is_worse() -> None:
    result = compared(
        DUMPS / "h100/softmax", DUMPS / "h100-without-triton-softmax/softmax"
    )  # one kernel became three, and the scores are written
    assert result.verdict is Verdict.WORSE
    assert (result.before.launches, result.after.launches) == (1, 3)
    assert result.where is Where.PASSES
    assert result.code is None
    back = compared(DUMPS / "h100-without-triton-softmax/softmax", DUMPS / "h100/softmax")
    assert back.verdict is Verdict.BETTER


def test_kernels_are_counted_by_the_pass_that_made_them() -> None:
    # one kernel of the softmax rewriter became three of priority fusion
    softmax = DUMPS / "h100/softmax"
    result = compared(softmax, DUMPS / "h100-without-triton-softmax/softmax")
    launches = {
        change.maker.partition(".after_")[2].partition(".")[0]: (
            change.before.launches,
            change.after.launches,
        )
        for change in result.makers
    }
    assert launches == {"priority-fusion": (0, 3), "triton-softmax-rewriter": (1, 0)}
    assert not compared(softmax, softmax).makers


@pytest.mark.parametrize("program", ["attention", "concatenate", "elementwise", "reductions"])
@pytest.mark.parametrize("device", ["cpu", "h100"])
def test_what_the_passes_made_adds_up(device: str, program: str) -> None:
    before, after = side(DUMPS / device / "softmax"), side(DUMPS / device / program)
    makers = compare_makers(before.dump, after.dump)
    times, bytes_moved, launches = zip(*(change.growth for change in makers), strict=True)
    assert sum(launches) == after.launches - before.launches
    assert sum(bytes_moved) == after.bytes_moved - before.bytes_moved
    assert before.time_us is not None and after.time_us is not None
    assert sum(times) == pytest.approx(after.time_us - before.time_us)


def test_memory_alone_can_be_worse() -> None:
    # openxla/xla#45912: since 0.7.2, 4,194,304 numbers no longer have the donated memory.
    result = compared(DONATED / "0.6.2", DONATED / "0.7.2")
    assert verdicts(result)[Figure.PEAK] is Verdict.WORSE
    assert result.before.peak_bytes is not None and result.after.peak_bytes is not None
    assert result.after.peak_bytes - result.before.peak_bytes > 4 * 4_194_304 - 1000


@pytest.mark.parametrize("device", ["cpu", "h100"])
@pytest.mark.parametrize("program", ["concatenate", "elementwise", "reductions", "softmax"])
def test_a_dump_is_the_same_as_itself(device: str, program: str) -> None:
    dump = DUMPS / device / program
    result = compared(dump, dump)
    assert result.verdict is Verdict.SAME
    assert result.where is Where.NOWHERE
    assert set(verdicts(result).values()) == {Verdict.SAME}


def test_a_figure_of_its_own_has_to_differ_enough() -> None:
    before = side(DUMPS / "h100/softmax")
    assert before.time_us is not None
    more = before.bytes_moved + 4
    rounded = replace(before, time_us=before.time_us * 1.009, bytes_moved=more, compile_s=2.9)
    assert {change.verdict for change in compare_figures(before, rounded)} == {Verdict.SAME}
    slower = replace(before, time_us=before.time_us * 1.02, compile_s=3.1)
    assert judge(Figure.TIME, before, slower) is Verdict.WORSE
    assert judge(Figure.COMPILE_TIME, slower, before) is Verdict.BETTER
    assert judge(Figure.LAUNCHES, before, replace(before, launches=2)) is Verdict.WORSE
    assert judge(Figure.PEAK, before, replace(before, peak_bytes=None)) is Verdict.SAME


def test_a_measured_time_counts_beyond_its_noise_only() -> None:
    times = 1000.0, 1040.0, 1010.0, 1800.0, 1020.0
    before = replace(side(DUMPS / "cpu/softmax"), runs_us=times)
    for runs, verdict in (
        ((1200.0, 1180.0, 1250.0, 1190.0, 1210.0), Verdict.SAME),  # by less than a quarter
        ((1300.0, 900.0, 1400.0, 1500.0, 1350.0), Verdict.SAME),  # one round is as fast
        ((2200.0, 1310.0, 1400.0, 1500.0, 2300.0), Verdict.SAME),  # not than three quarters
        ((2200.0, 2110.0, 2400.0, 2500.0, 2300.0), Verdict.WORSE),
        ((700.0, 710.0, 790.0, 720.0, 705.0), Verdict.BETTER),
    ):
        after = replace(before, runs_us=runs)
        assert judge(Figure.MEASURED_TIME, before, after) is verdict
        assert is_uncertain(before, after) is (runs[1] == 1310.0)
    short, long = (replace(before, runs_us=(time, time)) for time in (4.0, 20.0))
    assert judge(Figure.MEASURED_TIME, short, long) is Verdict.SAME  # what reaches Python


def test_a_release_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges: list[str] = []

    class Child:
        def __init__(self, command: Sequence[str], _: object) -> None:
            self.python = command[0]

        def exchange(self, *_: object) -> dict[str, object]:
            exchanges.append(self.python)
            if self.python == "hangs" and len(exchanges) > 2:
                return {"died": True, "problem": "stopped: it took over 60 s"}
            return {"shortest_s": 1e-3, "call_s": 1e-5}

        def close(self) -> None:
            pass

    monkeypatch.setattr(measured, "AnsweringChild", Child)
    program = Program(kind=ProgramKind.FUNCTION, name="program")
    trial = Trial(program=program, target=CPU, folder=Path(), runs=True)
    stored = side(DUMPS / "cpu/softmax")
    sides = [replace(stored, python=python) for python in ("runs", "hangs")]
    good, bad = measured.measure(trial, sides)
    assert exchanges == ["runs", "hangs", "runs", "hangs"]
    assert good.runs_us == pytest.approx((990.0,))
    assert (bad.runs_us, bad.run_problem) == ((), "stopped: it took over 60 s")
    assert judge(Figure.MEASURED_TIME, good, bad) is Verdict.SAME  # unknown


def test_an_estimated_time_does_not_count_beside_a_measured_one() -> None:
    before = side(DUMPS / "cpu/softmax")
    assert before.time_us is not None
    after = replace(before, time_us=before.time_us * 2)
    assert overall(compare_figures(before, after)) is Verdict.WORSE
    measured = (replace(figures, runs_us=(1.0, 1.0, 1.0)) for figures in (before, after))
    assert overall(compare_figures(*measured)) is Verdict.SAME


SCATTER = """HloModule m, is_scheduled=true
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
fused {
  p = SHAPE parameter(0)
  i = s32[512,1]{1,0} parameter(1)
  u = f32[512,64]{1,0} parameter(2)
  ROOT s = SHAPE scatter(p, i, u), update_window_dims={1}, inserted_window_dims={INSERTED},
    scatter_dims_to_operand_dims={INSERTED}, index_vector_dim=1, to_apply=sum
}
ENTRY e {
  p = SHAPE parameter(0)
  i = s32[512,1]{1,0} parameter(1)
  u = f32[512,64]{1,0} parameter(2)
  ROOT f = SHAPE fusion(p, i, u), kind=kInput, calls=fused
}
"""


@pytest.mark.parametrize(
    ("shape", "inserted", "strided"),
    [
        ("f32[1000,64]{1,0}", 0, 0),
        ("f32[64,1000]{1,0}", 1, 512 * 64 * 4),  # as jax-ml/jax#39959 has it since 0.9.2
        ("f32[64,1000]{0,1}", 1, 0),  # the window lies lowest in memory
    ],
)
def test_scatters_write_with_a_stride(shape: str, inserted: int, strided: int) -> None:
    module = parse(SCATTER.replace("SHAPE", shape).replace("INSERTED", str(inserted)))
    assert strided_bytes(module) == strided
    dump = side(DUMPS / "h100/softmax")
    before, after = (replace(dump, strided_bytes=count) for count in (0, 9 * dump.bytes_moved))
    assert judge(Figure.STRIDED_WRITES, before, after) is Verdict.WORSE


def test_kernels_of_the_same_hlo_are_found_beside_others() -> None:
    narrow, wide = (
        parse(SCATTER.replace("SHAPE", f"f32[{size},64]{{1,0}}").replace("INSERTED", "0"))
        for size in (1000, 2000)
    )
    assert same_kernels(narrow, narrow) == {"f"}
    assert same_kernels(narrow, wide) == set()


def test_a_compiler_that_does_not_finish_takes_longer() -> None:
    dump = DUMPS / "h100/softmax"
    late = side(dump, problem="stopped: it took longer than 60 s")
    assert judge(Figure.COMPILE_TIME, side(dump), late) is Verdict.WORSE
    crashed = side(dump, problem="the process crashed with SIGSEGV")
    assert judge(Figure.COMPILE_TIME, side(dump), crashed) is Verdict.SAME


def test_a_crash_is_worse_where_the_device_is_present() -> None:
    dump = DUMPS / "cpu/softmax"
    late, crashed = (
        side(dump, problem=problem)
        for problem in ("stopped: it took longer than 60 s", "the process crashed with SIGABRT")
    )
    assert judge(Figure.FAILURES, side(dump), late) is Verdict.SAME
    assert overall(compare_figures(side(dump), crashed)) is Verdict.WORSE
    assert overall(compare_figures(crashed, side(dump))) is Verdict.BETTER
    assert overall(compare_figures(crashed, crashed)) is Verdict.SAME
    absent = DUMPS / "h100/softmax"  # a compiler may need the card in the end
    crashed = side(absent, problem="memory is not addressable by the device")
    assert overall(compare_figures(side(absent), crashed)) is Verdict.SAME


def test_times_that_differ_are_measured_in_new_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = side(DUMPS / "cpu/softmax")
    times = iter(((100.0, 140.0), (150.0, 100.0)))  # the second release is slower, and then faster

    def run(_: Trial, sides: Sequence[Side]) -> list[Side]:
        return [
            replace(end, runs_us=(time,) * 9) for end, time in zip(sides, next(times), strict=True)
        ]

    monkeypatch.setattr(measured, "measure", run)
    trial = Trial(
        program=Program(kind=ProgramKind.FUNCTION, name="program"), target=CPU, folder=Path()
    )
    before, after = measured.measure_twice(trial, (stored, stored))
    assert (len(before.runs_us), len(after.runs_us)) == (18, 18)
    assert judge(Figure.MEASURED_TIME, before, after) is Verdict.SAME


class Hanging(Stored, frozen=True):
    """Releases that compile in 4 seconds, or hang since 0.3."""

    waits: list[tuple[str, float]]

    def compile(self, python: str, name: str, more: object = ()) -> Side:
        self.waits.append((name, self.limit_s))
        hangs = python >= "0.3" and "--xla_cpu_use_fusion_emitters=false" not in str(more)
        problem = "stopped: it took longer than 900 s" if hangs else ""
        time = self.limit_s if problem else 4.0
        stored = side(self.dumps["0.1"], python, problem)
        return replace(stored, python=python, compile_s=time)


def test_a_compiler_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "releases_between", lambda *_: ["0.2", "0.3", "0.4"])
    trial = Hanging(
        program=Program(kind=ProgramKind.FUNCTION, name="program"),
        target=CPU,
        folder=Path(),
        limit_s=900.0,
        runs=True,  # what did not end is not run either
        dumps={"0.1": DUMPS / "cpu/softmax"},
        waits=[],
    )
    result = upgrade(trial, ("0.1", "0.5"), bisects=True, most=2)
    assert result.verdict is Verdict.WORSE
    assert result.boundary is not None
    assert not result.boundary.skipped
    assert (result.boundary.last_before, result.boundary.first_after) == ("0.2", "0.3")
    (remedy,) = result.remedies  # with the other flag, it hangs, too
    assert (remedy.flag, remedy.is_whole) == ("--xla_cpu_use_fusion_emitters=false", True)
    short = 90.0  # the square root of 4 times 900, and 30 to start
    assert trial.waits[:3] == [("from", 900.0), ("to", 900.0), ("from-again", 900.0)]
    assert trial.waits[3:] == [
        ("0.3", short),
        ("0.2", short),
        ("0.2-again", short),
        ("flag-1", short),
        ("flag-2", short),
    ]


@pytest.mark.parametrize("leaves_stages", [False, True])
def test_a_compiler_that_dies_of_code_is_asked_for_hlo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves_stages: bool
) -> None:
    requested: list[Sequence[str]] = []
    stored = side(DUMPS / "cpu/softmax")

    def capture(*_: object, flags: Sequence[str], **__: object) -> Captured:
        requested.append(flags)
        (tmp_path / "from").mkdir()
        problem = "the process crashed with SIGSEGV" if len(requested) == 1 else ""
        if problem and not leaves_stages:
            raise UnusableInput(problem)
        return Captured(
            directory=stored.dump, program="", target="cpu", flags=(), program_flags="", notes=(),
            arguments=(), python="", versions={"jaxlib": "0.10.1"}, problem=problem, compile_s=1.0,
        )  # fmt: skip

    monkeypatch.setattr(trial_module, "capture", capture)
    monkeypatch.setattr(trial_module, "find_python", lambda python, _: python)
    monkeypatch.setattr(
        trial_module,
        "find_installation",
        lambda *_: SimpleNamespace(versions={"jaxlib": "0.10.1"}),
    )
    program = Program(kind=ProgramKind.FUNCTION, name="program")
    trial = Trial(program=program, target=CPU, folder=tmp_path, flags=("--xla_a=b",))
    compiled = trial.compile("python", "from")
    assert (compiled.jaxlib, compiled.problem) == ("0.10.1", "")
    code, *flags_of_user = requested[0]
    assert "dump_emitter" in code
    assert flags_of_user == requested[1] == ["--xla_a=b"]


class WithFlags(Stored, frozen=True):
    """The pass runs again if nothing disables it; some flags, the compiler does not know."""

    def compile(self, python: str, name: str, more: Sequence[str] = ()) -> Side:
        if "--xla_disable_hlo_passes=" in more:
            return replace(side(self.dumps["0.1"], python), python=python)
        if more and "triton" in more[0]:
            raise UnusableInput("Unknown flag in XLA_FLAGS")
        return super().compile(python, name)


def test_the_flag_that_differs_is_tried_first() -> None:
    trial = WithFlags(
        program=Program(kind=ProgramKind.FUNCTION, name="program"),
        target=CPU,
        folder=Path(),
        dumps={
            "0.1": DUMPS / "h100/softmax",
            "0.2": DUMPS / "h100-without-triton-softmax/softmax",
        },
    )
    single, several = (upgrade(trial, ("0.1", "0.2"), most=most) for most in (1, 6))
    assert single.flags_tried == 1
    assert [(remedy.flag, remedy.is_whole) for remedy in single.remedies] == [
        ("--xla_disable_hlo_passes=", True)
    ]
    assert several.remedies == single.remedies
    assert several.flags_tried == 6
    assert upgrade(trial, ("0.2", "0.1"), most=6).flags_tried == 0  # it is better


@pytest.mark.parametrize("is_below", [False, True])
def test_what_makes_code_is_tried_where_hlo_is_the_same(
    monkeypatch: pytest.MonkeyPatch, is_below: bool
) -> None:
    flags_run: list[str] = []

    def run(_: Trial, sides: Sequence[Side], flags: Sequence[str] = ()) -> list[Side]:
        flags_run.extend(flags)
        is_fast = flags == ["--xla_cpu_use_thunk_runtime=false"]
        times = (1e4 if is_fast or end.jaxlib == "0.1" else 9e4 for end in sides)
        return [replace(end, runs_us=(time,) * 9) for end, time in zip(sides, times, strict=True)]

    monkeypatch.setattr(measured, "measure", run)
    monkeypatch.setattr(remedies_module, "measure", run)
    dump = DUMPS / "cpu/softmax"
    trial = Stored(
        program=Program(kind=ProgramKind.FUNCTION, name="program"),
        target=CPU,
        folder=Path(),
        runs=True,
        dumps={"0.1": dump, "0.2": dump if is_below else DUMPS / "cpu/reductions"},
    )
    result = upgrade(trial, ("0.1", "0.2"), most=2)
    assert result.verdict is Verdict.WORSE
    assert ("--xla_cpu_use_thunk_runtime=false" in flags_run) is is_below
    assert [remedy.is_whole for remedy in result.remedies if remedy.flag] == [True] * is_below
    assert not any(remedy.is_whole for remedy in result.remedies if remedy.recipe)  # is not run


class WithEdits(Stored, frozen=True):
    """The program is as before with the recipe; what jax hands over compiles as the dump's own
    program does, if that ``is_same``."""

    is_same: bool = True

    def compile(self, python: str, name: str, more: Sequence[str] = ()) -> Side:
        is_unlike = name == "edit-none" and not self.is_same
        dump = self.dumps["0.1" if name.startswith("edit-sum") or is_unlike else python[:3]]
        return replace(side(dump, python), python=python)


def test_edits_are_tried_on_the_program_of_the_dump(tmp_path: Path) -> None:
    trial = WithEdits(
        program=Program(kind=ProgramKind.FUNCTION, name="program"),
        target=CPU,
        folder=tmp_path,
        dumps={"0.1": DUMPS / "h100/softmax", "0.2": DUMPS / "h100/reductions"},
    )
    result = upgrade(trial, ("0.1", "0.2"), most=1)
    assert result.edits_tried == 1
    ((remedy),) = result.remedies
    assert (remedy.flag, remedy.recipe, remedy.is_whole) == ("", "sum-in-parts", True)
    assert remedy.title and remedy.sources
    programs = [(tmp_path / f"edit-{name}.hlo").read_text() for name in ("none", "sum-in-parts")]
    assert len(set(programs)) == 2
    assert result.pin == "jaxlib==0.1"
    untried = upgrade(replace(trial, is_same=False), ("0.1", "0.2"), most=1)
    assert (untried.remedies, untried.edits_tried) == ((), 0)
    assert upgrade(trial, ("0.2", "0.1"), most=1).pin == ""  # it is better


ATOMIC = "  %3 = atomicrmw fadd ptr %1, float %2 monotonic, align 4\n"
LOOP = "  %3 = cmpxchg ptr %1, i32 %2, i32 %4 monotonic monotonic, align 4\n"
WIDE, NARROW = (f"  %5 = fadd <{w} x float> %6, %7\n" for w in (16, 4))


def write_code(folder: Path, lines: str) -> Path:
    folder.mkdir()
    text = f"define ptr @add_fusion(ptr %0) #0 {{\n{lines}  ret ptr null\n}}\n"
    (folder / "module_0001.jit_f.add_fusion_kernel_module.ir-with-opt.ll").write_text(text)
    return folder


def test_a_loop_in_place_of_an_atomic_operation_is_worse(tmp_path: Path) -> None:
    before, after = (
        replace(side(DUMPS / "h100/softmax"), swaps=swap_loops(write_code(tmp_path / name, code)))
        for name, code in (("before", ATOMIC), ("after", LOOP))
    )
    assert judge(Figure.SWAPS, before, after) is Verdict.WORSE
    assert judge(Figure.SWAPS, after, before) is Verdict.BETTER
    assert swap_loops(tmp_path) is None  # no code


def test_code_of_the_same_kernel_is_compared(tmp_path: Path) -> None:
    before = write_code(tmp_path / "before", ATOMIC + WIDE)
    after = write_code(tmp_path / "after", LOOP + NARROW)
    assert compare_code(before, after) == (
        CodeChange("add_fusion", "atomic operations", 1, 0),
        CodeChange("add_fusion", "compare-and-swap loops", 0, 1),
        CodeChange("add_fusion", "elements of the widest vector", 16, 4),
    )
    assert compare_code(before, before) == ()
    assert compare_code(before, tmp_path) is None


IN_PLACE = """  br i1 %8, label %write, label %"end of it"
write:
  store float %9, ptr %10, align 4
  br label %"end of it"
"end of it":
"""
COPYING = """  br label %12

12:                                    ; preds = %12, %1
  store float %20, ptr %21, align 4
  br i1 %68, label %13, label %12
13:
"""


def test_a_kernel_that_becomes_a_loop_is_said(tmp_path: Path) -> None:
    before = write_code(tmp_path / "before", IN_PLACE)
    after = write_code(tmp_path / "after", COPYING)
    (change,) = compare_code(before, after) or ()
    assert (change.trait, change.before, change.after) == ("loops: none (0) or some (1)", 0, 1)
    assert compare_code(after, after) == ()


RELEASES = tuple(f"0.{number}" for number in range(2, 12))


def ends() -> tuple[Side, Side]:
    dumps = DUMPS / "h100/softmax", DUMPS / "h100-without-triton-softmax/softmax"
    return side(dumps[0], "0.1"), side(dumps[1], "0.12")


def compiling(first_bad: int, broken: tuple[str, ...] = ()) -> Callable[[str], Side]:
    before, after = ends()

    def compile_with(release: str) -> Side:
        if release in broken:
            raise UnusableInput("no wheel")
        is_bad = int(release.partition(".")[2]) >= first_bad
        return replace(after if is_bad else before, jaxlib=release)

    return compile_with


@pytest.mark.parametrize("first_bad", range(2, 13))
def test_the_walk_ends_at_the_first_bad_release(first_bad: int) -> None:
    boundary = find_boundary(
        "launches", ends(), RELEASES, compiling(first_bad), lambda side: side.launches > 1
    )
    assert boundary.first_after == f"0.{first_bad}"
    assert boundary.last_before == f"0.{first_bad - 1}"
    assert len(boundary.sides) <= 6  # two ends, and log2 of ten


@pytest.mark.parametrize(("times", "is_below"), [((5_000.0, 50_000.0), False), ((9e4, 1e3), True)])
def test_a_time_that_no_figure_explains_is_lost_below(
    times: tuple[float, float], is_below: bool
) -> None:
    # one kernel became three: that explains a longer time, and no shorter one
    slow = compared(DUMPS / "h100/softmax", DUMPS / "h100-without-triton-softmax/softmax")
    before, after = (
        replace(end, runs_us=(time,) * 9)
        for end, time in zip((slow.before, slow.after), times, strict=True)
    )
    assert replace(slow, before=before, after=after).is_below is is_below
    assert not slow.is_below  # nothing was measured


def test_neighbours_are_compared_once_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    # the first release compiles another program, and the rewriter is off in the last only
    monkeypatch.setattr(walk_module, "releases_between", lambda *_: ["0.2"])
    dumps = "h100/elementwise", "h100/softmax", "h100-without-triton-softmax/softmax"
    trial = Stored(
        program=Program(kind=ProgramKind.FUNCTION, name="program"),
        target=CPU,
        folder=Path(),
        dumps={f"0.{number}": DUMPS / dump for number, dump in enumerate(dumps, 1)},
    )
    assert upgrade(trial, ("0.1", "0.3")).where is Where.LOWERING
    result = upgrade(trial, ("0.1", "0.3"), by=Figure.LAUNCHES, bisects=True)
    assert result.where is Where.PASSES
    verdict, since, *_ = sections_of(result, None)
    _, notes = verdict.blocks
    assert isinstance(notes, Lines)
    assert notes.lines[0].text.startswith("0.2 → 0.3: the compiler gets the same program")
    assert since.title == "Since jaxlib 0.3"
    (table, *_) = since.blocks
    assert isinstance(table, Table)
    names = [column.title for column in table.columns]
    assert "launches" in names
    assert "compile time" not in names  # it is the same with all three


def test_what_cannot_be_compiled_is_left_out() -> None:
    boundary = find_boundary(
        "launches", ends(), RELEASES, compiling(6, ("0.5", "0.6")), lambda side: side.launches > 1
    )
    assert (boundary.last_before, boundary.first_after) == ("0.4", "0.7")
    assert {words.partition(":")[0] for words in boundary.skipped} == {"0.5", "0.6"}


def test_a_release_that_crashes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk_module, "releases_between", lambda *_: ["0.2"])

    class Crashing(Stored, frozen=True):
        def compile(self, python: str, name: str, more: object = ()) -> Side:
            crash = "the process crashed with SIGABRT" if python == "0.2" else ""
            return replace(side(self.dumps[python], python, crash), python=python)

    dumps = {"0.1": DUMPS / "cpu/softmax", "0.3": DUMPS / "cpu/reductions"}
    trial = Crashing(
        program=Program(kind=ProgramKind.FUNCTION, name="program"),
        target=CPU,
        folder=Path(),
        dumps={**dumps, "0.2": dumps["0.1"]},
    )
    launches = upgrade(trial, ("0.1", "0.3"), by=Figure.LAUNCHES, bisects=True).boundary
    assert launches is not None
    assert (launches.last_before, launches.first_after) == ("0.1", "0.3")
    assert launches.skipped == ("0.2: the process crashed with SIGABRT",)
    crash = upgrade(trial, ("0.1", "0.2"), bisects=True)
    assert crash.verdict is Verdict.WORSE
    assert crash.boundary is not None
    assert crash.boundary.by == "failures"


def test_there_must_be_something_to_follow() -> None:
    dump = DUMPS / "h100/softmax"
    assert compared(dump, dump, bisects=True).boundary is None
    with pytest.raises(UnusableInput, match="compile time is the same with both releases"):
        compared(dump, dump, bisects=True, by=Figure.COMPILE_TIME)
    with pytest.raises(UnusableInput, match="dot -> \\* is not there with both releases"):
        compared(dump, dump, bisects=True, by=PairPattern("dot", "*"))


def test_releases_come_from_pip_in_their_order(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\necho 'jaxlib (0.10.1)'\n"
        "echo 'Available versions: 0.10.1, 0.10.0, 0.9.2, 0.9.0.1, 0.9.0, 0.9.0rc1, 0.8.3'\n"
    )
    newer = tmp_path / "newer"
    newer.write_text("#!/bin/sh\necho 'Available versions: 0.10.1, 0.10.0.1, 0.10.0'\n")
    for script in (python, newer):
        script.chmod(0o755)
    pythons = str(python), str(newer)
    between = releases_between("0.9.0", "0.10.1", pythons)
    assert between == ["0.9.0.1", "0.9.2", "0.10.0", "0.10.0.1"]
    assert releases_between("0.10.0", "0.8.3", pythons) == ["0.9.2", "0.9.0.1", "0.9.0"]


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environments.shutil, "which", lambda name: name)

    def run(command: list[str], _what: str) -> str:
        commands.append(command)
        (tmp_path / "fusionscope-environments/0.10.1-cuda").mkdir(parents=True, exist_ok=True)
        return ""

    monkeypatch.setattr(environments, "_run", run)
    python = find_python("0.10.1", Target("h100", "cuda"))
    assert find_python("0.10.1", Target("h100", "cuda")) == python
    assert [command[1] for command in commands] == ["venv", "pip"]
    assert {"jaxlib==0.10.1", "jax-cuda12-plugin==0.10.1"} <= set(commands[1])
    with pytest.raises(UnusableInput, match="no packages are known for rocm"):
        find_python("0.10.1", Target("mi300x", "rocm"))


def timed_dump(folder: Path, seconds_of_code: dict[str, float]) -> Side:
    """Return a program whose stages were written a second after each other, and then its code."""
    shutil.copytree(DUMPS / "cpu/softmax", folder)
    stages = module_of(folder).stages
    for second, stage in enumerate(stages):
        os.utime(stage.file.path, (second, second))
    prefix = f"module_{module_of(folder).number:04}.{module_of(folder).name}."
    for name, seconds in seconds_of_code.items():
        file = folder / f"{prefix}{name}"
        file.write_text("define void @copy_fusion() {\n}\n")
        time_ns = int((len(stages) - 1 + seconds) * 1e9)
        os.utime(file, ns=(time_ns, time_ns))
    return side(folder)


def test_where_the_time_to_compile_went(tmp_path: Path) -> None:
    # Names as compilers of several releases write them: MLIR first, LLVM later, two threads.
    seconds_of_code = {
        "add_fusion_kernel_module-pre-optimization.mlir": 1.0,
        "__compute_module_add_fusion.1-pre-optimization.mlir": 1.25,
        "add_fusion_kernel_module-post-lowering.mlir": 1.5,
        "dot.3_elemental_kernel_module.ir-no-opt.ll": 3.0,
        "add_fusion_kernel_module.ir-no-opt.ll": 4.0,
        "dot.3_elemental_kernel_module.ir-with-opt.ll": 5.0,
        "add_fusion_kernel_module.ir-with-opt.ll": 5.5,
        "obj-file.add_fusion_kernel_module.o": 6.0,
        "obj-file.dot.3_elemental_kernel_module.o": 7.0,
        "2.ir-no-opt.ll": 8.0,  # numbered on GPUs; the entry names the kernel
        "3.ir-with-opt.ll": 9.0,
        "ir-no-opt.ll": 10.0,  # of all kernels in older releases
        "ir-with-opt.ll": 12.0,
        "debug_options": 20.0,
    }
    compiled = timed_dump(tmp_path / "dump", seconds_of_code)
    steps = compiled.compile_steps
    passes = {step.step: step.seconds for step in steps.steps if not step.is_code}
    assert steps.passes_s == sum(passes.values()) == len(module_of(tmp_path / "dump").stages) - 1
    assert passes["fusion"] == 1.0
    assert steps.code_s == 12.0
    code = {step.step: step.seconds for step in steps.steps if step.is_code}
    assert code == {
        "add_fusion": 0.5 + 2.0,
        "add_fusion.1": 0.25,
        "dot.3": 4.0,
        "copy_fusion": 1.0,
        "": 2.0,
    }


def test_the_steps_of_a_slower_compilation_are_listed(tmp_path: Path) -> None:
    codes = ({"obj-file.a.o": 1, "obj-file.b.o": 2}, {"obj-file.a.o": 1, "obj-file.b.o": 9})
    fast, slow = (
        replace(timed_dump(tmp_path / str(seconds), code), compile_s=float(seconds))
        for seconds, code in zip((40, 100), codes, strict=True)
    )
    for sides in ((fast, slow), (slow, fast)):
        result = compared(DUMPS / "cpu/softmax", DUMPS / "cpu/softmax")
        before, after = sides
        sections = sections_of(replace(result, before=before, after=after), 5)
        tables = [s.blocks[0] for s in sections if s.title == "Where the time to compile went"]
        (table,) = tables
        assert isinstance(table, Table)
        order = 1 if before is fast else -1
        values = {name: tuple(texts[::order]) for name, *texts in table.rows}
        stages = len(module_of(tmp_path / "40").stages) - 1
        assert values == {
            "passes": (f"{stages:g} s",) * 2,
            "code of kernels": ("2 s", "9 s"),
            "before and after these": (f"{38 - stages:g} s", f"{91 - stages:g} s"),
            "code of b": ("1 s", "8 s"),
        }
    same = sections_of(compared(DUMPS / "cpu/softmax", DUMPS / "cpu/softmax"), 5)
    assert not [section for section in same if section.title.startswith("Where the time to")]


def test_a_python_without_a_wheel_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bases = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(environments.shutil, "which", lambda name: name)

    def run(command: list[str], _what: str) -> str:
        if command[1] == "venv":
            bases.append(command[-2])
            Path(command[-1]).mkdir(parents=True)
        elif bases == [sys.executable]:
            raise UnusableInput("jaxlib has no wheel for this Python")
        return ""

    monkeypatch.setattr(environments, "_run", run)
    find_python("0.4.31", CPU)
    assert bases == [sys.executable, "3.12"]

    def refuse(_command: list[str], _what: str) -> str:
        raise UnusableInput("jaxlib has no wheel at all" if not bases else "nor has 3.12")

    monkeypatch.setattr(environments, "_run", refuse)
    bases.clear()
    with pytest.raises(UnusableInput, match="no wheel at all"):
        find_python("0.4.32", CPU)


@pytest.mark.parametrize(
    ("release", "origin", "requirements"),
    [
        ("0.9.2", "", ["nn==1.2", "nn"]),  # the second, if the first does not fit
        ("0.10.1", "", ["nn", "nn"]),  # after the installed release
        ("0.9.2", '{"url": "file:///nn", "dir_info": {}}', ["nn @ file:///nn", "nn"]),
        (
            "0.10.1",
            '{"url": "https://host/nn", "vcs_info": {"vcs": "git", "commit_id": "12ab"}}',
            ["nn @ git+https://host/nn@12ab", "nn"],
        ),
    ],
)
def test_a_package_is_added_as_it_is_here(
    monkeypatch: pytest.MonkeyPatch, release: str, origin: str, requirements: list[str]
) -> None:
    first_requirements = []

    def install(_python: str, packages: Sequence[str]) -> None:
        assert f"jaxlib=={release}" in packages
        first_requirements.append(packages[0])
        if len(first_requirements) == 1:
            raise UnusableInput("does not fit")

    package = SimpleNamespace(version="1.2", read_text=lambda _: origin)
    monkeypatch.setattr(environments, "_install", install)
    monkeypatch.setattr(environments, "find_python", lambda release, _: release)
    monkeypatch.setattr(environments, "packages_distributions", lambda: {"nn_module": ["nn"]})
    monkeypatch.setattr(environments, "distribution", lambda _: package)
    monkeypatch.setattr(environments, "version", lambda _: "0.9.2")
    assert environments.add_package("nn_module", release, CPU)
    assert first_requirements == requirements
    assert not environments.add_package("nowhere", release, CPU)


def test_a_program_that_lacks_a_package_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = side(DUMPS / "cpu/softmax", "0.9.2")
    modules, left = [], ["flax", "optax"]

    def compile_once(_trial: Trial, _python: str, name: str, _more: object) -> Side:
        (tmp_path / name).mkdir()
        if left:
            raise UnusableInput(f"ModuleNotFoundError: No module named '{left[0]}.core'")
        return stored

    def add(module: str, release: str, _target: Target) -> bool:
        modules.append((module, release))
        left.remove(module)
        return True

    monkeypatch.setattr(Trial, "_compile", compile_once)
    monkeypatch.setattr(trial_module, "add_package", add)
    program = Program(kind=ProgramKind.FUNCTION, name="program")
    trial = Trial(program=program, target=CPU, folder=tmp_path)
    assert trial.compile("0.9.2", "from") is stored
    assert modules == [("flax", "0.9.2"), ("optax", "0.9.2")]
    left.append("own")
    monkeypatch.setattr(trial_module, "find_python", lambda python, _: python)
    monkeypatch.setattr(trial_module, "add_package", lambda *_: False)
    with pytest.raises(UnusableInput, match=r"'own\.core'; 0\.9\.2 -m pip install PACKAGE"):
        trial.compile("0.9.2", "to")
    with pytest.raises(UnusableInput, match=r"'own\.core'$"):  # an environment of the user
        trial.compile("/usr/bin/python", "other")


def test_packages_of_a_program_that_differ_are_named() -> None:
    result = compared(DUMPS / "cpu/softmax", DUMPS / "cpu/reductions")
    assert result.where is Where.LOWERING
    before = replace(result.before, packages={"flax": "0.11.2", "optax": "0.2.8", "chex": "0.1"})
    after = replace(result.after, packages={"flax": "0.12.12", "optax": "0.2.8"})
    first = next(iter(sections_of(replace(result, before=before, after=after), 5)))
    assert isinstance(notes := first.blocks[1], Lines)
    assert notes.lines[0].text.endswith("; these differ, too: flax 0.11.2 → 0.12.12")


def test_the_report_begins_with_the_verdict() -> None:
    worse = compared(DUMPS / "h100/softmax", DUMPS / "h100-without-triton-softmax/softmax")
    first, *later = sections_of(worse, 5)
    assert first.title == "worse: program for cpu, jaxlib 0.1 → 0.2"
    (table, notes) = first.blocks
    assert isinstance(table, Table) and isinstance(notes, Lines)
    assert [row[0] for row in table.rows][:3] == ["nominal time", "bytes moved", "launches"]
    assert table.rows[2][1:4] == ("1", "3", "+200%")
    assert "makes other HLO" in notes.lines[0].text
    assert any("ended differently" in section.title for section in later)  # what diff says
    same = next(iter(sections_of(compared(DUMPS / "cpu/softmax", DUMPS / "cpu/softmax"), 5)))
    assert same.title.startswith("same: ")
    change = CodeChange("add_fusion", "atomic operations", 1, 0)
    smaller = replace(worse, verdict=Verdict.SAME, where=Where.BELOW, code=(change,))
    assert next(iter(sections_of(smaller, 5))).title.startswith("same figures, other code: ")
