"""HLO texts for ``conformance.py``, made of XLA's sources: written, filled in, printed, mutated.

Everything is drawn from seeds of the texts themselves, so that two runs give the same texts.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

_HLO = re.compile(r"\b(?:HloModule|ENTRY)\b")
_RAW_STRING = re.compile(r'R"([^()\\\s"]{0,16})\((.*?)\)\1"', re.DOTALL)
_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_STRINGS = re.compile(rf"{_QUOTED}(?:\s*{_QUOTED})*")
_PYTHON_STRING = re.compile(r'[rfb]{0,2}("""|\'\'\')(.*?)\1', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SEPARATOR = re.compile(r"^// -----.*\n", re.MULTILINE)
_CHECK = re.compile(r"^\s*(?://|#)\s*CHECK[\w\-]*:\s?(.*)$", re.MULTILINE)
_PATTERN = re.compile(r"(%?)\[\[(\w+)(?::(?:[^\]]|\](?!\]))*)?\]\]|\{\{([^{}]*)\}\}")
_LONGEST = 400_000  # characters of a text
_LARGE = 4096  # elements of a constant


class Text(NamedTuple):
    """An HLO text, the place (file:line) that it is made of, and how."""

    text: str
    place: str
    kind: str


# Written


def written(root: Path) -> Iterator[Text]:
    """Each different HLO text under ``root``: strings of C++ and Python files, parts of `.hlo`
    files, and the lines that tests of MLIR expect.
    """
    texts: dict[str, Text] = {}
    for file in sorted(root.rglob("*")):
        strings = _STRINGS_OF.get(file.suffix)
        if strings is None or not file.is_file():
            continue
        content = file.read_text(errors="replace")
        for start, text in strings(content):
            if _HLO.search(text) and len(text) < _LONGEST:
                line = content.count("\n", 0, start) + 1
                texts.setdefault(text, Text(text, f"{file.relative_to(root)}:{line}", "written"))
    yield from texts.values()


def _of_cpp(content: str) -> Iterator[tuple[int, str]]:
    yield from ((string.start(2), string[2]) for string in _RAW_STRING.finditer(content))
    for strings in _STRINGS.finditer(_RAW_STRING.sub("0", content)):
        parts = re.findall(_QUOTED, strings[0])
        yield 0, "".join(_ESCAPE.sub(_unescaped, part[1:-1]) for part in parts)


