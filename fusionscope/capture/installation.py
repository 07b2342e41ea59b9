"""Finds out what a Python has for compiling, by asking it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fusionscope.capture.capture import environment_without_dump, run_process, tell_problem
from fusionscope.capture.targets import read_target
from fusionscope.errors import UnusableInput
from fusionscope.facts.facts import Facts

_CHILD = Path(__file__).with_name("child.py")


class Installation(Facts, frozen=True, kw_only=True):
    """What the Python at ``path`` has.

    ``imports_jax`` is whether jax can be imported, ``devices`` are those that it uses by default:
    the platform and the kind of each. ``problem`` is one line on why jax cannot be imported or
    finds no device, not even a CPU; empty if there is none.

    path: its interpreter
    python: its version
    versions: versions of the installed packages that compiling needs, by name
    """

    internal = ("imports_jax", "devices", "problem")

    path: str
    python: str
    versions: Mapping[str, str]
    imports_jax: bool
    devices: tuple[tuple[str, str], ...]
    problem: str


def find_installation(python: str, limit_s: float) -> Installation:
    """Ask the interpreter ``python``. Raises ``UnusableInput`` without an answer in ``limit_s``."""
    environment = environment_without_dump(read_target("gpu"), ())
    reply, code, errors = run_process(python, _CHILD, {"program": None}, environment, limit_s)
    problem = tell_problem(reply, errors, code)
    if "imports_jax" not in reply:
        raise UnusableInput(
            f"{python} did not answer, expected a Python: {problem}",
            hint="name one with --python",
        )
    return Installation(
        path=python,
        python=reply["python"],
        versions=reply["versions"],
        imports_jax=reply["imports_jax"],
        devices=tuple((platform, kind) for platform, kind in reply.get("devices", ())),
        problem=problem,
    )
