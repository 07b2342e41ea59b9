"""``fusionscope mcp``, asked by a client of the SDK over standard input and output."""

import json
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from conformance import agents
from conformance.agents import ask
from sample_dumps import CONTROL, DUMPS, GPU, ROOT, hostile_files, write

from fusionscope.agents.answers import LARGEST_BYTES, bounded
from fusionscope.errors import UnusableInput
from fusionscope.system.roots import Roots

pytestmark = pytest.mark.slow

SOFTMAX = "h100/softmax"
PLAIN_SOFTMAX = "h100-without-triton-softmax/softmax"
PAIR = "mul.3.0 -> concatenate.1.0"
# Each tool, and a fact that the files of the dump have: flags, metadata, records, file names.
CALLS = [
    ("open", {"dump": "h100/concatenate"}, "xla_gpu_autotune_level=0"),
    ("open", {"dump": "cpu/loop"}, "cpu"),
    ("explain", {"dump": "h100/concatenate"}, "tanh.1.0 -> concatenate.1.0"),
    ("explain", {"dump": "h100/cartpole", "whole": True}, "pf-negative"),
    ("explain", {"dump": "tpu-v5e/attention"}, "TPU"),
    ("pairs", {"dump": "h100/concatenate", "pair": "tanh* -> *"}, "Negative benefit"),
    ("pairs", {"dump": "cpu/concatenate", "source": "concatenate.py:9", "top": 99}, "concatenate"),
    ("kernel", {"dump": "h100/concatenate", "kernel": "input_conc*"}, "f32[1024,320]"),
    ("by", {"dump": "h100/attention", "by": "scope", "sort": "bytes"}, "hqd,hkd->hqk"),
    ("finding", {"dump": "h100/libraries", "name": "libraries"}, "cuFFT"),
    ("finding", {"dump": "cpu/softmax", "name": "float8"}, "nothing about float8"),
    ("history", {"dump": "h100/concatenate"}, "priority-fusion"),
    ("history", {"dump": "h100/concatenate", "name": "tanh.1"}, "wrapped_tanh"),
    ("diff", {"before": SOFTMAX, "after": PLAIN_SOFTMAX}, "triton-softmax-rewriter"),
    ("diff", {"before": f"{SOFTMAX}@pre-fusion", "after": f"{SOFTMAX}@final"}, "softmax.py"),
    ("what_if", {"dump": "h100/concatenate", "allow": [PAIR]}, "1 pair changed"),
    ("what_if", {"dump": "h100/concatenate", "device": "b200"}, "B200"),
    ("rule", {"id": "pf-negative"}, "priority_fusion.cc"),
]


@pytest.mark.main
def test_every_tool_answers_within_its_bound():
    tools, answers = ask([DUMPS], [(name, arguments) for name, arguments, _ in CALLS])
    assert set(tools) == {name for name, _, _ in CALLS}
    assert all(f"{LARGEST_BYTES:,} bytes" in text for text in tools.values())
    for (name, arguments, fact), (is_refused, text) in zip(CALLS, answers, strict=True):
        assert not is_refused and fact in text, (name, arguments, text)
        assert len(text.encode()) <= LARGEST_BYTES
        assert "Ask next:" in text


def test_what_an_answer_says_to_ask_next_can_be_asked():
    _, [(_, first)] = ask([DUMPS], [("explain", {"dump": "h100/cartpole"})])
    lines = first.partition("Ask next:\n")[2].splitlines()
    calls = []
    for line in lines:
        name, _, arguments = line.removeprefix("- ").removesuffix(")").partition("(")
        calls.append((name, eval(f"dict({arguments})")))
    assert {name for name, _ in calls} == {"pairs", "rule", "kernel", "by"}
    assert not any(is_refused for is_refused, _ in ask([DUMPS], calls)[1])


@pytest.fixture
def hostile(tmp_path):
    """A root with a dump, and links in it that leave the root, beside a file with a secret."""
    secret = tmp_path / "secret"
    secret.write_text("HloModule jit_SECRET\n\nENTRY main { ROOT x = f32[] parameter(0) }\n")
    root = tmp_path / "root"
    (root / "leaves").mkdir(parents=True)
    (root / "inside").symlink_to(GPU)
    (root / "link").symlink_to(secret)
    (root / "leaves" / "module_0001.jit_f.before_optimizations.txt").symlink_to(secret)
    (root / "loop").symlink_to(root / "loop")
    (root / "d").mkdir()
    (root / "d@").mkdir()
    (root / "d@final").symlink_to(secret)
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root-2" / "file").write_text(secret.read_text())
    return root


NAMES = [
    ".", "../secret", "leaves", "link", "loop", "inside", "/etc/passwd", "leaves/../../secret", "~",
    "../root-2/file", "root-2", "", "x" * 5_000, "a\0b", "\x1b[31mred", "line\nline", "\u202eevil",
    "@final", "../secret@final", "d@/../../secret", "d@final", "nothing", "\ud800",
]  # fmt: skip


def test_no_name_leads_out_of_the_roots(hostile):
    roots = Roots.read([hostile])
    for name in NAMES:
        for find in (roots.find, roots.find_side):
            with pytest.raises(UnusableInput) as refusal:
                find(name)
            assert len(str(refusal.value).splitlines()) == 1, name


