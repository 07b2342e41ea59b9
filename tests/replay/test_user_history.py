"""Users in the order in which the stages before a pass leave them to be."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from fusionscope.dump import DumpedModule, open_dump
from fusionscope.user_order.user_history import find_creation_order, find_user_order

DUMPS = Path(__file__).parents[2] / "samples" / "dumps"
START = """
HloModule m

ENTRY main {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(x)
  b = f32[8]{0} exponential(x)
  c = f32[8]{0} tanh(x)
  d = f32[8]{0} add(a, b)
  ROOT e = f32[8]{0} add(d, c)
}
"""
# As the text of a later stage has the users of x, and as the compiler does.
CASES = {
    "nothing": (START, ["a", "b", "c"]),
    # What is gone leaves its place to the last one.
    "removed": (
        START.replace("  a = f32[8]{0} negate(x)\n", "").replace("add(a, b)", "add(b, b)"),
        ["c", "b"],
    ),
    # A new one stands where the one did that it replaces.
    "replaced": (
        START.replace("a = f32[8]{0} negate(x)", "f = f32[8]{0} cosine(x)").replace(
            "add(a, b)", "add(f, b)"
        ),
        ["f", "b", "c"],
    ),
    # One that replaces nothing comes last; what nothing reads is still there.
    "added": (
        START.replace("  b = ", "  f = f32[8]{0} cosine(x)\n  b = ").replace(
            "add(d, c)", "subtract(d, f)"
        ),
        ["a", "b", "c", "f"],
    ),
    "renamed": (
        START.replace("a =", "a.0 =").replace("add(a,", "add(a.0,"),
        ["a.0", "b", "c"],
    ),
}


RECORDS = sorted(path for path in (Path(__file__).parent / "users").iterdir() if path.is_dir())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_users_have_the_order_that_the_compiler_recorded(record: Path) -> None:
    (module,) = open_dump(record).modules
    actual = find_user_order(module, module.stages[-1], {})
    lines = (record / "users.txt").read_text(encoding="utf-8").splitlines()
    assert lines
    for line in lines:
        value, users = line.split(": ")
        assert list(actual[value]) == users.split()


def dumped(directory: Path, *stages: tuple[str, str]) -> DumpedModule:
    """A module of these stages, each the passes that its file is named by, and its text."""
    for number, (passes, text) in enumerate(stages):
        (directory / f"module_0001.m.{number:04}.fusion.after_{passes}.txt").write_text(text)
    (module,) = open_dump(directory).modules
    return module


@pytest.mark.parametrize("case", CASES)
def test_users_keep_the_order_that_passes_leave(case: str, tmp_path: Path) -> None:
    later, expected = CASES[case]
    module = dumped(
        tmp_path,
        ("pipeline-start.before_algsimp", START),
        ("algsimp.before_variadic-op-splitter", later),
    )
    assert find_user_order(module, module.stages[-1], {})["x"] == expected


def test_an_instruction_may_read_nothing_any_more(tmp_path: Path) -> None:
    start = START.replace("exponential(x)", 'custom-call(x), custom_call_target="some"')
    module = dumped(
        tmp_path,
        ("pipeline-start.before_algsimp", start),
        ("algsimp.before_variadic-op-splitter", start.replace("call(x)", "call()")),
    )
    assert find_user_order(module, module.stages[-1], {})["x"] == ["a", "c"]


def test_a_stage_that_cannot_be_read_leaves_nothing_known(tmp_path: Path) -> None:
    passes = "pipeline-start.before_algsimp"
    module = dumped(tmp_path, (passes, "HloModule m\n\nENTRY main {"), (passes, START))
    assert find_user_order(module, module.stages[-1], {}) == {}


# Values that are equal, and what reads them, in another order.
EQUAL = """
HloModule m

ENTRY main {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(x)
  b = f32[8]{0} negate(x)
  g = f32[8]{0} negate(x)
  c = f32[8]{0} exponential(g)
  d = f32[8]{0} cosine(a)
  e = f32[8]{0} tanh(b)
  ROOT f = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(c, d, e)
}
"""
# An instruction that is read twice, for each of which a pass makes another one.
REPLACED_TWICE = """
HloModule m

