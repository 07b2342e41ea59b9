"""What differs between two modules: one known change at a time, by hand and in the samples."""

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from conformance.matching import INJECTIONS, check_injected, check_mutants, check_same, faults
from sample_kinds import all_samples

from fusionscope.dump import open_dump
from fusionscope.history.changes import (
    ChangeKind,
    EditKind,
    FusionChange,
    find_edits,
    find_fusion_changes,
    group_identical,
)
from fusionscope.history.matching import match
from fusionscope.hlo import Module, parse, to_text

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


@pytest.mark.slow
@pytest.mark.parametrize("dump", all_samples())
def test_exactly_what_was_changed(dump, samples):
    """First, pre-fusion and final stage, with other texts made of them; see
    tools/conformance/matching.py for what must be told of each."""
    module = samples.module(dump)
    counts: Counter[str] = Counter()
    assert list(check_mutants(module, 1, counts)) == []
    stages = counts["mutants: renamed"]
    assert stages == 3
    assert counts["mutants: renamed, shuffled and stripped"] == stages
    injected = {kind: counts[f"mutants: {kind}, disguised"] for kind in INJECTIONS}
    assert any(injected.values())
    is_small = dump.parent.name.startswith("a100")  # two fusions are left, which lie apart
    assert dump.name != "cartpole" or is_small or all(injected.values())


def test_the_checks_find_faults():
    """They do not hold for other changes, nor for another place."""
    (dumped,) = open_dump(DUMPS / "h100" / "cartpole").modules
    text = to_text(dumped.read(dumped.final))
    module, random = parse(text), Random(3)
    injected = {kind: inject(text, random) for kind, inject in INJECTIONS.items()}
    for kind, first in injected.items():
        assert first is not None
        assert check_injected(kind, module, first, "gpu") is None
        assert check_same(module, first.text, "gpu", same_names=False) is not None
        elsewhere = INJECTIONS[kind](text, Random(4))
        assert elsewhere is not None
        if elsewhere.before[0] != first.before[0]:
            wrong = type(first)(first.text, first.what, elsewhere.before, elsewhere.after)
            assert check_injected(kind, module, wrong, "gpu") is not None
    first, second = injected["operands_swapped"], injected["constant_changed"]
    assert first is not None
    assert second is not None
    assert check_injected("constant_changed", module, first, "gpu") is not None
    assert check_injected("operands_swapped", module, second, "gpu") is not None


def module(entry: str, **computations: str) -> Module:
    """A module with the lines of an entry and of other computations.

    A line that gives no shape is one of ``f32[8]``.
    """
    bodies = [f"%{name} {{\n{lines}\n}}\n" for name, lines in computations.items()]
    text = "HloModule m\n\n" + "\n".join(bodies) + f"\nENTRY %main {{\n{entry}\n}}\n"
    return parse(re.sub(r"= (?=[\w-]+\()", "= f32[8] ", text))


def changes(before: Module, after: Module) -> tuple[FusionChange, ...]:
    matching = match(before, after)
    actual = find_fusion_changes(matching, "gpu")
    assert list(faults(matching, find_edits(matching), actual)) == []
    return actual


def told(before: Module, after: Module) -> list[tuple[str, ...]]:
    """Kind, and names of before, after, gained and lost, each in alphabetical order."""
    return sorted(
        (
            change.kind.value,
            *(
                " ".join(sorted(i.name for i in side))
                for side in (change.before, change.after, change.gained, change.lost)
            ),
        )
        for change in changes(before, after)
    )


INPUTS = " %p = parameter(0)\n %q = parameter(1)\n"
# sine(p + q), and what is made of it.
X, Y = " %x = add(%p, %q)\n", " %y = sine(%x)\n"
UNFUSED = module(INPUTS + X + Y + " ROOT %r = negate(%y)")
ADD_SINE = " %a = parameter(0)\n %b = parameter(1)\n %xf = add(%a, %b)\n ROOT %yf = sine(%xf)"
ADD_SINE_NEGATE = ADD_SINE.replace("ROOT ", "") + "\n ROOT %rf = negate(%yf)"
SMALL = " %f = fusion(%p, %q), kind=kLoop, calls=%c\n"
FUSED = module(INPUTS + SMALL + " ROOT %r = negate(%f)", c=ADD_SINE)
ALL_FUSED = module(INPUTS + " ROOT %f = fusion(%p, %q), kind=kLoop, calls=%c", c=ADD_SINE_NEGATE)
NEGATE_TANH = " %d = parameter(0)\n %nf = negate(%d)\n ROOT %tf = tanh(%nf)"
TWO_FUSIONS = module(
    INPUTS + SMALL + " ROOT %g = fusion(%f), kind=kLoop, calls=%e", c=ADD_SINE, e=NEGATE_TANH
)
ONE_FUSION = module(
    INPUTS + " ROOT %g = fusion(%p, %q), kind=kLoop, calls=%e",
    e=ADD_SINE_NEGATE.replace("ROOT ", "") + "\n ROOT %tf = tanh(%rf)",
)


def test_formed():
    assert told(UNFUSED, FUSED) == [("formed", "x y", "f", "xf yf", "")]


