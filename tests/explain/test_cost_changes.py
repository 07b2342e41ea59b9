"""Where launches and bytes went, by line and by scope. Launches and bytes are counted by hand."""

from pathlib import Path

from fusionscope.compare.cost_changes import PlaceKind
from fusionscope.compare.difference import compare

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"

MANY = """HloModule m

ENTRY %e {{
  %p = f32[1024]{{0}} parameter(0)
  %a = f32[1024]{{0}} add(%p, %p){first}
  %b = f32[1024]{{0}} multiply(%a, %a){first}
  %c = f32[1024]{{0}} add(%b, %b){first}
  ROOT %d = f32[1024]{{0}} negate(%c){second}
}}
"""
ONE = """HloModule m

ENTRY %e {{
  %p = f32[1024]{{0}} parameter(0)
  %a = f32[1024]{{0}} add(%p, %p){first}
  ROOT %d = f32[1024]{{0}} negate(%a){second}
}}
"""


def at(line, op_name="jit(f)/layer/add"):
    return f', metadata={{op_name="{op_name}" source_file="model.py" source_line={line}}}'


def costs_of(tmp_path, before, after):
    files = tmp_path / "before.hlo", tmp_path / "after.hlo"
    for file, text in zip(files, (before, after), strict=True):
        file.write_text(text)
    (module,) = compare(*files).modules
    return module.costs


def rows(costs):
    return [
        (place.place, place.before.launches, place.after.launches, place.before.bytes_moved,
         place.after.bytes_moved)
        for place in costs.places
    ]  # fmt: skip


def test_by_line(tmp_path):
    """Three kernels at line 17 become one: each reads 4 KiB (an operand that is read twice counts
    once) and writes 4 KiB. The line that did not change is not listed.
    """
    texts = [text.format(first=at(17), second=at(30)) for text in (MANY, ONE)]
    actual = costs_of(tmp_path, *texts)
    assert actual.by is PlaceKind.LINE
    assert rows(actual) == [("model.py:17", 3, 1, 3 * 8192, 8192)]
    assert {side.time_us for place in actual.places for side in (place.before, place.after)} == {
        None
    }


def test_a_line_that_is_gone(tmp_path):
    """Its kernels count on one side only; the time of the other side is as unknown."""
    texts = MANY.format(first=at(17), second=at(30)), ONE.format(first=at(30), second=at(30))
    actual = costs_of(tmp_path, texts[0], texts[1].replace("add(%p, %p)", "tanh(%p)"))
    assert ("model.py:17", 3, 0, 3 * 8192, 0) in rows(actual)
    assert {side.time_us for place in actual.places for side in (place.before, place.after)} == {
        None
    }


def test_a_line_that_moved(tmp_path):
    """Two lines were written above: those of the second program are two further down."""
    before = MANY.format(first=at(17), second=at(30))
    actual = costs_of(tmp_path, before, ONE.format(first=at(19), second=at(32)))
    assert rows(actual) == [("model.py:17 → 19", 3, 1, 3 * 8192, 8192)]


def test_by_scope(tmp_path):
    """Without lines, the framework's names tell; numbers of layers do not."""
    by_name = [f', metadata={{op_name="jit(f)/layer_{n}/add"}}' for n in (1, 2)]
    second = ', metadata={op_name="jit(f)/head/neg"}'
    before = MANY.format(first=by_name[0], second=second)
    actual = costs_of(tmp_path, before, ONE.format(first=by_name[1], second=second))
    assert actual.by is PlaceKind.SCOPE
    assert rows(actual) == [("layer_*", 3, 1, 3 * 8192, 8192)]


def test_nothing_is_known_of_the_places(tmp_path):
    texts = [text.format(first="", second="") for text in (MANY, ONE)]
    assert costs_of(tmp_path, *texts) is None


def test_the_largest_change_comes_first():
    """By time, as the device is known. By hand: the final stages have one kernel and three."""
    pair = DUMPS / "h100/softmax", DUMPS / "h100-without-triton-softmax/softmax"
    (module,) = compare(*pair).modules
    assert (module.before.launches, module.after.launches) == (1, 3)
    changes = [abs((p.after.time_us or 0) - (p.before.time_us or 0)) for p in module.costs.places]
    assert changes == sorted(changes, reverse=True)
    assert sum(p.after.launches for p in module.costs.places) == 3
    assert not module.costs.is_nominal
