"""Makes the rules of priority fusion, and all that they are made of, wrong in turn.

    python tools/conformance/gpu_mutants.py [--only MODULE | book]

A rule is removed, inverted, or swapped with the next one; a threshold, or another number, is one
more or less; what a version of the compiler can do is turned round; a function has an operator, a
comparison, a condition or a message turned round or left out; a list lacks one of its elements. The
examples of the rules, the steps that the compiler recorded of the programs in ``gpu_records/`` and
those of the sample dumps, and what it made of these have to notice. What they do not and is not in
``EQUIVALENT`` makes it fail.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import operator
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from unittest import mock

import cpu_mutants as mutants
import gpu_examples as examples
from gpu_records import DIFFERENT, all_programs, card, gpu_model_of, steps_of
from loading import load

from fusionscope.dump import open_dump
from fusionscope.dump.device import Device
from fusionscope.dump.fusion_passes import PRIORITY_FUSION
from fusionscope.dump.priority_fusion import PriorityStep
from fusionscope.gpu.cost.model import CostFormulas
from fusionscope.gpu.emitters import Emitters, is_generic_triton
from fusionscope.gpu.model import GpuModel
from fusionscope.gpu.state import GpuState
from fusionscope.gpu.triton_support import TritonVersion
from fusionscope.graph.comparison import find_divergence
from fusionscope.graph.mutable import MutableModule
from fusionscope.hlo import Module, parse
from fusionscope.passes.context import GpuTarget
from fusionscope.passes.gpu.priority_fusion.record import compare_with_record, recorded_order
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.passes.rule import Rule, RuleBook
from fusionscope.rules.pages import read_examples
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs

Book = RuleBook[Rule]

_ROOT = Path(__file__).resolve().parents[2]
SAMPLES = _ROOT / "samples" / "dumps"
TILING = _ROOT / "tests" / "rules" / "test_tiling.py"
MODULES = (
    "fusionscope.passes.gpu.priority_fusion.rules",
    *(
        f"fusionscope.gpu.{name}"
        for name in """state emitters body reductions transposes inplace_emitter identity structure
        triton triton_support cost.model cost.coalescing cost.launch cost.memory cost.duration
        cost.numbers cost.analysis cost.cycles tiling.search tiling.kernel tiling.table
        tiling.computation tiling.tile tiling.propagation tiling.indexing
        tiling.expression""".split()
    ),
)

_MUTATED = re.compile(r"/fusionscope/(passes/)?gpu/")

# What is recorded for other devices than the H100 takes long, and is asked where it matters.
ALSO = {
    ("bodies", "b200"),
    ("loops", "b200"),
    ("concatenates", "b200"),
    ("transposes", "b200"),
    ("unsupported", "a100"),
    ("unrolled", "b200-12.9"),
}

# Mutants that behave as the original does, by the reason for it; a function and a colon are all
# changes of it.
EQUIVALENT: dict[str, tuple[str, ...]] = {
    "the two are asked at different stages": (
        "pf-is-fusible behind tri-heroless",
        "triton-support behind pf-into-bitcast",
        "tri-tiling behind pf-code-dup",
    ),
    "the book does not order them: they are asked for by what they are": (
        "pf-code-dup behind inplace-extra-operand",
        "pf-all-users behind pf-negative",
        "pf-negative behind pf-large-constant",
    ),
    "where neither of the two is Triton's, nothing is told of what Triton cannot do": (
        "tri-heroless behind triton-support",
    ),
    "only of a bitcast is asked whether it can go into a bitcast, and no scatter is one": (
        "pf-into-bitcast behind pf-scatter",
    ),
    "only saves time where no copy is tiled": (
        "emitters.tiles_copies not",
        "gpu.state.Facts.shared_memory: without self._emitters.tiles_copies",
    ),
    "only where priority fusion does not run, and no judge is from there": (
        "cost.memory.cached_read_time: min(bandwidth_of(device, net), limit), max",
        "cost.memory.compute_time_of_whole_flops:",
        "gpu.emitters.Emitters.are_alike: without not self.tells_sizes_apart",
        "gpu.emitters._BYTE -1",
        "gpu.emitters._BYTE +1",
        "gpu.emitters._NOT_OF_XLA without EmitterKind.CUDNN",
        "gpu.emitters._NOT_OF_XLA without EmitterKind.CUSTOM",
        "gpu.emitters._NOT_OF_XLA without EmitterKind.TRITON",
        "gpu.emitters._are_slices_of_one_shape:",
        "gpu.emitters.emission_of: kind not in _NOT_OF_XLA, In",
        "gpu.emitters.emission_of: without emitters.loops_below_a_byte",
        "gpu.emitters.emission_of: without min(_narrowest(body.parameters()), output_bits) < _BYTE",
        "gpu.emitters.emission_of: without emitters.has_slices",
        "gpu.emitters.emission_of: without kind is EmitterKind.LOOP",
        "gpu.emitters.emission_of: without _are_slices_of_one_shape(roots)",
        "gpu.emitters.emission_of: min(_narrowest(body.parameters()), output_bits) < _BYTE, LtE",
        "gpu.emitters.emission_of: min(_narrowest(body.parameters()), output_bits) < _BYTE, GtE",
        "gpu.transposes.tiled_transpose_of_three:",
    ),
    "asked of fusions with several outputs, which only the passes around make": (
        "emitters.has_slices not",
        "emitters.looks_above_roots not",
        "emitters.looks_at_producers not",
    ),
    "in no program that is recorded": (
        "emitters.loops_below_a_byte not",
        "emitters.column_elements -1",
        "emitters.column_elements +1",
        "formulas.sees_through_bitcasts not",
    ),
    "distinct operands are no more than all operands": (
        "priority_fusion.rules.ParameterBudget.check_both: len(one.operands) + "
        "len(other.operands) - 1 + outputs "
        "<= self.limit, Lt",
        "priority_fusion.rules.ParameterBudget.check_both: len(one.operands) + "
        "len(other.operands) - 1, Add",
    ),
    "only multi-output fusion asks so": (
        "priority_fusion.rules.ParameterBudget.check_both: without grows_consumer",
        "cost.model.CostModel.estimate_multi_output: 2 * KERNEL_LAUNCH + "
        "self.time(producer).total + self.time(consumer).total, Sub",
        "cost.model.CostModel.estimate_multi_output: 2 * KERNEL_LAUNCH + "
        "self.time(producer).total, Sub",
        "cost.model.CostModel.estimate_multi_output: 2 * KERNEL_LAUNCH, Add",
        "cost.model.CostModel.estimate_multi_output: KERNEL_LAUNCH + known, Sub",
        "cost.model.CostModel.estimate_multi_output: known is None, IsNot",
    ),
    "the passes around ask so, and notice": (
        "gpu.body.FusionBody.parameters: len(self.parts) == 1, 0",
        "gpu.body.FusionBody.roots: len(self.parts) == 1, 0",
        "cost.analysis._NOTHING without parameter",
    ),
    "refused before, as Triton knows no tuple": (
        "tiling.search.find_best_tiling: if not version.propagates_tiles",
        "tiling.search.find_best_tiling: len(body.roots) > 1, 2",
        "gpu.triton.Triton.find_tiling_problem: _ERROR + found.message, Sub",
    ),
    "there are more blocks than run at once, and their number is only told": (
        "cost.launch._several_rows: largest >= 32, 33",
        "cost.launch._several_rows: largest >= 32, Gt",
        "cost.launch._several_rows: size > device.threads_per_warp * vector, GtE",
        "cost.launch._split:",
        "cost.launch._transpose: tiled_transpose(hero) is not None, Is",
        "cost.launch._vector_of_transpose:",
    ),
    "no more than 128 threads of a block run at once": (
        "cost.launch._COLUMN_THREADS +1",
        "cost.launch._transpose: if not is_rocm",
    ),
    "no element has such a number of bits": (
        "cost.launch._several_rows: largest >= 32, 31",
        "cost.launch._vector: emission.input_bits >= 32, 31",
        "cost.launch._vector: emission.input_bits >= 64, 63",
    ),
    "a version has three numbers": ("cost.launch._max_unroll: _toolkit(device) >= (12, 9), Gt",),
    "only a figure that is told of a pair": (
        "cost.model.CostModel.pair_cost: tiling is None, IsNot",
    ),
    "no compiler for ROCm can be asked": (
        "cost.launch._is_blackwell: without isinstance(capability, CudaCapability)",
        "gpu.triton_support._Support.__init__: if not self._is_rocm",
        "gpu.triton_support._Support._is_before_ada: without "
        "isinstance(capability, CudaCapability)",
    ),
    "neither the compiler nor what reads its dumps has lengths that are not known": (
        "gpu.triton_support._UNSUPPORTED without dynamic-reshape",
        "gpu.triton_support._UNSUPPORTED without set-dimension-size",
    ),
    "the tuple inside is refused before": (
        "gpu.triton_support._Support._output_type: return 'Nested tuple or token shape is not "
        "supported.', another",
    ),
    "nothing else can be one": (
        "gpu.emitters._kind: without not roots[0].shape.is_tuple",
        "gpu.emitters.is_generic_triton: without instruction.is_custom_fusion",
        "gpu.emitters.is_intermediate: without same_type",
        "gpu.state.is_scatter: without is_fusion(instruction)",
    ),
    "only saves time": (
        "cost.coalescing._minor_dimension: without order",
        "gpu.reductions._is_faster_than_loop: reduction.minor >= warp, Gt",
    ),
    "no two numbers of 8 or more make 8191": ("gpu.transposes._SMALLEST_AREA -1",),
    "no element that is a power of two of bits makes 65 bits with others": (
        "gpu.transposes._WIDEST_MINOR_BITS +1",
    ),
    "rounds to the same": (
        "cost.launch._SCATTER_BITS +1",
        "cost.launch._scatter: per_warp > vector, GtE",
        "cost.model._OPAQUE_BITS -1",
        "cost.numbers._LIMIT -1",
        "cost.numbers.saturated: _LIMIT - 1, Add",
    ),
    "passes before remove what has no elements, and the compiler divides by zero without them": (
        "gpu.reductions._is_faster_than_loop: reduction.minor > 0, -1",
        "gpu.reductions._is_faster_than_loop: reduction.minor > 0, GtE",
        "gpu.reductions._is_faster_than_loop: without reduction.minor > 0",
    ),
    "the compiler ends where a fusion for Triton has no tiles, or several results": (
        "tiling.search.block_level_config: without found.get('output_tiles')",
        "tiling.search.estimate_run_time: len(body.roots) > 1, 2",
    ),
    "the passes around ask for the tiles of others than Triton's, and for warps, and notice": (
        "tiling.search.block_level_config: without isinstance(config, dict)",
        "tiling.kernel._MOST_WARPS -1",
        "tiling.kernel._MOST_WARPS +1",
    ),
    "no number below 0 is a place": ("tiling.table._NO_TILE -1",),
    "tiles have powers of two of elements, and no limit but that for Triton is one": (
        "tiling.kernel._MOST_ELEMENTS +1",
        "tiling.table._REGISTER_SHARE * 1.1",
        "tiling.table._fitting: prod(map(power_of_two, tile_sizes)) <= most, Lt",
        "tiling.table.TilingTable.within: elements <= limit, Lt",
    ),
    "the fewest dimensions are the same, whichever of the two comes first": (
        "tiling.propagation._reshaped: size <= target_size, Lt",
    ),
    "1 and 2 are powers of two": (
        "tiling.tile.power_of_two: number > 1, GtE",
        "tiling.tile.power_of_two: number > 1, 0",
        "tiling.tile.power_of_two: number > 1, 2",
    ),
    "simplified later": ("tiling.expression.modulo: divisor == 1, 0",),
    "a rest that never wraps around is simplified away before its range is asked for": (
        "tiling.expression.Simplifier._computed_range: low >= 0, Gt",
        "tiling.expression.Simplifier._computed_range: low >= 0, 1",
    ),
    "what is less by nothing is the same": (
        "tiling.expression.canonical: difference.left <= 0, Lt",
        "tiling.expression.canonical: difference.left <= 0, -1",
    ),
    "no tiling takes less time than its memory accesses": (
        "tiling.kernel.TiledKernel.best: memory[index] > best[0], GtE",
    ),
}

_LONGEST = 10  # seconds of computation for one judge of a mutant: it may loop for ever


@dataclass(slots=True, eq=False)
class Judge:
    """Something that holds of the replay, by a book or, where None, by its own. ``functions`` are
    those that it comes through."""

    name: str
    holds: Callable[[Book | None], bool]
    functions: set[tuple[str, int]] = field(default_factory=set)
    seconds: float = 0.0
    kills: int = 0


def judges() -> Iterator[Judge]:
    own = [*examples.EXAMPLES]
    own += [(examples.ONLY_HERE, each) for each in read_examples(examples.ONLY_HERE, "on GPUs")]
    for id, example in own:
        yield Judge(f"{id}: {example.why}", partial(_as_it_says, id, example))
    yield from _tests_of(load(TILING))
    for programs in all_programs():
        if programs.name in DIFFERENT:
            continue
        for target in programs.targets:
            if target != "h100" and (programs.name, target) not in ALSO:
                continue
            steps = steps_of(programs.record(target))
            for name, text in programs.texts.items():
                gpu = GpuTarget(device=card(target), gpu_model=gpu_model_of(programs))
                label = f"{programs.name}, {target}: {name}"
                yield Judge(label, _Recorded(parse(text), steps[name], gpu).holds)
    for path in sorted(SAMPLES.glob("*00*/*")):
        for module in open_dump(path).modules:
            runs = [run for run in find_runs(module) if run.pass_name == PRIORITY_FUSION]
            record = module.priority_fusion
            if not runs or record is None:
                continue
            gpu = read_context(module).gpu
            assert gpu is not None
            before = module.read(runs[0].before)
            after = module.read(runs[0].after) if runs[0].after is not None else before
            yield Judge(str(path), _Recorded(before, record.steps, gpu, after).holds)


def _as_it_says(id: str, example: Any, book: Book | None) -> bool:
    examples.check(id, example, book or GPU_FUSION)
    return True


def _tests_of(module: ModuleType) -> Iterator[Judge]:
    """Each test of a module with each of its parameters, but for those with drawn values."""
    for name, test in vars(module).items():
        if not name.startswith("test_") or hasattr(test, "hypothesis"):
            continue
        marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        for index, values in enumerate(product(*(mark.args[1] for mark in marks))):
            arguments: dict[str, Any] = {}
            for mark, value in zip(marks, values, strict=True):
                names = mark.args[0]
                is_one = isinstance(names, str)
                arguments |= {names: value} if is_one else zip(names, value, strict=True)
            yield Judge(f"{name}.{index}", partial(_passes, test, arguments))


def _passes(test: Callable[..., None], arguments: Mapping[str, Any], book: Book | None) -> bool:
    test(**arguments)
    return True


class _Recorded:
    """The steps of a module are those that were recorded, in an order that is found out first, and
    lead to ``after``, where that is known."""

    def __init__(
        self,
        module: Module,
        steps: tuple[PriorityStep, ...],
        target: GpuTarget,
        after: Module | None = None,
    ) -> None:
        self._module, self._steps, self._target, self._after = module, steps, target, after
        walked = MutableModule(module).walk()
        self._triton = [each.name for each in walked if is_generic_triton(each)]
        if not self.holds(None):
            self._target = replace(target, recorded=recorded_order(steps))

    def holds(self, book: Book | None) -> bool:
        target = self._target
        plan = PriorityFusion(
            graph=MutableModule(self._module),
            book=book or GPU_FUSION,
            state=GpuState(target.device, target.gpu_model),
            ids=target.ids,
            recorded=target.recorded,
        ).run()
        if compare_with_record(plan.events, self._steps, self._triton).first is not None:
            return False
        return self._after is None or find_divergence(plan.module, self._after) is None


@dataclass(frozen=True, slots=True)
class Mutant:
    """``code`` is the function that judges have to come through, None where any judge counts."""

    name: str
    book: Book | None
    patch: Any
    code: CodeType | None = None


def of_book(whole: Book, left_out: Collection[Rule]) -> Iterator[Mutant]:
    rules = whole.rules
    for index, rule in enumerate(rules):
        if rule in left_out:
            continue
        yield Mutant(f"{rule.id} removed", whole.without(rule.id), nullcontext())
        if hasattr(rule, "check"):
            book = whole.with_rule(mutants._inverted(rule))
            yield Mutant(f"{rule.id} inverted", book, nullcontext())
        for name, value in rule.thresholds.items():
            for off in (-1, 1):
                book = whole.with_threshold(rule.id, name, value + off)
                yield Mutant(f"{rule.id}.{name} {off:+}", book, nullcontext())
        if index + 1 < len(rules):
            order = (*rules[:index], rules[index + 1], rule, *rules[index + 2 :])
            book = replace(whole, rules=order)
            yield Mutant(f"{rule.id} behind {rules[index + 1].id}", book, nullcontext())


def of_model() -> Iterator[Mutant]:
    """What each version can do turned round, and each number one more or less."""
    for part, kind in (
        ("emitters", Emitters),
        ("formulas", CostFormulas),
        ("triton", TritonVersion),
    ):
        for each in fields(kind):
            changes: dict[str, Callable[[Any], Any]] = {}
            if each.type == "bool":
                changes = {"not": operator.not_}
            elif each.type == "int":
                changes = {"-1": lambda value: value - 1, "+1": lambda value: value + 1}
            for what, change in changes.items():
                patch = _with_model(part, each.name, change)
                yield Mutant(f"{part}.{each.name} {what}", None, patch, GpuState.__init__.__code__)


def _with_model(part: str, name: str, change: Callable[[Any], Any]) -> Any:
    original = GpuState.__init__

    def make(self: GpuState, device: Device, gpu_model: GpuModel) -> None:
        whole: Any = getattr(gpu_model, part)
        changed = replace(whole, **{name: change(getattr(whole, name))})
        original(self, device, replace(gpu_model, **{part: changed}))

    return mock.patch.object(GpuState, "__init__", make)


def _short(name: str) -> str:
    return ".".join(name.split(".")[-2:])


def of_module(module: ModuleType) -> Iterator[Mutant]:
    short = _short(module.__name__)
    for name, value in vars(module).items():
        if name.lstrip("_").isupper() and _is_own(module, name):
            for what, wrong in _other_values(value):
                yield Mutant(f"{short}.{name} {what}", None, _everywhere(name, value, wrong))
    for owner, definition in _definitions(module):
        original = _function(vars(owner)[definition.name])
        if original is None:
            continue
        for what, wrong in mutants._made_wrong(definition, _changes):
            where = f"{short}.{original.__qualname__}"
            code = _code_of(wrong, module, original)
            if code is not None:
                patch = mutants._with_code(original, code)
                yield Mutant(f"{where}: {what}", None, patch, original.__code__)


def _is_own(module: ModuleType, name: str) -> bool:
    """Whether a name is given a value there, and not imported."""
    lines = Path(str(module.__file__)).read_text(encoding="utf-8").splitlines()
    return any(line.startswith((f"{name} =", f"{name}:")) for line in lines)


def _other_values(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, bool | str):
        return
    if isinstance(value, int):
        yield "-1", value - 1
        yield "+1", value + 1
    elif isinstance(value, float) and value < 1e9:
        yield "* 1.1", value * 1.1
    elif isinstance(value, frozenset):
        for each in sorted(value, key=str):
            yield f"without {each}", value - {each}


def _everywhere(name: str, value: object, wrong: object) -> ExitStack:
    """Wherever the name was imported."""
    stack = _Patches()
    for module in list(sys.modules.values()):
        if module.__name__.startswith("fusionscope.") and vars(module).get(name) is value:
            stack.patches.append(mock.patch.object(module, name, wrong))
    return stack


class _Patches(ExitStack):
    def __init__(self) -> None:
        super().__init__()
        self.patches: list[Any] = []

    def __enter__(self) -> _Patches:
        for patch in self.patches:
            self.enter_context(patch)
        return self


def _definitions(module: ModuleType) -> Iterator[tuple[Any, ast.FunctionDef]]:
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        is_class = isinstance(node, ast.ClassDef)
        owner = getattr(module, node.name) if isinstance(node, ast.ClassDef) else module
        for each in node.body if is_class else [node]:
            if isinstance(each, ast.FunctionDef):
                each.decorator_list = []
                yield owner, each


def _function(value: Any) -> FunctionType | None:
    """What is behind a property, a cache and the like."""
    for name in ("func", "fget", "__wrapped__", "__func__"):
        value = getattr(value, name, None) or value
    return value if isinstance(value, FunctionType) else None


def _code_of(
    definition: ast.FunctionDef, module: ModuleType, original: FunctionType
) -> CodeType | None:
    code = mutants._code_of(definition, module)
    return code if code.co_freevars == original.__code__.co_freevars else None


_OTHER_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_OTHER_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def _changes(node: ast.AST) -> Iterator[tuple[str, mutants.Change]]:
    """What else can be made wrong than comparisons and conditions."""
    yield from mutants._changes(node)
    match node:
        case ast.BinOp(op=operator) if type(operator) in _OTHER_OPERATORS:
            other = _OTHER_OPERATORS[type(operator)]
            if not _is_text(node):
                change = partial(mutants._set, "op", other())
                yield f"{mutants._text(node)}, {other.__name__}", change
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER_FUNCTIONS:
            function = ast.Name(_OTHER_FUNCTIONS[name], ast.Load())
            change = partial(mutants._set, "func", function)
            yield f"{mutants._text(node)}, {_OTHER_FUNCTIONS[name]}", change
        case ast.Return(value=ast.Constant(value=str(text))):
            change = partial(mutants._set, "value", ast.Constant(f"other {text}"))
            yield f"return {text!r}, another", change
        case ast.Return(value=ast.Constant(value=bool(answer))):
            change = partial(mutants._set, "value", ast.Constant(not answer))
            yield f"return {answer}, not", change


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right))


def _forget() -> None:
    """What functions of the package remember."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("fusionscope."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _learn(judge: Judge) -> None:
    """Which functions the judge comes through, and how long it takes."""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and _MUTATED.search(frame.f_code.co_filename):
            judge.functions.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    _forget()
    sys.setprofile(note)
    try:
        holds = judge.holds(None)
    finally:
        sys.setprofile(None)
    assert holds, f"{judge.name} does not hold to begin with"
    start = time.process_time()
    judge.holds(None)
    judge.seconds = time.process_time() - start