@pytest.mark.main
def test_hostile_names_are_refused_in_a_line(hostile):
    names = [name for name in NAMES if name != "\ud800"]  # no JSON has it
    names.append("d@../../secret")  # a stage of d, which has none
    calls = [("explain", {"dump": name}) for name in names]
    calls += [("diff", {"before": "leaves", "after": name}) for name in names]
    calls += [
        ("what_if", {"dump": ".", "device": str(hostile.parent / "secret")}),
        ("rule", {"id": "../../../etc/passwd"}),
        ("pairs", {"dump": ".", "pair": "no arrow"}),
        ("by", {"dump": ".", "by": "everything"}),
        ("finding", {"dump": ".", "name": "__init__"}),
    ]
    for (name, arguments), (is_refused, text) in zip(calls, ask([hostile], calls)[1], strict=True):
        assert is_refused, (name, arguments, text)
        assert len(text.splitlines()) == 1 and "SECRET" not in text, text
        assert CONTROL.search(text) is None and len(text) < 1_000


def test_names_in_a_dump_are_text(tmp_path):
    write(tmp_path / "dump", hostile_files(GPU))
    calls = [(name, {"dump": "dump"}) for name in ("open", "explain", "pairs", "by", "history")]
    for is_refused, text in ask([tmp_path], calls)[1]:
        assert not is_refused or len(text.splitlines()) == 1
        assert CONTROL.search(text.replace("\n", "")) is None, text


def test_programs_are_run_only_if_that_is_allowed(tmp_path):
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    root.mkdir()
    (root / "fusionscope").mkdir()  # not taken for the package
    program = [sys.executable, "-c", "open('ran', 'w').write('x' * 9); print('y' * 90_000)"]
    calls = [
        ("record", {"command": program, "output": str(outside)}),
        ("record", {"command": program, "output": "../outside"}),
        ("rerun", {"dump": str(GPU), "output": "new"}),
        ("record", {"command": [], "output": "new"}),
        ("record", {"command": program, "output": "new"}),
    ]
    tools, answers = ask([root], calls)
    assert not {"record", "rerun"} & set(tools)
    assert all(is_refused for is_refused, _ in answers)
    assert not (root / "ran").exists()
    tools, answers = ask([root], calls, "--allow-run")
    assert {"record", "rerun"} < set(tools)
    assert [is_refused for is_refused, _ in answers] == [True, True, True, True, False]
    assert (root / "ran").read_text() == "x" * 9
    assert len(answers[-1][1].encode()) <= LARGEST_BYTES
    assert "exit code 0" in answers[-1][1] and not outside.exists()


@pytest.mark.parametrize("text", ["", "é" * 9_000, "line é\n" * 9_000, "\n" * 9_000, "x\n" * 2_400])
@pytest.mark.parametrize("calls", [[], ["explain(dump='d')"] * 9, ["x" * 9_000], ["é" * 240]])
def test_answers_are_bounded_in_bytes(text, calls):
    whole = bounded(text, calls)
    assert len(whole.encode()) <= LARGEST_BYTES
    assert ("(cut:" in whole) == (len(text.strip().encode()) > LARGEST_BYTES - 1_000)
    assert ("Ask next" in whole) == any(len(call) <= 240 for call in calls)


def test_an_absent_extra_is_a_line(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    run(DUMPS).check_refused("pip install 'fusionscope[mcp]'")


@pytest.mark.parametrize("root", ["missing", GPU / "module_0001.jit_program.debug_options"])
def test_a_root_that_is_no_directory_is_refused(run, root):
    run(root).check_refused("expected a directory")


def test_it_starts_without_jax():
    code = (
        "import json, sys, pathlib; from fusionscope.system.roots import Roots;"
        "from fusionscope.agents.server import make_server;"
        "make_server(Roots.read([pathlib.Path('.')]), allows_runs=True);"
        "print(json.dumps([*sys.modules]))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(printed.stdout)}
    assert "mcp" in loaded and not loaded & {"jax", "jaxlib", "numpy"}


def test_roots_that_overlap_and_relative_names():
    roots = Roots.read([DUMPS / "cpu", DUMPS])
    assert roots.find("loop") == DUMPS / "cpu" / "loop"
    assert roots.find("h100/loop") == DUMPS / "h100" / "loop"
    assert roots.find(str(GPU)) == GPU
    assert roots.find_side("loop@final") == f"{DUMPS / 'cpu' / 'loop'}@final"
    assert roots.find_new("new") == Path(DUMPS / "cpu" / "new")


def test_forty_questions_are_answered_and_the_page_says_so():
    """As far as files have the answer, they give the same one."""
    printed = list(agents.findings(Namespace(write=False)))
    assert len(agents.QUESTIONS) == 40
    assert not [finding.line for finding in printed if finding.is_problem]
    kinds = Counter(finding.kind for finding in printed)
    assert kinds["right by tools"] == 40
    assert kinds["right by files"] + kinds["not in the dump's files"] == 40


def test_no_question_has_its_answer_in_the_pattern():
    for question in agents.QUESTIONS:
        patterns = [question.pick, question.find if isinstance(question.find, str) else ""]
        assert not any(question.answer in pattern for pattern in patterns), question.ask


def test_a_wrong_answer_is_a_problem(monkeypatch):
    (question, *_) = agents.QUESTIONS
    monkeypatch.setattr(agents, "QUESTIONS", [replace(question, answer="xla_other true")])
    problems = [f.kind for f in agents.findings(Namespace(write=False)) if f.is_problem]
    assert problems == ["wrong by tools", "wrong by files", "table"]
