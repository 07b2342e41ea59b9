"""Whether pairs were fused, held against the compiler's records, against names, and by hand."""

import gzip
import re
from collections import Counter
from pathlib import Path

import pytest
from conformance.outcomes import CHECKS, check_metadata, without_metadata
from sample_kinds import all_samples

from fusionscope.dump import open_dump
from fusionscope.history import Numbering, Outcome, Pair, find_kernels, find_pairs
from fusionscope.hlo import parse, to_text

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
EQUAL_LAYERS = sorted((Path(__file__).parent / "equal_layers").glob("*.txt.gz"))


@pytest.mark.slow
@pytest.mark.parametrize("dump", all_samples())
def test_no_record_and_no_name_says_otherwise(dump, samples):
    """The checks of outcomes.py, most of them independent of how values are numbered."""
    module = samples.module(dump)
    counts: Counter[str] = Counter()
    for check in CHECKS:
        assert list(check(module, counts)) == []
    assert counts["names: agree"] > 0 or is_older(dump)  # no signs mark names there
    assert not module.fusion_explorer or counts["explorer: steps agree"] > 0
    # In these the pass finds nothing to fuse.
    nothing = "convolution", "h100/softmax", "h100-jaxlib-0.10/softmax", "a100/dense"
    if module.priority_fusion is not None and not str(dump).endswith(nothing):
        assert counts["record: steps agree"] > 0


def is_older(dump: Path) -> bool:
    return any(item in str(dump) for item in ("jaxlib-0.4", "xla-2023"))


def numbered(before: str, *after: str) -> tuple[Pair, ...]:
    """Pairs of a module, with their outcomes in the last of the following stages."""
    numbering = Numbering()
    first = numbering.number(parse(before))
    return find_pairs(first, [(str(n), numbering.number(parse(a))) for n, a in enumerate(after)])


def told(pairs: tuple[Pair, ...]) -> dict[tuple[str, str], str]:
    return {(pair.producer.name, pair.consumer.name): pair.outcome.value for pair in pairs}


def two_stages(dump: Path) -> tuple[str, str]:
    """Text of the stage before fusion and of the final one."""
    (module,) = open_dump(dump).modules
    return module.pre_fusion.text.text(), module.final.text.text()


@pytest.mark.parametrize("dump", all_samples())
def test_pairs_are_complete(dump):
    """Fused pairs have a kernel of the final module, and the stage since when; others have none."""
    before, final = two_stages(dump)
    numbering = Numbering()
    first, last = numbering.number(parse(before)), numbering.number(parse(final))
    pairs = find_pairs(first, [("final", last)])
    launched = {kernel.instruction for kernel in find_kernels(last, None)}
    for pair in pairs:
        assert (pair.kernel is not None) == (pair.stage is not None)
        assert (pair.kernel is not None) == (pair.outcome in (Outcome.FUSED, Outcome.DUPLICATED))
        assert pair.kernel is None or pair.kernel in launched
        assert pair.bytes_between >= 0
        for end in (pair.producer, pair.consumer):
            assert end.opcode not in ("bitcast", "get-tuple-element", "parameter", "tuple")
    assert len({(p.producer, p.consumer, p.chain, p.path) for p in pairs}) == len(pairs)


# One for each kind of product, library, and generation of passes.
FEW = [
    "cpu/attention",
    "h100/attention",
    pytest.param("h100-without-triton-gemm/projections", marks=pytest.mark.slow),
    "a100-jaxlib-0.4.35/library_random",
]


@pytest.mark.parametrize("name", FEW)
def test_metadata_changes_no_outcome(name):
    (module,) = open_dump(DUMPS / name).modules
    counts: Counter[str] = Counter()
    assert list(check_metadata(module, counts)) == []
    assert counts["metadata: agree"] > 0


@pytest.mark.parametrize("change", [str, without_metadata])
def test_equal_layers_keep_their_refusals(change):
    """``program.hlo`` by jaxlib 0.12 for an H100. Both layers have the same metadata. In each, the
    conversion behind the first product is in its Triton fusion, and the kernel that multiplies
    reads what that fusion writes: 8 MiB, once written and once read.
    """
    texts = [change(gzip.decompress(file.read_bytes()).decode()) for file in EQUAL_LAYERS]
    pairs = numbered(*texts)
    products = [
        pair for pair in pairs if (pair.producer.opcode, pair.consumer.opcode) == ("dot", "convert")
    ]
    conversions = {pair.consumer for pair in products}
    behind = [pair for pair in pairs if pair.producer in conversions]
    assert [pair.outcome for pair in products] == [Outcome.FUSED] * 2
    assert [pair.outcome for pair in behind] == [Outcome.NOT_FUSED] * 2
    assert {pair.bytes_between for pair in behind} == {2 * 512 * 4096 * 4}


def renamed(text: str) -> str:
    """The same module under other names of instructions and computations."""
    names: dict[str, str] = {}
    return re.sub(
        r"%([\w.\-]+)", lambda name: "%" + names.setdefault(name[1], f"n{len(names)}"), text
    )


