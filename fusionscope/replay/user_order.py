"""The order of the users of each value, which no text tells: carried on from a replay to a later
stage, over passes that only took instructions out.

It decides which of several siblings takes in the others, and in which order.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.hlo import Module
from fusionscope.rules.graph import MutableComputation, MutableInstruction, MutableModule
from fusionscope.rules.properties import has_side_effect


def carry_user_order(left: MutableModule, shown: Module, later: MutableModule) -> None:
    """Brings the users of values in ``later`` into the order that they have in ``left``.

    ``left`` is what the replay of a pass left, and ``shown`` the same module, as the compiler left
    it. From it to ``later`` equal instructions became one (HloCSE) and unused ones went (HloDCE),
    which changes the order of those that stay: of the users of a value the last one takes the place
    of one that goes. What fusions hold is left alone.
    """
    between = MutableModule(shown)
    for one, other in _computations(left, between):
        named = dict(zip(_read(one), _read(other), strict=True))
        for ours, theirs in named.items():
            theirs.users.reorder([named[user].name for user in ours.users if user in named])
    for one, other in _computations(between, later):
        _take_out(one, other)
        kept = {each.name: each for each in one.instructions}
        for each in other.instructions:
            if each.name in kept:
                each.users.reorder([user.name for user in kept[each.name].users])


def _computations(
    one: MutableModule, other: MutableModule
) -> Iterator[tuple[MutableComputation, MutableComputation]]:
    """Those of two modules that have the same name, without what fusions hold."""
    others = {each.name: each for each in other.post_order()}
    for each in one.post_order():
        if each.name in others and not each.is_fused:
            yield each, others[each.name]


def _read(computation: MutableComputation) -> list[MutableInstruction]:
    """All but those that nothing reads, such as constants that a pass put into fusions."""
    return [
        each
        for each in computation.post_order()
        if each.users or each.is_root or each.opcode == "parameter" or has_side_effect(each)
    ]


def _take_out(computation: MutableComputation, later: MutableComputation) -> None:
    """Takes out what is not in ``later``, and lets its users read what they read there."""
    stays = {each.name: each for each in later.instructions}
    by_name = {each.name: each for each in computation.instructions}
    order = computation.post_order()
    for each in order:
        if each.name not in stays and each.opcode != "parameter":
            equal = _equal(each, stays, by_name)
            if equal is not None:
                computation.replace_uses(each, equal)
                computation.remove(each)
    for each in reversed(order):
        is_gone = each.parent is None or each.name in stays
        if not (is_gone or each.users or each.is_root or each.opcode == "parameter"):
            computation.remove(each)


def _equal(
    gone: MutableInstruction,
    stays: dict[str, MutableInstruction],
    by_name: dict[str, MutableInstruction],
) -> MutableInstruction | None:
    """What is read later in the place of an instruction; None where nothing tells."""
    for user in gone.users:
        if user.name in stays:
            operands = stays[user.name].operands
            slot = user.operands.index(gone)
            if slot < len(operands):
                return by_name.get(operands[slot].name)
    return None