def _unescaped(escape: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(escape[1], escape[1])


def _of_python(content: str) -> Iterator[tuple[int, str]]:
    yield from ((string.start(2), string[2]) for string in _PYTHON_STRING.finditer(content))


def _of_hlo(content: str) -> Iterator[tuple[int, str]]:
    start = 0
    for separator in _SEPARATOR.finditer(content):
        yield start, content[start : separator.start()]
        start = separator.end()
    yield start, content[start:]


def _of_mlir(content: str) -> Iterator[tuple[int, str]]:
    """The expected lines, with the names of variables in the place of their patterns."""
    for start, part in _of_hlo(content):
        lines = "\n".join(line[1] for line in _CHECK.finditer(part))
        yield start, _PATTERN.sub(lambda match: f"{match[1]}{match[2] or 'any'}", lines)


_STRINGS_OF: dict[str, Callable[[str], Iterator[tuple[int, str]]]] = {
    ".cc": _of_cpp,
    ".h": _of_cpp,
    ".hlo": _of_hlo,
    ".mlir": _of_mlir,
    ".py": _of_python,
}

# Filled in

_HOLE = re.compile(
    r"\$\{?\w+\}?\$?|%%?[sdf]\b|<<\w+>>|\{\{\w+\}\}|\{[A-Za-z_]\w*\}|\{\d\}(?=\[)|@@?\w+@@?"
)
_COMMENT = re.compile(r"//[^\n]*")
_COMMENT_OR_HOLE = re.compile(f"{_COMMENT.pattern}|{_HOLE.pattern}")
_TYPES = ("f32", "bf16", "s32", "f16", "pred", "f64", "u8", "s8", "f8e4m3fn", "c64")
_BINARY = ("add", "multiply", "maximum", "divide", "subtract", "power", "and", "compare")
_UNARY = (
    "negate",
    "exponential",
    "tanh",
    "abs",
    "convert",
    "copy",
    "log",
    "not",
    "rsqrt",
    "cosine",
)
_VALUES: dict[str, tuple[str, ...]] = {
    "kind": ("kLoop", "kInput", "kOutput", "kCustom"),
    "direction": ("LT", "EQ", "GT", "NE", "GE", "LE"),
    "dimensions": ("{0}", "{1}", "{}", "{0,1}", "{1,0}"),
    "replica_groups": ("{{0,1}}", "{}", "{{0},{1}}", "[1,2]<=[2]", "[2,2]<=[4]"),
    "channel_id": ("1", "7"),
    "dim_labels": ("b01f_01io->b01f", "bf01_oi01->bf01", "b0f_0io->b0f"),
    "window": ("{size=3x3 pad=1_1x1_1}", "{size=2}", "{size=3x3 stride=2x2}"),
    "sharding": ("{replicated}", "{devices=[2,1]<=[2]}", "{maximal device=0}", "{manual}"),
    "metadata": ('{op_name="a/b"}', '{op_type="c" source_file="d.py" source_line=7}'),
    "backend_config": ('"{}"', '{"a":1}', '"text"'),
    "custom_call_target": ('"target"', '"Sharding"'),
    "algorithm": ("dot_f32_f32_f32", "dot_bf16_bf16_f32_x3"),
    "operand_precision": ("{highest,highest}", "{default,default}"),
    "frontend_attributes": ('{a="b"}', "{}"),
    "index": ("0", "1"),
    "padding": ("0_0", "1_1x2_2", "0_1_0"),
    "slice": ("{[0:2]}", "{[0:2], [1:3]}"),
}
_FLAGS = ("true", "false")


def filled(template: Text, fills: int) -> Iterator[Text]:
    """Texts of a template, with plausible values in its holes. One without holes has none."""
    if not any(map(_HOLE.search, _COMMENT.split(template.text))):
        return
    random = Random(zlib.crc32(template.text.encode()))
    for number in range(fills):
        values: dict[str, str] = {}

        def value(hole: re.Match[str], values: dict[str, str] = values) -> str:
            name = hole[0]
            if name.startswith("//"):
                return name
            if name.startswith("%"):  # without a number
                return _fill(hole, random)
            if name not in values:
                values[name] = _fill(hole, random)
            return values[name]

        yield Text(
            _COMMENT_OR_HOLE.sub(value, template.text),
            f"{template.place}, filled {number}",
            "filled",
        )


def _fill(hole: re.Match[str], random: Random) -> str:
    """A value that the text around the hole asks for."""
    before, after = hole.string[: hole.start()], hole.string[hole.end() :]
    line = before.rpartition("\n")[2]
    if after.startswith("["):
        return random.choice(_TYPES)
    if after.startswith("]") and (layout := re.match(r"\]\{(\d(?:,\d)*)", after)):
        sizes = [str(random.choice((2, 4, 8, 128))) for _ in layout[1].split(",")]
        return ",".join(sizes) if line.endswith("[") else sizes[0]
    if after[:1] in ("}", ":") and (sizes_before := re.search(r"\[([^\[\]]*)\]\{$", before)):
        rank = len(sizes_before[1].split(",")) if sizes_before[1] else 0
        return ",".join(map(str, reversed(range(rank))))
    if after.startswith("("):
        if hint := re.match(r"\s*(?:ROOT\s+)?%?(bitcast|reshape|broadcast|transpose)", line):
            return hint[1]
        operands = after.partition(")")[0].count(",")
        return random.choice(_BINARY if operands else _UNARY)
    if line.count('"') % 2:
        return random.choice(("word", "2", "a/b"))
    if key := re.search(r"(\w+)=$", before):
        return random.choice(_VALUES.get(key[1], _FLAGS))
    if key := re.search(r"(\w+)=\{[^{}]*$", before):
        values = [v[1:-1] for v in _VALUES.get(key[1], ()) if v.startswith("{")]
        return random.choice(values or ["0", "1"])
    if re.search(r"[\[,{(<=:]\s*$|\d$", line) and re.match(r"\s*[\],})]|\d", after):
        return str(random.choice((0, 1, 2, 4, 8, 16, 64, 128)))
    if re.search(r"=\s*$", line):
        return f"{random.choice(_TYPES)}[{random.choice((2, 8, 128))}]"
    if not line.strip() or line.rstrip().endswith(")"):
        return random.choice(("", ', metadata={op_name="a"}'))
    return random.choice(("", "x", "1"))


# Printed

_FLAGS_OF_PRINTING = (
    "canonicalize_computations", "canonicalize_instruction_names", "compact_operands",
    "include_layout_in_shapes", "is_in_nested_computation", "print_backend_config",
    "print_control_dependencies", "print_extra_attributes", "print_ids", "print_large_constants",
    "print_metadata", "print_operand_names", "print_operand_shape", "print_percent",
    "print_program_shape", "print_result_shape",
)  # fmt: skip


def printed(source: Text, module: Any, options: int) -> Iterator[Text]:
    """A module as the compiler prints it with some of all options."""
    from jaxlib import _hlo

    presets: tuple[Callable[[], Any], ...] = (
        _hlo.HloPrintOptions,
        _hlo.HloPrintOptions.short_parsable,
        _hlo.HloPrintOptions.canonical,
        _hlo.HloPrintOptions.fingerprint,
    )
    random = Random(zlib.crc32(source.text.encode()))
    is_large = _has_large_constants(module)
    for number in range(options):
        chosen = random.choice(presets)()
        for flag in random.sample(_FLAGS_OF_PRINTING, random.choice((0, 1, 1, 2, 4))):
            setattr(chosen, flag, not getattr(chosen, flag))
        chosen.indent_amount = random.choice((0, 0, 0, 2))
        chosen.print_large_constants &= not is_large
        text = module.to_string(chosen)
        if len(text) < _LONGEST:
            yield Text(text, f"{source.place}, printed {number}", "printed")


def _has_large_constants(module: Any) -> bool:
    return any(
        instruction.opcode.name == "kConstant"
        and instruction.shape.is_array()
        and prod(instruction.shape.dimensions()) > _LARGE
        for computation in module.computations()
        for instruction in computation.instructions()
    )


# Mutated

_TOKEN = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|/\*.*?\*/|-?\d+(?:\.\d+)?|%?[A-Za-z_][\w.\-]*=?|->|<=|\s+|.", re.DOTALL
)
_BRACKETS = "(){}[]"
_WORDS = (
    "ROOT", "ENTRY", "HloModule", "true", "false", "inf", "nan", "replicated", "maximal", "manual",
    "f32", "f32[]", "s4[2]{0}", "token[]", "()", "{}", "[]", "{0}", "mesh", "x", "%y", "add",
    "parameter", "constant", "tuple", "kLoop", "kind=", "calls=", "to_apply=", "dimensions=",
    "sharding=", "metadata=", "index=", "backend_config=", "replica_groups=", "b01f_01io->b01f",
    "1x2", "1_1", "0_0_0", '""', "'a'", ",", "=", ":", "->", "<=", "*", "?", "#", "+", "~", "/",
    "//", "/*", "*/", "|", "...", "{...}", ".", "-", "\\", "@", "(", ")", "{", "}", "[", "]",
)  # fmt: skip
_OUT_OF_RANGE = (
    "-1", "0", "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "1e400", "1.5", "-0", "007", "1e3", "0x10", "99999999999999999999999999",
)  # fmt: skip