# Between these two stages of theirs nothing is rewritten that would need a name to be known again.
PLAIN = [
    "cpu/concatenate", "cpu/softmax", "cpu/dense", "cpu/elementwise", "h100/concatenate",
    "h100/elementwise", "h200/elementwise", "tpu-v5e/softmax",
]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(
    "change", [renamed, without_metadata, lambda text: to_text(parse(text))]
)  # fmt: skip
def test_names_metadata_and_form_of_the_final_text_do_not_matter(name, change):
    before, final = two_stages(DUMPS / name)
    assert change(final) != final
    expected = numbered(before, final)
    assert {Outcome.FUSED, Outcome.NOT_FUSED} & {pair.outcome for pair in expected}
    assert told(numbered(before, change(final))) == told(expected)


def test_nothing_changed_means_nothing_fused():
    before, _ = two_stages(DUMPS / "cpu/softmax")
    assert set(told(numbered(before, before)).values()) == {"not-fused"}


def module(entry: str, *computations: str) -> str:
    """Text of a module whose entry takes f32[8] and gives what its last line does."""
    lines = [line.strip() for line in entry.strip().splitlines()]
    result = lines[-1].partition(" = ")[2]
    end = result.index(")") + 1 if result.startswith("(") else result.index(" ")
    body = "\n".join(f"  {line}" for line in lines[:-1])
    return (
        "HloModule m\n\n"
        + "\n\n".join(computation.strip() for computation in computations)
        + f"\n\nENTRY %main (x: f32[8]) -> {result[:end]} {{\n  %x = f32[8] parameter(0)\n{body}\n"
        f"  ROOT {lines[-1]}\n}}\n"
    )


CHAIN = module("%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n%c = f32[8] tanh(%b)")


def fused(name: str, body: str, parameters: str = "p: f32[8]", result: str = "f32[8]") -> str:
    lines = [f"  {line.strip()}" for line in body.strip().splitlines()]
    lines[-1] = "  ROOT" + lines[-1][1:]
    header = [
        f"  %{p.split(':')[0].strip()} = {p.split(': ')[1]} parameter({n})"
        for n, p in enumerate(parameters.split("; "))
    ]
    return "\n".join(
        [f"%{name} ({parameters.replace('; ', ', ')}) -> {result} {{", *header, *lines, "}"]
    )


def test_a_chain_of_which_two_are_fused():
    after = module(
        "%f = f32[8] fusion(%x), kind=kLoop, calls=%g\n%c = f32[8] tanh(%f)",
        fused("g", "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)"),
    )
    assert told(numbered(CHAIN, after)) == {("a", "b"): "fused", ("b", "c"): "not-fused"}


def test_the_stage_is_the_first_in_which_they_stand_together():
    half = module(
        "%f = f32[8] fusion(%x), kind=kLoop, calls=%g\n%c = f32[8] tanh(%f)",
        fused("g", "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)"),
    )
    whole = module(
        "%f = f32[8] fusion(%x), kind=kLoop, calls=%g",
        fused("g", "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)\n%o = f32[8] tanh(%m)"),
    )
    pairs = numbered(CHAIN, CHAIN, half, whole)
    assert [(pair.stage, pair.kernel.name) for pair in pairs] == [("1", "f"), ("2", "f")]


def test_computed_again_is_duplicated():
    before = module(
        "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n%c = f32[8] tanh(%a)\n"
        "%t = (f32[8], f32[8]) tuple(%b, %c)"
    )
    after = module(
        "%f = f32[8] fusion(%x), kind=kLoop, calls=%g\n"
        "%h = f32[8] fusion(%x), kind=kLoop, calls=%i\n"
        "%t = (f32[8], f32[8]) tuple(%f, %h)",
        fused("g", "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)"),
        fused("i", "%o = f32[8] sine(%q)\n%r = f32[8] tanh(%o)", "q: f32[8]"),
    )
    assert told(numbered(before, after)) == {("a", "b"): "duplicated", ("a", "c"): "duplicated"}


def test_a_value_that_is_also_written_is_duplicated():
    before = module(
        "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n%t = (f32[8], f32[8]) tuple(%a, %b)"
    )
    after = module(
        "%f = (f32[8], f32[8]) fusion(%x), kind=kLoop, calls=%g\n"
        "%y = f32[8] get-tuple-element(%f), index=0\n%z = f32[8] get-tuple-element(%f), index=1\n"
        "%t = (f32[8], f32[8]) tuple(%y, %z)",
        fused(
            "g",
            "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)\n%u = (f32[8], f32[8]) tuple(%n, %m)",
            result="(f32[8], f32[8])",
        ),
    )
    assert told(numbered(before, after)) == {("a", "b"): "duplicated"}


def test_a_kernel_that_computes_a_value_but_reads_it_from_outside_has_not_fused_it():
    """Siblings that were merged: one computes the sine itself, the other still reads it."""
    before = module(
        "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n%c = f32[8] tanh(%a)\n%d = f32[8] abs(%a)\n"
        "%t = (f32[8], f32[8], f32[8]) tuple(%b, %c, %d)"
    )
    after = module(
        "%a = f32[8] sine(%x)\n%d = f32[8] abs(%a)\n"
        "%f = (f32[8], f32[8]) fusion(%x, %a), kind=kLoop, calls=%g\n"
        "%y = f32[8] get-tuple-element(%f), index=0\n%z = f32[8] get-tuple-element(%f), index=1\n"
        "%t = (f32[8], f32[8], f32[8]) tuple(%y, %z, %d)",
        fused(
            "g",
            "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)\n%o = f32[8] tanh(%q)\n"
            "%u = (f32[8], f32[8]) tuple(%m, %o)",
            "p: f32[8]; q: f32[8]",
            "(f32[8], f32[8])",
        ),
    )
    assert told(numbered(before, after)) == {
        ("a", "b"): "duplicated",
        ("a", "c"): "not-fused",
        ("a", "d"): "not-fused",
    }


