"""Makes rules, and all that they are made of, wrong in turn: something has to notice.

A rule is removed, inverted, or swapped with the next one; a threshold, or another number, is one
more or less; what a version of the compiler can do is turned round; a function has an operator, a
comparison, a condition or a message turned round or left out; a list lacks one of its elements.
``cpu``: the examples of the rules have to notice. ``gpu`` (priority fusion and its cost model):
also the steps that the compiler recorded of the programs in ``tests/rules/gpu_records`` and of the
sample dumps, and the tests of tilings. ``passes`` (those around priority fusion): the examples, and
what the compiler made of the modules in ``tests/rules/gpu_pass_records``. What none notices and is
not in ``equivalent_mutants.txt``, with the reason, is a problem.
"""

from __future__ import annotations
import __future__

import ast
import copy
import importlib
import operator
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from unittest import mock

from conformance import examples, records
from conformance.findings import ROOT, Finding, counted, note, problem
from conformance.loading import load
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
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.passes.gpu.priority_fusion.record import compare_with_record, recorded_order
from fusionscope.passes.gpu.priority_fusion.rules import GPU_FUSION
from fusionscope.passes.gpu.priority_fusion.run import PriorityFusion
from fusionscope.passes.inplace import IN_PLACE_RULES
from fusionscope.passes.rule import RuleBook
from fusionscope.rules.examples import Example
from fusionscope.rules.pages import read_examples
from fusionscope.versions.context import read_context
from fusionscope.versions.runs import find_runs

Book = RuleBook[Any]
Change = Callable[[Any], None]
Changes = Callable[[ast.AST], Iterator[tuple[str, Change]]]
_LONGEST_S = 10  # of computation for one judge of a mutant: it may loop for ever


@dataclass(slots=True, eq=False)
class Judge:
    """Something that holds of the replay, by a book or, where None, by its own. ``functions`` are
    those that it comes through."""

    name: str
    holds: Callable[[Book | None], bool]
    functions: set[tuple[str, int]] = field(default_factory=set)
    seconds: float = 0.0
    kills: int = 0


@dataclass(frozen=True, slots=True)
class Mutant:
    """``code`` is the function that judges have to come through, None where any judge counts."""

    name: str
    book: Book | None
    patch: Any
    code: CodeType | None = None


# Books and models made wrong.


def of_book(
    whole: Book, left_out: Collection[object] = (), *, has_order: bool = True
) -> Iterator[Mutant]:
    rules = whole.rules
    for index, rule in enumerate(rules):
        if rule in left_out:
            continue
        yield Mutant(f"{rule.id} removed", whole.without(rule.id), nullcontext())
        if hasattr(rule, "check"):
            yield Mutant(f"{rule.id} inverted", _with_inverted(whole, rule), nullcontext())
        for name, value in rule.thresholds.items():
            for off in (-1, 1):
                book = whole.with_threshold(rule.id, name, value + off)
                yield Mutant(f"{rule.id}.{name} {off:+}", book, nullcontext())
        if has_order and index + 1 < len(rules):
            order = (*rules[:index], rules[index + 1], rule, *rules[index + 2 :])
            book = replace(whole, rules=order)
            yield Mutant(f"{rule.id} behind {rules[index + 1].id}", book, nullcontext())


def _with_inverted(book: Book, rule: Any) -> Book:
    """A book with a rule that decides what this one leaves, and leaves what it decides."""
    kind = type(rule)

    def check(self: Any, *arguments: Any) -> Any:
        if kind.check(self, *arguments) is not None:
            return None
        refuses = self.message or not self.only_allows
        return self.refuse() if refuses else self.allow()

    values = {field.name: getattr(rule, field.name) for field in fields(rule)}
    inverted = type(kind.__name__, (kind,), {"check": check})(**values)
    return replace(
        book,
        rules=tuple(inverted if rule_of_book is rule else rule_of_book for rule_of_book in book),
    )


