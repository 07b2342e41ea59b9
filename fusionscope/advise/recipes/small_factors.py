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
            key: chr(int(code))
            for key, code in _LETTER.findall(attributes.get("backend_config", ""))
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
    """A batch of square matrices with ``count`` rows: ``%p0`` of a part that is built."""

    element_type: str
    batch: tuple[int, ...]
    count: int

    def array(self, *dimensions: int | None, element_type: str = "") -> str:
        """Return the type of an array for each matrix: without ``dimensions``, of a number."""
        return array(element_type or self.element_type, (*self.batch, *dimensions))

    def bounds(self, *ranges: str) -> str:
        """Return the bounds of a slice, ``ranges`` those of the last dimensions."""
        return f"{{{','.join([*(f'[0:{size}]' for size in self.batch), *ranges])}}}"

    def split(self) -> Iterator[str]:
        """Yield the lines that define each element, ``a.ROW.COLUMN``."""
        for row in range(self.count):
            for column in range(self.count):
                bounds = self.bounds(f"[{row}:{row + 1}]", f"[{column}:{column + 1}]")
                yield f"c.{row}.{column} = {self.array(1, 1)} slice(%p0), slice={bounds}"
                yield f"a.{row}.{column} = {self.array()} reshape(c.{row}.{column})"

    def join(self) -> Iterator[str]:
        """Yield the lines that define ``factor``: ``l.ROW.COLUMN``, and above its diagonal what is
        there in the matrix.
        """
        rank = len(self.batch)
        for row in range(self.count):
            parts = [f"o.{row}.{column}" for column in range(self.count)]
            for column, part in enumerate(parts):
                element = f"{'l' if column <= row else 'a'}.{row}.{column}"
                yield f"{part} = {self.array(1, 1)} reshape({element})"
            joined = f"concatenate({', '.join(parts)}), dimensions={integers([rank + 1])}"
            yield f"line.{row} = {self.array(1, self.count)} {joined}"
        parts = [f"line.{row}" for row in range(self.count)]
        joined = f"concatenate({', '.join(parts)}), dimensions={integers([rank])}"
        yield f"factor = {self.array(self.count, self.count)} {joined}"


def _matrix(value: MutableInstruction) -> _Matrix:
    *batch, count, _ = (size or 0 for size in value.shape.dimensions)
    return _Matrix(value.shape.element_type, tuple(batch), count)


def _factor(call: MutableInstruction) -> None:
    """Replace a Cholesky decomposition, whose second result is 0 if all pivots are positive."""
    matrix = _matrix(call.operands[0])
    square, status = matrix.array(matrix.count, matrix.count), matrix.array(element_type="s32")
    lines = [
        *matrix.split(),
        *_factor_lines(matrix),
        *matrix.join(),
        *_status_lines(matrix),
        f"ROOT results = ({square}, {status}) tuple(factor, status)",
    ]
    results = build(call, "\n".join(lines), call.operands[:1]).operands
    for element in list(call.users):
        replace_and_prune(element, results[element.attribute("index")])


def _factor_lines(matrix: _Matrix) -> Iterator[str]:
    """Yield the lines that define the factor's elements ``l.ROW.COLUMN``, with
    the square roots of ``_pivot(ROW)`` on its diagonal.
    """
    number = matrix.array()
    for row in range(matrix.count):
        for column in range(row + 1):
            at, value = f"{row}.{column}", f"a.{row}.{column}"
            for k in range(column):
                yield f"m.{at}.{k} = {number} multiply(l.{row}.{k}, l.{column}.{k})"
                yield f"r.{at}.{k} = {number} subtract({value}, m.{at}.{k})"
                value = f"r.{at}.{k}"
            if row == column:
                yield f"l.{at} = {number} sqrt({value})"
            else:
                yield f"l.{at} = {number} divide({value}, l.{column}.{column})"


def _pivot(row: int) -> str:
    return f"r.{row}.{row}.{row - 1}" if row else "a.0.0"


def _status_lines(matrix: _Matrix) -> Iterator[str]:
    """Yield the lines that define ``status``: 0 if all pivots are positive, else 1."""
    truth = matrix.array(element_type="pred")
    yield f"zero = {matrix.element_type}[] constant(0)"
    yield f"zeros = {matrix.array()} broadcast(zero), dimensions={{}}"
    for row in range(matrix.count):
        test = f"compare({_pivot(row)}, zeros), direction=GT"
        yield f"is_positive.{row} = {truth} {test}"
        if row:
            earlier = "all" if row > 1 else "is_positive"
            yield f"all.{row} = {truth} and({earlier}.{row - 1}, is_positive.{row})"
    yield f"is_failure = {truth} not(all.{matrix.count - 1})"
    yield f"status = {matrix.array(element_type='s32')} convert(is_failure)"


def _solve(call: MutableInstruction, system: _System) -> None:
    factor, values = call.operands
    matrix, width = _matrix(factor), values.shape.dimensions[-1]
    lines = [*matrix.split(), *_solution_lines(matrix, system, width)]
    parts = ", ".join(f"o.{row}" for row in range(matrix.count))
    rows = f"concatenate({parts}), dimensions={integers([len(matrix.batch)])}"
    lines.append(f"ROOT solution = {matrix.array(matrix.count, width)} {rows}")
    put(call, "\n".join(lines), [factor, values])


def _solution_lines(matrix: _Matrix, system: _System, width: int | None) -> Iterator[str]:
    """Yield the lines that define the rows ``o.ROW`` of the solution for ``%p1``."""
    columns, line = matrix.array(width), matrix.array(1, width)
    solved: list[int] = []
    for row in range(matrix.count) if system.is_lower else reversed(range(matrix.count)):
        bounds = matrix.bounds(f"[{row}:{row + 1}]", f"[0:{width}]")
        yield f"cut.{row} = {line} slice(%p1), slice={bounds}"
        yield f"b.{row} = {columns} reshape(cut.{row})"
        value = f"b.{row}"
        for k in (*solved, row):
            element = f"a.{k}.{row}" if system.is_transposed else f"a.{row}.{k}"
            spread = f"broadcast({element}), dimensions={integers(range(len(matrix.batch)))}"
            yield f"f.{row}.{k} = {columns} {spread}"
            if k != row:
                yield f"m.{row}.{k} = {columns} multiply(f.{row}.{k}, x.{k})"
                yield f"r.{row}.{k} = {columns} subtract({value}, m.{row}.{k})"
                value = f"r.{row}.{k}"
        yield f"x.{row} = {columns} divide({value}, f.{row}.{row})"
        yield f"o.{row} = {line} reshape(x.{row})"
        solved.append(row)