def test_bitcasts_are_looked_through():
    before = module(
        "%a = f32[8] sine(%x)\n%r = f32[2,4] reshape(%a)\n%b = f32[2,4] cosine(%r)\n"
        "%s = f32[8] bitcast(%b)\n%c = f32[8] tanh(%s)"
    )
    after = module(
        "%f = f32[2,4] fusion(%x), kind=kLoop, calls=%g\n%s = f32[8] bitcast(%f)\n"
        "%c = f32[8] tanh(%s)",
        fused(
            "g",
            "%n = f32[8] sine(%p)\n%q = f32[2,4] bitcast(%n)\n%m = f32[2,4] cosine(%q)",
            result="f32[2,4]",
        ),
    )
    assert told(numbered(before, after)) == {("a", "b"): "fused", ("b", "c"): "not-fused"}


def test_a_bitcast_outside_parts_the_kernels_on_both_sides():
    """The kernel of the cosine computes a sine of its own, but the tanh reads the other one."""
    before = module(
        "%a = f32[8] sine(%x)\n%r = f32[2,4] bitcast(%a)\n%b = f32[2,4] cosine(%r)\n"
        "%c = f32[8] tanh(%a)\n%t = (f32[2,4], f32[8]) tuple(%b, %c)"
    )
    after = module(
        "%a = f32[8] sine(%x)\n%r = f32[2,4] bitcast(%a)\n"
        "%f = (f32[2,4], f32[8]) fusion(%x, %r), kind=kLoop, calls=%g\n"
        "%y = f32[2,4] get-tuple-element(%f), index=0\n%z = f32[8] get-tuple-element(%f), index=1\n"
        "%t = (f32[2,4], f32[8]) tuple(%y, %z)",
        fused(
            "g",
            "%n = f32[8] sine(%p)\n%o = f32[8] tanh(%n)\n%m = f32[2,4] cosine(%q)\n"
            "%u = (f32[2,4], f32[8]) tuple(%m, %o)",
            "p: f32[8]; q: f32[2,4]",
            "(f32[2,4], f32[8])",
        ),
    )
    assert told(numbered(before, after)) == {("a", "b"): "not-fused", ("a", "c"): "duplicated"}


def test_what_a_pass_puts_between_two_does_not_part_them():
    """As bf16 matrix units want it: the operand of the tanh is converted in the same kernel."""
    before = module("%a = f32[8] sine(%x)\n%b = f32[8] tanh(%a)")
    after = module(
        "%f = f32[8] fusion(%x), kind=kLoop, calls=%g",
        fused(
            "g",
            "%a = f32[8] sine(%p)\n%n = bf16[8] convert(%a)\n%o = f32[8] convert(%n)\n"
            "%b = f32[8] tanh(%o)",
        ),
    )
    fusing = module(
        "%f = f32[8] fusion(%x), kind=kLoop, calls=%g",
        fused("g", "%a = f32[8] sine(%p)\n%b = f32[8] tanh(%a)"),
    )
    assert told(numbered(before, fusing, after)) == {("a", "b"): "fused"}


def test_an_operation_between_two_that_was_there_before_parts_their_pair():
    """Both ends of a chain of three in one kernel: the first and the last are no pair."""
    after = module(
        "%f = f32[8] fusion(%x), kind=kLoop, calls=%g",
        fused("g", "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)\n%o = f32[8] tanh(%m)"),
    )
    assert told(numbered(CHAIN, after)) == {("a", "b"): "fused", ("b", "c"): "fused"}


def test_a_library_call_that_takes_the_place_of_an_operation_is_known_by_its_readers():
    """It returns a workspace too, has another name, and no metadata."""
    before = module(
        "%a = f32[8] sine(%x)\n%s = f32[8] sort(%a), dimensions={0}, to_apply=%less\n"
        "%b = f32[8] tanh(%s)",
        LESS,
    )
    after = module(
        "%a = f32[8] sine(%x)\n"
        '%call = (f32[8], s8[64]) custom-call(%a), custom_call_target="library"\n'
        "%r = f32[8] get-tuple-element(%call), index=0\n%b = f32[8] tanh(%r)"
    )
    assert told(numbered(before, after)) == {("a", "s"): "not-fused", ("s", "b"): "not-fused"}


def test_another_shape_is_known_by_its_readers():
    """As where the dimensions of a reduction are put in their order in memory."""
    before = module(
        "%a = f32[8] sine(%x)\n%m = f32[2,4] bitcast(%a)\n%n = f32[2,4] cosine(%m)\n"
        "%v = f32[8] bitcast(%n)\n%b = f32[8] tanh(%v)"
    )
    after = module("%a = f32[8] sine(%x)\n%o = f32[8] cosine(%a)\n%b = f32[8] tanh(%o)")
    assert told(numbered(before, after)) == {("a", "n"): "not-fused", ("n", "b"): "not-fused"}