def survives(mutant: Mutant, known: list[Judge]) -> bool:
    place = None
    if mutant.code is not None:
        place = (mutant.code.co_filename, mutant.code.co_firstlineno)
    asked = [each for each in known if place is None or place in each.functions]
    asked.sort(key=lambda each: each.seconds / (1 + each.kills))
    with mutant.patch:
        _forget()
        for judge in asked:
            signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST)
            try:
                holds = judge.holds(mutant.book)
            except Exception:
                holds = False
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if not holds:
                judge.kills += 1
                return False
    return True


def _out_of_time(*_: object) -> None:
    raise TimeoutError


def read_only() -> str | None:
    """What of all is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="one module, such as cost.launch, or book")
    only: str | None = parser.parse_args().only
    return only


def try_all(
    only: str | None,
    modules: Sequence[str],
    books: Iterable[Mutant],
    known: list[Judge],
    explained: Mapping[str, Sequence[str]],
) -> bool:
    """Prints what survives; says whether that is just what is explained."""
    signal.signal(signal.SIGVTALRM, _out_of_time)
    for judge in known:
        _learn(judge)
    print(f"{len(known)} judges, {sum(each.seconds for each in known):.1f} s", flush=True)
    equivalent = set(chain(*explained.values()))
    survivors, names = set(), set()
    sources = [books] if only in (None, "book") else []
    for name in modules:
        if only in (None, _short(name)):
            sources.append(of_module(importlib.import_module(name)))
    for mutant in chain(*sources):
        function = mutant.name.partition(" ")[0]
        name = function if function in equivalent else mutant.name
        names.add(name)
        if survives(mutant, known):
            survivors.add(name)
            is_known = name in equivalent
            print("equivalent" if is_known else "SURVIVED  ", mutant.name, flush=True)
    left = survivors - equivalent
    stale = (equivalent & names) - survivors
    print(
        f"{len(names)} mutants, {len(survivors)} survive, {len(left)} of them for no known reason"
    )
    for each in sorted(stale):
        print("not (or no longer) a survivor:", each)
    return not left and not stale


def main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    values = chain(of_book(GPU_FUSION, IN_PLACE_RULES), of_model())
    sys.exit(not try_all(read_only(), MODULES, values, list(judges()), EQUIVALENT))


if __name__ == "__main__":
    main()
