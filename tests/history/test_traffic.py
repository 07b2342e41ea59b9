"""Bytes that a launch reads and writes. Figures are worked out by hand in comments; a random fusion
is held against an interpreter that follows every single element."""

from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionscope.dump import open_dump
from fusionscope.grouping import Numbers
from fusionscope.history.regions import Region, read_for, union, whole
from fusionscope.history.traffic import _Code, traffic
from fusionscope.hlo import Instruction, parse

FILES = Path(__file__).parent / "traffic"
DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


def moved(launch: Instruction) -> tuple[int, int]:
    actual = traffic(launch)
    return actual.read, actual.written


def root_of(text: str) -> Instruction:
    return parse(text).entry.root


@pytest.mark.parametrize("name", ["slice", "view_before_slice"])
def test_a_view_before_a_slice_changes_nothing(name):
    """Read are f32[512,256] (524,288 bytes) of f32[40,512,256] and an index, written is
    bf16[512,256]."""
    launch = root_of((FILES / f"{name}.txt").read_text())
    assert moved(launch) == (524_288 + 4, 262_144)
    array, index = launch.operands
    assert traffic(launch).operands == {array: 524_288, index: 4}


@pytest.mark.parametrize(
    ("dump", "kernel", "read", "output"),
    [
        # A stencil on f32[4096]: the slices of each side overlap, and all is read once.
        ("cpu/loop", "multiply_add_fusion", 16_384, 16_384),
        ("h100/loop", "input_add_reduce_fusion", 16_384, 16_384 + 4),
        # Every other column of f32[1024,320], joined of 128 + 128 + 64 columns.
        ("h100/concatenate", "loop_add_fusion", 1024 * 160 * 4, 1024 * 160 * 4),
        # Two updates of parameters, f32[64] and f32[8192], joined in one kernel and taken apart
        # again: each reads three arrays and writes two.
        ("a100-xla-2023/updates", "fusion.10", 3 * (256 + 32_768), 2 * (256 + 32_768)),
        ("h100-jaxlib-0.4.34/updates", "input_slice_fusion", 3 * 33_024, 2 * 33_024),
        # f32[64,64] is both operands of the product.
        ("h100/libraries", "gemm_fusion_dot_general.1", 16_384, 16_384),
    ],
)
def test_kernels_of_real_dumps(dump, kernel, read, output):
    (module,) = open_dump(DUMPS / dump).modules
    (launch,) = (i for i in module.read(module.final).walk() if i.name == kernel)
    assert moved(launch) == (read, output)


def fusion(body: str, *operands: str, kind: str = "kLoop", computations: str = "") -> Instruction:
    """A fusion of such a body; ``%p0`` and so on in it are its parameters."""
    result = next(line for line in body.splitlines() if "ROOT" in line).split(" = ")[1]
    shape = result[: result.index(")") + 1] if result.startswith("(") else result.split(" ")[0]
    parameters = "\n".join(f"%p{n} = {o} parameter({n})" for n, o in enumerate(operands))
    names = ", ".join(f"%p{n}" for n in range(len(operands)))
    return root_of(
        f"HloModule m\n\n{computations}%f {{\n{parameters}\n{body}\n}}\n\n"
        f"ENTRY %e {{\n{parameters}\nROOT %r = {shape} fusion({names}), kind={kind}, calls=%f\n}}\n"
    )


ADD = """%add {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = f32[] add(%x, %y)
}

"""
LAST = """%last {
  %x = f32[] parameter(0)
  ROOT %y = f32[] parameter(1)
}

"""
SCATTER = """ROOT %s = f32[1000,8] scatter(%p0, %p1, %p2), update_window_dims={1},
  inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%"""
UPDATE = "f32[100,8] dynamic-update-slice("
IN_PLACE = ("f32[100,8]", "f32[1,8]", "s32[]")
ZERO = "%c = s32[] constant(0)\n"


