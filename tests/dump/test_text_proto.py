import gzip

import pytest

from fusionscope.dump.text_proto import MAXIMUM_DEPTH, Message, parse, unquote
from fusionscope.errors import UnusableInput


def fields(text):
    """A message as nested lists, for comparison."""

    def plain(message):
        return [(n, plain(v) if isinstance(v, Message) else v) for n, v in message.fields]

    return plain(parse(text.encode(), "file"))


def test_fields_keep_their_order_and_their_printing():
    assert fields('a: 1 b { c: "x" } a: -0.50 d: ENUM b {}') == [
        ("a", "1"),
        ("b", [("c", '"x"')]),
        ("a", "-0.50"),
        ("d", "ENUM"),
        ("b", []),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "b: { c: 1 }",
        "b{c:1}",
        "# note { \nb { # note\n c: 1 }",
        "b {\n  c: 1;\n},",
        "\n b {c :1}\n",
    ],
)
def test_spacing_comments_and_separators_do_not_matter(text):
    assert fields(text) == [("b", [("c", "1")])]


def test_fields_that_are_absent_have_protobufs_defaults():
    empty = parse(b"", "file")
    assert (empty.string("a"), empty.integer("a"), empty.number("a")) == ("", 0, 0.0)
    assert (empty.boolean("a"), empty.message("a"), empty.strings("a")) == (False, None, ())


def test_the_last_of_two_values_counts():
    message = parse(b"a: 1 a: 2 b { c: 1 } b { c: 2 }", "file")
    assert message.integer("a") == 2
    assert message.message("b").integer("c") == 2


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (r'"a\nb\t\"\\\'"', "a\nb\t\"\\'"),
        (r"'it is \"it\"'", 'it is "it"'),
        (r'"\303\251 and \xe2\x82\xac"', "é and €"),
        (r'"\0017"', "\x017"),  # an octal escape has three digits at most
        ("4.5", "4.5"),
    ],
)
def test_strings_are_unquoted(printed, text):
    assert unquote(printed) == text


def test_real_strings_are_unquoted_as_protobuf_does(data):
    text_encoding = pytest.importorskip("google.protobuf.text_encoding")
    for file in sorted(data.glob("*/*.priority_fusion_dump.txt")):
        printed = parse(file.read_bytes(), file.name).scalar("hlo_module_before_fusion")
        assert unquote(printed) == text_encoding.CUnescape(printed[1:-1]).decode()


@pytest.mark.parametrize(
    ("text", "line", "column", "found"),
    [
        ("a: 1\nb c", 2, 1, "found 'b c'"),
        ("a: 1\n  }", 2, 3, "found }"),
        ('a: "open\n', 1, 1, "found 'a: \"open'"),
        ("a {\n b: 1\n", 3, None, "ends inside a"),
        ("a: [1, 2]", 1, 1, "found 'a: [1, 2]'"),
    ],
)
def test_errors_say_where_and_what(text, line, column, found):
    with pytest.raises(UnusableInput) as raised:
        parse(text.encode(), "some.pbtxt")
    error = raised.value
    assert (error.file, error.line, error.column) == ("some.pbtxt", line, column)
    assert found in str(error)


@pytest.mark.parametrize(
    ("text", "ask", "expected"),
    [
        ("a: x", lambda m: m.integer("a"), "a whole number"),
        ("a: 1x", lambda m: m.number("a"), "a number"),
        ("a: 2", lambda m: m.boolean("a"), "true or false"),
        ("a {}", lambda m: m.string("a"), "a single value"),
        ("a: 1", lambda m: m.message("a"), "a message"),
    ],
)
def test_values_of_another_type_are_refused(text, ask, expected):
    with pytest.raises(UnusableInput, match=expected):
        ask(parse(text.encode(), "file"))


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(UnusableInput, match="byte 3 is not text"):
        parse(b"abc\xff", "file")


def test_nesting_is_bounded():
    deepest = b"a {" * MAXIMUM_DEPTH + b"}" * MAXIMUM_DEPTH
    assert len(parse(deepest, "file").fields) == 1
    with pytest.raises(UnusableInput, match="nest deeper"):
        parse(b"a {" * 100_000, "file")


def test_long_strings_and_long_junk_take_no_stack():
    long = b'a: "' + b"\\n" * 1_000_000 + b'"'
    assert parse(long, "file").string("a") == "\n" * 1_000_000
    with pytest.raises(UnusableInput):
        parse(long[:-1], "file")


def test_damaged_text_is_taken_or_refused(data, survives_damage):
    config = gzip.decompress((data / "h100/module_0001.jit_f.config.pbtxt.gz").read_bytes())
    survives_damage(lambda damaged: parse(damaged, "file"), config)