def of_model() -> Iterator[Mutant]:
    """What each version can do turned round, and each number one more or less."""
    for part, kind in (
        ("emitters", Emitters),
        ("formulas", CostFormulas),
        ("triton", TritonVersion),
    ):
        for model_field in fields(kind):
            changes: dict[str, Callable[[Any], Any]] = {}
            if model_field.type == "bool":
                changes = {"not": operator.not_}
            elif model_field.type == "int":
                changes = {"-1": lambda value: value - 1, "+1": lambda value: value + 1}
            for what, change in changes.items():
                patch = _with_model(part, model_field.name, change)
                yield Mutant(
                    f"{part}.{model_field.name} {what}", None, patch, GpuState.__init__.__code__
                )


def _with_model(part: str, name: str, change: Callable[[Any], Any]) -> Any:
    original = GpuState.__init__

    def make(self: GpuState, device: Device, gpu_model: GpuModel) -> None:
        whole: Any = getattr(gpu_model, part)
        changed = replace(whole, **{name: change(getattr(whole, name))})
        original(self, device, replace(gpu_model, **{part: changed}))

    return mock.patch.object(GpuState, "__init__", make)


# Code made wrong.


def of_module(
    name: str, changes: Changes, *, only: Collection[str] = (), constants: bool = True
) -> Iterator[Mutant]:
    """One operator of one function wrong, or one number or list."""
    module = importlib.import_module(name)
    short = _short(name)
    for constant, value in vars(module).items() if constants else ():
        if constant.lstrip("_").isupper() and _is_defined_in(module, constant):
            for what, wrong in _other_values(value):
                patch = _everywhere(constant, value, wrong)
                yield Mutant(f"{short}.{constant} {what}", None, patch)
    for owner, definition in _definitions(module):
        original = _function(vars(owner)[definition.name])
        if original is None or (only and definition.name not in only):
            continue
        for what, wrong in _made_wrong(definition, changes):
            code = _code_of(wrong, module, original)
            if code is not None:
                patch = _with_code(original, code)
                where = f"{short}.{original.__qualname__}"
                yield Mutant(f"{where}: {what}", None, patch, original.__code__)


def of_set(name: str, constant: str) -> Iterator[Mutant]:
    """A list without one of its elements."""
    module = importlib.import_module(name)
    whole = getattr(module, constant)
    for element in sorted(whole):
        patch = mock.patch.object(module, constant, whole - {element})
        yield Mutant(f"{constant} without {element}", None, patch)


def _short(name: str) -> str:
    return ".".join(name.split(".")[-2:])


def _is_defined_in(module: ModuleType, name: str) -> bool:
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
        for element in sorted(value, key=str):
            yield f"without {element}", value - {element}


class _Patches(ExitStack):
    def __init__(self) -> None:
        super().__init__()
        self.patches: list[Any] = []

    def __enter__(self) -> _Patches:
        for patch in self.patches:
            self.enter_context(patch)
        return self


def _everywhere(name: str, value: object, wrong: object) -> ExitStack:
    """Wherever the name was imported."""
    stack = _Patches()
    for module in list(sys.modules.values()):
        if module.__name__.startswith("fusionscope.") and vars(module).get(name) is value:
            stack.patches.append(mock.patch.object(module, name, wrong))
    return stack


@contextmanager
def _with_code(function: Any, code: CodeType) -> Iterator[None]:
    original = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = original


def _definitions(module: ModuleType) -> Iterator[tuple[Any, ast.FunctionDef]]:
    """The functions of a module and of its classes, with what they belong to."""
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        is_class = isinstance(node, ast.ClassDef)
        owner = getattr(module, node.name) if isinstance(node, ast.ClassDef) else module
        for definition in node.body if is_class else [node]:
            if isinstance(definition, ast.FunctionDef):
                definition.decorator_list = []
                yield owner, definition


def _function(value: Any) -> FunctionType | None:
    """What is behind a property, a cache and the like."""
    for name in ("func", "fget", "__wrapped__", "__func__"):
        value = getattr(value, name, None) or value
    return value if isinstance(value, FunctionType) else None