def test_a_padded_operand_of_a_split_reduction_is_still_read():
    before = module(
        "%z = f32[] constant(0)\n%a = f32[8] sine(%x)\n"
        "%r = f32[] reduce(%a, %z), dimensions={0}, to_apply=%sum",
        SUM,
    )
    after = module(
        "%z = f32[] constant(0)\n%a = f32[8] sine(%x)\n%p = f32[9] pad(%a, %z), padding=0_1\n"
        "%v = f32[3,3] bitcast(%p)\n%h = f32[3] reduce(%v, %z), dimensions={1}, to_apply=%sum\n"
        "%r = f32[] reduce(%h, %z), dimensions={0}, to_apply=%sum",
        SUM,
    )
    assert told(numbered(before, after))["a", "r"] == "not-fused"


def test_a_view_is_not_what_it_has_the_metadata_of():
    """The kernel reads the sine through a bitcast that has its metadata and shape."""
    name = ', metadata={op_name="sine"}'
    before = module(f"%a = f32[8] sine(%x){name}\n%b = f32[8] tanh(%a)")
    inner = f"%m = f32[2,4] reshape(%x)\n%s = f32[2,4] sine(%m){name}\n"
    reshaped = module(f"{inner}%v = f32[8] bitcast(%s){name}\n%b = f32[8] tanh(%v)")
    after = module(
        f"{inner}%f = f32[8] fusion(%s), kind=kLoop, calls=%g",
        fused("g", f"%v = f32[8] bitcast(%p){name}\n%b = f32[8] tanh(%v)", "p: f32[2,4]"),
    )
    assert told(numbered(before, reshaped, after)) == {("a", "b"): "not-fused"}


def test_what_was_removed_is_gone():
    after = module("%a = f32[8] sine(%x)\n%c = f32[8] tanh(%a)")
    assert told(numbered(CHAIN, after)) == {("a", "b"): "gone", ("b", "c"): "gone"}


def test_fusions_in_fusions():
    after = module(
        "%f = f32[8] fusion(%x), kind=kLoop, calls=%g",
        fused("h", "%n = f32[8] sine(%q)\n%m = f32[8] cosine(%n)", "q: f32[8]"),
        fused("g", "%i = f32[8] fusion(%p), kind=kLoop, calls=%h\n%o = f32[8] tanh(%i)"),
    )
    assert told(numbered(CHAIN, after)) == {("a", "b"): "fused", ("b", "c"): "fused"}


def test_an_asynchronous_fusion_is_one_kernel():
    after = module(
        "%s = ((f32[8]), f32[8], u32[]) async-start(%x), calls=%h\n"
        "%d = f32[8] async-done(%s)\n%c = f32[8] tanh(%d)",
        fused("g", "%n = f32[8] sine(%q)\n%m = f32[8] cosine(%n)", "q: f32[8]"),
        fused("h", "%f = f32[8] fusion(%p), kind=kLoop, calls=%g"),
    )
    pairs = numbered(CHAIN, after)
    assert told(pairs) == {("a", "b"): "fused", ("b", "c"): "not-fused"}
    assert pairs[0].kernel.name == "s"


LESS = "%less (l: f32[], r: f32[]) -> pred[] {\n  %l = f32[] parameter(0)\n  %r = f32[] parameter(1)\n  ROOT %s = pred[] compare(%l, %r), direction=LT\n}"  # noqa: E501


SUM = "%sum (l: f32[], r: f32[]) -> f32[] {\n  %l = f32[] parameter(0)\n  %r = f32[] parameter(1)\n  ROOT %s = f32[] add(%l, %r)\n}"  # noqa: E501


def test_collectives_that_are_sent_together_stay_what_they_are():
    """The combiner makes one all-reduce of two, and leaves the metadata of the first to it."""
    before = module(
        "%a = f32[8] sine(%x)\n%c = f32[8] cosine(%x)\n"
        '%b = f32[8] all-reduce(%a), to_apply=%sum, metadata={op_name="one"}\n'
        '%d = f32[8] all-reduce(%c), to_apply=%sum, metadata={op_name="two"}\n'
        "%e = f32[8] tanh(%b)\n%g = f32[8] abs(%d)\n%t = (f32[8], f32[8]) tuple(%e, %g)",
        SUM,
    )
    after = module(
        "%a = f32[8] sine(%x)\n%c = f32[8] cosine(%x)\n"
        '%z = (f32[8], f32[8]) all-reduce(%a, %c), to_apply=%sum, metadata={op_name="one"}\n'
        "%b = f32[8] get-tuple-element(%z), index=0\n%d = f32[8] get-tuple-element(%z), index=1\n"
        "%e = f32[8] tanh(%b)\n%g = f32[8] abs(%d)\n%t = (f32[8], f32[8]) tuple(%e, %g)",
        SUM,
    )
    assert told(numbered(before, after)) == {
        ("a", "b"): "not-fused",
        ("c", "d"): "not-fused",
        ("b", "e"): "not-fused",
        ("d", "g"): "not-fused",
    }


