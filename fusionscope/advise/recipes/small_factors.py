"""Cholesky factors and triangular systems of few rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.patterns import array, build, integers, put
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule, replace_and_prune

_REAL = frozenset({"f32", "f64"})
_CHOLESKY = frozenset({"cusolver_potrf_ffi", "lapack_spotrf_ffi", "lapack_dpotrf_ffi"})
_TRIANGULAR = frozenset({"lapack_strsm_ffi", "lapack_dtrsm_ffi"})
_LOWER = re.compile(r"\blower\s*=\s*true\b|\buplo\s*=\s*76\b")  # 76: an L
_LETTER = re.compile(r"\b(\w+)\s*=\s*(\d+)\s*:\s*ui8")


@dataclass(frozen=True, slots=True)
class SmallFactors(Recipe):
    """Matrices have at most ``most_rows``."""

    most_rows: int = 8
    id: ClassVar = "small-factors"
    title: ClassVar = "Cholesky factors and triangular systems of few rows as arithmetic"
    what: ClassVar = (
        "A Cholesky decomposition, or a triangular system, of at most eight rows, as in a Kalman "
        "filter, is a call of a library. It becomes multiplications, subtractions, divisions and "
        "square roots of its elements, for all matrices of a batch at once."
    )
    why: ClassVar = (
        "Nothing is fused with a call of cuSOLVER or cuBLAS: each is a launch, with kernels around "
        "it that put matrices into its layout and mask half of its result. The arithmetic is fused "
        "with what is before and after it."
    )
    backfires: ClassVar = (
        "The number of operations grows with the cube of the rows, and so does the time to "
        "compile them. Each thread computes what it needs again. Sums are in another order."
    )
    backends: ClassVar = frozenset({"cpu", "gpu"})
    tolerance: ClassVar = 1e-5
    example: ClassVar = Example(
        ("f32[64,4,4]", "f32[4,128]"),
        """
def program(matrices, state):
    def step(state, matrix):
        square = matrix @ matrix.T + jnp.eye(4)
        factor = jnp.linalg.cholesky(square, symmetrize_input=False)
        state = jax.scipy.linalg.solve_triangular(factor, state, lower=True)
        return state, state

    return lax.scan(step, state, matrices)[1]
""",
        """
def cholesky(matrix):
    rows = []
    for i in range(4):
        row = []
        for j in range(i + 1):
            rest = matrix[i, j] - sum(a * b for a, b in zip(row, (rows + [row])[j]))
            row.append(jnp.sqrt(rest) if i == j else rest / rows[j][j])
        rows.append(row)
    return rows


def solve(rows, values):
    results = []
    for row, value in zip(rows, values):
        rest = value - sum(factor * result for factor, result in zip(row, results))
        results.append(rest / row[-1])
    return jnp.stack(results)


def program(matrices, state):
    def step(state, matrix):
        state = solve(cholesky(matrix @ matrix.T + jnp.eye(4)), state)
        return state, state

    return lax.scan(step, state, matrices)[1]
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            if _is_cholesky(instruction) and self._is_small(instruction.operands[0]):
                yield Site(instruction, partial(_factor, instruction))
                continue
            system = _read_system(instruction)
            if system is not None and self._is_small(instruction.operands[0]):
                yield Site(instruction, partial(_solve, instruction, system))

    def _is_small(self, matrix: MutableInstruction) -> bool:
        dimensions = matrix.shape.dimensions
        return (
            matrix.shape.element_type in _REAL
            and None not in dimensions
            and 1 < (dimensions[-1] or 0) <= self.most_rows
        )


def _is_cholesky(instruction: MutableInstruction) -> bool:
    """Return whether ``instruction`` computes lower factors, and whether it succeeded."""
    target = instruction.attributes.get("custom_call_target", "").strip('"')
    return (
        target in _CHOLESKY
        and _LOWER.search(instruction.attributes.get("backend_config", "")) is not None
        and all(user.opcode == "get-tuple-element" for user in instruction.users)
    )


@dataclass(frozen=True, slots=True)
class _System:
    """A triangular system for columns. The matrix is the transpose of its operand if
    ``is_transposed`` is set; ``is_lower`` is whether its first row has one element.
    """

    is_transposed: bool
    is_lower: bool