ENTRY main {
  x = f32[8]{0} parameter(0)
  a = f32[8]{0} negate(x)
  b = f32[8]{0} exponential(x)
  c = f32[8]{0} cosine(x)
  d = f32[8]{0} tanh(a)
  e = f32[8]{0} sine(a)
  ROOT f = (f32[8]{0}, f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(d, e, b, c)
}
"""
# x goes to two calls of which the second reads the result of the first.
CALLS = """
HloModule m

first {
  p = f32[8]{0} parameter(0)
  s = f32[8]{0} sine(p)
  ROOT t = f32[8]{0} add(s, p)
}

second {
  q = f32[8]{0} parameter(0)
  r = f32[8]{0} parameter(1)
  n = f32[8]{0} negate(q)
  ROOT u = f32[8]{0} multiply(n, r)
}

ENTRY main {
  x = f32[8]{0} parameter(0)
  one = f32[8]{0} call(x), to_apply=first
  ROOT two = f32[8]{0} call(x, one), to_apply=second
}
"""
INLINED = """
HloModule m

ENTRY main {
  x = f32[8]{0} parameter(0)
  n.1 = f32[8]{0} negate(x)
  s.1 = f32[8]{0} sine(x)
  t.1 = f32[8]{0} add(s.1, x)
  ROOT u.1 = f32[8]{0} multiply(n.1, t.1)
}
"""

# A loop whose body one pass changes, and the next makes anew without what does nothing in it.
LOOP = """
HloModule m

condition {
  q = (f32[8]{0}) parameter(0)
  ROOT t = pred[] constant(true)
}

body {
  p = (f32[8]{0}) parameter(0)
  x = f32[8]{0} get-tuple-element(p), index=0
  a = f32[8]{0} negate(x)
  b = f32[8]{0} exponential(x)
  c = f32[8]{0} cosine(x)
  z = f32[8]{0} copy(c)
  d = f32[8]{0} add(a, b)
  e = f32[8]{0} add(d, z)
  ROOT r = (f32[8]{0}) tuple(e)
}

ENTRY main {
  i = (f32[8]{0}) parameter(0)
  ROOT w = (f32[8]{0}) while(i), condition=condition, body=body
}
"""
MADE_ANEW = """
body.clone {
  p.9 = (f32[8]{0}) parameter(0)
  x.9 = f32[8]{0} get-tuple-element(p.9), index=0
  b.9 = f32[8]{0} exponential(x.9)
  c.9 = f32[8]{0} cosine(x.9)
  d.9 = f32[8]{0} add(c.9, b.9)
  e.9 = f32[8]{0} add(d.9, c.9)
  ROOT r.9 = (f32[8]{0}) tuple(e.9)
}
"""


@pytest.mark.parametrize(
    ("before", "name", "after", "value", "expected"),
    [
        # The users of values that are gone come last, those of the first of these at first.
        (
            EQUAL,
            "cse",
            EQUAL.replace("  b = f32[8]{0} negate(x)\n  g = f32[8]{0} negate(x)\n", "")
            .replace("(b)", "(a)")
            .replace("(g)", "(a)"),
            "a",
            ["d", "e", "c"],
        ),
        # What goes does so when the last one that had read it reads something else.
        (
            REPLACED_TWICE,
            "algsimp",
            REPLACED_TWICE.replace(
                "  a = f32[8]{0} negate(x)\n",
                "  g = f32[8]{0} abs(x)\n  h = f32[8]{0} floor(x)\n",
            )
            .replace("tanh(a)", "tanh(g)")
            .replace("sine(a)", "sine(h)"),
            "x",
            ["h", "b", "c", "g"],
        ),
        # x is read by one, two; then by two, s, t without one, which t takes the place of; then n
        # comes and two goes, whose place n takes.
        (CALLS, "call-inliner", INLINED, "x", ["t.1", "n.1", "s.1"]),
    ],
    ids=["moved", "replaced-twice", "inlined"],
)
def test_users_stand_where_a_pass_leaves_them(
    before: str, name: str, after: str, value: str, expected: list[str], tmp_path: Path
) -> None:
    module = dumped(
        tmp_path,
        (f"pipeline-start.before_{name}", before),
        (f"{name}.before_variadic-op-splitter", after),
    )
    assert find_user_order(module, module.stages[-1], {})[value] == expected


def test_what_is_younger_than_a_new_instruction_is_new_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pass puts a copy before c, and then one before b: each makes both anew.
    start = START.replace("negate(x)", "constant({...})")
    later = start.replace("exponential(x)", "exponential(y)").replace("tanh(x)", "tanh(z)")
    later = later.replace("  b =", "  y = f32[8]{0} copy(x)\n  z = f32[8]{0} copy(x)\n  b =")
    module = dumped(
        tmp_path,
        ("pipeline-start.before_algsimp", start),
        ("algsimp.before_variadic-op-splitter", later),
    )
    ids = {"x": 1, "a": 2, "b": 3, "d": 4, "e": 5, "c": 6}
    new_ids = {"x": 1, "a": 2, "d": 4, "e": 5, "z": 7, "c": 8, "y": 9, "b": 10}
    by_stage = dict(zip(module.stages, ({"main": ids}, {"main": new_ids}), strict=True))
    monkeypatch.setattr(type(module), "instruction_ids", lambda _, stage: by_stage[stage])
    assert find_user_order(module, module.stages[-1], {})["x"] == ["y", "z"]


def test_without_ids_instructions_are_as_old_as_the_stages_before_tell(tmp_path: Path) -> None:
    # What a pass made is younger than all that was there, wherever it stands in the text; so is
    # what has the name of another operation, for none becomes another.
    changed = START.replace("  b = ", "  f = f32[8]{0} cosine(x)\n  b = ").replace(
        "add(d, c)", "subtract(d, f)"
    )
    module = dumped(
        tmp_path,
        ("pipeline-start.before_algsimp", START),
        ("algsimp.before_variadic-op-splitter", changed),
    )
    ages = find_creation_order(module, module.stages[-1], {})["main"]
    assert sorted(ages, key=ages.__getitem__) == ["x", "a", "b", "c", "d", "f", "e"]


def test_without_ids_names_and_places_in_the_code_tell_what_is_older(tmp_path: Path) -> None:
    program = """
HloModule m

ENTRY main {
  p = f32[8]{0} parameter(1)
  x.1 = f32[8]{0} parameter(0)
  constant.2 = f32[] constant(0)
  zeros = f32[8]{0} broadcast(constant.2), dimensions={}, metadata={stack_frame_id=1}
  constant.1 = f32[] constant(1)
  ones = f32[8]{0} broadcast(constant.1), dimensions={}, metadata={stack_frame_id=1}
  add.2 = f32[8]{0} add(p, zeros), metadata={stack_frame_id=1}
  add.10 = f32[8]{0} add(add.2, ones), metadata={stack_frame_id=1}
  add.3 = f32[8]{0} add(x.1, ones), metadata={stack_frame_id=3}
  sub.1 = f32[8]{0} subtract(p, x.1), metadata={stack_frame_id=2}
  ROOT sum.1 = f32[8]{0} add(add.10, sub.1), metadata={stack_frame_id=2}
}
"""
    module = dumped(tmp_path, ("pipeline-start.before_variadic-op-splitter", program))
    ages = find_creation_order(module, module.stages[-1], {})["main"]
    expected = "x.1 p constant.1 ones constant.2 zeros add.2 sub.1 add.3 add.10 sum.1"
    assert sorted(ages, key=ages.__getitem__) == expected.split()


def test_without_ids_what_is_made_again_by_the_same_name_is_young(tmp_path: Path) -> None:
    before = """
HloModule m

ENTRY main {
  x = f32[8,4]{1,0} parameter(0)
  a = f32[4,8]{1,0} reshape(x)
  b = f32[32]{0} reshape(a)
  c = f32[32]{0} negate(b)
  d = f32[32]{0} exponential(c)
  e = f32[16]{0} slice(d), slice={[0:16]}
  ROOT f = f32[16]{0} tanh(e)
}
"""
    # b reads past a, and e takes other elements of something else; d just reads something else.
    after = before.replace("  a = f32[4,8]{1,0} reshape(x)\n", "").replace(
        "reshape(a)", "reshape(x)"
    )
    after = after.replace("exponential(c)", "exponential(b)").replace(
        "slice(d), slice={[0:16]}", "slice(c), slice={[16:32]}"
    )
    module = dumped(
        tmp_path,
        ("pipeline-start.before_algsimp", before),
        ("algsimp.before_variadic-op-splitter", after),
    )
    ages = find_creation_order(module, module.stages[-1], {})["main"]
    assert sorted(ages, key=ages.__getitem__)[-2:] == ["b", "e"]


@pytest.mark.parametrize("name", ["bitcasts_of_a_reduction", "split_reduction", "renamed_operand"])
def test_without_ids_operations_have_the_order_that_the_compiler_recorded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = [item for item in RECORDS if item.name == name]
    (module,) = open_dump(record).modules
    stage = module.stages[-1]
    recorded = module.instruction_ids(stage)
    assert recorded is not None
    monkeypatch.setattr(DumpedModule, "instruction_ids", lambda *_: None)
    entry = module.read(stage).entry
    ages = find_creation_order(module, stage, {})[entry.name]
    operations = [instruction.name for instruction in entry.instructions if instruction.operands]
    expected = sorted(operations, key=recorded[entry.name].__getitem__)
    assert sorted(operations, key=ages.__getitem__) == expected


@pytest.mark.slow
def test_without_ids_ages_are_mostly_those_that_the_compiler_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = wrong = 0
    for file in sorted(DUMPS.glob("*/*/*.before_variadic-op-splitter.hlo.pb")):
        if any(item in file.parts[-3] for item in ("jaxlib-0.4", "xla-2023")):  # have no record
            continue
        (module,) = [module for module in open_dump(file.parent).modules if module.priority_fusion]
        stage = next(
            stage for stage in module.stages if stage.name.before == "variadic-op-splitter"
        )
        ids = module.instruction_ids(stage)
        assert ids is not None
        with monkeypatch.context() as without_ids:
            without_ids.setattr(DumpedModule, "instruction_ids", lambda *_: None)
            ages = find_creation_order(module, stage, {})
        for computation, names in ids.items():
            for first, second in combinations(names.keys() & ages[computation].keys(), 2):
                pairs += 1
                is_older = names[first] < names[second]
                wrong += is_older != (ages[computation][first] < ages[computation][second])
    assert pairs > 50_000
    assert wrong < pairs / 100


def test_without_ids_what_is_inlined_is_made_call_by_call(tmp_path: Path) -> None:
    module = dumped(
        tmp_path,
        ("pipeline-start.before_call-inliner", CALLS),
        ("call-inliner.before_variadic-op-splitter", INLINED),
    )
    ages = find_creation_order(module, module.stages[-1], {})["main"]
    assert sorted(ages, key=ages.__getitem__) == ["x", "s.1", "t.1", "n.1", "u.1"]


def test_a_clone_has_the_users_of_its_original_in_their_order(tmp_path: Path) -> None:
    # When a goes, the last one takes its place.
    changed = LOOP.replace("  a = f32[8]{0} negate(x)\n", "").replace("add(a, b)", "add(c, b)")
    start, end = changed.index("\nbody {"), changed.index("\nENTRY")
    cloned = changed[:start] + MADE_ANEW + changed[end:].replace("body=body", "body=body.clone")
    module = dumped(
        tmp_path,
        ("pipeline-start.before_algsimp", LOOP),
        ("algsimp.before_simplify-while-loops", changed),
        ("simplify-while-loops.before_variadic-op-splitter", cloned),
    )
    assert find_user_order(module, module.stages[-2], {})["x"] == ["c", "b"]
    assert find_user_order(module, module.stages[-1], {})["x.9"] == ["c.9", "b.9"]


def test_without_ids_clones_are_made_in_the_order_of_their_originals(tmp_path: Path) -> None:
    # c is older than a and b, before which it stands in the first text only.
    first = LOOP.replace("  c = f32[8]{0} cosine(x)\n", "").replace(
        "  a = ", "  c = f32[8]{0} cosine(x)\n  a = "
    )
    start, end = LOOP.index("\nbody {"), LOOP.index("\nENTRY")
    clone = """
body.clone {
  p.9 = (f32[8]{0}) parameter(0)
  x.9 = f32[8]{0} get-tuple-element(p.9), index=0
  b.9 = f32[8]{0} exponential(x.9)
  a.9 = f32[8]{0} negate(x.9)
  d.9 = f32[8]{0} add(a.9, b.9)
  c.9 = f32[8]{0} cosine(x.9)
  z.9 = f32[8]{0} copy(c.9)
  e.9 = f32[8]{0} add(d.9, z.9)
  ROOT r.9 = (f32[8]{0}) tuple(e.9)
}
"""
    cloned = LOOP[:start] + clone + LOOP[end:].replace("body=body", "body=body.clone")
    module = dumped(
        tmp_path,
        ("pipeline-start.before_algsimp", first),
        ("algsimp.before_simplify-while-loops", LOOP),
        ("simplify-while-loops.before_variadic-op-splitter", cloned),
    )
    ages = find_creation_order(module, module.stages[-1], {})["body.clone"]
    operations = sorted("abc", key=lambda name: ages[f"{name}.9"])
    assert operations == ["c", "a", "b"]