def loop(variables: str, extra: str, name: str) -> str:
    """A loop over (s32, f32[8]) and perhaps more, whose body computes a sine and its tanh."""
    shape = f"({variables})"
    more = "".join(f", %e{n}" for n in range(len(extra.split())))
    elements = "\n".join(
        f"  %e{n} = {s} get-tuple-element(%p), index={n + 2}" for n, s in enumerate(extra.split())
    )
    inside = (
        "  %f = f32[8] fusion(%v), kind=kLoop, calls=%g"
        if extra
        else "  %s = f32[8] sine(%v)\n  %f = f32[8] tanh(%s)"
    )
    starts = "".join(f", %z{n}" for n in range(len(extra.split())))
    zeros = "".join(f"  %z{n} = {s} constant(0)\n" for n, s in enumerate(extra.split()))
    fusion = fused("g", "%n = f32[8] sine(%q)\n%m = f32[8] tanh(%n)", "q: f32[8]") if extra else ""
    return f"""HloModule m

{fusion}

%body (p: {shape}) -> {shape} {{
  %p = {shape} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %v = f32[8] get-tuple-element(%p), index=1
{elements}
{inside}
  ROOT %t = {shape} tuple(%i, %f{more})
}}

%condition (c: {shape}) -> pred[] {{
  %c = {shape} parameter(0)
  %j = s32[] get-tuple-element(%c), index=0
  %k = s32[] constant(5)
  ROOT %l = pred[] compare(%j, %k), direction=LT
}}

ENTRY %main (x: f32[8]) -> {shape} {{
  %x = f32[8] parameter(0)
  %o = s32[] constant(0)
{zeros}  %u = {shape} tuple(%o, %x{starts})
  ROOT %{name} = {shape} while(%u), condition=%condition, body=%body, metadata={{op_name="loop"}}
}}
"""


def test_a_loop_that_gets_another_name_and_more_variables_stays_the_same_loop():
    """As where an invariant is hoisted out of the body."""
    before = loop("s32[], f32[8]", "", "while.6")
    after = loop("s32[], f32[8], s32[]", "s32[]", "while")
    outcomes = told(numbered(before, after))
    assert outcomes[("s", "f")] == "fused"


def test_a_loop_that_keeps_its_name_and_gets_more_variables_stays_the_same_loop():
    before = loop("s32[], f32[8]", "", "while.6")
    after = loop("s32[], f32[8], s32[]", "s32[]", "while.6")
    assert told(numbered(before, after))[("s", "f")] == "fused"


def branches(result: str, inside: str, choice: str) -> str:
    return f"""HloModule m

%g (q: f32[8]) -> f32[8] {{
  %q = f32[8] parameter(0)
  %e = f32[8] exponential(%q)
  ROOT %h = f32[8] negate(%e)
}}

%one (a: f32[8]) -> {result} {{
  %a = f32[8] parameter(0)
{inside}
}}

%other (b: f32[8]) -> {result} {{
  %b = f32[8] parameter(0)
{inside.replace("%a", "%b").replace("%s", "%s.1").replace("%n", "%n.1")}
}}

ENTRY %main (x: f32[8], w: pred[]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %w = pred[] parameter(1)
{choice}
  ROOT %r = f32[8] tanh(%y)
}}
"""


def test_a_conditional_that_returns_its_only_result_without_a_tuple_stays_the_same():
    """As the CPU compiler of jaxlib 0.12 does where a branch comes from StableHLO."""
    call = (
        "conditional(%w, %x, %x), true_computation=%one, false_computation=%other, "
        'metadata={op_name="cond"}'
    )
    before = branches(
        "(f32[8])",
        "  %s = f32[8] exponential(%a)\n  %n = f32[8] negate(%s)\n  ROOT %t = (f32[8]) tuple(%n)",
        f"  %c = (f32[8]) {call}\n  %y = f32[8] get-tuple-element(%c), index=0",
    )
    after = branches(
        "f32[8]", "  ROOT %n = f32[8] fusion(%a), kind=kLoop, calls=%g", f"  %y = f32[8] {call}"
    )
    assert told(numbered(before, after))[("s", "n")] == "fused"


def test_tuples_are_looked_through_element_by_element():
    before = module(
        "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%x)\n%c = f32[8] abs(%x)\n"
        "%t = (f32[8], f32[8]) tuple(%a, %b)\n%u = ((f32[8], f32[8]), f32[8]) tuple(%t, %c)\n"
        "%v = (f32[8], f32[8]) get-tuple-element(%u), index=0\n"
        "%y = f32[8] get-tuple-element(%v), index=1\n%z = f32[8] get-tuple-element(%u), index=1\n"
        "%d = f32[8] add(%y, %z)"
    )
    assert told(numbered(before, before)) == {("b", "d"): "not-fused", ("c", "d"): "not-fused"}


def test_two_elements_of_one_tuple_are_two_producers():
    before = module(
        "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%x)\n%t = (f32[8], f32[8]) tuple(%a, %b)\n"
        "%y = f32[8] get-tuple-element(%t), index=0\n%z = f32[8] get-tuple-element(%t), index=1\n"
        "%d = f32[8] add(%y, %z)"
    )
    assert set(told(numbered(before, before))) == {("a", "d"), ("b", "d")}


def test_a_barrier_passes_values_on():
    """No pass fuses across it, and it is neither producer nor consumer."""
    before = module(
        "%a = f32[8] sine(%x)\n%t = (f32[8]) tuple(%a)\n%o = (f32[8]) opt-barrier(%t)\n"
        "%y = f32[8] get-tuple-element(%o), index=0\n%b = f32[8] tanh(%y)"
    )
    after = module("%a = f32[8] sine(%x)\n%b = f32[8] tanh(%a)")
    assert told(numbered(before, after)) == {("a", "b"): "not-fused"}


