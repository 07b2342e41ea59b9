"""The files beside the stages without what only their users know: record, device, flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from fusionscope.bundle.names import is_plain
from fusionscope.bundle.redaction import UNLISTED, Redaction
from fusionscope.dump.debug_options import DebugOptions
from fusionscope.dump.text_proto import Message, unquote
from fusionscope.versions.recognition import known_names

_SCALAR = re.compile(r"[\w.+\-]+")
_DEVICE_FIELDS = frozenset(
    """chip_config_name compile_time_toolkit_version cub_version device_description_str
    device_vendor dnn_version driver_version gcn_arch_name model_str name platform_name
    platform_version runtime_version variant""".split()
)
_DEVICE_TEXT = re.compile(r"[\w .,()+:$\-]{0,120}")
_RECORD_NAMES = ("producer_name", "consumer_name", "consumer_names", "fusion_name")
_FLAG = re.compile(r"xla_[a-z0-9_]{1,100}")
_FLAG_VALUE = re.compile(r"true|false|-?\d+(?:\.\d+)?|[A-Z][A-Z0-9_]*")


def device_text(device: Message) -> str:
    """Return the description of a GPU or TPU."""
    return _text(device, _device_string)


def record_text(record: Message, module: str, redaction: Redaction) -> str:
    """Return the record of priority fusion; ``module`` is the text that the pass worked on."""

    def replace(field: str, value: str) -> str | None:
        if field in _RECORD_NAMES:
            return redaction.names.get(value, value if is_plain(value) else UNLISTED)
        if field == "reason":
            return redaction.message(value)
        if field == "hlo_module_before_fusion":
            return module
        return _device_string(field, value)

    return _text(record, replace)


def plain_flags(flags: DebugOptions, redaction: Redaction) -> dict[str, tuple[str, ...]]:
    """Return the flags whose values are numbers, words of the compiler or names of its passes."""
    passes, _ = known_names()
    plain: dict[str, tuple[str, ...]] = {}
    for name, values in flags.values.items():
        words = [word for value in values for word in value.split(",")]
        if _FLAG.fullmatch(name) and all(
            _FLAG_VALUE.fullmatch(word) or word in passes for word in words
        ):
            plain[name] = values
        else:
            redaction.left_out["value of a flag"] += 1
    return plain


def flags_text(flags: dict[str, tuple[str, ...]]) -> str:
    """Return flags as the compiler dumps them."""
    return "".join(
        f"{name}: {value if _FLAG_VALUE.fullmatch(value) else _quoted(value)}\n"
        for name, values in flags.items()
        for value in values
    )


def _device_string(field: str, value: str) -> str | None:
    return value if field in _DEVICE_FIELDS and _DEVICE_TEXT.fullmatch(value) else None


def _text(message: Message, replace: Callable[[str, str], str | None]) -> str:
    """Return a message as text. ``replace`` returns a string in the place of the one that it is
    given with the name of its field, or None to leave out the field.
    """
    lines: list[str] = []
    open_messages: list[Iterator[tuple[str, str | Message]]] = [iter(message.fields)]
    while open_messages:
        indent = "  " * (len(open_messages) - 1)
        name, value = next(open_messages[-1], ("", None))
        if value is None:
            open_messages.pop()
            if open_messages:
                lines.append(f"{indent[2:]}}}")
        elif isinstance(value, Message):
            lines.append(f"{indent}{name} {{")
            open_messages.append(iter(value.fields))
        elif _SCALAR.fullmatch(value):
            lines.append(f"{indent}{name}: {value}")
        elif (text := replace(name, unquote(value))) is not None:
            lines.append(f"{indent}{name}: {_quoted(text)}")
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