@pytest.mark.parametrize(
    ("body", "operands", "read", "output"),
    [
        # Five rows of a table of a thousand: five indices, five rows.
        (
            """%g = f32[5,8] gather(%p0, %p1), offset_dims={1}, collapsed_slice_dims={0},
  start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
ROOT %r = f32[5,8] tanh(%g)""",
            ("f32[1000,8]", "s32[5,1]"),
            5 * 4 + 5 * 32,
            5 * 32,
        ),
        # Never more than there is: the same rows, read again and again.
        (
            """%g = f32[50,8] gather(%p0, %p1), offset_dims={1}, collapsed_slice_dims={0},
  start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
ROOT %r = f32[50,8] tanh(%g)""",
            ("f32[10,8]", "s32[50,1]"),
            50 * 4 + 10 * 32,
            50 * 32,
        ),
        # A cumulated update reads what was there, another does not.
        (SCATTER + "add", ("f32[1000,8]", "s32[5,1]", "f32[5,8]"), 20 + 2 * 160, 160),
        (SCATTER + "last", ("f32[1000,8]", "s32[5,1]", "f32[5,8]"), 20 + 160, 160),
        # In place, whatever views stand around the update, and for each of several.
        (ZERO + f"ROOT %u = {UPDATE}%p0, %p1, %p2, %c)", IN_PLACE, 32 + 4, 32),
        (
            ZERO
            + f"""%b = f32[100,8] bitcast(%p0)
%u = {UPDATE}%b, %p1, %p2, %c)
ROOT %r = f32[800] bitcast(%u)""",
            ("f32[800]", *IN_PLACE[1:]),
            32 + 4,
            32,
        ),
        (
            ZERO
            + f"""%u = {UPDATE}%p0, %p1, %p2, %c)
%v = {UPDATE}%p3, %p1, %p2, %c)
ROOT %t = (f32[100,8], f32[100,8]) tuple(%u, %v)""",
            (*IN_PLACE, "f32[100,8]"),
            32 + 4,
            64,
        ),
        # It reads the row that it overwrites.
        (
            ZERO
            + f"""%d = f32[1,8] dynamic-slice(%p0, %p2, %c), dynamic_slice_sizes={{1,8}}
%a = f32[1,8] add(%d, %p1)
ROOT %u = {UPDATE}%p0, %a, %p2, %c)""",
            IN_PLACE,
            64 + 4,
            32,
        ),
        # Not in place, as another row is read, ...
        (
            ZERO
            + f"""%d = f32[1,8] slice(%p0), slice={{[7:8], [0:8]}}
%a = f32[1,8] add(%d, %p1)
ROOT %u = {UPDATE}%p0, %a, %p2, %c)""",
            IN_PLACE,
            3200 + 32 + 4,
            3200,
        ),
        # ... as something else comes of it, where the row that is replaced is not read, ...
        (
            ZERO + f"%u = {UPDATE}%p0, %p1, %p2, %c)\nROOT %n = f32[100,8] negate(%u)",
            IN_PLACE,
            3200 - 32 + 32 + 4,
            3200,
        ),
        # ... or as there is no buffer yet.
        (
            ZERO
            + f"""%z = f32[] constant(0)
%b = f32[100,8] broadcast(%z), dimensions={{}}
ROOT %u = {UPDATE}%b, %p0, %p1, %c)""",
            IN_PLACE[1:],
            32 + 4,
            3200,
        ),
        # Two slices of one place are one, of two places two.
        (
            """%a = f32[4] dynamic-slice(%p0, %p1), dynamic_slice_sizes={4}
%b = f32[4] dynamic-slice(%p0, %p1), dynamic_slice_sizes={4}
ROOT %r = f32[4] add(%a, %b)""",
            ("f32[100]", "s32[]", "s32[]"),
            16 + 4,
            16,
        ),
        (
            """%a = f32[4] dynamic-slice(%p0, %p1), dynamic_slice_sizes={4}
%b = f32[4] dynamic-slice(%p0, %p2), dynamic_slice_sizes={4}
ROOT %r = f32[4] add(%a, %b)""",
            ("f32[100]", "s32[]", "s32[]"),
            32 + 8,
            16,
        ),
        # An array that is part of the code is read, a number is not.
        (
            """%c = f32[4] constant({1, 2, 3, 4})
ROOT %r = f32[4] add(%p0, %c)""",
            ("f32[4]",),
            32,
            16,
        ),
    ],
)
def test_traffic_of_a_fusion(body, operands, read, output):
    assert moved(fusion(body, *operands, computations=ADD + LAST)) == (read, output)


def test_a_fusion_in_a_fusion_is_looked_into():
    inner = """%inner {
  %x = f32[40,8] parameter(0)
  ROOT %y = f32[1,8] slice(%x), slice={[3:4], [0:8]}
}

"""
    body = """%e = f32[40,8] exponential(%p0)
ROOT %r = f32[1,8] fusion(%e), kind=kLoop, calls=%inner"""
    assert moved(fusion(body, "f32[40,8]", computations=inner)) == (32, 32)