def test_bytes_between_a_pair():
    """f32[8] is 32 bytes: written and read where nobody else reads it, else only read; of a slice,
    what is cut out."""
    before = module(
        "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n%c = f32[2] slice(%b), slice={[0:2]}\n"
        "%d = f32[8] abs(%b)\n%t = (f32[2], f32[8]) tuple(%c, %d)"
    )
    actual = {
        (pair.producer.name, pair.consumer.name): pair.bytes_between
        for pair in numbered(before, before)
    }
    assert actual == {("a", "b"): 64, ("b", "c"): 8, ("b", "d"): 32}


GEMM_BEFORE = module(
    '%c = f32[8] cosine(%x)\n%a = f32[8] sine(%x), metadata={op_name="s"}\n'
    '%i = f32[8] sine(%c), metadata={op_name="s"}\n%m = f32[2,4] bitcast(%a)\n'
    "%n = f32[2,4] bitcast(%i)\n%w = f32[4,2] constant({...})\n"
    "%d.1 = f32[2,2] dot(%m, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    'metadata={op_name="d"}\n'
    "%d.2 = f32[2,2] dot(%n, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    'metadata={op_name="d"}\n%t = (f32[2,2], f32[2,2]) tuple(%d.1, %d.2)'
)


def test_an_instruction_that_moves_into_the_fusion_of_a_dot():
    """The rewriter moves bitcasts to the operands of the fusion, so that what it takes in has
    another shape, swaps the operands of the second dot, and names each fusion after its dot. The
    two sines and the two dots have the same metadata."""
    body = (
        '%e = f32[2,4] sine(%p), metadata={op_name="s"}\n'
        "%f = f32[2,2] dot(%e, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        'metadata={op_name="d"}'
    )
    swapped = (
        '%g = f32[2,4] sine(%p), metadata={op_name="s"}\n'
        "%h = f32[2,2] dot(%q, %g), lhs_contracting_dims={0}, rhs_contracting_dims={1}, "
        'metadata={op_name="d"}'
    )
    after = module(
        "%y = f32[2,4] bitcast(%x)\n%c = f32[8] cosine(%x)\n%z = f32[2,4] bitcast(%c)\n"
        "%w = f32[4,2] constant({...})\n"
        "%gemm_fusion_d.1 = f32[2,2] fusion(%y, %w), kind=kCustom, calls=%one\n"
        "%gemm_fusion_d.2 = f32[2,2] fusion(%z, %w), kind=kCustom, calls=%two\n"
        "%t = (f32[2,2], f32[2,2]) tuple(%gemm_fusion_d.1, %gemm_fusion_d.2)",
        fused("one", body, "p: f32[2,4]; q: f32[4,2]", "f32[2,2]"),
        fused("two", swapped, "p: f32[2,4]; q: f32[4,2]", "f32[2,2]"),
    )
    pairs = numbered(GEMM_BEFORE, after)
    kernels = {pair.producer.name: pair.kernel and pair.kernel.name for pair in pairs}
    assert told(pairs) == {
        ("c", "i"): "not-fused",
        ("a", "d.1"): "fused",
        ("i", "d.2"): "fused",
        ("w", "d.1"): "not-fused",
        ("w", "d.2"): "not-fused",
    }
    assert (kernels["a"], kernels["i"]) == ("gemm_fusion_d.1", "gemm_fusion_d.2")


# A fusion that stood there before, as that of a dot, and computes values of its own. What it
# computes is equal to what other instructions compute, and none of theirs.

OWN = fused("own", "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)\n%o = f32[8] abs(%m)")
FUSED = fused("g", "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)")
OF_OWN = "%d = f32[8] fusion(%x), kind=kCustom, calls=%own\n"
BESIDE = "%t = (f32[8], f32[8]) tuple(%b, %d)"


def test_a_fusion_that_computes_an_equal_pair_of_its_own_fuses_no_other():
    text = "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n" + OF_OWN + BESIDE
    stage = module(text, OWN)
    assert told(numbered(stage, stage)) == {("a", "b"): "not-fused"}


def test_a_fusion_that_computes_an_equal_value_of_its_own_is_no_duplicate():
    before = "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n" + OF_OWN + BESIDE
    after = "%b = f32[8] fusion(%x), kind=kLoop, calls=%g\n" + OF_OWN + BESIDE
    pairs = numbered(module(before, OWN), module(after, FUSED, OWN))
    assert told(pairs) == {("a", "b"): "fused"}
    # Nor under another name, or where it takes in a further operation.
    renamed = after.replace("%d", "%e")
    assert told(numbered(module(before, OWN), module(renamed, FUSED, OWN))) == told(pairs)
    larger = OWN.replace("abs(%m)", "abs(%m)\n  %n.2 = f32[8] negate(%o)").replace("ROOT %o", "%o")
    larger = larger.replace("%n.2", "ROOT %n.2")
    before = before.replace(BESIDE, "%e = f32[8] negate(%d)\n" + BESIDE.replace("%d", "%e"))
    pairs = numbered(module(before, OWN), module(renamed, FUSED, larger))
    assert told(pairs) == {("a", "b"): "fused", ("d", "e"): "fused"}


