"""The page of `report`: it says what `explain` says, and what a dump contains stays text."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusionscope.cli.main import cli

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_ATTACKS = [
    "</script><script>document.title='ran'</script>",
    "<img src=x onerror=document.title='ran'>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe",
    "'onmouseover=document.title=1 x='",
    '"><svg onload=document.title=1>',
    "javascript:document.title=1",
    "<!--<script>",
    "]]><![CDATA[",
    "</style><style>*{display:none}",
    "</textarea></title></noscript>",
    "<iframe srcdoc=<script>document.title=1</script>>",
    "&lt;script&gt;&#60;",
    "${document.title=1}`",
    "\x1b[31m\x9b2J",
    "\u2066\u200b\ufeff",
    "__proto__",
    "constructor",
    "#module=9&pair=1e9",
    "\U0001f469\u200d\U0001f4bb",
]
_AROUND = ["{}", "jit({})/{}", "{}.py", "a/../{}", "{0}{0}", " {} ", "x={}", "[{}]", "{}%00", "%{}"]
HOSTILE = [
    *(around.format(attack, attack) for around in _AROUND for attack in _ATTACKS),
    "a" * 3_000_000,
]

pytestmark = pytest.mark.slow


def run(*words: object) -> str:
    ended = CliRunner().invoke(cli, [str(word) for word in words])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def page_of(dump: Path, directory: Path) -> Path:
    file = directory / "page.html"
    run("report", dump, "--output", file)
    return file


def data_of(page: Path) -> dict:
    (packed,) = re.findall(
        r'<script type="text/plain" id="data">([^<]*)</script>', page.read_text()
    )
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def in_browser(page: Path, address: str = "") -> tuple[str, str]:
    """Return the document after its script ran, and what the browser logged of it."""
    assert BROWSER is not None
    ended = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000",
            "--enable-logging=stderr", f"--user-data-dir={page.parent / 'browser'}", "--dump-dom",
            page.as_uri() + address,
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    console = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    return ended.stdout, "\n".join(console)


with_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the page of a sample, which is made once."""
    return cache(lambda name: page_of(DUMPS / name, tmp_path_factory.mktemp("page")))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about a dump whose texts attack it, in every field that may have any."""
    lines = [
        'HloModule m, frontend_attributes={a="</script><script>document.title=1</script>"}',
        "",
        "ENTRY %e (x: f32[64]) -> f32[64] {",
        "  %v0 = f32[64] parameter(0)",
    ]
    for number, text in enumerate(HOSTILE):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'")
        metadata = (
            f'metadata={{op_type="{escaped}" op_name="{escaped}" source_file="{escaped}" '
            "source_line=3}"
        )
        operation = f'custom-call(%v{number}), custom_call_target="{escaped}"'
        if number % 2:
            operation = f"sine(%v{number})"
        lines.append(f"  %v{number + 1} = f32[64] {operation}, {metadata}")
    lines.append(f"  ROOT %r = f32[64] negate(%v{len(HOSTILE)})")
    directory = tmp_path_factory.mktemp("hostile")
    dump = directory / "dump"
    dump.mkdir()
    text = "\n".join([*lines, "}", ""])
    (dump / "module_0000.m.before_optimizations.txt").write_text(text)
    (dump / "module_0000.m.cpu_after_optimizations.txt").write_text(text)
    return page_of(dump, directory)


def kernels_of(picture: dict, last: int) -> dict[int, set[int]]:
    """Return the kernels of each operation after the stage with number ``last``."""
    kernels: dict[int, set[int]] = {}
    for stage in picture["stages"][: last + 1]:
        for node, kernel in zip(stage["removed"][::3], stage["removed"][1::3], strict=True):
            kernels[node].discard(kernel)
        for node, kernel in zip(stage["added"][::3], stage["added"][1::3], strict=True):
            kernels.setdefault(node, set()).add(kernel)
    return kernels


def test_spills_are_a_measure_if_resources_were_read(tmp_path, monkeypatch) -> None:
    dump = Path(__file__).parents[1] / "explain" / "data" / "spills"
    monkeypatch.setenv("PTXAS", str(dump / "ptxas"))
    page = tmp_path / "page.html"
    run("report", dump, "--resources", "--output", page)
    (module,) = data_of(page)["now"]["explanation"]["modules"]
    spilled = (476 + 160) * 2048 * 128
    assert {row["spill_bytes"] for row in module["breakdown"]["rows"]} == {spilled}
    if BROWSER is not None:
        visible, console = in_browser(page, "#by=spill_bytes&kernel=loop_add_fusion")
        assert not console
        for words in (">spills</button>", "167 MB, 100%", "255", "12.5%, limited by registers"):
            assert words in visible
    (module,) = data_of(page_of(dump, tmp_path))["now"]["explanation"]["modules"]
    assert {row["spill_bytes"] for row in module["breakdown"]["rows"]} == {None}
    if BROWSER is not None:
        assert ">spills</button>" not in in_browser(page)[0]


@with_browser
@pytest.mark.parametrize(
    ("name", "is_bounded"),
    [
        pytest.param("h100/attention", True, marks=pytest.mark.main),
        ("cpu/concatenate", False),
    ],
)
def test_a_bar_of_time_has_its_bound(name: str, is_bounded: bool, pages) -> None:
    """As an edge, and in words: the kernel of the softmax takes longer than at best."""
    page = pages(name)
    visible, console = in_browser(page, "#by=time_us")
    assert not console
    (module,) = data_of(page)["now"]["explanation"]["modules"]
    best = [kernel["at_best_us"] for kernel in module["kernels"]]
    assert any(best) is is_bounded
    bars = re.findall(r"<button[^>]*class=\"bounded\"[^>]*>", visible)
    rows = sum(row["time_us"] > 0 for row in module["breakdown"]["rows"])
    assert len(bars) == (rows + len(best) if is_bounded else 0)
    for bar in bars:
        (label,) = re.findall(r'aria-label="([^"]*)"', bar)
        assert re.search(r", at best [\d.]+ µs$", label)
        end, bound = (
            float(re.findall(f"--{edge}: ([\\d.]+)%", bar)[0]) for edge in ("end", "bound")
        )
        assert 0 < bound <= end <= 100
    assert "at best" in visible or not is_bounded


def test_a_page_tries_recipes(pages) -> None:
    """Its loop matches `unroll-loop`, and the Python of these tests has no compiler for it."""
    data = data_of(pages("a100-jaxlib-0.4.35/library_random"))
    assert "no recipe was tried: this Python has no jax" in json.dumps(data["now"]["tried"])


@pytest.mark.parametrize(
    "name",
    [
        "h100/cartpole",
        *(
            pytest.param(name, marks=pytest.mark.main)
            for name in ("cpu/concatenate", "h100/attention", "cpu/loop")
        ),
    ],
)
def test_the_page_says_what_explain_says(name, pages) -> None:
    data = data_of(pages(name))
    reported = json.loads(run("explain", DUMPS / name, "--no-try", "--format", "json"))
    for ours, theirs in zip(
        data["now"]["explanation"]["modules"], reported["modules"], strict=True
    ):
        for key in ("name", "summary", "pairs", "kernels", "memory", "breakdown", "notes"):
            assert ours[key] == theirs[key], key
        picture = data["now"]["pictures"][ours["number"] if len(reported["modules"]) > 1 else 0]
        assert len(picture["pairs"]) == 2 * len(theirs["pairs"])


def test_the_last_stage_of_the_picture_has_the_kernels_of_explain(pages) -> None:
    data = data_of(pages("h100/cartpole"))
    (module,), (picture,) = data["now"]["explanation"]["modules"], data["now"]["pictures"]
    kernels = kernels_of(picture, len(picture["stages"]))
    numbers = dict(
        zip((item["name"] for item in module["kernels"]), picture["kernels"], strict=True)
    )
    for place, pair in enumerate(module["pairs"]):
        read, reader = picture["pairs"][2 * place : 2 * place + 2]
        together = kernels[read] & kernels[reader]
        if pair["outcome"] in ("fused", "duplicated"):
            assert numbers[pair["kernel"]] in together
        elif pair["outcome"] == "not-fused":
            assert not together


def test_a_kernel_that_computes_an_equal_value_does_not_share_it(pages) -> None:
    """The kernel of two sums has a zero for one of them; the other reads a zero from outside."""
    side = data_of(pages("a100-jaxlib-0.4.35/reductions"))["now"]
    (module,), (picture,) = side["explanation"]["modules"], side["pictures"]
    kernels = kernels_of(picture, len(picture["stages"]))
    places = {
        pair["consumer"]["name"]: place
        for place, pair in enumerate(module["pairs"])
        if pair["producer"]["name"] == "constant.8"
    }
    for name, outcome in (("reduce.17", "not-fused"), ("reduce.23", "duplicated")):
        zero, total = picture["pairs"][2 * places[name] : 2 * places[name] + 2]
        (kernel,) = kernels[zero] & kernels[total]
        assert module["pairs"][places[name]]["outcome"] == outcome
        apart = list(zip(*(picture["apart"][start::3] for start in range(3)), strict=True))
        assert ((zero, total, kernel) in apart) is (outcome == "not-fused")


def test_a_reduction_that_took_in_another_is_drawn_as_itself(tmp_path) -> None:
    """A sum of a sum becomes one before fusion: both read a constant, and one of them is drawn."""
    dump = tmp_path / "dump"
    dump.mkdir()
    head = (
        "HloModule m\n\n%s (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
        "  %b = f32[] parameter(1)\n  ROOT %c = f32[] add(%a, %b)\n}\n\n"
    )
    start = "  %x = f32[8,8] parameter(0)\n  %z = f32[] constant(0)\n"
    two = (
        "  %one = f32[8] reduce(%x, %z), dimensions={0}, to_apply=%s\n"
        "  ROOT %all = f32[] reduce(%one, %z), dimensions={0}, to_apply=%s\n}\n"
    )
    turned = two.replace("  ROOT", "  %r = f32[8] reverse(%one), dimensions={0}\n  ROOT")
    turned = turned.replace("reduce(%one", "reduce(%r")
    first = "  ROOT %all = f32[] reduce(%x, %z), dimensions={0,1}, to_apply=%s\n}\n"
    inner = "%f (x: f32[8,8]) -> f32[] {\n" + start + first + "\n"
    entry = "ENTRY %e (x: f32[8,8]) -> f32[] {\n"
    callees = (
        "  %x = f32[8,8] parameter(0)\n  ROOT %all = f32[] fusion(%x), kind=kInput, calls=%f\n}\n"
    )
    stages = {
        "before_optimizations": head + entry + start + turned,
        "0000.simplification.after_algsimp.before_dce": head + entry + start + two,
        "0001.fusion.after_pipeline-start.before_priority-fusion": head + entry + start + first,
        "sm_9.0a_gpu_after_optimizations": head + inner + entry + callees,
    }
    for name, text in stages.items():
        (dump / f"module_0000.m.{name}.txt").write_text(text)
    side = data_of(page_of(dump, tmp_path))["now"]
    (module,), (picture,) = side["explanation"]["modules"], side["pictures"]
    assert [pair["outcome"] for pair in module["pairs"]] == ["fused"]
    assert [picture["nodes"][node]["name"] for node in picture["pairs"]] == ["z", "all"]


@pytest.mark.parametrize("name", ["h100/convolution", "h100/libraries", "cpu/cartpole"])
def test_every_refused_pair_has_an_edge(name, pages) -> None:
    side = data_of(pages(name))["now"]
    drawn = 0
    for module, picture in zip(side["explanation"]["modules"], side["pictures"], strict=True):
        edges = {
            ends
            for stage in picture["stages"]
            for ends in zip(stage["edges_added"][::2], stage["edges_added"][1::2], strict=True)
        }
        for place, pair in enumerate(module["pairs"]):
            read, reader = picture["pairs"][2 * place : 2 * place + 2]
            if pair["outcome"] == "not-fused" and -1 < read != reader:
                assert (read, reader) in edges, pair
                drawn += 1
    assert drawn


OLD, NEW = DUMPS / "h100-without-triton-softmax/softmax", DUMPS / "h100/softmax"


def difference_of(before: Path, after: Path, directory: Path) -> Path:
    file = directory / "difference.html"
    run("report", before, after, "--output", file)
    return file


def test_a_difference_says_what_diff_and_explain_say(tmp_path) -> None:
    data = data_of(difference_of(OLD, NEW, tmp_path))
    reported = json.loads(run("diff", OLD, NEW, "--format", "json"))
    assert data["difference"] == reported
    assert reported["modules"][0]["outcomes"]
    for side, dump in (("before", OLD), ("now", NEW)):
        (module,) = data[side]["explanation"]["modules"]
        (expected,) = json.loads(run("explain", dump, "--no-try", "--format", "json"))["modules"]
        assert (module["pairs"], module["summary"]) == (expected["pairs"], expected["summary"])


def test_both_sides_of_a_difference_share_their_places(tmp_path) -> None:
    data = data_of(difference_of(OLD, NEW, tmp_path))
    (before,), (now,) = data["before"]["pictures"], data["now"]["pictures"]
    for field in ("nodes", "boxes", "spots"):
        assert before[field] == now[field]
    # The same program: what its operations compute is the same node on both sides.
    firsts = [set(kernels_of(picture, 0)) for picture in (before, now)]
    assert firsts[0] == firsts[1]
    # A pair that both sides name has the same ends, and their last stages differ by its outcome.
    pairs = [
        {(pair["producer"]["name"], pair["consumer"]["name"]): place for place, pair in actual}
        for actual in (
            enumerate(data[side]["explanation"]["modules"][0]["pairs"])
            for side in ("before", "now")
        )
    ]
    for change in data["difference"]["modules"][0]["outcomes"]:
        sides = zip((before, now), pairs, ("before", "after"), strict=True)
        for picture, places, side in sides:
            pair = change[side]
            place = places[pair["producer"]["name"], pair["consumer"]["name"]]
            read, reader = picture["pairs"][2 * place : 2 * place + 2]
            last = kernels_of(picture, len(picture["stages"]))
            assert bool(last[read] & last[reader]) is (pair["outcome"] != "not-fused")


def test_two_equal_dumps_differ_in_nothing(tmp_path) -> None:
    data = data_of(difference_of(NEW, NEW, tmp_path))
    assert data["difference"]["is_same"] and not data["difference"]["modules"]
    assert len(data["now"]["explanation"]["modules"]) == 1


def test_a_large_page_becomes_a_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("fusionscope.cli.report.LARGE_BYTES", 1000)
    dump = tmp_path / "dump"
    dump.mkdir()
    for number in range(2):
        for file in (DUMPS / "cpu/concatenate").glob("module_0000.*"):
            renamed = file.name.replace("module_0000", f"module_000{number}")
            (dump / renamed).write_bytes(file.read_bytes())
    folder = tmp_path / "step"
    reported = run("report", dump, "--output", tmp_path / "step.html")
    assert "2 pages" in reported and str(folder / "index.html") in reported
    links = re.findall(r'href="([^"]*)"', (folder / "index.html").read_text())
    expected = json.loads(run("explain", dump, "--no-try", "--format", "json"))["modules"]
    for link, module in zip(links, expected, strict=True):
        (local,) = data_of(folder / link)["now"]["explanation"]["modules"]
        assert (local["number"], local["pairs"]) == (module["number"], module["pairs"])


def test_only_its_own_script_may_run(pages) -> None:
    text = pages("cpu/concatenate").read_text()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy
    for tag in ("script", "style"):
        (local,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(local.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy.replace("&#43;", "+")
    assert not re.findall(r"\b(?:src|href)=", text.partition("<style>")[0])


def test_hostile_text_is_no_markup(hostile) -> None:
    text = hostile.read_text()
    assert text.count("<script") == 2
    assert not any(words in text for words in _ATTACKS[:13])
    actual = json.dumps(data_of(hostile), ensure_ascii=False)
    for words in _ATTACKS:
        assert json.dumps(words, ensure_ascii=False)[1:-1] in actual


@with_browser
def test_a_browser_shows_it_without_a_word(pages) -> None:
    visible, console = in_browser(pages("h100/cartpole"))
    assert not console
    assert "estimated time" in visible and "374 of 374 pairs" in visible
    assert re.search(r'class="edge not-fused"', visible) and ">pf-negative<" in visible
    for title in ("What to try", "Memory", "Computed more than once", "Compile time"):
        assert f">{title}</h2>" in visible
    assert "[object " not in visible


@with_browser
def test_a_browser_runs_nothing_hostile(hostile) -> None:
    assert len(HOSTILE) > 200
    visible, console = in_browser(hostile)
    assert not console
    assert "<title>fusionscope: m</title>" in visible
    body = visible[visible.index("<main") : visible.index("</main>")]
    assert not re.search(r"<(?:img|iframe|script|style|textarea|svg onload)\b", body)
    assert not re.search(r"\son(?!e\b)\w+=", re.sub(r'"[^"]*"|>[^<]*<', "", body))
    assert re.search(rf"{len(HOSTILE)} of {len(HOSTILE)} pairs", visible)


@with_browser
def test_a_browser_shows_both_sides_of_a_difference(tmp_path) -> None:
    visible, console = in_browser(difference_of(OLD, NEW, tmp_path))
    assert not console
    for words in ("What changed", "4.38 µs → 1.47 µs", "not-fused, pf-two-reduces", "(after)"):
        assert words in visible
    assert visible.count("triton_softmax.2") > 1


@with_browser
def test_a_difference_is_told_in_the_same_words(tmp_path) -> None:
    """What ``diff`` prints stands in the page: every line and cell, but for the titles of lists."""
    visible, _ = in_browser(difference_of(OLD, NEW, tmp_path))
    page = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", visible)).split())
    document = run("diff", OLD, NEW, "--all", "--format", "markdown")
    lines = [line for line in document.splitlines() if re.match(r"[->] |\| [^|]", line)]
    assert len(lines) > 20
    for line in lines:
        cells = re.split(r" \| |<br>", line.strip("|->")) if line.startswith("|") else [line[2:]]
        for cell in cells:
            assert " ".join(re.sub(r"[\\`]", "", cell).strip("| ").split()) in page