def _read_system(instruction: MutableInstruction) -> _System | None:
    """Return the system that ``instruction`` solves, None if it solves none for columns, or one
    with a diagonal of ones.
    """
    attributes = instruction.attributes
    if instruction.opcode == "triangular-solve":
        is_left = attributes.get("left_side") == "true"
        has_ones = attributes.get("unit_diagonal", "false") == "true"
        is_lower = attributes.get("lower") == "true"
        transposition = attributes.get("transpose_a", "")
    elif attributes.get("custom_call_target", "").strip('"') in _TRIANGULAR:
        letters = {
            key: chr(int(code)) for key, code in _LETTER.findall(attributes["backend_config"])
        }
        is_left, has_ones = letters.get("side") == "L", letters.get("diag") == "U"
        is_lower = letters.get("uplo") == "L"
        transposition = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE"}.get(letters.get("trans_x", ""), "")
    else:
        return None
    if not is_left or has_ones or transposition not in ("NO_TRANSPOSE", "TRANSPOSE"):
        return None
    is_transposed = transposition == "TRANSPOSE"
    return _System(is_transposed, is_lower is not is_transposed)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A square matrix of a batch, ``operand`` of a part that is built: ``count`` rows."""

    operand: str
    element_type: str
    batch: tuple[int, ...]
    count: int

    @property
    def number(self) -> str:
        """The type of one element of each matrix."""
        return array(self.element_type, self.batch)

    def elements(self) -> list[str]:
        """Return the lines that define each element, ``a.ROW.COLUMN``."""
        one = array(self.element_type, (*self.batch, 1, 1))
        whole = [f"[0:{size}]" for size in self.batch]
        lines = []
        for row in range(self.count):
            for column in range(self.count):
                bounds = [*whole, f"[{row}:{row + 1}]", f"[{column}:{column + 1}]"]
                lines += [
                    f"c.{row}.{column} = {one} slice({self.operand}), slice={{{','.join(bounds)}}}",
                    f"a.{row}.{column} = {self.number} reshape(c.{row}.{column})",
                ]
        return lines


def _matrix(value: MutableInstruction) -> _Matrix:
    *batch, count, _ = (size or 0 for size in value.shape.dimensions)
    return _Matrix("%p0", value.shape.element_type, tuple(batch), count)


def _factor(call: MutableInstruction) -> None:
    """Replace a Cholesky decomposition, whose second result is 0 if all pivots are positive."""
    matrix = _matrix(call.operands[0])
    number, rank = matrix.number, len(matrix.batch)
    lines, tests = matrix.elements(), []
    lines.append(f"none = {matrix.element_type}[] constant(0)")
    lines.append(f"zero = {number} broadcast(none), dimensions={{}}")
    for row in range(matrix.count):
        for column in range(row + 1):
            at, rest = f"{row}.{column}", f"a.{row}.{column}"
            for k in range(column):
                lines.append(f"m.{at}.{k} = {number} multiply(l.{row}.{k}, l.{column}.{k})")
                lines.append(f"r.{at}.{k} = {number} subtract({rest}, m.{at}.{k})")
                rest = f"r.{at}.{k}"
            if row != column:
                lines.append(f"l.{at} = {number} divide({rest}, l.{column}.{column})")
                continue
            lines.append(f"l.{at} = {number} sqrt({rest})")
            test = f"{array('pred', matrix.batch)} compare({rest}, zero), direction=GT"
            lines.append(f"is.{row} = {test}")
            tests.append(f"is.{row}")
    is_positive = tests[0]
    for place, test in enumerate(tests[1:]):
        lines.append(f"both.{place} = {array('pred', matrix.batch)} and({is_positive}, {test})")
        is_positive = f"both.{place}"
    status = array("s32", matrix.batch)
    lines += [
        f"failed = {array('pred', matrix.batch)} not({is_positive})",
        f"status = {status} convert(failed)",
    ]
    names = [
        [f"{'l' if column <= row else 'a'}.{row}.{column}" for column in range(matrix.count)]
        for row in range(matrix.count)
    ]
    one = array(matrix.element_type, (*matrix.batch, 1, 1))
    line = array(matrix.element_type, (*matrix.batch, 1, matrix.count))
    whole = array(matrix.element_type, (*matrix.batch, matrix.count, matrix.count))
    for row, elements in enumerate(names):
        lines += [f"o.{name} = {one} reshape({name})" for name in elements]
        parts = ", ".join(f"o.{name}" for name in elements)
        lines.append(f"line.{row} = {line} concatenate({parts}), dimensions={integers([rank + 1])}")
    parts = ", ".join(f"line.{row}" for row in range(matrix.count))
    lines += [
        f"factor = {whole} concatenate({parts}), dimensions={integers([rank])}",
        f"ROOT both = ({whole}, {status}) tuple(factor, status)",
    ]
    results = build(call, "\n".join(lines), call.operands[:1]).operands
    for element in list(call.users):
        replace_and_prune(element, results[element.attribute("index")])


def _solve(call: MutableInstruction, system: _System) -> None:
    factor, values = call.operands
    matrix, rank = _matrix(factor), len(_matrix(factor).batch)
    *_, width = values.shape.dimensions
    columns = array(matrix.element_type, (*matrix.batch, width))
    line = array(matrix.element_type, (*matrix.batch, 1, width))
    lines, solved = matrix.elements(), list[int]()
    whole = [f"[0:{size}]" for size in matrix.batch]
    for row in range(matrix.count) if system.is_lower else reversed(range(matrix.count)):
        bounds = ",".join([*whole, f"[{row}:{row + 1}]", f"[0:{width}]"])
        lines.append(f"cut.{row} = {line} slice(%p1), slice={{{bounds}}}")
        lines.append(f"b.{row} = {columns} reshape(cut.{row})")
        rest = f"b.{row}"
        for k in (*solved, row):
            name = f"a.{k}.{row}" if system.is_transposed else f"a.{row}.{k}"
            spread = f"broadcast({name}), dimensions={integers(range(rank))}"
            lines.append(f"f.{row}.{k} = {columns} {spread}")
            if k == row:
                lines.append(f"x.{row} = {columns} divide({rest}, f.{row}.{k})")
                continue
            lines.append(f"m.{row}.{k} = {columns} multiply(f.{row}.{k}, x.{k})")
            lines.append(f"r.{row}.{k} = {columns} subtract({rest}, m.{row}.{k})")
            rest = f"r.{row}.{k}"
        lines.append(f"o.{row} = {line} reshape(x.{row})")
        solved.append(row)
    parts = ", ".join(f"o.{row}" for row in range(matrix.count))
    result = array(matrix.element_type, values.shape.dimensions)
    lines.append(f"ROOT all = {result} concatenate({parts}), dimensions={integers([rank])}")
    put(call, "\n".join(lines), [factor, values])