def test_a_fusion_that_reads_a_value_does_not_take_part_where_another_reader_does():
    """Its cosine equals that of the kernel which computes the sine, too."""
    reads = fused("reads", "%m = f32[8] cosine(%p)\n%o = f32[8] abs(%m)")
    of_reads = "%d = f32[8] fusion(%a), kind=kCustom, calls=%reads\n"
    before = "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n" + of_reads + BESIDE
    after = "%a = f32[8] sine(%x)\n%b = f32[8] fusion(%x), kind=kLoop, calls=%g\n"
    pairs = numbered(module(before, reads), module(after + of_reads + BESIDE, reads, FUSED))
    assert told(pairs) == {("a", "b"): "duplicated", ("a", "d"): "not-fused"}


def test_an_instruction_that_nothing_reads_is_gone_whatever_equals_it():
    """CSE merges both cosines; a kernel has the one that is read."""
    before = "%a = f32[8] sine(%x)\n%b = f32[8] cosine(%a)\n%c = f32[8] cosine(%a)\n"
    kernel = fused("g", "%n = f32[8] sine(%p)\n%m = f32[8] cosine(%n)\n%o = f32[8] abs(%m)")
    after = module("%e = f32[8] fusion(%x), kind=kLoop, calls=%g", kernel)
    pairs = numbered(module(before + "%d = f32[8] abs(%b)"), after)
    assert told(pairs) == {("a", "b"): "fused", ("a", "c"): "gone", ("b", "d"): "fused"}


def test_a_chain_that_is_computed_again_behind_a_barrier_is_another():
    """As a backward pass computes it again: all values are equal, the names are not."""

    def chain(end: str, source: str, name: str) -> str:
        there = f'metadata={{op_name="{name}"}}'
        return (
            f"%a{end} = f32[8] sine({source}), {there}\n%b{end} = f32[8] cosine(%a{end}), {there}\n"
        )

    barrier = "%u = (f32[8]) tuple(%x)\n%v = (f32[8]) opt-barrier(%u)\n"
    barrier += "%w = f32[8] get-tuple-element(%v), index=0\n"
    ends = "%t = (f32[8], f32[8]) tuple(%b1, %b2)"
    before = module(chain("1", "%x", "first") + barrier + chain("2", "%w", "again") + ends)
    inside = fused("g", chain("3", "%p", "first"))
    after = "%b1 = f32[8] fusion(%x), kind=kLoop, calls=%g\n" + barrier
    pairs = numbered(before, module(after + chain("2", "%w", "again") + ends, inside))
    assert told(pairs) == {("a1", "b1"): "fused", ("a2", "b2"): "not-fused"}


TWO_LOOPS = """HloModule m

%sine_body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %v = f32[8] get-tuple-element(%p), index=1
  %sine = f32[8] sine(%v)
  ROOT %t = (s32[], f32[8]) tuple(%i, %sine)
}

%cosine_body (q: (s32[], f32[8])) -> (s32[], f32[8]) {
  %q = (s32[], f32[8]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %w = f32[8] get-tuple-element(%q), index=1
  %cosine = f32[8] cosine(%w)
  %tanh = f32[8] tanh(%cosine)
  ROOT %u = (s32[], f32[8]) tuple(%j, %tanh)
}

%condition (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]) parameter(0)
  %k = s32[] get-tuple-element(%c), index=0
  %five = s32[] constant(5)
  ROOT %less = pred[] compare(%k, %five), direction=LT
}

%again (c: (s32[], f32[8])) -> pred[] {
  %c = (s32[], f32[8]) parameter(0)
  %k = s32[] get-tuple-element(%c), index=0
  %five = s32[] constant(5)
  ROOT %less.2 = pred[] compare(%k, %five), direction=LT
}

ENTRY %main (a: s32[], b: f32[8]) -> ((s32[], f32[8]), (s32[], f32[8])) {
  %a = s32[] parameter(0)
  %b = f32[8] parameter(1)
  %s = (s32[], f32[8]) tuple(%a, %b)
  %one = (s32[], f32[8]) while(%s), condition=%condition, body=%sine_body
  %two = (s32[], f32[8]) while(%s), condition=%again, body=%cosine_body
  ROOT %r = ((s32[], f32[8]), (s32[], f32[8])) tuple(%one, %two)
}
"""


def test_two_loops_that_start_from_the_same_values_are_two():
    numbering = Numbering()
    names = [kernel.name for kernel in find_kernels(numbering.number(parse(TWO_LOOPS)), None)]
    assert sorted(names) == ["cosine", "less", "less.2", "sine", "tanh"]
    # In the other order, as after scheduling, each is still the one of its name.
    start, first, two, end = re.split(r"(  %one = .*\n)(  %two = .*\n)", TWO_LOOPS)
    inner = fused("g", "%n = f32[8] cosine(%y)\n%m = f32[8] tanh(%n)", "y: f32[8]")
    body = "  %tanh = f32[8] fusion(%w), kind=kLoop, calls=%g\n"
    start = re.sub(r"  %cosine = .*\n.*tanh.*\n", body, start).replace(
        "\n\n", f"\n\n{inner}\n\n", 1
    )
    assert told(numbered(TWO_LOOPS, start + two + first + end))["cosine", "tanh"] == "fused"


