"""Makes each rule of CPU fusion wrong in turn, and says whether an example notices.

    python tools/conformance/cpu_mutants.py

A rule is removed, inverted, or swapped with the next one; a threshold is one more or less; a
function that rules are made of has a comparison or a condition turned round or left out; a list of
opcodes lacks one. What no example notices and is not in ``EQUIVALENT`` makes it fail.
"""

from __future__ import annotations
import __future__

import ast
import copy
import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from types import CodeType, ModuleType
from typing import Any
from unittest import mock

import operation_examples as operations
from cpu_examples import EXAMPLES, Book, check

from fusionscope.graph import properties
from fusionscope.passes import expense as common_expense
from fusionscope.passes import indexing, inplace, instruction_fusion, state
from fusionscope.passes import pair_rules as base
from fusionscope.passes.cpu.instruction_fusion import expense
from fusionscope.passes.cpu.instruction_fusion import rules as fusion
from fusionscope.passes.cpu.instruction_fusion import run as replay
from fusionscope.passes.cpu.instruction_fusion.rules import CPU_FUSION
from fusionscope.passes.inplace import InPlaceRule
from fusionscope.passes.pair_rules import PairRule
from fusionscope.rules.pages import read_examples
from fusionscope.versions.jaxlib_0_11_2 import cpu as jaxlib_0_11
from fusionscope.versions.jaxlib_0_11_2.cpu import CPU_FUSION_0_11

Mutant = tuple[str, Book, AbstractContextManager[Any]]

# Mutants that behave as the original does, by the reason for it.
EQUIVALENT: dict[str, tuple[str, ...]] = {
    "no pair that one of them is about is one that the other is about": (
        "cpu-nonscalar-constant behind cpu-output-fuse-dot",
        "cpu-output-fuse-dot behind cpu-dot-add-bail",
        "inplace-no-dus behind inplace-multi-dus",
        "inplace-slice-safe behind inplace-ds-shape",
        "cpu-max-reductions behind cpu-constant-into-op",
        "cpu-constant-into-op behind cpu-producer-fusion",
        "cpu-code-dup behind cpu-small-matvec",
        "cpu-small-matvec behind cpu-into-loop-fusion",
    ),
    "an add can always be part of a loop": ("cpu-dot-add-bail behind cpu-loop-fusible-producer",),
    "a concatenate is cheap, and reads what it joins once": (
        "cpu-concat behind cpu-expensive-reuse",
    ),
    "the book does not order them: some are asked first, the in-place ones all together": (
        "base-globally-unfusible behind cpu-softmax-coupling",
        "cpu-softmax-coupling behind cpu-skip-custom",
        "inplace-other behind cpu-max-reductions",
    ),
    "never asked on a CPU, where a producer with more than one such operation is refused before": (
        "inplace-extra-operand behind inplace-multi-nonelementwise",
        "inplace-multi-nonelementwise removed",
        "inplace-multi-nonelementwise behind inplace-elementwise-producer",
        "passes.inplace.MultipleShaping.check: found > 1, 2",
    ),
    "the one conversion that is expensive makes its type narrower, and no broadcast is expensive": (
        "passes.pair_rules.ExpensiveDuplicate.check: without _is_always_duplicable(producer)",
        "passes.pair_rules._is_always_duplicable: instruction.operands[0].shape.byte_size < "
        "instruction.shape.byte_size, LtE",
    ),
    "the consumer is always one of the users": (
        "passes.pair_rules.ExpensiveDuplicate.check: without pair.consumer in producer.users",
    ),
    "rules before have seen to it": (
        "passes.inplace.SlicePair.check: without not slices",
        "passes.inplace.SlicePair.check: without not updates",
    ),
    "only a number in the answer": (
        "instruction_fusion.rules.LoopFusibleProducer.check: without pair.producer.backend_kind",
        "instruction_fusion.rules.LoopFusibleProducer.check: without pair.producer.opcode",
        "passes.inplace.SliceIndex.check_slice: at is None, IsNot",
    ),
    "nothing subtracts a maximum that is not there": (
        "instruction_fusion.rules.SoftmaxCoupling.keeps: without maximum is not None",
    ),
    "asked again in what is called": (
        "instruction_fusion.rules.DotAddBail.check: without producer.opcode == 'add'",
    ),
    "always so where nobody asks for a pass that may not duplicate, or without emitters": (
        "instruction_fusion.rules.CodeDuplication.check: without not state.may_duplicate",
        "instruction_fusion.run.CpuInstructionFusion.find_globally_unfusible: without "
        "self.state.may_duplicate",
        "passes.instruction_fusion.InstructionFusion.find_globally_unfusible: without not "
        "self.state.may_duplicate",
        "instruction_fusion.run.find_skipped: without emitters",
    ),
    "only for the type checker where the book has the rule": (
        "instruction_fusion.run.CpuInstructionFusion.find_globally_unfusible: without "
        "isinstance(rule, SoftmaxCoupling)",
        "passes.instruction_fusion.InstructionFusion.find_globally_unfusible: without "
        "not isinstance(rule, GloballyUnfusible)",
    ),
    "a dot has two operands": (
        "instruction_fusion.rules.SmallMatrixVector.check: without pair.slot > 1",
        "instruction_fusion.rules.SmallMatrixVector.check: pair.slot > 1, 2",
        "graph.properties.operand_use: without other is not None",
    ),
    "only saves time": (
        "graph.properties._parameter_use: without worst is not Use.REUSE",
        "instruction_fusion.run.find_skipped: without instruction.called",
        "passes.instruction_fusion._Paths.obstacle: slot == 0, NotEq",
        "passes.instruction_fusion._Paths.obstacle: slot == 0, -1",
        "passes.instruction_fusion._Paths.obstacle: slot == 0, 1",
    ),
    "asked all the same, as no fusion can be formed against it": ("cpu-mof-legal removed",),
    "no constant here is a tuple": (
        "graph.properties.is_effective_scalar: without shape.is_array",
    ),
    "base-globally-unfusible is asked before, and no producer is kept by both": (
        "instruction_fusion.rules.SoftmaxCoupling.check: without kept.rule == self.id",
    ),
    "an add has two operands": (
        "instruction_fusion.rules.can_be_output_fused: operand is producer, IsNot",
    ),
    "only for pairs that a user asks for": (
        "passes.instruction_fusion.Judge.decide: if not legal is not None and (not legal.allow)",
        "passes.instruction_fusion.Judge.decide: without legal is not None",
        "passes.instruction_fusion.Judge.decide: without not legal.allow",
        "passes.instruction_fusion.Judge.decide: legal is not None, Is",
    ),
    "a CPU has its own rule for divisions": (
        "passes.expense.is_expensive: opcode in ('divide', 'remainder'), NotIn",
        "passes.expense.is_expensive: without element_type not in INTEGRAL",
        "passes.expense.is_expensive: without not is_scalar_constant(instruction.operands[1])",
        "passes.expense.is_expensive: element_type not in INTEGRAL, In",
    ),
    "refused before, as it can be no part of a loop": (
        "EMITTED_ANEW without dot",
        "EMITTED_ANEW without reduce-window",
    ),
}

