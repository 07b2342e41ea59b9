"""The record of priority fusion, the main GPU fusion pass: ``priority_fusion_dump.txt``.

A FusionProcessDumpProto in text form, written by ``xla/backends/gpu/transforms/priority_fusion.cc``
if the pass regex matches ``priority-fusion``. It is one list of steps for the whole module:
computations follow each other, and no step says which one it belongs to. Only the ``Fused`` steps
are in the order in which they happened; scores and refusals between two of them are unordered.
Fused constants and fused bitcasts leave no step.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from fusionscope.dump.text_proto import Message, as_proto_text, parse_text, unquote
from fusionscope.errors import UnusableInput

if TYPE_CHECKING:
    from fusionscope.dump.device import Device


@dataclass(frozen=True, slots=True)
class Fused:
    """The fusion of ``producer`` into ``consumer``. The result has the name ``fusion``."""

    fusion: str
    producer: str
    consumer: str


@dataclass(frozen=True, slots=True)
class Ineligible:
    """The refusal of ``producer``, which cannot be fused into all of its users. ``reason`` is that
    of the first one.
    """

    producer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Priority:
    """The estimated time of ``producer`` with all its ``consumers``, fused and unfused.

    Microseconds, as printed. The compiler keeps them as 32-bit floats, so compare them as such.
    Infinity is ``inf``. After the first score, both may be differences to an earlier score.
    """

    producer: str
    consumers: tuple[str, ...]
    fused_us: float
    unfused_us: float


PriorityStep: TypeAlias = Fused | Ineligible | Priority


@dataclass(frozen=True, slots=True)
class PriorityFusionRecord:
    """The steps of a record. ``device`` is None if the record does not describe one."""

    steps: tuple[PriorityStep, ...]
    device: Device | None
    escaped_module: str

    def module_before_fusion(self) -> str:
        """Return the HLO text that the pass worked on, unescaped at each call."""
        return unquote(self.escaped_module)

    def with_names_of(self, names: Sequence[str]) -> PriorityFusionRecord:
        """Return the record with the ``names`` of the stage before the pass, in the order of its
        text. Before jaxlib 0.6, the pass begins by giving other names to all instructions.
        """
        if not self.steps or self.steps[0].producer in names:
            return self
        new_names = _DEFINED.findall(self.escaped_module)
        if len(new_names) != len(names):
            return self
        first_names = dict(zip(new_names, names, strict=True))

        def renamed(step: PriorityStep) -> PriorityStep:
            producer = first_names.get(step.producer, step.producer)
            if isinstance(step, Ineligible):
                return replace(step, producer=producer)
            if isinstance(step, Priority):
                consumers = tuple(first_names.get(name, name) for name in step.consumers)
                return replace(step, producer=producer, consumers=consumers)
            fusion, consumer = step.fusion, step.consumer
            return Fused(
                first_names.get(fusion, fusion), producer, first_names.get(consumer, consumer)
            )

        return replace(self, steps=tuple(map(renamed, self.steps)))


_DEFINED = re.compile(r"\\n +(?:ROOT )?%?([\w.\-]+) = ")  # line breaks are escaped


def digest_of_record(data: bytes) -> bytes:
    """Return the digest of a record, the same whatever the order of steps between two fusions."""
    end = min((place for mark in _BEHIND if (place := data.find(mark)) >= 0), default=len(data))
    ordered: list[bytes] = []
    unordered: list[bytes] = []
    for step in (b"\n" + data[:end]).split(_STEP):
        if step.startswith(_FUSION):
            ordered += *sorted(unordered), step
            unordered.clear()
        else:
            unordered.append(step)
    digest = hashlib.sha256(_STEP.join((*ordered, *sorted(unordered))))
    digest.update(memoryview(data)[end:])
    return digest.digest()


_STEP = b"\nfusion_steps {"
_FUSION = b"\n  fusion {"
# What follows the steps.
_BEHIND = (b"\ngpu_device_info", b"\nhlo_module_before_fusion")


def read_priority_fusion(data: bytes, file: str) -> PriorityFusionRecord:
    """Read a whole record. Steps of unknown kinds are omitted.

    Raises ``UnusableInput`` if it is not a text proto or is truncated.
    """
    text = as_proto_text(data, file)
    steps, end = _read_plain_steps(text)
    record = parse_text(text, file, start=end)
    escaped_module = record.scalar("hlo_module_before_fusion")
    if escaped_module is None:
        raise UnusableInput(
            "no hlo_module_before_fusion at its end, expected a priority-fusion record",
            file=file,
            hint="it is cut off or another file: dump the module again",
        )
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
    device: Device | None = None
    if info:
        from fusionscope.dump.device import device_from

        device = device_from(info, record)
    return PriorityFusionRecord(tuple(steps), device, escaped_module)


def _read_plain_steps(text: str) -> tuple[list[PriorityStep], int]:
    """Return the first steps and where they end: at the first one that the compiler would print in
    another way. A record of a large module has tens of thousands, and reading them field by
    field takes five times as long.
    """
    steps: list[PriorityStep] = []
    consumer_names: dict[str, tuple[str, ...]] = {}
    end = 0
    while match := _PLAIN_STEP.match(text, end):
        scored, consumers, fused_us, unfused_us, refused, reason, *names = match.groups()
        if scored is not None:
            if consumers not in consumer_names:
                consumer_names[consumers] = tuple(consumers.split('"')[1::2])
            try:
                times = float(fused_us or 0), float(unfused_us or 0)
            except ValueError:
                break
            steps.append(Priority(scored, consumer_names[consumers], *times))
        elif refused is not None:
            steps.append(Ineligible(refused, reason))
        else:
            steps.append(Fused(*names))
        end = match.end()
    return steps, end


_TEXT = r'"([^"\\\n]*)"\n'
_PLAIN_STEP = re.compile(
    r"fusion_steps \{\n  (?:"
    rf"update_priority \{{\n    producer_name: {_TEXT}"
    r'((?:    consumer_names: "[^"\\\n]*"\n)*)'
    r"(?:    us_fused: ([\w.+-]+)\n)?(?:    us_unfused: ([\w.+-]+)\n)?"
    rf"|producer_ineligible \{{\n    producer_name: {_TEXT}    reason: {_TEXT}"
    rf"|fusion \{{\n    fusion_name: {_TEXT}    producer_name: {_TEXT}    consumer_name: {_TEXT}"
    r")  \}\n\}\n"
)


def _priority(content: Message) -> Priority:
    return Priority(
        content.string("producer_name"),
        content.strings("consumer_names"),
        content.number("us_fused"),
        content.number("us_unfused"),
    )
