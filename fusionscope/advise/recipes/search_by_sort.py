"""A binary search for many values, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, NamedTuple

from fusionscope.advise.recipes.example import Example
from fusionscope.advise.recipes.loops import callee, count_steps, element_of
from fusionscope.advise.recipes.patterns import FLOATS, array, put, scalar
from fusionscope.advise.recipes.recipe import Recipe, Site
from fusionscope.graph.mutable import MutableInstruction, MutableModule

_SIDES = {"LE": "left", "LT": "right"}


class SearchBySort(Recipe):
    __slots__ = ()
    id: ClassVar = "search-by-sort"
    title: ClassVar = 'a search by sorting (`searchsorted(..., method="sort")`)'
    what: ClassVar = (
        "A binary search for many values in a sorted array, as `jnp.searchsorted` does it: a loop "
        "that halves an interval for each value. Array and values are sorted together instead, "
        "and a value's place is how many elements of the array come before it."
    )
    why: ClassVar = (
        "On a GPU each step of the loop launches several kernels, and one that counts: for 4,096 "
        "elements there are 13 steps. Inside another loop they are launched in each of its steps."
    )
    backfires: ClassVar = (
        "Few values in a long array, which is sorted as a whole. On a CPU it is slower. If the "
        "array is not sorted, other places are found."
    )
    backends: ClassVar = frozenset({"gpu", "tpu"})
    example: ClassVar = Example(
        ("f32[4096]", "f32[4096]"),
        """
def program(weights, positions):
    edges = jnp.cumsum(jnp.abs(weights))
    return jnp.searchsorted(edges, positions)
""",
        """
def program(weights, positions):
    edges = jnp.cumsum(jnp.abs(weights))
    return jnp.searchsorted(edges, positions, method="sort")
""",
    )

    def find(self, graph: MutableModule, backend: str) -> Iterator[Site]:
        for instruction in list(graph.walk()):
            search = _search(instruction) if instruction.opcode == "while" else None
            if search is not None:
                yield Site(search.place, partial(_rewrite, search))


class _Search(NamedTuple):
    """The values ``sought`` are searched in ``elements``. ``place`` is the result."""

    place: MutableInstruction
    elements: MutableInstruction
    sought: MutableInstruction
    side: str


class _Interval(NamedTuple):
    """The numbers of the elements of a loop's state, and the direction of the comparison."""

    low: int
    high: int
    elements: int
    sought: int
    direction: str


def _search(loop: MutableInstruction) -> _Search | None:
    steps, interval = count_steps(loop), _interval(loop)
    if steps is None or interval is None:
        return None
    state = loop.operands[0].operands
    elements, sought = state[interval.elements], state[interval.sought]
    readers = [user for user in loop.users if user.users]
    count = elements.shape.element_count
    if (
        elements.shape.rank != 1
        or sought.shape.rank != 1
        or elements.shape.element_type != sought.shape.element_type
        or steps < count.bit_length()
        or scalar(state[interval.low]) != "0"
        or scalar(state[interval.high]) != str(count)
        or [element_number(reader) for reader in readers] != [interval.high]
        or loop.is_root
    ):
        return None
    return _Search(readers[0], elements, sought, _SIDES[interval.direction])


def element_number(reader: MutableInstruction) -> int | None:
    """Return which element of a tuple ``reader`` is."""
    return int(reader.attribute("index")) if reader.opcode == "get-tuple-element" else None


def _interval(loop: MutableInstruction) -> _Interval | None:
    """Return what a step halves; None if it does anything else."""
    results = callee(loop, "body").root.operands
    selections = {
        number: result for number, result in enumerate(results) if result.opcode == "select"
    }
    if len(selections) != 2 or len(results) != 5:
        return None
    for high, upper in selections.items():
        (low,) = selections.keys() - {high}
        is_below, middle, old_high = upper.operands
        if (
            element_of(old_high) == high
            and selections[low].operands[0] is is_below
            and element_of(selections[low].operands[1]) == low
            and selections[low].operands[2] is middle
            and _is_middle(middle, low, high)
            and is_below.opcode == "compare"
        ):
            sought, element = map(_compared, is_below.operands)
            elements, values = _gathered(element, middle), element_of(sought)
            direction = is_below.attributes["direction"]
            if elements is None or values is None or direction not in _SIDES:
                return None
            are_same = all(element_of(results[number]) == number for number in (elements, values))
            return _Interval(low, high, elements, values, direction) if are_same else None
    return None


