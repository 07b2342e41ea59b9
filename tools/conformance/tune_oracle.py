"""How far the plans of a search are from the best plan of a small module, by estimated times.

    python tools/conformance/tune_oracle.py DUMP... [--operations N] [--budget SECONDS]

For each dump with at most ``--operations`` operations that can be fused in its entry, the oracle
lists all connected groups of them that can be one kernel, with all choices of results, and asks the
replay and its cost model for the time of each. A binary program (scipy's milp) then chooses kernels
that compute everything with the least total: each value that a chosen kernel reads is the result of
another, and a value that several kernels compute is no result of any. Prints the estimated times of
the compiler's own plan, of the search by the model (which `tune` uses for an absent GPU), and of
the oracle. Exits with 1 if the oracle is above one of the
others, which would be a fault of the oracle.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from itertools import combinations
from pathlib import Path

from fusionscope.dump import open_dump
from fusionscope.errors import UnusableInput
from fusionscope.facts.times import clock_for, estimate
from fusionscope.graph.mutable import MutableModule
from fusionscope.history.kernels import find_kernels
from fusionscope.history.outcomes import names_by_value
from fusionscope.history.values import Numbering
from fusionscope.rerun.plans import Rest, make_plan, own_plan
from fusionscope.rules.changes import Changes
from fusionscope.tune.modelled import ModelSearch
from fusionscope.versions.context import read_gpu

NEVER = frozenset(
    """all-gather all-reduce all-to-all call collective-permute conditional convolution custom-call
    dot dynamic-update-slice fft fusion get-tuple-element infeed outfeed parameter reduce-scatter
    rng-bit-generator scatter sort topk triangular-solve cholesky tuple while constant""".split()
)
FREE = frozenset({"constant", "get-tuple-element", "parameter", "tuple"})
MOST_CHOICES = 3  # values of a group that others read: each is a result or computed again
MOST_GROUPS = 1_500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dumps", nargs="+", type=Path)
    parser.add_argument("--operations", type=int, default=9)
    parser.add_argument("--fewest", type=int, default=3)
    parser.add_argument("--budget", type=float, default=30.0)
    asked = parser.parse_args()
    searched, own = [], []
    is_right = True
    for dump in asked.dumps:
        for module in open_dump(dump).modules:
            try:
                found = compare(module, asked.fewest, asked.operations, asked.budget)
            except UnusableInput as error:
                print(f"{dump.name:28} {str(error)[:100]}", file=sys.stderr)
                continue
            if found is None:
                continue
            compiler, search, oracle, count = found
            own.append(compiler / oracle)
            searched.append(search / oracle)
            is_right &= min(compiler, search) > oracle * 0.999
            print(
                f"{dump.name:28} {count:4} possible kernels  compiler {compiler:8.3f} µs"
                f"  search {search:8.3f}  oracle {oracle:8.3f}",
                flush=True,
            )
    if searched:
        print(f"{len(searched)} modules; above the oracle, geometric mean and most:")
        for name, ratios in (("compiler", own), ("search", searched)):
            mean = math.exp(statistics.mean(map(math.log, ratios))) - 1
            exact = sum(each < 1.001 for each in ratios)
            print(f"  {name:8} {mean:.1%}, {max(ratios) - 1:.1%}, none in {exact}")
    return 0 if is_right else 1


def compare(module, fewest: int, most: int, budget_s: float):
    """Return the times of the three plans, and the number of kernels; None if it is too large."""
    own = own_plan(module)
    graph = MutableModule(own.before)
    if any(each.opcode in NEVER - FREE for each in graph.entry.instructions):
        return None  # what the plan leaves to libraries or loops
    order = [
        each for each in graph.entry.post_order() if each.opcode not in NEVER and not is_free(each)
    ]
    if not fewest <= len(order) <= most:
        return None
    gpu = read_gpu(module)
    usual = estimate(own.after, module.backend, gpu).microseconds
    search = ModelSearch(module, budget_s)
    ranked = search.combine(search.try_singles())
    best = min([1.0, *(each.ratio for each in ranked)]) * usual
    kernels = {}
    for group in groups(order):
        for results in choices(group):
            again = [each for each in group if each not in results and is_read(each, group)]
            changes = Changes(
                kernels=(members(group, order), *(members({each}, order) for each in again))
            )
            cost = cost_of(module, own.before, changes, gpu)
            if cost is not None:
                kernels[frozenset(group), frozenset(results)] = cost
    chosen = solve(order, kernels)
    if chosen is None:
        return None
    plan = make_plan(
        module,
        Changes(kernels=tuple(members(group, order) for group, _ in chosen)),
        Rest.OFF,
    )
    oracle = estimate(plan.after, module.backend, gpu).microseconds
    return usual, best, oracle, len(kernels)


def groups(order):
    """Yield the connected groups outside of which nothing has to run in the middle."""
    inside = set(order)
    after = {}
    for each in reversed(order):
        users = [user for user in each.users if user in inside]
        after[each] = set(users).union(*(after[user] for user in users))
    seen = {frozenset([each]) for each in order}
    pending = list(seen)
    while pending and len(seen) < MOST_GROUPS:
        group = pending.pop(0)
        near = {n for each in group for n in (*each.operands, *each.users) if n in inside} - group
        # Siblings that read the same value can be one kernel, too.
        read = {operand for each in group for operand in each.operands}
        near |= {user for operand in read for user in operand.users if user in inside} - group
        for each in near:
            larger = group | {each}
            if larger not in seen:
                seen.add(larger)
                pending.append(larger)
    for group in sorted(seen, key=len):
        between = set().union(*(after[each] for each in group)) - group
        if not any(after[each] & group for each in between):
            yield group


def is_read(each, group) -> bool:
    return each.is_root or any(user not in group for user in each.users)


def choices(group):
    """Yield the sets of results: what others read is a result, or computed again by them."""
    read = [each for each in group if is_read(each, group)]
    fixed = [each for each in read if each.is_root or not any(u in group for u in each.users)]
    free = [each for each in read if each not in fixed][:MOST_CHOICES]
    for number in range(len(free) + 1):
        for left_out in combinations(free, number):
            yield [each for each in read if each not in left_out]


def cost_of(module, before, changes, gpu) -> float | None:
    """Return the nanoseconds of the kernel of the first group, None if it cannot be one."""
    try:
        plan = make_plan(module, changes, Rest.OFF)
    except UnusableInput:
        return None
    numbering = Numbering()
    values = {name: value for value, name in names_by_value(numbering.number(before)).items()}
    kernels = find_kernels(numbering.number(plan.after), module.backend)
    clock = clock_for(plan.after, module.backend, gpu)
    wanted = {values[name] for name in changes.kernels[0] if name in values}
    holding = [each for each in kernels if wanted <= each.values]
    if not holding:
        return None
    return clock.time(min(holding, key=lambda each: len(each.values))).nanoseconds


def is_free(each) -> bool:
    while each.opcode == "broadcast":
        (each,) = each.operands
    return each.opcode in ("constant", "iota")


def members(group, order) -> tuple[str, ...]:
    """Return the names of a group, with the constants that only need to be computed again."""
    free, pending = [], list(group)
    while pending:
        for operand in pending.pop().operands:
            if operand.opcode == "broadcast" and is_free(operand) and operand not in free:
                free.append(operand)
                pending.append(operand)
    return tuple(each.name for each in [*free, *(e for e in order if e in group)])


def solve(order, kernels):
    """Choose kernels by a binary program. scipy comes with jax."""
    import numpy
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_matrix

    items = list(kernels)
    inside = set(order)
    rows, lows, highs = [], [], []

    def require(coefficients, low, high) -> None:
        rows.append(coefficients)
        lows.append(low)
        highs.append(high)

    makers = {each: [n for n, (_, out) in enumerate(items) if each in out] for each in order}
    needed = {e for e in order if e.is_root or any(u not in inside for u in e.users)}
    for each in needed:
        require(dict.fromkeys(makers[each], 1), 1, numpy.inf)
    for number, (group, _) in enumerate(items):
        for value in {o for e in group for o in e.operands if o in inside and o not in group}:
            row = dict.fromkeys(makers[value], 1)
            row[number] = row.get(number, 0) - 1
            require(row, 0, numpy.inf)
    for each in order:
        # A value is the result of one kernel, or computed inside of any number.
        hidden = [n for n, (group, out) in enumerate(items) if each in group and each not in out]
        require(dict.fromkeys(makers[each], 1), 0, 1)
        for number in hidden:
            for maker in makers[each]:
                require({number: 1, maker: 1}, 0, 1)
    table = lil_matrix((len(rows), len(items)))
    for index, row in enumerate(rows):
        for column, value in row.items():
            table[index, column] = value
    solved = milp(
        numpy.array([kernels[each] for each in items]),
        constraints=LinearConstraint(table.tocsr(), lows, highs),
        integrality=numpy.ones(len(items)),
        bounds=Bounds(0, 1),
        options={"time_limit": 30.0},
    )
    if solved.x is None:
        return None
    return [each for each, value in zip(items, solved.x, strict=True) if value > 0.5]


if __name__ == "__main__":
    sys.exit(main())