def test_views_of_one_buffer_are_read_once():
    launch = root_of("""HloModule m

%f {
  %x = f32[40,8] parameter(0)
  %y = f32[320] parameter(1)
  %s = f32[2,8] slice(%x), slice={[1:3], [0:8]}
  %t = f32[16] slice(%y), slice={[16:32]}
  %b = f32[16] bitcast(%s)
  ROOT %r = f32[16] add(%b, %t)
}

ENTRY %e {
  %a = f32[40,8] parameter(0)
  %v = f32[320] bitcast(%a)
  ROOT %r = f32[16] fusion(%a, %v), kind=kLoop, calls=%f
}
""")
    # Rows 1 and 2 are elements 8 to 24, beside elements 16 to 32.
    assert moved(launch) == (24 * 4, 64)
    assert sorted(traffic(launch).operands.values()) == [64, 96]


def test_long_chains_and_many_users_take_no_longer_than_they_are():
    """Numbers of regions do not grow with the paths on which a value is read."""
    lines = ["%v0 = f32[64] slice(%p0), slice={[0:64]}"]
    for n in range(3000):
        lines.append(f"%w{n} = f32[64] reverse(%v{n}), dimensions={{0}}")
        lines.append(f"%v{n + 1} = f32[64] add(%v{n}, %w{n})")
    lines.append("ROOT %r = f32[8] slice(%v3000), slice={[0:8]}")
    assert moved(fusion("\n".join(lines), "f32[640]")) == (64, 32)


# A random fusion, each element followed by hand.

Array = dict[tuple[int, ...], frozenset[tuple[int, ...]]]  # which elements of the parameter


def indices(dimensions: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*map(range, dimensions)))


Case = tuple[str, tuple[int, ...], set[tuple[int, ...]]]
VIEWS = ("slice", "reverse", "transpose", "negate", "broadcast")
PLACES = (*VIEWS, "slice", "dynamic-slice", "reshape", "bitcast", "pad", "concatenate")
ALL = (*PLACES, "reduce", "add")