def _is_middle(value: MutableInstruction, low: int, high: int) -> bool:
    """Return whether it is ``low + (high - low) / 2``."""
    if value.opcode != "add" or element_of(value.operands[0]) != low:
        return False
    half = value.operands[1]
    if half.opcode != "divide" or half.operands[0].opcode != "subtract":
        return False
    ends = [element_of(operand) for operand in half.operands[0].operands]
    divisor = half.operands[1]
    while divisor.opcode in ("broadcast", "convert"):
        divisor = divisor.operands[0]
    return ends == [high, low] and scalar(divisor) == "2"


def _compared(value: MutableInstruction) -> MutableInstruction:
    """Return a value without what makes all zeros, and all that are no number, equal."""
    while value.opcode == "select":
        condition, _, value = value.operands
        if condition.opcode != "compare" or condition.operands[0] not in (value, _inner(value)):
            return condition
    return value


def _inner(value: MutableInstruction) -> MutableInstruction:
    return value.operands[2] if value.opcode == "select" else value


def _gathered(element: MutableInstruction, middle: MutableInstruction) -> int | None:
    """Return the number of the array of which ``element`` is the one at ``middle``."""
    while element.opcode == "reshape":
        element = element.operands[0]
    if element.opcode != "gather":
        return None
    array_read, places = element.operands
    while places.opcode == "reshape":
        places = places.operands[0]
    return element_of(array_read) if places is middle else None


def _rewrite(search: _Search) -> None:
    kind = search.elements.shape.element_type
    count, sought = (values.shape.element_count for values in (search.elements, search.sought))
    is_left = search.side == "left"
    together = "%p1, %p0" if is_left else "%p0, %p1"
    start = 0 if is_left else count
    total = count + sought
    put(
        search.place,
        f"""
        both = {array(kind, [total])} concatenate({together}), dimensions={{0}}
        {_ranks("both", kind, total)}
        some = {array("s32", [sought])} slice(both.rank), slice={{[{start}:{start + sought}]}}
        sought = {array(kind, [sought])} reshape(%p1)
        {_ranks("sought", kind, sought)}
        before = {array("s32", [sought])} subtract(some, sought.rank)
        ROOT place = {array(search.place.shape.element_type, [sought])} convert(before)
        """,
        [search.elements, search.sought],
        _comparison(kind) + _SECOND,
    )


_PLACES = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, unique_indices=true, to_apply=later"
)
_SECOND = """later {
  one = s32[] parameter(0)
  ROOT other = s32[] parameter(1)
}

"""


def _ranks(values: str, kind: str, count: int) -> str:
    """Return lines for the place of each of ``count`` values in their order: ``VALUES.rank``."""
    positions = array("s32", [count])
    sorted_shape = f"({array(kind, [count])}, {positions})"
    sort = f"sort({values}, {values}.at), dimensions={{0}}, is_stable=true, to_apply=below"
    scatter = f"scatter({values}.zeros, {values}.places, {values}.at), {_PLACES}"
    return f"""
        {values}.at = {positions} iota(), iota_dimension=0
        {values}.sort = {sorted_shape} {sort}
        {values}.order = {positions} get-tuple-element({values}.sort), index=1
        {values}.places = {array("s32", [count, 1])} reshape({values}.order)
        {values}.zero = s32[] constant(0)
        {values}.zeros = {positions} broadcast({values}.zero), dimensions={{}}
        {values}.rank = {positions} {scatter}
    """


def _comparison(kind: str) -> str:
    """Return a computation that orders two values as the search does: zeros are equal, and what is
    no number comes last.
    """
    lines = [f"{name} = {kind}[] parameter({n})" for n, name in enumerate(("a", "b"))]
    lines += [f"{name} = s32[] parameter({n})" for n, name in enumerate(("c", "d"), 2)]
    names, order = ["a", "b"], ""
    if kind in FLOATS:
        order = ", order=TOTAL"
        lines += [f"nan = {kind}[] constant(nan)", f"zero = {kind}[] constant(0)"]
        for name in names:
            lines += [
                f"{name}.odd = pred[] compare({name}, {name}), direction=NE",
                f"{name}.none = pred[] compare({name}, zero), direction=EQ",
                f"{name}.plain = {kind}[] select({name}.none, zero, {name})",
                f"{name}.value = {kind}[] select({name}.odd, nan, {name}.plain)",
            ]
        names = ["a.value", "b.value"]
    lines.append(f"ROOT less = pred[] compare({', '.join(names)}), direction=LT{order}")
    return "below {\n" + "".join(f"  {line}\n" for line in lines) + "}\n\n"