def test_formed_of_what_is_new():
    before = module(INPUTS + " ROOT %r = negate(%p)")
    after = module(
        INPUTS + SMALL + " %r = negate(%p)\n ROOT %s = (f32[8], f32[8]) tuple(%r, %f)", c=ADD_SINE
    )
    assert told(before, after) == [("formed", "", "f", "xf yf", "")]


def test_grown():
    assert told(FUSED, ALL_FUSED) == [("grown", "f r", "f", "rf", "")]


def test_shrunk():
    assert told(ALL_FUSED, FUSED) == [("shrunk", "f", "f r", "", "rf")]


def test_merged():
    """The one that gives the result stays; the other one went into it."""
    assert told(TWO_FUSIONS, ONE_FUSION) == [("merged", "f", "g", "", "xf yf")]


def test_split():
    assert told(ONE_FUSION, TWO_FUSIONS) == [("split", "g", "f g", "", "")]


# What is computed once, for two fusions that each do something else with it.
TWICE = " ROOT %s = (f32[8], f32[8]) tuple(%g, %h)"
USERS = """
 %g = fusion({0}), kind=kLoop, calls=%gc
 %h = fusion({0}), kind=kLoop, calls=%hc
"""
OWN = "\n %n{0} = {1}(%{2})\n ROOT %t{0} = multiply(%n{0}, %n{0})"
ALONE = " %d{0} = parameter(0)"
SINE = " %a{0} = parameter(0)\n %b{0} = parameter(1)\n %x{0} = add(%a{0}, %b{0})"
WITH_SINE = SINE + "\n %y{0} = sine(%x{0})"
PRODUCER_FUSED = module(
    INPUTS + USERS.format("%p, %q") + TWICE,
    gc=SINE.format("g") + OWN.format("g", "negate", "xg"),
    hc=SINE.format("h") + OWN.format("h", "tanh", "xh"),
)


def test_duplicated_operation():
    before = module(
        INPUTS + X + USERS.format("%x") + TWICE,
        gc=ALONE.format("g") + OWN.format("g", "negate", "dg"),
        hc=ALONE.format("h") + OWN.format("h", "tanh", "dh"),
    )
    assert told(before, PRODUCER_FUSED) == [("duplicated", "x", "g h", "", "")]
    edits = find_edits(match(before, PRODUCER_FUSED))
    kinds = Counter(e.kind for e in edits if e.instruction.opcode == "add")
    assert kinds == {EditKind.MOVED: 1, EditKind.COPIED: 1}


def test_duplicated_fusion():
    before = module(
        INPUTS + SMALL + USERS.format("%f") + TWICE,
        c=ADD_SINE,
        gc=ALONE.format("g") + OWN.format("g", "negate", "dg"),
        hc=ALONE.format("h") + OWN.format("h", "tanh", "dh"),
    )
    after = module(
        INPUTS + USERS.format("%p, %q") + TWICE,
        gc=WITH_SINE.format("g") + OWN.format("g", "negate", "yg"),
        hc=WITH_SINE.format("h") + OWN.format("h", "tanh", "yh"),
    )
    assert told(before, after) == [("duplicated", "f", "g h", "", "xf yf")]


TWO_RESULTS = module(
    INPUTS + " ROOT %g = (f32[8], f32[8]) fusion(%p, %q), kind=kLoop, calls=%gc",
    gc=SINE.format("g")
    + OWN.format("g", "negate", "xg").replace("ROOT ", "")
    + OWN.format("h", "tanh", "xg").replace("ROOT ", "")
    + "\n ROOT %both = (f32[8], f32[8]) tuple(%tg, %th)",
)


def test_multi_output():
    """Two fusions that read the same, and both compute the sum, become one that gives both."""
    assert told(PRODUCER_FUSED, TWO_RESULTS) == [
        ("merged", "h", "g", "", "nh th xh"),
        ("multi-output", "g", "g", "", ""),
    ]


def test_multi_output_for_what_was_computed_twice():
    """The sum inside the fusion is a second result: the one outside is merged with it."""
    end = " ROOT %s = (f32[8], f32[8]) tuple({}, {})"
    before = module(INPUTS + X + SMALL + end.format("%f", "%x"), c=ADD_SINE)
    after = module(
        INPUTS
        + " %f = (f32[8], f32[8]) fusion(%p, %q), kind=kLoop, calls=%c\n"
        + " %one = get-tuple-element(%f), index=0\n %two = get-tuple-element(%f), index=1\n"
        + end.format("%one", "%two"),
        c=ADD_SINE.replace("ROOT ", "") + "\n ROOT %both = (f32[8], f32[8]) tuple(%yf, %xf)",
    )
    assert told(before, after) == [("multi-output", "f", "f", "", "")]


def test_dissolved():
    assert told(FUSED, UNFUSED) == [("dissolved", "f", "x y", "", "xf yf")]


DOT = """
 %p = f32[64,64] parameter(0)
 %q = f32[64,64] parameter(1)
 %dot = f32[64,64] dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT %r = f32[64,64] sine(%dot)"""
