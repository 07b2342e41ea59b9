"""The GPU compiler's own record of its main fusion pass: ``priority_fusion_dump.txt``.

A FusionProcessDumpProto in text form, written by ``xla/backends/gpu/transforms/priority_fusion.cc``
when the pass regex matches ``priority-fusion``. It is one list of steps for the whole module: the
computations follow each other and no step says which one it belongs to. Only the ``Fused`` steps
stand in the order in which they happened; scores and refusals between two of them are unordered.
Constants that were fused, and bitcasts that were, leave no step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fusionscope.dump.device import Device, device_from
from fusionscope.dump.text_proto import Message, parse, unquote
from fusionscope.errors import UnusableInput


@dataclass(frozen=True, slots=True)
class Fused:
    """``producer`` went into ``consumer``; what came out of it is named ``fusion``."""

    fusion: str
    producer: str
    consumer: str


@dataclass(frozen=True, slots=True)
class Ineligible:
    """``producer`` may not be fused into all of its users; ``reason`` is that of the first one."""

    producer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Priority:
    """The estimated time of ``producer`` with all its ``consumers``, fused and unfused.

    Microseconds, as printed: the compiler keeps them as 32-bit floats, so compare them as such.
    Infinite is ``inf``. In the scores after the first, both may be differences to an earlier score.
    """

    producer: str
    consumers: tuple[str, ...]
    fused_us: float
    unfused_us: float


PriorityStep: TypeAlias = Fused | Ineligible | Priority


@dataclass(frozen=True, slots=True)
class PriorityFusionRecord:
    """``device`` is None where the record does not describe one."""

    steps: tuple[PriorityStep, ...]
    device: Device | None
    escaped_module: str

    def module_before_fusion(self) -> str:
        """The HLO text that the pass worked on; its escapes are undone at each call."""
        return unquote(self.escaped_module)


def read_priority_fusion(data: bytes, file: str) -> PriorityFusionRecord:
    """Reads a whole record. A kind of step that is not known here is left out.

    Raises UnusableInput where it is not a text proto or is cut off.
    """
    record = parse(data, file)
    escaped_module = record.scalar("hlo_module_before_fusion")
    if escaped_module is None:
        raise UnusableInput(
            "no hlo_module_before_fusion at its end, expected a priority-fusion record",
            file=file,
            hint="it is cut off or another file: dump the module again",
        )
    steps: list[PriorityStep] = []
    for fusion_step in record.messages("fusion_steps"):
        for kind, content in fusion_step.fields:
            if isinstance(content, str):
                continue
            if kind == "update_priority":
                steps.append(_priority(content))
            elif kind == "producer_ineligible":
                steps.append(Ineligible(content.string("producer_name"), content.string("reason")))
            elif kind == "fusion":
                steps.append(
                    Fused(
                        content.string("fusion_name"),
                        content.string("producer_name"),
                        content.string("consumer_name"),
                    )
                )
    info = record.message("gpu_device_info")
    device = device_from(info, record) if info else None
    return PriorityFusionRecord(tuple(steps), device, escaped_module)


def _priority(content: Message) -> Priority:
    return Priority(
        content.string("producer_name"),
        content.strings("consumer_names"),
        content.number("us_fused"),
        content.number("us_unfused"),
    )