def mutated(source: Text, mutants: int, start: int = 0) -> Iterator[Text]:
    """The text with one change of its tokens, as many times as asked."""
    tokens = _TOKEN.findall(source.text)
    for number in range(start, start + mutants):
        random = Random(f"{number} {source.text}")
        name = random.choice(sorted(_CHANGES))
        text = "".join(_CHANGES[name]([*tokens], random))
        if text != source.text:
            yield Text(text, f"{source.place}, {name} {number}", "mutated")


def _place(
    tokens: Sequence[str], random: Random, suits: Callable[[str], bool] = lambda token: True
) -> int:
    """The place of a token that is no space, and that suits; 0 if there is none."""
    places = [n for n, token in enumerate(tokens) if not token.isspace() and suits(token)]
    return random.choice(places or [0])


def _is_number(token: str) -> bool:
    return token.lstrip("-")[:1].isdigit()


def _is_word(token: str) -> bool:
    return token[0].isalpha() or token[0] in "_%"


def _delete(tokens: list[str], random: Random) -> list[str]:
    del tokens[_place(tokens, random)]
    return tokens


def _duplicate(tokens: list[str], random: Random) -> list[str]:
    place = _place(tokens, random)
    return [*tokens[:place], tokens[place], random.choice(("", " ")), *tokens[place:]]


def _swap(tokens: list[str], random: Random) -> list[str]:
    place = _place(tokens, random)
    later = next((n for n in range(place + 1, len(tokens)) if not tokens[n].isspace()), place)
    tokens[place], tokens[later] = tokens[later], tokens[place]
    return tokens


def _insert(tokens: list[str], random: Random) -> list[str]:
    word = random.choice(_WORDS) if random.random() < 0.5 else tokens[_place(tokens, random)]
    tokens.insert(_place(tokens, random), f"{word}{random.choice(('', ' '))}")
    return tokens


