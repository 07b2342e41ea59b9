"""Which pairs a pattern of a user names."""

from __future__ import annotations

import pytest

from fusionscope import PairPattern, parse
from fusionscope.graph.mutable import MutableModule
from fusionscope.passes.state import FusionPair

MODULE = parse("""HloModule pairs

made {
  x = f32[4] parameter(0)
  y = f32[4] negate(x)
  ROOT joined = f32[8] concatenate(x, y), dimensions={0}
}

reads {
  z = f32[8] parameter(0)
  e = f32[8] exponential(z)
  ROOT c = f32[8] cosine(e)
}

ENTRY main {
  x = f32[4] parameter(0)
  first = f32[8] fusion(x), kind=kLoop, calls=made
  ROOT second = f32[8] fusion(first), kind=kLoop, calls=reads
}
""")


@pytest.mark.parametrize(
    ("producer", "consumer", "fits"),
    [
        ("first", "e", True),
        ("joined", "e", True),  # what makes the value
        ("concatenate", "exp*", True),
        ("fusion", "*", True),
        ("negate", "*", False),  # in the producer, but not what is read
        ("y", "*", False),
        ("*", "c", False),  # in the consumer, but does not read the producer
        ("*", "second", False),
    ],
)
def test_a_fusion_is_named_by_what_makes_and_what_reads_the_value(
    producer: str, consumer: str, fits: bool
) -> None:
    second = MutableModule(MODULE).entry.root
    pair = FusionPair(second.operands[0], second, 0)
    assert PairPattern(producer, consumer).fits(pair) is fits
