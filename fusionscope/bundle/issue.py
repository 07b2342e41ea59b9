"""The text of a report to the developers of XLA, and the commands that repeat what it is about."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fusionscope import __version__
from fusionscope.explain import sheets
from fusionscope.words.markdown import to_markdown

if TYPE_CHECKING:
    from fusionscope.explain import Explanation

_ISSUE = """# TITLE: what is wrong, in a line

## Description

WRITE HERE what you saw, and why it is a fault.

## Expected

WRITE HERE what the compiler should have done.

## Actual

{actual}

## How to reproduce

Unpack the attached archive. `before.hlo` is the program before optimizations, `after.hlo` what the
compiler made of it; `sh reproduce.sh` compiles it again, with `pip install fusionscope` and jax. No
accelerator is needed. `dump/` has the stages, the compiler's record of its decisions, the flags and
the device; `report.html` shows them in a browser. Names that are not the compiler's, metadata,
paths, and constants were left out or replaced.

## Versions and hardware

- compiler: {compiler}
- device: {device}
- flags: {flags}
- read by fusionscope {version}
"""
_SCRIPT = """#!/bin/sh
# Compiles the program again with the same flags, and shows what differs from the dump.
set -eu
cd "$(dirname "$0")"
{capture}
fusionscope diff dump reproduced
"""


def issue_text(explanation: Explanation) -> str:
    """Return the text about the first module of an explanation."""
    (module, *_) = explanation.modules
    return _ISSUE.format(
        actual="\n".join(to_markdown(sheets.overview(explanation))).strip(),
        compiler=module.rules.version if module.rules is not None else "unknown: please name it",
        device=module.device or module.backend or "unknown",
        flags=" ".join(module.flags) or "the defaults",
        version=__version__,
    )


def reproducer(flags: str, target: str) -> str:
    """Return a script for a program with ``flags``, as the compiler dumps them. ``target`` is the
    device, as capture names it, empty for a CPU.
    """
    words = ["fusionscope", "capture", "before.hlo", "--output", "reproduced", "--no-explain"]
    if target:
        words += ["--device", target]
    for line in flags.splitlines():
        name, _, value = line.partition(": ")
        if not name.startswith("xla_dump"):
            words += ["--flag", f"{name}={value.strip(chr(34))}"]
    return _SCRIPT.format(capture=shlex.join(words))
