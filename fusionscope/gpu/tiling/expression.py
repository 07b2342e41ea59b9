"""Integer expressions in the index of a tile, and the compiler's simplification of them.

The compiler compares expressions of tiles as written, and asks whether they are constant.
Simplification therefore goes exactly as far as the compiler's. Steps that others make redundant are
left out. Factors and divisors are numbers, divisors above 0. Source:
xla/hlo/analysis/symbolic_expr.cc; xla/hlo/analysis/indexing_map.cc, SymbolicExprSimplifier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd, prod
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

# In the order in which the compiler sorts the terms of a sum.
ADD: Final = 0
MULTIPLY: Final = 1
MODULO: Final = 2
DIVIDE: Final = 3  # rounded down
MAXIMUM: Final = 4
MINIMUM: Final = 5
VARIABLE: Final = 6
CONSTANT: Final = 7


Range: TypeAlias = tuple[int, int]
"""The least and the largest value."""


class Expression(NamedTuple):
    """One operation. A variable has its number on the left, a constant its value; all others have
    two operands.

    Expressions are ordered like tuples.
    """

    kind: int
    left: Any
    right: Any = None


def constant(value: int) -> Expression:
    return Expression(CONSTANT, value)


def variable(number: int) -> Expression:
    return Expression(VARIABLE, number)


ZERO: Final = constant(0)


def value_of(expression: Expression) -> int | None:
    """Return the value of a simplified expression that is a constant, or None."""
    simple = canonical(expression)
    return simple.left if simple.kind == CONSTANT else None


def add(left: Expression, right: Expression | int) -> Expression:
    if isinstance(right, int):
        right = constant(right)
    if left.kind == CONSTANT:
        left, right = right, left
    if right.kind == CONSTANT:
        if right.left == 0:
            return left
        if left.kind == CONSTANT:
            return constant(left.left + right.left)
    return Expression(ADD, left, right)


def subtract(left: Expression, right: Expression) -> Expression:
    return add(left, canonical(multiply(right, -1)))


def multiply(left: Expression, factor: int) -> Expression:
    if factor == 0:
        return ZERO
    if factor == 1:
        return left
    if left.kind == CONSTANT:
        return constant(left.left * factor)
    if left.kind == MULTIPLY:
        return multiply(left.left, left.right.left * factor)
    return Expression(MULTIPLY, left, constant(factor))


def divide(left: Expression, divisor: int) -> Expression:
    if divisor == 1:
        return left
    if left.kind == CONSTANT:
        return constant(left.left // divisor)
    return Expression(DIVIDE, left, constant(divisor))


def modulo(left: Expression, divisor: int) -> Expression:
    if divisor == 1:
        return ZERO
    if left.kind == CONSTANT:
        return constant(left.left % divisor)
    return Expression(MODULO, left, constant(divisor))


def minimum(left: Expression, right: Expression) -> Expression:
    return _extreme(MINIMUM, left, right)


def maximum(left: Expression, right: Expression) -> Expression:
    return _extreme(MAXIMUM, left, right)


def _extreme(kind: int, left: Expression, right: Expression) -> Expression:
    if left.kind == CONSTANT:
        left, right = right, left
    if left.kind == CONSTANT:
        return constant((min if kind == MINIMUM else max)(left.left, right.left))
    return Expression(kind, left, right)


def _binary(kind: int, left: Expression, right: Expression) -> Expression:
    if kind == ADD:
        return add(left, right)
    if kind in (MAXIMUM, MINIMUM):
        return _extreme(kind, left, right)
    return {MULTIPLY: multiply, DIVIDE: divide, MODULO: modulo}[kind](left, right.left)


def substitute(expression: Expression, values: Callable[[int], Expression]) -> Expression:
    """Return the expression with ``values`` for the variables of those numbers."""
    if expression.kind == VARIABLE:
        return values(expression.left)
    if expression.kind == CONSTANT:
        return expression
    left = substitute(expression.left, values)
    right = substitute(expression.right, values)
    return _binary(expression.kind, left, right)


def value_at_zero(expression: Expression) -> int:
    """Return the value of the expression if all variables are 0."""
    number: int = substitute(expression, lambda _: ZERO).left
    return number


def variables(expression: Expression) -> Iterator[int]:
    """Yield the numbers of the variables in the expression, with repetitions."""
    if expression.kind == VARIABLE:
        yield expression.left
    elif expression.kind != CONSTANT:
        yield from variables(expression.left)
        yield from variables(expression.right)


_OPERATORS = {ADD: "+", MULTIPLY: "*", MODULO: "mod"}


def text(expression: Expression, names: Mapping[int, str], division: str) -> str:
    """Return the expression as the compiler prints it: nested operations are in brackets, except
    products and quotients in sums, and equal operations. ``division`` is the sign of a quotient.
    """
    if expression.kind == VARIABLE:
        return names[expression.left]
    if expression.kind == CONSTANT:
        return str(expression.left)
    operands = []
    for operand in (expression.left, expression.right):
        operand_text = text(operand, names, division)
        is_plain = operand.kind in (VARIABLE, CONSTANT, expression.kind) or expression.kind == ADD
        operands.append(operand_text if is_plain else f"({operand_text})")
    if operands[1].startswith("-"):  # the addition of a number: there are no negative factors here
        return f"{operands[0]} - {operands[1][1:]}"
    return f" {_OPERATORS.get(expression.kind, division)} ".join(operands)


def largest_divisor(expression: Expression) -> int:
    """Return a number that visibly divides every value; 0 for the number 0."""
    kind = expression.kind
    if kind == VARIABLE:
        return 1
    if kind == CONSTANT:
        return abs(int(expression.left))
    left, right = largest_divisor(expression.left), largest_divisor(expression.right)
    if kind == MULTIPLY:
        return left * right
    if kind == DIVIDE:
        return 1 if left % right else left // right
    return gcd(left, right)


def strides(extents: Sequence[int]) -> list[int]:
    """Return the strides of the dimensions of a shape in row-major order."""
    return [prod(extents[place + 1 :]) for place in range(len(extents))]


def linearized(extents: Sequence[int], indices: Sequence[Expression]) -> Expression:
    """Return the linear index of an element of a shape. Source: LinearizeShape."""
    linear = ZERO
    for stride, index in zip(strides(extents), indices, strict=True):
        linear = add(linear, multiply(index, stride))
    return linear


def delinearized(extents: Sequence[int], linear: Expression) -> list[Expression]:
    """Return the index in each dimension. Source: DelinearizeIndex."""
    indices = []
    for stride in strides(extents):
        indices.append(divide(linear, stride))
        linear = modulo(linear, stride)
    return indices


def is_multiple(expression: Expression, factor: int) -> bool:
    return largest_divisor(expression) % factor == 0


def canonical(expression: Expression) -> Expression:
    """Simplify an expression without the ranges of its variables.

    ``Simplifier`` handles common factors of a dividend and its divisor, multiples of the divisor,
    and matching quotients and remainders. All quotients pass through it.
    """
    kind = expression.kind
    if kind in (VARIABLE, CONSTANT):
        return expression
    left, right = canonical(expression.left), canonical(expression.right)
    if kind == ADD:
        return _canonical_sum(left, right)
    if kind == MULTIPLY:
        return _canonical_product(left, right.left)
    if kind == DIVIDE:
        return _canonical_quotient(left, right.left)
    if kind == MODULO:
        return _canonical_rest(left, right.left)
    left, right = sorted((left, right))
    difference = canonical(subtract(left, right))
    if difference.kind == CONSTANT:
        return left if (difference.left <= 0) == (kind == MINIMUM) else right
    return _extreme(kind, left, right)


def terms(expression: Expression) -> Iterator[Expression]:
    """Yield the terms of a sum, from left to right."""
    if expression.kind == ADD:
        yield from terms(expression.left)
        yield from terms(expression.right)
    else:
        yield expression


def _base_and_factor(term: Expression) -> tuple[Expression, int]:
    factor = 1
    while term.kind == MULTIPLY:
        factor *= term.right.left
        term = term.left
    return term, factor


def _canonical_sum(left: Expression, right: Expression) -> Expression:
    factors: Counter[Expression] = Counter()
    number = 0
    for side in (left, right):
        for term in terms(side):
            base, factor = _base_and_factor(term)
            if base.kind == CONSTANT:
                number += base.left * factor
            else:
                factors[base] += factor
    found = [canonical(multiply(base, factor)) for base, factor in factors.items()]
    if number:
        found.append(constant(number))
    total = ZERO
    for term in sorted(found):
        total = add(total, term)
    return total


def _canonical_product(left: Expression, factor: int) -> Expression:
    if factor not in (0, 1):
        if left.kind == MULTIPLY:
            return canonical(multiply(left, factor))
        if left.kind == ADD:
            return canonical(add(multiply(left.left, factor), multiply(left.right, factor)))
    return multiply(left, factor)


def _canonical_quotient(left: Expression, divisor: int) -> Expression:
    if left.kind == ADD and left.right.kind == CONSTANT:
        # (x + c) // d is x // d + c // d if c % d cannot lift x over the next multiple of d.
        common_divisor = largest_divisor(left.left)
        whole, remainder = divmod(left.right.left, divisor)
        if remainder < gcd(common_divisor, divisor):
            return canonical(add(divide(left.left, divisor), whole))
    return divide(left, divisor)


def _canonical_rest(left: Expression, divisor: int) -> Expression:
    if is_multiple(left, divisor):
        return ZERO
    if left.kind == MULTIPLY:
        common = gcd(left.right.left, divisor)
        if common > 1:
            reduced = modulo(multiply(left.left, left.right.left // common), divisor // common)
            return canonical(multiply(reduced, common))
    if left.kind == MODULO and left.right.left % divisor == 0:
        return canonical(modulo(left.left, divisor))
    if left.kind == ADD:
        for factor_side, remaining_side in ((left.left, left.right), (left.right, left.left)):
            if is_multiple(factor_side, divisor):
                return canonical(modulo(remaining_side, divisor))
    return modulo(left, divisor)


class Simplifier:
    """Simplifies expressions whose variables have values in ``ranges``, both ends included.
    ``limits`` holds further constraints. An expression with a single value becomes that value if it
    ``replaces_points``.
    """

    __slots__ = ("_limits", "_ranges", "_replaces_points")

    def __init__(
        self,
        ranges: Sequence[Range],
        limits: Mapping[Expression, Range] = MappingProxyType({}),
        *,
        replaces_points: bool = False,
    ) -> None:
        self._ranges = ranges
        self._limits = limits
        self._replaces_points = replaces_points

    def simplify(self, expression: Expression) -> Expression:
        """Source: IndexingMap::Simplify."""
        while True:
            before = canonical(expression)
            expression = self._once(before)
            if expression == before:
                return before

    def range(self, expression: Expression) -> Range:
        """Return the least and the largest value (RangeEvaluator)."""
        for limited, ends in self._limits.items():
            if limited == expression:
                return ends
        return self._computed_range(expression)

    def _computed_range(self, expression: Expression) -> Range:
        kind = expression.kind
        if kind == CONSTANT:
            return expression.left, expression.left
        if kind == VARIABLE:
            low, high = self._ranges[expression.left]
            return low, high
        low, high = self.range(expression.left)
        if kind == ADD:
            other_low, other_high = self.range(expression.right)
            return low + other_low, high + other_high
        if kind in (MINIMUM, MAXIMUM):
            pick = min if kind == MINIMUM else max
            other_low, other_high = self.range(expression.right)
            return pick(low, other_low), pick(high, other_high)
        number: int = expression.right.left
        if kind == MULTIPLY:
            return min(low * number, high * number), max(low * number, high * number)
        if kind == DIVIDE:
            return low // number, high // number
        return (low, high) if low >= 0 and high < number else (0, number - 1)

    def _once(self, expression: Expression) -> Expression:
        kind = expression.kind
        if self._replaces_points:
            low, high = self.range(expression)
            if low == high:
                return constant(low)
        if kind == ADD:
            return self._sum(expression)
        if kind == MULTIPLY:
            return self._product(expression)
        if kind == DIVIDE:
            return self._quotient(expression)
        if kind == MODULO:
            return self._rest(expression)
        if kind in (MINIMUM, MAXIMUM):
            left, right = expression.left, expression.right
            for smaller, larger in ((left, right), (right, left)):
                if self.range(smaller)[1] <= self.range(larger)[0]:
                    result: Expression = smaller if kind == MINIMUM else larger
                    return result
        return expression

    def _product(self, product: Expression) -> Expression:
        return multiply(self._once(product.left), product.right.left)

    def _quotient(self, quotient: Expression) -> Expression:
        left, divisor = self._once(quotient.left), int(quotient.right.left)
        if left.kind == MODULO and left.right.left % divisor == 0:
            return modulo(divide(left.left, divisor), left.right.left // divisor)
        if left.kind == DIVIDE:
            return divide(left.left, divisor * left.right.left)
        quotient_of_sum = self._quotient_of_sum(left, divisor)
        if quotient_of_sum is not None:
            return quotient_of_sum
        return quotient if left == quotient.left else divide(left, divisor)

    def _quotient_of_sum(self, dividend: Expression, divisor: int) -> Expression | None:
        extracted = ZERO

        def extract(term: Expression) -> Expression:
            """Return the part of a term that is not a multiple of the divisor."""
            nonlocal extracted
            if term.kind == MULTIPLY and term.right.left % divisor == 0:
                extracted = add(extracted, multiply(term.left, term.right.left // divisor))
                return ZERO
            if term.kind == CONSTANT:
                whole, remainder = divmod(term.left, divisor)
                extracted = add(extracted, whole)
                return constant(remainder)
            return term

        reduced = _map_terms(dividend, extract)
        multiplied, factor, remaining = split_by_factor(reduced)
        common = gcd(divisor, factor)
        low, high = self.range(remaining)
        if common != 1 and low >= 0 and high < common:
            reduced = multiply(multiplied, factor // common)
            divisor //= common
        elif low == high != 0:
            common = gcd(low, common)
            if common != 1:
                reduced = add(multiply(multiplied, factor // common), low // common)
                divisor //= common
        inner = [term.right.left for term in terms(reduced) if term.kind == DIVIDE]
        if len(inner) == 1:
            reduced = _map_terms(
                reduced,
                lambda term: term.left if term.kind == DIVIDE else multiply(term, inner[0]),
            )
            divisor *= inner[0]
        return None if reduced == dividend else add(divide(reduced, divisor), extracted)

    def _rest(self, modulus: Expression) -> Expression:
        left, divisor = self._once(modulus.left), modulus.right.left
        low, high = self.range(left)
        offset = low // divisor * -divisor
        if high + offset < divisor:  # it never wraps around
            return add(left, offset)
        number = 0

        def extract(term: Expression) -> Expression:
            nonlocal number
            if term.kind == CONSTANT:
                number += term.left
                return ZERO
            is_whole = term.kind == MULTIPLY and term.right.left % divisor == 0
            return ZERO if is_whole else term

        reduced = _map_terms(left, extract)
        reduced = add(reduced, number % divisor)
        multiplied, factor, remaining = split_by_factor(reduced)
        if divisor % factor == 0:
            low, high = self.range(remaining)
            if low == high == 0:
                return multiply(modulo(multiplied, divisor // factor), factor)
            if low >= 0 and high < factor:
                return add(modulo(multiply(multiplied, factor), divisor), remaining)
        return modulus if reduced == modulus.left else modulo(reduced, divisor)

    def _sum(self, total: Expression) -> Expression:
        rests: list[tuple[Expression, int]] = []
        quotients: list[tuple[Expression, int]] = []
        factors: Counter[Expression] = Counter()
        for term in terms(total):
            base, factor = _one_factor(self._once(term))
            if base.kind == MODULO:
                rests.append((base, factor))
            elif base.kind == DIVIDE:
                quotients.append((base, factor))
            else:
                factors[base] += factor
        self._join(rests, quotients, factors)
        for base, factor in rests + quotients:
            factors[base] += factor
        result = ZERO
        for term in sorted(multiply(base, factor) for base, factor in factors.items()):
            result = add(result, term)
        return result

    def _join(
        self,
        rests: list[tuple[Expression, int]],
        quotients: list[tuple[Expression, int]],
        factors: Counter[Expression],
    ) -> None:
        """Join matching terms: x % c * y + x // c * (c * y) is x * y.

        x - x // c * c stays. A negative factor of a quotient occurs only in the difference of the
        ends of a tile, which is checked for being a constant; a remainder would make it none.
        """
        for modulus, factor in list(rests) if quotients else ():
            divisor = modulus.right.left
            matching_quotient = self.simplify(divide(modulus.left, divisor)), factor * divisor
            if matching_quotient in quotients:
                factors[modulus.left] += factor
                quotients.remove(matching_quotient)
                rests.remove((modulus, factor))


def _one_factor(term: Expression) -> tuple[Expression, int]:
    """Return what a term is a multiple of, and its factor."""
    if term.kind == CONSTANT:
        return constant(1), term.left
    return (term.left, term.right.left) if term.kind == MULTIPLY else (term, 1)


def _map_terms(total: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return the sum of the results of ``change`` on each term."""
    if total.kind != ADD:
        return change(total)
    left, right = _map_terms(total.left, change), _map_terms(total.right, change)
    if left == total.left and right == total.right:
        return total
    return add(left, right)


def split_by_factor(total: Expression) -> tuple[Expression, int, Expression]:
    """Return ``a``, n and ``b`` so that the sum is a * n + b (SplitSumByGcd)."""
    factor = 0
    for term in terms(total):
        if term.kind == MULTIPLY:
            factor = gcd(factor, term.right.left)
    if factor in (0, 1):
        return ZERO, 1, total
    others = ZERO

    def reduce(term: Expression) -> Expression:
        nonlocal others
        if term.kind == MULTIPLY:
            return multiply(term.left, term.right.left // factor)
        others = add(others, term)
        return ZERO

    return _map_terms(total, reduce), factor, others