def _made_wrong(
    definition: ast.FunctionDef, changes: Changes
) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The function with one thing changed, each time another one, and what that is."""
    for index, node in enumerate(ast.walk(definition)):
        for what, change in changes(node):
            wrong = copy.deepcopy(definition)
            change(list(ast.walk(wrong))[index])
            yield what, ast.fix_missing_locations(wrong)


def _code_of(
    definition: ast.FunctionDef, module: ModuleType, original: FunctionType
) -> CodeType | None:
    flags = __future__.annotations.compiler_flag  # what stands behind a colon is not evaluated
    code = compile(ast.Module([definition], []), module.__name__, "exec", flags)
    namespace = dict(vars(module))
    exec(code, namespace)
    wrong: CodeType = namespace[definition.name].__code__
    return wrong if wrong.co_freevars == original.__code__.co_freevars else None


_OPPOSITES: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OTHER_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_OTHER_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


def conditions(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """What can be made wrong of comparisons and conditions."""
    match node:
        case ast.Compare(ops=[comparison], comparators=[other]):
            before = ast.unparse(node)
            for opposite in _OPPOSITES[type(comparison)]:
                yield f"{before}, {opposite.__name__}", partial(_set, "ops", [opposite()])
            if isinstance(other, ast.Constant) and isinstance(other.value, int):
                for value in (other.value - 1, other.value + 1):
                    constants = [ast.Constant(value)]
                    yield f"{before}, {value}", partial(_set, "comparators", constants)
        case ast.BoolOp(values=values):
            for index, value in enumerate(values):
                yield f"without {ast.unparse(value)}", partial(_leave_out, index)
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            inverted = ast.UnaryOp(ast.Not(), test)
            yield f"if not {ast.unparse(test)}", partial(_set, "test", inverted)
        case ast.comprehension(ifs=[condition]):
            yield f"for without {ast.unparse(condition)}", partial(_set, "ifs", [])


def everything(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """The same, and what can be made wrong of arithmetic, calls and constant answers."""
    yield from conditions(node)
    match node:
        case ast.BinOp(op=arithmetic) if type(arithmetic) in _OTHER_OPERATORS:
            other = _OTHER_OPERATORS[type(arithmetic)]
            if not any(isinstance(side, ast.JoinedStr) for side in (node.left, node.right)):
                yield f"{ast.unparse(node)}, {other.__name__}", partial(_set, "op", other())
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER_FUNCTIONS:
            function = ast.Name(_OTHER_FUNCTIONS[name], ast.Load())
            yield (
                f"{ast.unparse(node)}, {_OTHER_FUNCTIONS[name]}",
                partial(_set, "func", function),
            )
        case ast.Return(value=ast.Constant(value=str(text))):
            change = partial(_set, "value", ast.Constant(f"other {text}"))
            yield f"return {text!r}, another", change
        case ast.Return(value=ast.Constant(value=bool(answer))):
            yield f"return {answer}, not", partial(_set, "value", ast.Constant(not answer))


def _set(name: str, value: Any, node: Any) -> None:
    setattr(node, name, value)


def _leave_out(index: int, node: ast.BoolOp) -> None:
    node.values[index] = ast.Constant(isinstance(node.op, ast.And))


# What notices.


def _says(check: Callable[..., None], id: str, example: Example, book_of_example: Book) -> Judge:
    """An example, which has nothing to say of another pass's book."""

    def holds(book: Book | None) -> bool:
        if book is None or book.name == book_of_example.name:
            check(id, example, book or book_of_example)
        return True

    return Judge(f"{id}: {example.why}", holds)


def _says_of_older(id: str, example: Example, older: Book, book: Book | None) -> bool:
    examples.check_cpu(id, example, older)
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
        self._triton = [
            instruction.name for instruction in walked if is_generic_triton(instruction)
        ]
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


# The three suites.