@st.composite
def fusions(  # noqa: C901  a branch for each kind of operation
    draw, kinds: tuple[str, ...], is_chain: bool
) -> tuple[str, tuple[int, ...], set[tuple[int, ...]]]:
    """A body, the dimensions of its one array, and which elements of that are read.

    In a chain each operation reads the one before.
    """
    start = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    values: list[tuple[str, tuple[int, ...], Array]]
    values = [("%p0", start, {i: frozenset([i]) for i in indices(start)})]
    lines: list[str] = ["%z = f32[] constant(0)"]
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(kinds))
        name, old, source = values[-1] if is_chain else draw(st.sampled_from(values))
        rank = len(old)
        operands, attributes = name, ""
        if kind == "slice":
            cuts = []
            for size in old:
                low = draw(st.integers(0, size - 1))
                cuts.append(range(low, draw(st.integers(low + 1, size)), draw(st.integers(1, 3))))
            new = tuple(map(len, cuts))
            reported = ", ".join(f"[{cut.start}:{cut.stop}:{cut.step}]" for cut in cuts)
            attributes = f", slice={{{reported}}}"
            array = {
                i: source[tuple(c[n] for c, n in zip(cuts, i, strict=True))] for i in indices(new)
            }
        elif kind == "dynamic-slice":
            new = tuple(draw(st.integers(1, size)) for size in old)
            names = is_chain or draw(st.booleans())
            options = [draw(st.integers(-1, 5)) for _ in old]
            for axis, place in enumerate(options):
                value = f"constant({place})" if names else "negate(%p1)"
                lines.append(f"%i{number}.{axis} = s32[] {value}")
                operands += f", %i{number}.{axis}"
            if not names:  # the same number for all
                options = [draw(st.integers(0, 5))] * rank
            places = [
                min(max(p, 0), size - cut) for p, size, cut in zip(options, old, new, strict=True)
            ]
            attributes = f", dynamic_slice_sizes={{{','.join(map(str, new))}}}"
            array = {
                i: source[tuple(p + n for p, n in zip(places, i, strict=True))]
                for i in indices(new)
            }
        elif kind == "reverse":
            turned = draw(st.sets(st.integers(0, rank - 1)) if rank else st.just(set()))
            new = old
            attributes = f", dimensions={{{','.join(map(str, sorted(turned)))}}}"
            array = {
                i: source[tuple(old[d] - 1 - n if d in turned else n for d, n in enumerate(i))]
                for i in indices(new)
            }
        elif kind == "transpose":
            order = draw(st.permutations(range(rank)))
            new = tuple(old[d] for d in order)
            attributes = f", dimensions={{{','.join(map(str, order))}}}"
            array = {i: source[tuple(i[order.index(d)] for d in range(rank))] for i in indices(new)}
        elif kind == "broadcast":
            size, at = draw(st.integers(1, 3)), draw(st.integers(0, rank))
            new = (*old[:at], size, *old[at:])
            saved = [d if d < at else d + 1 for d in range(rank)]
            attributes = f", dimensions={{{','.join(map(str, saved))}}}"
            array = {i: source[(*i[:at], *i[at + 1 :])] for i in indices(new)}
        elif kind in ("reshape", "bitcast"):
            new = draw(st.sampled_from(shapes_of(prod(old))))
            array = dict(zip(indices(new), (source[i] for i in indices(old)), strict=True))
        elif kind == "pad" and rank:
            lows = [draw(st.integers(-1, 2)) if size > 1 else 0 for size in old]
            inner = [draw(st.integers(0, 1)) for _ in old]
            new = tuple(
                low + size + (size - 1) * gap
                for low, size, gap in zip(lows, old, inner, strict=True)
            )
            reported = "x".join(f"{low}_0_{gap}" for low, gap in zip(lows, inner, strict=True))
            operands, attributes = f"{name}, %z", f", padding={reported}"
            array = {i: frozenset() for i in indices(new)}
            for i, value in source.items():
                place = tuple(
                    low + n * (gap + 1) for low, n, gap in zip(lows, i, inner, strict=True)
                )
                if min(place, default=0) >= 0:
                    array[place] = value
        elif kind == "concatenate" and rank:
            axis = draw(st.integers(0, rank - 1))
            new = tuple(2 * size if d == axis else size for d, size in enumerate(old))
            second = draw(st.sampled_from([v for v in values if v[1] == old]))
            operands, attributes = f"{name}, {second[0]}", f", dimensions={{{axis}}}"
            array = {}
            for i in indices(new):
                inside = tuple(n % old[axis] if d == axis else n for d, n in enumerate(i))
                array[i] = (source if i[axis] < old[axis] else second[2])[inside]
        elif kind == "reduce" and rank:
            axis = draw(st.integers(0, rank - 1))
            new = (*old[:axis], *old[axis + 1 :])
            operands, attributes = f"{name}, %z", f", dimensions={{{axis}}}, to_apply=%add"
            array = {
                i: frozenset().union(*(source[(*i[:axis], n, *i[axis:])] for n in range(old[axis])))
                for i in indices(new)
            }
        else:
            kind, new = kind if kind == "negate" else "add", old
            second = draw(st.sampled_from([v for v in values if v[1] == old]))
            operands = f"{name}, {second[0]}" if kind == "add" else name
            also = second[2] if kind == "add" else source
            array = {i: source[i] | also[i] for i in indices(new)}
        shape = f"f32[{','.join(map(str, new))}]"
        lines.append(f"%v{number} = {shape} {kind}({operands}){attributes}")
        values.append((f"%v{number}", new, array))
    name, new, array = values[-1]
    lines.append(f"ROOT %r = f32[{','.join(map(str, new))}] negate({name})")
    return "\n".join(lines), start, set().union(*array.values())


