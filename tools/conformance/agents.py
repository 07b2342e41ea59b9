"""Forty questions about sample dumps, answered through `fusionscope mcp` and by reading files.

Each question has one known answer, which does not come from fusionscope: a flag, a record or a
stage in the dump, another dump that the compiler made, or a compilation. A client without a
language model calls the tools that the question names, over standard input and output, and picks
the answer by a pattern. The same is done with nothing but files of the dump, as far as they have
the answer. Prints how many answers are right, and the bytes that were read for them.
"""

from __future__ import annotations

import gzip
import os
import re
import sqlite3
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from zipfile import ZipFile

import anyio
from mcp import Client, StdioServerParameters, stdio_client

from conformance.findings import ROOT, Finding, counted, note, problem

HEAD = """| question | answer | how it is known | tools, bytes | files, bytes |
|---|---|---|--:|--:|"""
NOT_THERE = "–"  # noqa: RUF001
DUMPS = ROOT / "samples" / "dumps"
PAGE = ROOT / "docs" / "agents.md"
MARK = "<!-- python -m conformance agents --write -->"
Call = tuple[str, Mapping[str, Any]]
Texts = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``pick`` is a pattern in the answers of ``calls``, ``find`` one in the texts of ``files``
    (globs below the samples, one file each), or a function of these. The answer is what the groups
    of all matches have, each once. Without ``files``, no file of the dump has it; ``how`` says from
    where it is known.
    """

    ask: str
    answer: str
    how: str
    calls: Sequence[Call]
    pick: str
    files: Sequence[str] = ()
    find: str | Callable[[Texts], str] = ""


def ask(
    roots: Iterable[Path], calls: Iterable[Call], *options: str
) -> tuple[dict[str, str], list[tuple[bool, str]]]:
    """The tools, described as JSON; and for each call whether it was refused, and its answer."""

    async def talk() -> tuple[dict[str, str], list[tuple[bool, str]]]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "fusionscope", "mcp", *options, *map(str, roots)],
            cwd=ROOT,
            env=dict(os.environ),
        )
        async with Client(stdio_client(server)) as client:
            listing = (await client.list_tools()).tools
            tools = {tool.name: tool.model_dump_json(exclude_none=True) for tool in listing}
            answers = [await client.call_tool(name, dict(arguments)) for name, arguments in calls]
        return tools, [(bool(answer.is_error), answer.content[0].text) for answer in answers]

    return anyio.run(talk)


def picked(pattern: str, text: str) -> str:
    matches = re.finditer(pattern, text, re.MULTILINE)
    return " ".join(dict.fromkeys(group for match in matches for group in match.groups() if group))


def read(pattern: str) -> tuple[str, int]:
    """The text of the one file that matches, and the bytes that have to be read for it. Of a record
    in a zip, these are the labels, line by line, and those of the data base.
    """
    (file,) = DUMPS.glob(pattern)
    content = file.read_bytes()
    if file.suffix == ".gz":
        content = gzip.decompress(content)
    if file.suffix == ".pyz":
        with NamedTemporaryFile() as copy, ZipFile(BytesIO(content)) as archive:
            content = archive.read("fusions.db")
            Path(copy.name).write_bytes(content)
            with sqlite3.connect(copy.name) as base:
                labels = (label for (label,) in base.execute("SELECT label FROM frames"))
                return "\n".join(labels), len(content)
    return content.decode(), len(content)


def count(pattern: str) -> Callable[[Texts], str]:
    """The number of matches in each text."""
    return lambda texts: " ".join(str(len(re.findall(pattern, t, re.MULTILINE))) for t in texts)


LAUNCHES = count(r"^ *\d+: k")


def only_in_second(texts: Texts) -> str:
    first, second = (set(text.splitlines()) for text in texts)
    return " ".join(re.findall(r"[\w-]{2,}", " ".join(sorted(second - first))))


def slower(texts: Texts) -> dict[str, float]:
    """The producers that fusing would have made slower in the end, and by how many microseconds. A
    fusion is called by the consumer that it began with."""
    consumers: dict[str, str] = {}
    last: dict[str, float] = {}
    for step in texts[0].split("fusion_steps {")[1:]:
        names = dict(re.findall(r'(\w+_name): "([^"]+)"', step))
        producer = consumers.get(names["producer_name"], names["producer_name"])
        if "update_priority" in step:
            us = dict(re.findall(r"(us_\w+): (\S+)", step))
            last[producer] = float(us.get("us_fused", 0)) - float(us.get("us_unfused", 0))
        else:
            last.pop(producer, None)  # it is fused, or nothing fuses it
        if "fusion_name" in names:
            consumer = consumers.get(names["consumer_name"], names["consumer_name"])
            consumers[names["fusion_name"]] = consumer
    return {name: us for name, us in last.items() if us > 0}


def lines_of_kernels(texts: Texts) -> dict[str, str]:
    """The line of each launched fusion, by the table of frames."""
    text = texts[0]
    locations = dict(re.findall(r"^(\d+) \{file_name_id=\d+ .*? line=(\d+) ", text, re.MULTILINE))
    frames = dict(re.findall(r"^(\d+) \{file_location_id=(\d+)", text, re.MULTILINE))
    entry = text[text.index("\nENTRY") :]
    ids = re.findall(r"%(\S+) = .* fusion\(.* stack_frame_id=(\d+)", entry)
    return {kernel: locations[frames[number]] for kernel, number in ids}


def loop_bound(final: str) -> int:
    return max(map(int, re.findall(r"s32\[\] constant\((\d+)\)", final)))


def launches_of_loop(texts: Texts) -> str:
    thunks, final = texts
    before, _, loop = thunks.partition("condition:")
    condition, _, body = loop.partition("body:")
    steps = loop_bound(final)
    ahead, tests, work = (
        len(re.findall(r"\d+: k(?!While)", part)) for part in (before, condition, body)
    )
    return str(ahead + tests * (steps + 1) + work * steps)


def kernel_with(opcode: str) -> Callable[[Texts], str]:
    """The launched fusion whose computation has this operation."""

    def find(texts: Texts) -> str:
        bodies = re.findall(r"^%(\S+) .*?\{\n(.*?)^\}", texts[0], re.MULTILINE | re.DOTALL)
        (name,) = {name for name, body in bodies if f" {opcode}(" in body}
        return picked(rf"%(\S+) = .* fusion\(.*calls=%{re.escape(name)}\b", texts[0])

    return find


def longest_pass(texts: Texts) -> str:
    spans: Counter[str] = Counter()
    for text in texts[0].split("pass_metadata {")[1:]:
        name, begin, end = (
            re.search(rf'{field}: "?([^"\n]+)', text)
            for field in ("pass_name", "start_timestamp_usec", "end_timestamp_usec")
        )
        if name and begin and end:
            spans[name[1]] += int(end[1]) - int(begin[1])
    ((longest, _),) = spans.most_common(1)
    return longest


def total_bytes(texts: Texts) -> str:
    number = int(re.findall(r"Total bytes: (\d+)", texts[0])[0])
    return f"{number / 1e6:.3g} MB" if number >= 1e6 else f"{number / 1e3:.3g} kB"


def tool(name: str, dump: str, /, **arguments: Any) -> Call:
    return name, {"dump": dump, **arguments}


LAUNCHES_SHOWN = r"^\|  \| (?:about|at least|at most) [^|]+\| ([\d,]+) launch"
JOINED = "h100/concatenate"
TRIED = r"right after fusion: .*launches (\d+) → (\d+)"
THUNKS = "*.thunk_sequence.txt"
FLAGS = "*.debug_options"
RECORD = "*.priority_fusion_dump.txt*"
FINAL = "*gpu_after_optimizations.txt*"
DEVICE = "*.gpu_target_config.pbtxt"
USAGE = "*memory-usage-report.txt"
IN_FLAGS = "the file of flags"
IN_RECORD = "the record of priority fusion: the last times of producers that were not fused"
IN_THUNKS = "the list of thunks, which is what the runtime launches"
OTHER_DUMP = "the list of thunks of the same program, compiled for that GPU"
DISABLED = r"xla_disable_hlo_passes=([\w-]+)"


def disabled(dump: str, answer: str) -> Question:
    return Question(
        ask=f"Which pass was disabled for {dump}?",
        answer=answer,
        how=IN_FLAGS,
        calls=[("open", {"dump": dump})],
        pick=DISABLED,
        files=[f"{dump}/{FLAGS}"],
        find=r'xla_disable_hlo_passes: "([^"]+)"',
    )


def launched(dump: str, answer: str) -> Question:
    return Question(
        ask=f"How many launches has a run of {dump}?",
        answer=answer,
        how=IN_THUNKS,
        calls=[("explain", {"dump": dump})],
        pick=LAUNCHES_SHOWN,
        files=[f"{dump}/{THUNKS}"],
        find=LAUNCHES,
    )


def changed_launches(before: str, after: str, answer: str) -> Question:
    return Question(
        ask=f"How many launches has {before}, and how many {after}?",
        answer=answer,
        how=IN_THUNKS,
        calls=[("diff", {"before": before, "after": after})],
        pick=r"^- launches (\d+) → (\d+)",
        files=[f"{before}/{THUNKS}", f"{after}/{THUNKS}"],
        find=LAUNCHES,
    )


def on_another_gpu(device: str, answer: str) -> Question:
    return Question(
        ask=f"How many launches would {JOINED} have on {device}?",
        answer=answer,
        how=OTHER_DUMP,
        calls=[tool("what_if", JOINED, device=device)],
        pick=TRIED,
    )


def peak(dump: str, answer: str) -> Question:
    return Question(
        ask=f"How much memory does {dump} take?",
        answer=answer,
        how="the compiler's report of memory",
        calls=[("explain", {"dump": dump})],
        pick=r"^\*\*Memory\*\*: ([\d.]+ [kM]B)",
        files=[f"{dump}/{USAGE}"],
        find=total_bytes,
    )


QUESTIONS = (
    Question(
        ask="Which flag about Triton is not at its default?",
        answer="xla_gpu_enable_triton_gemm false",
        how=IN_FLAGS,
        calls=[tool("open", "h100-without-triton-gemm/projections")],
        pick=r"(xla_\w*triton\w*)=(\w+)",
        files=[f"h100-without-triton-gemm/projections/{FLAGS}"],
        find=r"(xla_\w*triton\w*): (\w+)",
    ),
    disabled("h100-without-triton-softmax/softmax", "triton-softmax-rewriter"),
    disabled("h100-without-multi-output-fusion/reductions", "multi_output_fusion"),
    Question(
        ask="Which option was given to the CPU backend?",
        answer="xla_cpu_use_multi_output_fusion",
        how=IN_FLAGS,
        calls=[tool("open", "cpu-multi-output/cartpole")],
        pick=r"xla_backend_extra_options=(\w+)",
        files=[f"cpu-multi-output/cartpole/{FLAGS}"],
        find=r'key: "(\w+)"',
    ),
    Question(
        ask="Which kinds of operations may the library compute?",
        answer="DOT ELTWISE REDUCE",
        how=IN_FLAGS,
        calls=[tool("open", "cpu-elementwise-library/attention")],
        pick=r"LIBRARY_FUSION_TYPE_(\w+)",
        files=[f"cpu-elementwise-library/attention/{FLAGS}"],
        find=r"LIBRARY_FUSION_TYPE_(\w+)",
    ),
    Question(
        ask="Which flag differs between the two dumps of softmax?",
        answer="xla_disable_hlo_passes triton-softmax-rewriter",
        how="the two files of flags",
        calls=[
            ("diff", {"before": "h100/softmax", "after": "h100-without-triton-softmax/softmax"})
        ],
        pick=r"flag (\w+) not set → ([\w-]+)",
        files=[f"h100/softmax/{FLAGS}", f"h100-without-triton-softmax/softmax/{FLAGS}"],
        find=only_in_second,
    ),
    changed_launches("h100/softmax", "h100-without-triton-softmax/softmax", "1 3"),
    changed_launches("h100/reductions", "h100-without-multi-output-fusion/reductions", "3 7"),
    changed_launches("a100/dense", "b200/dense", "1 2"),
    changed_launches(JOINED, "rtx6000pro/concatenate", "5 4"),
    Question(
        ask="Which pass, that made a difference, worked on one of the two dumps of softmax only?",
        answer="triton-softmax-rewriter",
        how="it is the pass that the flags of the second disable",
        calls=[
            ("diff", {"before": "h100/softmax", "after": "h100-without-triton-softmax/softmax"})
        ],
        pick=r"the same up to .*; then ([\w-]+) in",
        files=[f"h100-without-triton-softmax/softmax/{FLAGS}"],
        find=r'xla_disable_hlo_passes: "([^"]+)"',
    ),
    launched(JOINED, "5"),
    launched("h100/libraries", "7"),
    launched("mi300x/concatenate", "6"),
    Question(
        ask="Which operations of h100/libraries do libraries of CUDA compute?",
        answer="fft.0.0 cholesky.0",
        how="the Fourier transform and the call of cusolver in the final stage",
        calls=[tool("finding", "h100/libraries", name="libraries")],
        pick=r"^\| \d+\. \| `(\S+)` .* cu(?:FFT|SOLVER):",
        files=[f"h100/libraries/{FINAL}"],
        find=r'%(\S+) = \S+ fft\(|%(\S+) = .*custom_call_target="cusolver',
    ),
    Question(
        ask="How many launches of the projections are calls of cuBLASLt?",
        answer="5",
        how=IN_THUNKS,
        calls=[tool("finding", "h100-without-triton-gemm/projections", name="libraries")],
        pick=r"^\| (\d+)\. \|.*cuBLASLt(?![\s\S]*^\| \d+\. \|)",
        files=[f"h100-without-triton-gemm/projections/{THUNKS}"],
        find=count(r"^\d+: kCublasLtMatmul"),
    ),
    Question(
        ask="Which kernel runs before the convolution of h100/convolution?",
        answer="wrapped_transpose",
        how=IN_THUNKS,
        calls=[tool("finding", "h100/convolution", name="kernels")],
        pick=r"^\| (wrapped_\w+) \|",
        files=[f"h100/convolution/{THUNKS}"],
        find=r"^001: \S+ +\[[^\]]*\] (\w+)",
    ),
    Question(
        ask="Which kernels compute the two products of h100/attention?",
        answer="gemm_fusion_dot_general.2 gemm_fusion_dot_general.3",
        how="fusions of kind __triton_nested_gemm_fusion in the final stage",
        calls=[tool("finding", "h100/attention", name="kernels")],
        pick=r"^\| (\S+) \|.*\| __triton_nested_gemm_fusion \|",
        files=[f"h100/attention/{FINAL}"],
        find=r"%(\S+) = .* fusion\(.*\"__triton_nested_gemm_fusion\"",
    ),
    Question(
        ask=f"In which kernel of {JOINED} is tanh computed?",
        answer="wrapped_tanh",
        how="the computation with a tanh in the final stage, and the fusion that calls it",
        calls=[tool("history", JOINED, name="tanh.1")],
        pick=r"ends in (\w+)",
        files=[f"{JOINED}/{FINAL}"],
        find=kernel_with("tanh"),
    ),
    Question(
        ask="How many steps does the loop of h100/loop take at most?",
        answer="100",
        how="the program: while step < 100",
        calls=[tool("explain", "h100/loop")],
        pick=r"at most (\d+) steps",
        files=[f"h100/loop/{FINAL}"],
        find=lambda texts: str(loop_bound(texts[0])),
    ),
    Question(
        ask=f"Which producers of {JOINED} did the cost model keep apart?",
        answer="tanh.1.0 mul.3.0",
        how=IN_RECORD,
        calls=[tool("pairs", JOINED, reason="pf-negative")],
        pick=r"^\| \d+\. \| `(\S+)` ->",
        files=[f"{JOINED}/{RECORD}"],
        find=lambda texts: " ".join(sorted(slower(texts), key=slower(texts).get, reverse=True)),
    ),
    Question(
        ask="By how many microseconds would fusing tanh be slower?",
        answer="19.95",
        how=IN_RECORD,
        calls=[tool("pairs", JOINED, pair="tanh* -> *")],
        pick=r"Negative benefit \(-(\d+\.\d\d)",
        files=[f"{JOINED}/{RECORD}"],
        find=lambda texts: f"{slower(texts)['tanh.1.0']:.2f}",
    ),
    Question(
        ask=f"Which refused pair of {JOINED} would lose most time if it were fused?",
        answer="tanh.1.0",
        how=IN_RECORD,
        calls=[tool("explain", JOINED)],
        pick=r"^\| [\d.]+ MB \| (\S+) -> .*; \d\d µs slower",
        files=[f"{JOINED}/{RECORD}"],
        find=lambda texts: max(slower(texts), key=slower(texts).__getitem__),
    ),
    Question(
        ask="Which producer of h100/cartpole did the cost model keep apart?",
        answer="stack.9.0",
        how=IN_RECORD,
        calls=[tool("pairs", "h100/cartpole", reason="pf-negative")],
        pick=r"^\| \d+\. \| `(\S+)` ->",
        files=[f"h100/cartpole/{RECORD}"],
        find=lambda texts: " ".join(slower(texts)),
    ),
    Question(
        ask="What does the CPU compiler say against fusing the concatenation into exp?",
        answer="Concatenate fusion is inefficient",
        how="the compiler's record of decisions",
        calls=[tool("pairs", "cpu/concatenate", pair="concatenate* -> exp*")],
        pick=r"compiler: ([^.]+)\.",
        files=["cpu/concatenate/*.pyz"],
        find=r"^Not fusing \|concatenate\.1\| into \|exp\.1\| as ([^.]+)\.",
    ),
    Question(
        ask="In which file of XLA does the cost model refuse a fusion?",
        answer="priority_fusion.cc",
        how="XLA's sources: the message Negative benefit is written there",
        calls=[("rule", {"id": "pf-negative"})],
        pick=r"/(\w+\.cc)",
    ),
    Question(
        ask=f"Which line of {JOINED} has most launches?",
        answer="10",
        how="the frames of fusions in the final stage",
        calls=[tool("by", JOINED, by="file", sort="launches")],
        pick=r"\.py \|.*\n\| (?:&nbsp;)*(\d+) ",
        files=[f"{JOINED}/{FINAL}"],
        find=lambda texts: Counter(lines_of_kernels(texts).values()).most_common(1)[0][0],
    ),
    Question(
        ask="From which line does loop_multiply_fusion come?",
        answer="9",
        how="its frame in the final stage, and the program: middle * 2.0",
        calls=[tool("kernel", JOINED, kernel="loop_multiply_fusion")],
        pick=r"^- at \S+\.py:(\d+)$",
        files=[f"{JOINED}/{FINAL}"],
        find=lambda texts: lines_of_kernels(texts)["loop_multiply_fusion"],
    ),
    Question(
        ask="How many launches has a run of h100/loop at most?",
        answer="404",
        how="thunks before the loop, in its condition (once more than the steps) and in its body",
        calls=[tool("explain", "h100/loop")],
        pick=LAUNCHES_SHOWN,
        files=[f"h100/loop/{THUNKS}", f"h100/loop/{FINAL}"],
        find=launches_of_loop,
    ),
    Question(
        ask=f"Which flag brings {JOINED} from 5 launches to 3?",
        answer="xla_gpu_experimental_enable_triton_heroless_priority_fusion",
        how="compiled with it, the module has 3",
        calls=[tool("explain", JOINED)],
        pick=r"--flag (\w+)=true`<br>time .*launches 5 → 3",
    ),
    Question(
        ask=f"How many launches would {JOINED} have if mul.3.0 were fused?",
        answer="5 4",
        how="compiled with that plan, the module has 4",
        calls=[tool("what_if", JOINED, allow=["mul.3.0 -> concatenate.1.0"])],
        pick=r"^- final module: .*launches (\d+) → (\d+)",
    ),
    on_another_gpu("rtx6000pro", "5 4"),
    on_another_gpu("mi300x", "5 6"),
    on_another_gpu("h200", "5"),
    peak(JOINED, "4.33 MB"),
    peak("cpu/loop", "49.3 kB"),
    Question(
        ask="Which pass took longest for h100/attention?",
        answer="config-assigner",
        how="the begins and ends of passes in the compiler's metadata",
        calls=[tool("finding", "h100/attention", name="compile_time")],
        pick=r"^\| \d+% \| [^|]+ \| ([\w-]+) \|(?=[\s\S]*\n\| 7%)",
        files=["h100/attention/*metadata.textproto*"],
        find=longest_pass,
    ),
    Question(
        ask="How many cores has the GPU of rtx6000pro/concatenate?",
        answer="188",
        how="the description of the GPU",
        calls=[tool("explain", "rtx6000pro/concatenate")],
        pick=r"^## .*, (\d+) cores",
        files=[f"rtx6000pro/concatenate/{DEVICE}"],
        find=r"core_count: (\d+)",
    ),
    Question(
        ask="For which TPU was tpu-v5e/attention compiled?",
        answer="v5e",
        how="the target that the dump was made for",
        calls=[tool("explain", "tpu-v5e/attention")],
        pick=r"^## \S+ on TPU (\w+)",
    ),
    Question(
        ask="Which jaxlib compiled h100-jaxlib-0.11/dense?",
        answer="0.11",
        how="the environment that the dump was made in",
        calls=[tool("explain", "h100-jaxlib-0.11/dense")],
        pick=r"^## .*jaxlib (\d+\.\d+)",
    ),
)


@dataclass(frozen=True, slots=True)
class Graded:
    """What came of a question: both answers with the bytes that were read for them. ``by_files`` is
    None if no file of the dump has it."""

    question: Question
    by_tools: str
    tool_bytes: int
    by_files: str | None
    file_bytes: int

    @property
    def files_in_words(self) -> str:
        return NOT_THERE if self.by_files is None else f"{self.file_bytes:,}"


def graded() -> tuple[list[Graded], int]:
    """All questions, and the bytes in which the tools describe themselves."""
    calls = [call for question in QUESTIONS for call in question.calls]
    tools, answers = ask([DUMPS], calls)
    remaining = iter(answers)
    results = []
    for question in QUESTIONS:
        text = "\n".join(next(remaining)[1] for _ in question.calls)
        contents = [read(file) for file in question.files]
        texts = [content for content, _ in contents]
        by_files = None
        if texts:
            find = question.find
            by_files = find(texts) if callable(find) else picked(find, "\n".join(texts))
        results.append(
            Graded(
                question,
                picked(question.pick, text),
                len(text.encode()),
                by_files,
                sum(size for _, size in contents),
            )
        )
    return results, sum(len(text.encode()) for text in tools.values())


def table(results: Sequence[Graded]) -> str:
    """The table of docs/agents.md."""
    rows = [
        f"| {grade.question.ask} | `{grade.question.answer}` | {grade.question.how} "
        f"| {grade.tool_bytes:,} | {grade.files_in_words} |"
        for grade in results
    ]
    right = sum(grade.by_tools == grade.question.answer for grade in results)
    by_files = [grade for grade in results if grade.by_files is not None]
    right_by_files = sum(grade.by_files == grade.question.answer for grade in by_files)
    rows.append(
        f"| **{len(results)} questions** | | | **{right} right, "
        f"{sum(grade.tool_bytes for grade in results):,}** | **{right_by_files} right, "
        f"{sum(grade.file_bytes for grade in by_files):,}** |"
    )
    return "\n".join([HEAD, *rows])


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="write the table of docs/agents.md")


def findings(options: Namespace) -> Iterator[Finding]:
    results, described = graded()
    for grade in results:
        question = grade.question
        for way, answer in (("tools", grade.by_tools), ("files", grade.by_files)):
            if answer is None:
                yield counted("not in the dump's files", question.ask)
            elif answer == question.answer:
                yield counted(f"right by {way}", f"{question.ask} {answer}")
            else:
                line = f"{question.ask} {answer!r} by {way}, but it is {question.answer!r}"
                yield problem(f"wrong by {way}", line)
    yield note(f"{described:,} bytes describe the tools, once for each agent")
    text = PAGE.read_text()
    before, mark, after = text.partition(MARK)
    end = after.index("\n\n", 2)
    if options.write:
        PAGE.write_text(f"{before}{mark}\n\n{table(results)}{after[end:]}")
    elif shape(after[:end]) != shape(table(results)):
        yield problem("table", f"{PAGE.relative_to(ROOT)} has other answers: agents --write")


def shape(text: str) -> str:
    """A table without its figures: paths in some answers are longer elsewhere."""
    return re.sub(r"[\d,]+(?=\*{0,2} \|)", "", text.strip())
