"""Horizontal fusion of jaxlib 0.5 and 0.6, where it differs from that before priority fusion."""

import pytest
from conformance.examples import replay_pass

from fusionscope.hlo import parse
from fusionscope.versions.jaxlib_0_4_35.gpu import COMPILER as OLDER
from fusionscope.versions.jaxlib_0_6_2.gpu import COMPILER

LOOP = """
{name} {{
  value = f32[16] parameter(0)
  ROOT result = f32[16] {operation}
}}
"""


def module(*operations: str, between: str = "", end: str = "tuple(one, two)") -> str:
    loops = "".join(
        LOOP.format(name=name, operation=operation)
        for name, operation in zip(("first", "second"), operations, strict=True)
    )
    return (
        f"HloModule m\n{loops}\nENTRY main {{\n  a = f32[16] parameter(0)\n"
        "  b = f32[16] parameter(1)\n"
        "  one = f32[16] fusion(a), kind=kLoop, calls=first\n"
        "  two = f32[16] fusion(b), kind=kLoop, calls=second\n"
        f"{between}  ROOT both = (f32[16], f32[16]) {end}\n}}\n"
    )


def fused(compiler, text: str) -> list[tuple[str, str]]:
    book = compiler.find("horizontal_loop_fusion").book
    decisions = replay_pass(book, compiler.name, parse(text)).decisions
    return [(d.producer, d.consumer) for d in decisions if d.fusion is not None]


def test_equal_candidates_begin_with_the_oldest_instruction():
    """As 0.4.38, 0.5.3 and 0.6.2 join three gradients of projections (keras's attention)."""
    text = module("negate(value)", "negate(value)")
    numbered = text.replace("one", "fusion.11").replace("two", "fusion.9")
    assert fused(COMPILER, numbered) == [("fusion.9", "fusion.11")]
    assert fused(OLDER, numbered) == [("fusion.11", "fusion.9")]


@pytest.mark.parametrize(
    "text",
    [
        # One has an operation more.
        module("negate(value)", "negate(value)").replace(
            "second {\n  value = f32[16] parameter(0)\n",
            "second {\n  given = f32[16] parameter(0)\n  value = f32[16] abs(given)\n",
        ),
        # Both read one parameter.
        module("negate(value)", "abs(value)").replace("fusion(b)", "fusion(a)"),
        # A bitcast is between one and the consumer.
        module(
            "negate(value)",
            "abs(value)",
            between="  three = f32[16] bitcast(two)\n",
            end="tuple(one, three)",
        ),
        # Both compute square roots, which count 20 each. jaxlib 0.4.38, 0.5.3 and 0.6.2 join them.
        module("sqrt(inner)", "sqrt(inner)").replace(
            "  ROOT result",
            "  inmost = f32[16] sqrt(value)\n  inner = f32[16] sqrt(inmost)\n  ROOT result",
        ),
    ],
    ids=["lengths", "parameter", "bitcast", "roots"],
)
def test_more_is_joined(text):
    assert len(fused(COMPILER, text)) == 1
    assert not fused(OLDER, text)


@pytest.mark.parametrize(("size", "kind"), [(16, "kLoop"), (20, "kInput")])
def test_single_copies_are_joined_as_they_are_or_as_slices(size, kind):
    """As jaxlib 0.5.3 and 0.6.2 compile a function that returns its arguments."""
    text = (
        "HloModule m\n\nENTRY main {\n  a = f32[16] parameter(0)\n"
        f"  b = f32[{size}] parameter(1)\n  one = f32[16] copy(a)\n  two = f32[{size}] copy(b)\n"
        f"  ROOT both = (f32[16], f32[{size}]) tuple(one, two)\n}}\n"
    )
    book = COMPILER.find("horizontal_loop_fusion").book
    after = replay_pass(book, COMPILER.name, parse(text)).module
    (fusion,) = (i for i in after.entry.instructions if i.opcode == "fusion")
    assert fusion.attributes["kind"] == kind
    assert [operand.name for operand in fusion.operands] == ["a", "b"]