_LONGEST = 5  # seconds for all examples of a mutant: it may loop for ever


def books() -> Iterator[Mutant]:
    """Rules removed, inverted, swapped, and thresholds that are off by one."""
    rules = CPU_FUSION.rules
    for index, rule in enumerate(rules):
        yield f"{rule.id} removed", CPU_FUSION.without(rule.id), nullcontext()
        yield f"{rule.id} inverted", _with(rule, _inverted(rule)), nullcontext()
        for name, value in rule.thresholds.items():
            for off in (-1, 1):
                book = CPU_FUSION.with_threshold(rule.id, name, value + off)
                yield f"{rule.id}.{name} {off:+}", book, nullcontext()
        if index + 1 < len(rules):
            order = (*rules[:index], rules[index + 1], rule, *rules[index + 2 :])
            book = replace(CPU_FUSION, rules=order)
            yield f"{rule.id} behind {rules[index + 1].id}", book, nullcontext()


def other_books() -> Iterator[Mutant]:
    """The same for the passes that ask about operations and siblings."""
    for book in operations.BOOKS:
        for rule in book:
            yield f"{rule.id} removed", book.without(rule.id), nullcontext()
            if hasattr(rule, "check"):
                yield f"{rule.id} inverted", book.with_rule(_inverted(rule)), nullcontext()
            for name, value in rule.thresholds.items():
                for off in (-1, 1):
                    changed = book.with_threshold(rule.id, name, value + off)
                    yield f"{rule.id}.{name} {off:+}", changed, nullcontext()


def _with(rule: PairRule | InPlaceRule, other: PairRule | InPlaceRule) -> Book:
    rules = tuple(other if each is rule else each for each in CPU_FUSION)
    return replace(CPU_FUSION, rules=rules)


def _inverted(rule: PairRule | InPlaceRule) -> Any:
    """Decides what the rule leaves, and leaves what it decides."""
    kind = type(rule)

    def check(self: Any, *arguments: Any) -> Any:
        if kind.check(self, *arguments) is not None:
            return None
        refuses = self.message or not self.only_allows
        return self.refuse() if refuses else self.allow()

    values = {field.name: getattr(rule, field.name) for field in fields(rule)}
    return type(kind.__name__, (kind,), {"check": check})(**values)


# What is made wrong: all functions of a module, or those that are named.
FUNCTIONS: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (base, ()),
    (inplace, ()),
    (fusion, ()),
    (jaxlib_0_11, ("is_long",)),
    (expense, ()),
    (common_expense, ()),
    (indexing, ()),
    (properties, ("operand_use", "_parameter_use", "is_effective_scalar", "is_scalar_constant")),
    (state, ("before_fusing", "reused_operands")),
    (replay, ()),
    (instruction_fusion, ("decide", "find_globally_unfusible", "obstacle", "_answer", "_refusal")),
)
SETS = (
    (fusion, "_EMITTABLE"),
    (indexing, "EMITTED_ANEW"),
    (common_expense, "_EXPENSIVE_IF_COMPLEX"),
    (properties, "_READS_ONCE"),
)
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


