"""Collects the names of all passes and flags of the known versions, for fusionscope/versions.

XLA is a git repository of XLA of about the newest version; its classes say what they are
called. DIR of `--dumps` holds dumps of all versions (CPU and GPU, with config.pbtxt), that of
`--logs` what compilers print with TF_CPP_VMODULE=hlo_pass_pipeline=2, TF_CPP_MAX_LOG_LEVEL=0 and
TF_CPP_MIN_LOG_LEVEL=0: each pass that ran, whether it changed anything or not.
"""

import json
import re
import subprocess
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from conformance.findings import Finding, note
from fusionscope.dump.debug_options import read_debug_options
from fusionscope.dump.names import Role, read_name
from fusionscope.versions.recognition import without_number

FILES = ("xla/backends/*", "xla/hlo/*", "xla/service/*", ":!*test*", ":!*mock*", ":!*/tools/*")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*_?")
CONSTANT = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)+")
BETWEEN = {"", "pipeline-start", "pipeline-end"}


def grep(source: Path, *arguments: str) -> str:
    process = subprocess.run(
        ["git", "--no-pager", "grep", "-h", *arguments], cwd=source, capture_output=True, text=True
    )
    return process.stdout


def names_in_source(source: Path, branch: str) -> set[str]:
    """What methods called `name` return, and the constants that such may return."""
    files = (branch, "--", *FILES)
    methods = grep(source, "-A2", "name() const override", *files)
    constants = grep(source, "-E", "constexpr.*k[A-Za-z]*Name", *files)
    return {name for name in re.findall(r'"([^"\s]+)"', methods) if NAME.fullmatch(name)} | {
        name for name in re.findall(r'"([^"\s]+)"', constants) if CONSTANT.fullmatch(name)
    }


def flags_in_source(source: Path, branch: str) -> set[str]:
    return set(
        re.findall(r"\b(xla_\w+) = \d+", grep(source, "xla_", branch, "--", "xla/xla.proto"))
    )


def names_in_logs(folder: Path) -> set[str]:
    names: set[str] = set()
    for log in folder.rglob("*"):
        if log.is_file():
            names.update(
                re.findall(
                    r"(?:HLO )?pass ([^ \n]+)$", log.read_text(errors="replace"), re.MULTILINE
                )
            )
    return names


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--branch", default="main")
    parser.add_argument("--dumps", type=Path, nargs="+", required=True)
    parser.add_argument("--logs", type=Path, required=True)


def findings(options: Namespace) -> Iterator[Finding]:
    passes = names_in_source(options.source, options.branch) | names_in_logs(options.logs)
    flags = flags_in_source(options.source, options.branch)
    for file in (path for folder in options.dumps for path in folder.rglob("module_*")):
        name = read_name(file.name.removesuffix(".gz"))
        if name is not None and name.counter is not None and "tpu" not in str(file):
            passes |= {name.after, name.before}
        if name is not None and name.role is Role.CONFIG:
            flags.update(read_debug_options(file.read_bytes(), str(file)).values)
    pass_names = set(map(without_number, passes)) - BETWEEN
    yield note(json.dumps({"flags": sorted(flags), "passes": sorted(pass_names)}, indent=1))