GEMM = """
 %p = f32[64,64] parameter(0)
 %q = f32[64,64] parameter(1)
 %gemm = f32[64,64] custom-call(%p, %q), custom_call_target="__cublas$gemm"
 ROOT %r = f32[64,64] sine(%gemm)"""


def test_library():
    assert told(module(DOT), module(GEMM)) == [("library", "dot", "gemm", "", "")]


def test_library_fusion():
    """cuDNN makes the code of a fusion: one that is new, and one that was there."""
    custom = SMALL.replace("kLoop", "kCustom").replace(
        "calls=%c", 'calls=%c, backend_config={"kind":"__cudnn$fusion"}'
    )
    after = module(INPUTS + custom + " ROOT %r = negate(%f)", c=ADD_SINE)
    assert told(UNFUSED, after) == [("library", "x y", "f", "xf yf", "")]
    assert told(FUSED, after) == [("library", "f", "f", "", "")]


def test_wrapped():
    after = module(
        INPUTS + X + " %y = fusion(%x), kind=kLoop, calls=%c\n ROOT %r = negate(%y)",
        c=" %a = parameter(0)\n ROOT %yf = sine(%a)",
    )
    assert told(UNFUSED, after) == [("wrapped", "y", "y", "yf", "")]


def test_emitter():
    second = module(INPUTS + SMALL.replace("kLoop", "kInput") + " ROOT %r = negate(%f)", c=ADD_SINE)
    assert told(FUSED, second) == [("emitter", "f", "f", "", "")]
    assert told(second, FUSED) == [("emitter", "f", "f", "", "")]


def test_rewritten():
    """Something between the sum and the sine that was nowhere before, and back."""
    second = module(
        INPUTS + SMALL + " ROOT %r = negate(%f)",
        c=ADD_SINE.replace("ROOT %yf = sine(%xf)", "%mf = abs(%xf)\n ROOT %yf = sine(%mf)"),
    )
    assert told(FUSED, second) == [("rewritten", "f", "f", "mf", "")]
    assert told(second, FUSED) == [("rewritten", "f", "f", "", "mf")]


def test_renamed():
    second = module(
        INPUTS + SMALL.replace("%f", "%g") + " ROOT %r = negate(%g)",
        c=ADD_SINE.replace("xf", "xg"),
    )
    assert told(FUSED, second) == [("renamed", "f", "g", "", "")]
    assert find_edits(match(FUSED, second)) == ()


def test_removed():
    """Nothing needs it any more."""
    before = module(
        INPUTS + SMALL + " %r = negate(%p)\n ROOT %s = (f32[8], f32[8]) tuple(%r, %f)", c=ADD_SINE
    )
    after = module(INPUTS + " ROOT %r = negate(%p)")
    assert told(before, after) == [("removed", "f", "", "", "xf yf")]


def test_nothing_changed():
    for same in (UNFUSED, FUSED, ONE_FUSION, PRODUCER_FUSED, TWO_RESULTS):
        assert told(same, parse(to_text(same))) == []


def test_every_kind_has_a_test():
    tested = {name for name in globals() if name.startswith("test_")}
    for kind in ChangeKind:
        assert any(name.startswith(f"test_{kind.value.replace('-', '_')}") for name in tested), kind


def layers(count: int, entry: str, shape: str = "f32[8]", **computations: str) -> Module:
    """The lines once for each layer, a last one of another shape, and a tuple of their results."""
    shapes = [*["f32[8]"] * count, shape]
    lines, bodies = "", {}
    for number, local in enumerate(shapes):
        inputs = f" %p.{number} = parameter({number})\n"
        by_name = re.sub(r"%([a-z]+)\b(?!\.)", rf"%\1.{number}", inputs + entry)
        lines += re.sub(r"= (?=[\w-]+\()", f"= {local} ", by_name)
        for name, body in computations.items():
            by_name = re.sub(r"%([a-z]+)\b", rf"%\1.{number}", body)
            bodies[f"{name}.{number}"] = re.sub(r"= (?=[\w-]+\()", f"= {local} ", by_name)
    results = ", ".join(f"%r.{number}" for number in range(len(shapes)))
    return module(lines + f" ROOT %all = ({', '.join(shapes)}) tuple({results})", **bodies)


def test_alike():
    """Layers in which the same is fused are told once, with their count; another shape is not."""
    body = " %a = parameter(0)\n %xf = sine(%a)\n ROOT %rf = negate(%xf)"
    unfused = " %x = sine(%p)\n %r = negate(%x)\n"
    fusion = " %r = fusion(%p), kind=kLoop, calls=%c\n"
    actual = changes(layers(3, unfused, "f32[9]"), layers(3, fusion, "f32[9]", c=body))
    assert [change.kind for change in actual] == [ChangeKind.FORMED] * 4
    grouped = group_identical(actual)
    assert sorted(count for _, count in grouped) == [1, 3]
    by_count = {count: change for change, count in grouped}
    assert [i.name for i in by_count[1].after] == ["r.3"]
    assert by_count[3].after[0].name in ("r.0", "r.1", "r.2")
    assert group_identical(()) == []