def test_what_a_fork_numbers_changes_no_number():
    (one,) = open_dump(DUMPS / "cpu" / "loop").modules
    (second,) = open_dump(DUMPS / "cpu" / "attention").modules
    first, last = one.read(one.stages[0]), second.read(second.final)

    def numbers(forks: int) -> list[object]:
        numbering = Numbering()
        numbering.number(first)
        for _ in range(forks):
            numbering.fork().number(second.read(second.stages[0]))
        return [execution.values.values() for execution in numbering.number(last).executions]

    assert [list(number) for number in numbers(2)] == [list(number) for number in numbers(0)]


def test_the_pair_of_an_unused_copy_is_gone():
    """A later pass removes what nothing uses; the value lives on in its copy."""
    before = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  one = f32[] constant(1)
  unused = f32[8] broadcast(one), dimensions={}
  ones = f32[8] broadcast(one), dimensions={}
  y = f32[8] add(x, ones)
  ROOT z = f32[8] multiply(y, x)
}
"""
    after = """HloModule m
f {
  x = f32[8] parameter(0)
  c = f32[] parameter(1)
  b = f32[8] broadcast(c), dimensions={}
  a = f32[8] add(x, b)
  ROOT r = f32[8] multiply(a, x)
}
ENTRY e {
  x = f32[8] parameter(0)
  one = f32[] constant(1)
  ROOT z = f32[8] fusion(x, one), kind=kLoop, calls=f
}
"""
    actual = told(numbered(before, after))
    assert actual["one", "unused"] == "gone"
    assert actual["one", "ones"] == "not-fused"
    assert actual["ones", "y"] == "fused"


# Both branches have the same value. One computes something from it, the other one returns it.
RETURNED = """HloModule m
{fused}
first {{
  p = f32[8] parameter(0)
{body}
}}

second {{
  q = f32[8] parameter(0)
{value}
}}

ENTRY e {{
  x = f32[8] parameter(0)
  i = pred[] parameter(1)
  ROOT r = f32[8] conditional(i, x, x), true_computation=first, false_computation=second
}}
"""
BODY = """  n = f32[] constant(nan)
  b = f32[8] broadcast(n), dimensions={}
  ROOT s = f32[8] add(p, b)"""
VALUE = """  k = f32[] constant(nan)
  ROOT c = f32[8] broadcast(k), dimensions={}"""
RETURNED_FUSED = f"""
wrapped {{
{VALUE}
}}

both {{
  p = f32[8] parameter(0)
{BODY}
}}
"""


def test_a_value_that_another_branch_returns_is_no_duplicate():
    before = RETURNED.format(fused="", body=BODY, value=VALUE)
    after = RETURNED.format(
        fused=RETURNED_FUSED,
        body="  ROOT f = f32[8] fusion(p), kind=kLoop, calls=both",
        value="  ROOT w = f32[8] fusion(), kind=kLoop, calls=wrapped",
    )
    assert told(numbered(before, after))["b", "s"] == "fused"


def test_a_constant_whose_elements_are_not_printed_may_be_renamed():
    """As ``rename-instructions`` does with everything; nothing else tells that it is the same."""
    before = "%c = f32[8] constant({...})\n%a = f32[8] add(%x, %c)\n%b = f32[8] abs(%a)"
    inside = fused("f", "%y = f32[8] add(%p, %q)\n%z = f32[8] abs(%y)", "p: f32[8]; q: f32[8]")
    after = "%c.0 = f32[8] constant({...})\n%b.0 = f32[8] fusion(%x, %c.0), kind=kLoop, calls=%f"
    pairs = numbered(module(before), module(after, inside))
    assert told(pairs) == {("c", "a"): "not-fused", ("a", "b"): "fused"}


def test_a_long_chain_that_is_computed_again_is_no_duplicate_of_its_first_pair():
    """As checkpointed layers are. Only what reads the ends tells the two chains apart."""
    length = 400

    def chain(name: str, first: int, source: str) -> list[str]:
        sources = [source, *(f"%{name}{n}" for n in range(first, length))]
        return [
            f"%{name}{n} = f32[8] {'sine' if n % 2 else 'cosine'}({sources[n - first]})"
            for n in range(first, length)
        ]

    ends = ["%y = f32[8] abs(%a399)", "%z = f32[8] negate(%b399)"]
    ends += ["%t = (f32[8], f32[8]) tuple(%y, %z)"]
    barrier = "%o = f32[8] opt-barrier(%x)"
    before = module("\n".join([*chain("a", 0, "%x"), barrier, *chain("b", 0, "%o"), *ends]))
    together = fused("together", "%c = f32[8] cosine(%p)\n%s = f32[8] sine(%c)")
    alone = fused("alone", "%d = f32[8] cosine(%q)", "q: f32[8]")
    first = "%a1 = f32[8] fusion(%x), kind=kLoop, calls=%together"
    second = "%w = f32[8] fusion(%o), kind=kLoop, calls=%alone"
    remaining = [first, *chain("a", 2, "%a1"), barrier, second, *chain("b", 1, "%w"), *ends]
    outcomes = told(numbered(before, module("\n".join(remaining), together, alone)))
    assert (outcomes["a0", "a1"], outcomes["b0", "b1"]) == ("fused", "not-fused")
