"""What an experiment changes, one thing at a time."""

from __future__ import annotations

from fusionscope.experiments.factors.arrays import ElementType, Layouts, Ranks, Sizes, TwoSizes
from fusionscope.experiments.factors.change import Change, Factor, changes_of
from fusionscope.experiments.factors.environment import EMPTY, Barriers, Donation, Flags, Setting
from fusionscope.experiments.factors.operations import (
    CheapProducer,
    Dimension,
    ElementwiseConsumer,
    ExpensiveProducer,
    Operands,
    ScalarConstant,
)
from fusionscope.experiments.factors.surroundings import (
    ConsumerFused,
    OtherOperands,
    OtherUsers,
    ProducerAsResult,
    ProducerReadsOne,
    ReadOnce,
    Surroundings,
    Users,
)

__all__ = [
    "COMBINED",
    "EMPTY",
    "FACTORS",
    "Change",
    "Factor",
    "Flags",
    "Setting",
    "Sizes",
    "TwoSizes",
    "changes_of",
]

_OTHER_USERS, _CONSUMER_FUSED = OtherUsers(), ConsumerFused()
_PRODUCER, _CONSUMER, _BARRIERS = CheapProducer(), ElementwiseConsumer(), Barriers()
# The most specific first: the first that makes the compiler fuse the pair is called its cause.
FACTORS: tuple[Factor, ...] = (
    ReadOnce(),
    _OTHER_USERS,
    ProducerAsResult(),
    ProducerReadsOne(),
    Users(),
    OtherOperands(),
    ScalarConstant(),
    _CONSUMER_FUSED,
    Operands(),
    Dimension(),
    Sizes(),
    Surroundings(),
    _PRODUCER,
    _CONSUMER,
    ExpensiveProducer(),
    ElementType(),
    Layouts(),
    Ranks(),
    _BARRIERS,
    Donation(),
)
# Of these, two are changed at once where none alone makes a difference.
COMBINED: tuple[Factor, ...] = (_OTHER_USERS, _CONSUMER_FUSED, _PRODUCER, _CONSUMER, _BARRIERS)