def functions() -> Iterator[Mutant]:
    """One operator of one function wrong, or one opcode missing in a list."""
    for module, names in FUNCTIONS:
        for owner, definition in _definitions(module):
            name = definition.name
            if names and name not in names:
                continue
            original = vars(owner)[name]
            for what, wrong in _made_wrong(definition):
                # That of every backend has a namesake of the CPU's.
                place = ".".join(module.__name__.split(".")[-2:])
                where = f"{place}.{original.__qualname__}"
                code = _code_of(wrong, module)
                yield f"{where}: {what}", CPU_FUSION, _with_code(original, code)
    for module, name in SETS:
        whole = getattr(module, name)
        for opcode in sorted(whole):
            patch = mock.patch.object(module, name, whole - {opcode})
            yield f"{name} without {opcode}", CPU_FUSION, patch
    cheap = mock.patch.object(common_expense, "_CHEAP", frozenset())
    yield "_CHEAP empty", CPU_FUSION, cheap


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
    for node in ast.parse(inspect.getsource(module)).body:
        owner, body = (
            (getattr(module, node.name), node.body)
            if isinstance(node, ast.ClassDef)
            else (module, [node])
        )
        for each in body:
            if isinstance(each, ast.FunctionDef) and not each.decorator_list:
                yield owner, each


def _made_wrong(
    definition: ast.FunctionDef,
    changes: Callable[[ast.AST], Iterator[tuple[str, Change]]] | None = None,
) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The function with one thing changed, each time another one, and what that is."""
    for index, node in enumerate(ast.walk(definition)):
        for what, change in (changes or _changes)(node):
            wrong = copy.deepcopy(definition)
            change(list(ast.walk(wrong))[index])
            yield what, ast.fix_missing_locations(wrong)


Change = Callable[[Any], None]


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    match node:
        case ast.Compare(ops=[operator], comparators=[other]):
            before = _text(node)
            for opposite in _OPPOSITES[type(operator)]:
                yield f"{before}, {opposite.__name__}", partial(_set, "ops", [opposite()])
            if isinstance(other, ast.Constant) and isinstance(other.value, int):
                for value in (other.value - 1, other.value + 1):
                    constants = [ast.Constant(value)]
                    yield f"{before}, {value}", partial(_set, "comparators", constants)
        case ast.BoolOp(values=values):
            for index, value in enumerate(values):
                yield f"without {_text(value)}", partial(_leave_out, index)
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield f"if not {_text(test)}", partial(_set, "test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[condition]):
            yield f"for without {_text(condition)}", partial(_set, "ifs", [])


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _set(name: str, value: Any, node: Any) -> None:
    setattr(node, name, value)


def _leave_out(index: int, node: ast.BoolOp) -> None:
    node.values[index] = ast.Constant(isinstance(node.op, ast.And))


def _code_of(definition: ast.FunctionDef, module: ModuleType) -> CodeType:
    flags = __future__.annotations.compiler_flag  # what stands behind a colon is not evaluated
    code = compile(ast.Module([definition], []), module.__name__, "exec", flags)
    namespace = dict(vars(module))
    exec(code, namespace)
    made: CodeType = namespace[definition.name].__code__
    return made


def survives(book: Book) -> bool:
    """Whether all examples are as they say, for all that is wrong."""
    signal.alarm(_LONGEST)
    try:
        if book.pass_name == CPU_FUSION.pass_name:
            for id, example in EXAMPLES:
                check(id, example, book)
            for example in read_examples("cpu-concat", "before jaxlib 0.12"):
                check("cpu-concat", example, CPU_FUSION_0_11)
        else:
            for own, id, example in operations.EXAMPLES:
                if own.pass_name == book.pass_name:
                    operations.check(id, example, book)
    except Exception:
        return False
    finally:
        signal.alarm(0)
    return True


def _out_of_time(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    signal.signal(signal.SIGALRM, _out_of_time)
    assert all(survives(book) for book in (CPU_FUSION, *operations.BOOKS))
    equivalent = set(chain(*EQUIVALENT.values()))
    survivors = set()
    count = 0
    for name, book, patch in chain(books(), other_books(), functions()):
        count += 1
        with patch:
            if not survives(book):
                print("killed    ", name)
                continue
        survivors.add(name)
        print("equivalent" if name in equivalent else "SURVIVED  ", name)
    left = survivors - equivalent
    stale = equivalent - survivors
    print(f"{count} mutants, {len(survivors)} survive, {len(left)} of them for no known reason")
    for name in sorted(stale):
        print("not (or no longer) a survivor:", name)
    sys.exit(bool(left or stale))


if __name__ == "__main__":
    main()