_CPU = "fusionscope.passes.cpu.instruction_fusion"
_PASSES = "fusionscope.passes"
# What is made wrong: all functions of a module, or those that are named.
CPU_FUNCTIONS: dict[str, tuple[str, ...]] = {
    f"{_PASSES}.pair_rules": (),
    f"{_PASSES}.inplace": (),
    f"{_CPU}.rules": (),
    "fusionscope.versions.jaxlib_0_11_2.cpu": ("is_long",),
    f"{_CPU}.expense": (),
    f"{_PASSES}.expense": (),
    f"{_PASSES}.indexing": (),
    "fusionscope.graph.properties": (
        "operand_use", "_parameter_use", "is_effective_scalar", "is_scalar_constant",
    ),
    f"{_PASSES}.state": ("before_fusing", "reused_operands"),
    f"{_CPU}.run": (),
    f"{_PASSES}.instruction_fusion": (
        "decide", "find_globally_unfusible", "obstacle", "_answer", "_refusal",
    ),
}  # fmt: skip
CPU_SETS = (
    (f"{_CPU}.rules", "_EMITTABLE"),
    (f"{_PASSES}.indexing", "EMITTED_ANEW"),
    (f"{_PASSES}.expense", "_EXPENSIVE_IF_COMPLEX"),
    ("fusionscope.graph.properties", "_READS_ONCE"),
)
GPU_MODULES = (
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
PASS_MODULES = tuple(
    f"fusionscope.passes.gpu.{name}"
    for name in """softmax_fusion.rules copy_fusion.rules block_level.rules fusion_wrapper.rules
    sort_iota_fusion.rules variadic_op_splitter.rules gemm_fusion.rules gemm_fusion.rules_v1
    gemm_fusion.rules_v2 multi_output_fusion.rules""".split()
)
# What is recorded for other devices than the H100 takes long, and is asked where it matters.
ALSO = {
    ("bodies", "b200"),
    ("loops", "b200"),
    ("concatenates", "b200"),
    ("transposes", "b200"),
    ("unsupported", "a100"),
    ("unrolled", "b200-12.9"),
}


def cpu_judges() -> Iterator[Judge]:
    for id, example in examples.CPU_EXAMPLES:
        yield _says(examples.check_cpu, id, example, CPU_FUSION)
    for id, example, book in examples.OLDER_CPU_EXAMPLES:
        yield Judge(f"{book.name}: {example.why}", partial(_says_of_older, id, example, book))
    for book, id, example in examples.OPERATION_EXAMPLES:
        yield _says(examples.check_operation, id, example, book)


def cpu_mutants() -> Iterator[tuple[str, Iterator[Mutant]]]:
    yield "book", of_book(CPU_FUSION)
    for book in examples.OPERATION_BOOKS:
        yield "book", of_book(book, has_order=False)
    for name, only in CPU_FUNCTIONS.items():
        yield _short(name), of_module(name, conditions, only=only, constants=False)
    yield "sets", chain.from_iterable(of_set(*place) for place in CPU_SETS)
    expense = importlib.import_module(f"{_PASSES}.expense")
    cheap = mock.patch.object(expense, "_CHEAP", frozenset())
    yield "sets", iter([Mutant("_CHEAP empty", None, cheap)])


def gpu_judges() -> Iterator[Judge]:
    only = [
        (examples.ONLY_HERE, example) for example in read_examples(examples.ONLY_HERE, "on GPUs")
    ]
    for id, example in [*examples.GPU_EXAMPLES, *only]:
        yield _says(examples.check_gpu, id, example, GPU_FUSION)
    yield from _tests_of(load(ROOT / "tests" / "rules" / "test_tiling.py"))
    for programs in records.all_programs():
        for target in programs.targets if programs.name not in records.DIFFERENT else ():
            if target != "h100" and (programs.name, target) not in ALSO:
                continue
            steps = records.steps_of(programs.record(target))
            gpu = GpuTarget(device=records.card(target), gpu_model=records.gpu_model_of(programs))
            for name, text in programs.texts.items():
                label = f"{programs.name}, {target}: {name}"
                yield Judge(label, _Recorded(parse(text), steps[name], gpu).holds)
    for path in sorted((ROOT / "samples" / "dumps").glob("*00*/*")):
        for module in open_dump(path).modules:
            runs = [run for run in find_runs(module) if run.pass_name == PRIORITY_FUSION]
            record = module.priority_fusion
            if not runs or record is None:
                continue
            context = read_context(module).gpu
            assert context is not None
            before = module.read(runs[0].before)
            after = module.read(runs[0].after) if runs[0].after is not None else before
            yield Judge(str(path), _Recorded(before, record.steps, context, after).holds)


def gpu_mutants() -> Iterator[tuple[str, Iterator[Mutant]]]:
    yield "book", chain(of_book(GPU_FUSION, IN_PLACE_RULES), of_model())
    for name in GPU_MODULES:
        yield _short(name), of_module(name, everything)


def pass_judges() -> Iterator[Judge]:
    for id, example in examples.PASS_EXAMPLES:
        yield _says(examples.check_pass, id, example, examples.PASS_RULES[id][1])
    for name, record in records.PASS_RECORDS.items():
        yield Judge(name, partial(_as_recorded, record))


def _as_recorded(record: records.Record, book: Book | None) -> bool:
    is_own = book is not None and book.name == record.book.name
    return record.difference(book if is_own else None) is None


def pass_mutants() -> Iterator[tuple[str, Iterator[Mutant]]]:
    """Each rule in the newest book that has it."""
    rules = examples.PASS_RULES
    for book in dict.fromkeys(book for _, book in rules.values()):
        foreign_rules = [
            rule for rule in book if rule.id in examples.ELSEWHERE or rules[rule.id][1] is not book
        ]
        if len(foreign_rules) < len(book.rules):
            yield "book", of_book(book, foreign_rules)
    for name in PASS_MODULES:
        yield _short(name), of_module(name, everything)


# Judges, mutants, and whether what the package remembers has to be forgotten for each mutant: no
# function of CPU passes remembers anything.
SUITES = {
    "cpu": (cpu_judges, cpu_mutants, False),
    "gpu": (gpu_judges, gpu_mutants, True),
    "passes": (pass_judges, pass_mutants, True),
}

# Trying them.


def _forget() -> None:
    """What functions of the package remember."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("fusionscope."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _learn(judge: Judge) -> None:
    """Which functions the judge comes through, and how long it takes."""

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/fusionscope/" in frame.f_code.co_filename:
            judge.functions.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    start = time.process_time()
    sys.setprofile(see)
    try:
        holds = judge.holds(None)
    finally:
        sys.setprofile(None)
    judge.seconds = time.process_time() - start
    assert holds, f"{judge.name} does not hold to begin with"


def survives(mutant: Mutant, judges: Sequence[Judge], *, remembers: bool) -> bool:
    place = None
    if mutant.code is not None:
        place = (mutant.code.co_filename, mutant.code.co_firstlineno)
    judges_asked = [judge for judge in judges if place is None or place in judge.functions]
    judges_asked.sort(key=lambda judge_asked: judge_asked.seconds / (1 + judge_asked.kills))
    with mutant.patch:
        if remembers:
            _forget()
        for judge in judges_asked:
            signal.setitimer(signal.ITIMER_VIRTUAL, _LONGEST_S)
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


def equivalent(suite: str) -> set[str]:
    """Mutants that behave as the original does. A function and a colon are all changes of it."""
    file = Path(__file__).with_name("equivalent_mutants.txt")
    names: dict[str, set[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            section = names.setdefault(line.removeprefix("== "), set())
        elif not line.startswith("# "):
            section.add(line)
    return names[suite]


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--only", help="one module, such as cost.launch, or book")


def findings(options: Namespace) -> Iterator[Finding]:
    signal.signal(signal.SIGVTALRM, _out_of_time)
    judges_of, mutants_of, remembers = SUITES[options.suite]
    sources = list(mutants_of())  # imports the modules
    judges = list(judges_of())
    for judge in judges:
        if remembers:
            _forget()
        _learn(judge)
    yield note(f"{len(judges)} judges, {sum(judge.seconds for judge in judges):.1f} s")
    explained = equivalent(options.suite)
    names, survivors = set(), set()
    for mutant in chain(
        *(mutants_of_source for name, mutants_of_source in sources if options.only in (None, name))
    ):
        function = mutant.name.partition(" ")[0]
        name = function if function in explained else mutant.name
        names.add(name)
        if not survives(mutant, judges, remembers=remembers):
            yield counted("noticed", f"noticed: {mutant.name}")
        elif name in explained:
            survivors.add(name)
            yield counted("equivalent", f"equivalent: {mutant.name}")
        else:
            yield problem("not noticed", f"NOT NOTICED: {mutant.name}")
    for name in sorted((explained & names) - survivors):
        yield problem("said to be equivalent", f"noticed, but said to be equivalent: {name}")
    if options.only is None:
        for name in sorted(explained - names):
            yield problem("said to be equivalent", f"no mutant any more: {name}")