def _cut(tokens: list[str], random: Random, between: Sequence[str]) -> list[str]:
    """Put something inside a token of more than one character."""
    place = _place(tokens, random, lambda token: len(token) > 1)
    token = tokens[place]
    cut = random.randrange(1, max(2, len(token)))
    tokens[place] = token[:cut] + random.choice(between) + token[cut:]
    return tokens


def _space_inside(tokens: list[str], random: Random) -> list[str]:
    place = _place(tokens, random, lambda token: len(token) > 1 and _is_number(token))
    if random.random() < 0.5 and _is_number(tokens[place]):
        tokens[place] = f"{tokens[place][0]} {tokens[place][1:]}"
        return tokens
    if random.random() < 0.5:  # one number more
        place = _place(tokens, random, _is_number)
        tokens[place] = f"{tokens[place]} {random.randrange(10)}"
        return tokens
    return _cut(tokens, random, (" ", "\t", "\n"))


def _comment(tokens: list[str], random: Random) -> list[str]:
    comments = ("/*c*/", "/* } */", "/**/", "//c\n", '/*"*/', "/*{*/", "/*,*/", "/* index=5 */")
    if random.random() < 0.5:
        return _cut(tokens, random, comments)
    tokens.insert(_place(tokens, random), random.choice(comments))
    return tokens


def _bracket(tokens: list[str], random: Random) -> list[str]:
    place = _place(tokens, random, lambda token: token in _BRACKETS)
    tokens[place] = random.choice(_BRACKETS)
    return tokens


def _number(tokens: list[str], random: Random) -> list[str]:
    place = _place(tokens, random, _is_number)
    near = str(int(random.choice((-1, 1, 2))) + int(float(tokens[place]))) if (
        _is_number(tokens[place])
    ) else "1"  # fmt: skip
    tokens[place] = random.choice((near, random.choice(_OUT_OF_RANGE)))
    return tokens


def _keyword(tokens: list[str], random: Random) -> list[str]:
    place = _place(tokens, random, _is_word)
    words = [token for token in tokens if _is_word(token)]
    if random.random() < 0.3:
        words = [word for word in _WORDS if _is_word(word)]
    tokens[place] = random.choice(words or ["x"])
    return tokens


def _spelling(tokens: list[str], random: Random) -> list[str]:
    place = _place(tokens, random, _is_word)
    token = tokens[place]
    at = random.randrange(len(token))
    tokens[place] = random.choice(
        (token[:at] + token[at + 1 :], token[:at] + "_" + token[at:], token.upper(), f"{token}x")
    )
    return tokens


def _attributes(tokens: list[str], random: Random) -> list[str]:
    """Exchange two attributes, or their values, or repeat one elsewhere."""
    text = "".join(tokens)
    attributes = [
        *re.finditer(r", ([\w\-]+)=((?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|[^,\s{}]+))", text)
    ]
    if len(attributes) < 2:
        return _keyword(tokens, random)
    first, second = sorted(random.sample(attributes, 2), key=lambda match: match.start())
    group = random.choice((0, 1, 2))
    if random.random() < 0.3:
        return [text[: second.end()], first[0], text[second.end() :]]
    parts = [
        text[: first.start(group)],
        second[group],
        text[first.end(group) : second.start(group)],
    ]
    return [*parts, first[group], text[second.end(group) :]]


def _truncate(tokens: list[str], random: Random) -> list[str]:
    return tokens[: random.randrange(len(tokens))]


def _join(tokens: list[str], random: Random) -> list[str]:
    places = [n for n, token in enumerate(tokens) if token.isspace()]
    if places:
        tokens[random.choice(places)] = random.choice(("", "\n", "  "))
    return tokens


def _line(tokens: list[str], random: Random) -> list[str]:
    lines = "".join(tokens).splitlines(keepends=True)
    place, second = random.randrange(len(lines)), random.randrange(len(lines))
    if random.random() < 0.3:
        del lines[place]
    elif random.random() < 0.5:
        lines.insert(second, lines[place])
    else:
        lines[place], lines[second] = lines[second], lines[place]
    return lines


_CHANGES: dict[str, Callable[[list[str], Random], list[str]]] = {
    change.__name__.strip("_"): change
    for change in (
        _delete, _duplicate, _swap, _insert, _space_inside, _comment, _bracket, _number, _keyword,
        _spelling, _attributes, _truncate, _join, _line,
    )
}  # fmt: skip
