"""Makes each rule of CPU fusion wrong in turn, and says whether an example notices.

    python tests/rules/mutants.py

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
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from types import CodeType, ModuleType
from typing import Any
from unittest import mock

from test_examples import EXAMPLES, Book, check

from fusionscope.replay import cpu as replay
from fusionscope.replay import instruction_fusion
from fusionscope.rules import base, indexing, inplace, properties, state
from fusionscope.rules.base import Eligible, PairRule
from fusionscope.rules.cpu import expense, fusion
from fusionscope.rules.cpu.fusion import CPU_FUSION
from fusionscope.rules.inplace import InPlaceRule

Mutant = tuple[str, Book, AbstractContextManager[Any]]

# Mutants that behave as the original does, with the reason.
EQUIVALENT: dict[str, str] = {}

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


def _with(rule: PairRule | InPlaceRule, other: PairRule | InPlaceRule) -> Book:
    rules = tuple(other if each is rule else each for each in CPU_FUSION)
    return replace(CPU_FUSION, rules=rules)


def _inverted(rule: PairRule | InPlaceRule) -> Any:
    """Decides what the rule leaves, and leaves what it decides."""
    kind = type(rule)

    def check(self: Any, *arguments: Any) -> Any:
        if kind.check(self, *arguments) is not None:
            return None
        return self.refuse() if self.message or isinstance(self, Eligible) else self.allow()

    return type(kind.__name__, (kind,), {"check": check})(**rule.thresholds)


# What is made wrong: all functions of a module, or those that are named.
FUNCTIONS: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (base, ()),
    (inplace, ()),
    (fusion, ()),
    (expense, ()),
    (indexing, ()),
    (properties, ("operand_use", "_parameter_use", "is_effective_scalar", "is_scalar_constant")),
    (state, ("before_fusing", "reused_operands")),
    (replay, ()),
    (instruction_fusion, ("decide", "find_kept_once", "can_fuse", "_answer", "_run_in")),
)
SETS = (
    (fusion, "_EMITTABLE"),
    (fusion, "_EMITTED_ANEW"),
    (expense, "_EXPENSIVE_IF_COMPLEX"),
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
                where = f"{module.__name__.rpartition('.')[2]}.{original.__qualname__}"
                code = _code_of(wrong, module)
                patch = mock.patch.object(original, "__code__", code)
                yield f"{where}: {what}", CPU_FUSION, patch
    for module, name in SETS:
        whole = getattr(module, name)
        for opcode in sorted(whole):
            patch = mock.patch.object(module, name, whole - {opcode})
            yield f"{name} without {opcode}", CPU_FUSION, patch
    cheap = mock.patch.object(expense, "_CHEAP", frozenset())
    yield "_CHEAP empty", CPU_FUSION, cheap


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


def _made_wrong(definition: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The function with one thing changed, each time another one."""
    for index, node in enumerate(ast.walk(definition)):
        for change in _changes(node):
            wrong = copy.deepcopy(definition)
            changed = list(ast.walk(wrong))[index]
            change(changed)
            yield f"{_text(node)} -> {_text(changed)}", ast.fix_missing_locations(wrong)


def _text(node: ast.AST) -> str:
    shown = node.test if isinstance(node, ast.If) else node
    return " ".join(ast.unparse(shown).split())


def _changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    match node:
        case ast.Compare(ops=[operator]):
            for opposite in _OPPOSITES[type(operator)]:
                yield partial(_set, "ops", [opposite()])
        case ast.BoolOp(values=values):
            for index in range(len(values)):
                yield partial(_leave_out, index)
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Compare):
            yield partial(_set, "test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[_, *_]):
            yield partial(_set, "ifs", [])
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            yield partial(_set, "value", number + 1)
            yield partial(_set, "value", number - 1)


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
        for id, example in EXAMPLES:
            check(id, example, book)
    except Exception:
        return False
    finally:
        signal.alarm(0)
    return True


def _out_of_time(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    signal.signal(signal.SIGALRM, _out_of_time)
    assert survives(CPU_FUSION)
    survivors = []
    count = 0
    for name, book, patch in chain(books(), functions()):
        count += 1
        with patch:
            if not survives(book):
                print("killed    ", name)
                continue
        survivors.append(name)
        print("equivalent" if name in EQUIVALENT else "SURVIVED  ", name)
    left = [name for name in survivors if name not in EQUIVALENT]
    stale = [name for name in EQUIVALENT if name not in survivors]
    print(f"{count} mutants, {len(survivors)} survive, {len(left)} of them for no known reason")
    for name in stale:
        print("not (or no longer) a survivor:", name)
    sys.exit(bool(left or stale))


if __name__ == "__main__":
    main()