def shapes_of(count: int) -> list[tuple[int, ...]]:
    """Some dimensions of that many elements."""
    divisors = [n for n in range(1, count + 1) if count % n == 0]
    pairs = [(n, count // n) for n in divisors]
    return [
        (count,),
        *pairs,
        *((a, n, b // n) for a, b in pairs for n in divisors if b % n == 0),
    ]


def launch_of(body: str, dimensions: tuple[int, ...]) -> Instruction:
    shape = f"f32[{','.join(map(str, dimensions))}]"
    return fusion(body, shape, "s32[]", computations=ADD)


def read_of(launch: Instruction) -> int:
    return traffic(launch).operands[launch.operands[0]] // 4


def places_read(launch: Instruction) -> set[tuple[int, ...]] | None:
    """The elements of the array that the regions hold; None where they leave that open."""
    names = Numbers()
    inside = launch.called[0]
    expected: dict[Instruction, list[Region]] = {i: [] for i in inside.instructions}
    expected[inside.root].append(whole(inside.root.shape))
    for instruction in reversed(inside.instructions):
        regions = union(expected[instruction], instruction.shape, names)
        starts = [o.literal and int(o.literal) for o in instruction.operands if o.shape.rank == 0]
        is_cut = instruction.opcode == "dynamic-slice"
        if is_cut and (None in starts or instruction.operands[0].shape.rank == 0):
            return None
        parts = read_for(regions, instruction, lambda n, s=starts: s[n - 1], names)
        for operand, part in zip(instruction.operands, parts, strict=True):
            expected[operand] += part
    actual: set[tuple[int, ...]] = set()
    for region in expected[inside.parameters[0]]:
        if region.box is None:
            return None
        actual |= set(product(*(range(p.start, p.end, p.stride) for p in region.box)))
    return actual


@settings(max_examples=100, deadline=None)
@given(fusions(ALL, is_chain=False) | fusions(PLACES, is_chain=True))
def test_no_element_that_is_read_is_left_out(case):
    body, dimensions, elements = case
    launch = launch_of(body, dimensions)
    assert len(elements) <= read_of(launch) <= prod(dimensions)
    places = places_read(launch)
    assert places is None or places >= elements


@settings(max_examples=100, deadline=None)
@given(fusions(VIEWS, is_chain=True))
def test_what_is_read_through_views_is_counted_exactly(case):
    body, dimensions, elements = case
    launch = launch_of(body, dimensions)
    assert (places_read(launch), read_of(launch)) == (elements, len(elements))


@pytest.mark.parametrize("name", ["cpu/attention", "cpu/loop", "h100/attention", "h100/loop"])
def test_launches_that_are_counted_together_move_what_each_does(name, monkeypatch):
    """The looked-up bytes are those that every launch has when it is counted by itself."""

    def figures():
        (module,) = open_dump(DUMPS / name).modules
        return {
            (stage.label, instruction.computation.name, instruction.name): (
                *moved(instruction),
                [(operand.name, size) for operand, size in traffic(instruction).operands.items()],
                sorted(operand.name for operand in traffic(instruction).updated),
            )
            for stage in (module.pre_fusion, module.final)
            for instruction in module.read(stage).walk()
            if instruction.opcode not in ("parameter", "tuple", "while")
        }

    together = figures()
    monkeypatch.setattr(_Code, "form", lambda self: object())
    assert figures() == together


def test_a_scatter_that_adds_is_no_scatter_that_overwrites():
    """They differ in the called computation alone. The sum reads the 4 places (16 bytes) that it
    updates, too."""
    text = """HloModule m

    sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }

    last { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }

    ENTRY main {
      x = f32[1000]{0} parameter(0)
      i = s32[4,1]{1,0} parameter(1)
      u = f32[4]{0} parameter(2)
      added = f32[1000]{0} scatter(x, i, u), SHAPE, to_apply=sum
      ROOT over = f32[1000]{0} scatter(x, i, u), SHAPE, to_apply=last
    }
    """.replace(
        "SHAPE",
        "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1",
    )
    added, over = parse(text).entry.instructions[-2:]
    assert traffic(added).read - traffic(over).read == 16


@pytest.mark.parametrize(("number", "whole_result"), [("5", False), ("6", True)])
def test_a_row_and_a_state_are_written_where_the_compiler_says_so(number, whole_result):
    """A step of a loop on a TPU reads its state (8 values), a row (8) and a number, and writes the
    state and a row (8 each) of an array of 100 rows; else it reads 99 rows (792) and writes
    all (800).
    """
    launch = root_of(
        """HloModule m

    step { rows = f32[100,8] parameter(0)
      i = s32[] parameter(1)
      state = f32[8] parameter(2)
      inputs = f32[100,8] parameter(3)
      zero = s32[] constant(0)
      row = f32[1,8] dynamic-slice(inputs, i, zero), dynamic_slice_sizes={1,8}
      flat = f32[8] bitcast(row)
      next = f32[8] add(state, flat)
      kept = f32[1,8] bitcast(next)
      all = f32[100,8] dynamic-update-slice(rows, kept, i, zero)
      ROOT both = (f32[8], f32[100,8]) tuple(next, all) }

    ENTRY main {
      rows = f32[100,8] parameter(0)
      i = s32[] parameter(1)
      state = f32[8] parameter(2)
      inputs = f32[100,8] parameter(3)
      ROOT f = (f32[8], f32[100,8]) fusion(rows, i, state, inputs), kind=kLoop, calls=step,
        backend_config={"aliasing_operands":{"lists":[{"indices":["2","4"]},
        {"indices":["0","NUMBER"]}]}}
    }
    """.replace("NUMBER", number)
    )
    reads, writes = (792, 800) if whole_result else (0, 8)
    assert moved(launch) == (4 * (8 + 8 + 1 + reads), 4 * (8 + writes))
