"""Asks the compiler of a dump about cuts of its program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from fusionscope.advise.candidates import DISABLING, EXTRA, flag_candidates
from fusionscope.capture.compiler import CompilerProcess
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.dump.debug_options import FUSION_FLAGS
from fusionscope.experiments.cut import Cut
from fusionscope.experiments.factors import Setting
from fusionscope.experiments.program import Answer, find_answer, program_text
from fusionscope.rerun.programs import disable_flag, find_target, own_flags
from fusionscope.system.cache import Cache
from fusionscope.system.kept import code_digest

# A stage has been simplified already. On CPUs, simplifying its parts again removes copies, and
# constants become parts of others.
DISABLED = {"cpu": ("simplification", "post_scatter_expansion_simplification")}
DUMPING = {"xla_dump_hlo_as_text": "true", "xla_dump_hlo_pass_re": ".*"}
_ANSWERS = {answer.encode(): answer for answer in Answer}
_VERSIONS = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu")


class Compiler:
    """The compiler that ``python`` has, for the target of ``module``. Use it as a context.

    ``settings`` are flags that affect fusion, with other values than the dump has. ``cache`` are
    answers of earlier runs. ``asked`` counts the answers, ``compiled`` those that were
    not kept. Raises ``UnusableInput`` if there is no such compiler, or the dump does not tell its
    target.
    """

    def __init__(
        self, module: DumpedModule, *, python: str, limit_s: float, cache: Cache | None
    ) -> None:
        self._target = find_target(module)
        self._flags = flags_for(module)
        self.settings = tuple(_settings(module))
        self._has_copies = self._target.platform == "cpu"  # plugins take StableHLO, without copies
        self._kept = cache
        self._process = CompilerProcess(
            self._target, flags=self._flags, python=python, limit_s=limit_s
        )
        self._said: dict[str, Answer] = {}
        self.asked = self.compiled = 0

    def __enter__(self) -> Compiler:
        self._process.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.__exit__(*problem)

    @property
    def words(self) -> str:
        """The compiler and its target, for people."""
        versions = self._process.versions
        names = ["libtpu"] if self._target.platform == "tpu" else ["jaxlib"]
        return ", ".join(
            [*(f"{name} {versions[name]}" for name in names if name in versions), self._target.name]
        )

    def write(self, cut: Cut) -> str:
        """Return ``cut`` as the program that is compiled."""
        return program_text(cut, has_copies=self._has_copies)

    def ask(self, cut: Cut) -> Answer:
        """Return the compiler's answer for the pair of ``cut``."""
        text = self.write(cut)
        name = self._name(text, cut)
        self.asked += 1
        if name not in self._said:
            saved_answer = self._kept.read(name) if self._kept is not None else None
            self._said[name] = _ANSWERS.get(saved_answer or b"") or self._compile(text, cut, name)
        return self._said[name]

    def dump(self, cut: Cut, directory: Path) -> DumpedModule | None:
        """Return the dump of ``cut`` in ``directory``; None if the compiler does not accept it."""
        self.compiled += 1
        options = {**DUMPING, "xla_dump_to": str(directory), **dict(cut.flags)}
        if self._process.compile(self.write(cut), options).problem:
            return None
        return open_dump(directory).modules[-1]

    def _read(self, text: str, cut: Cut) -> Answer:
        return find_answer(text, cut, has_copies=self._has_copies)

    def _compile(self, text: str, cut: Cut, name: str) -> Answer:
        self.compiled += 1
        compiled = self._process.compile(text, dict(cut.flags))
        answer = Answer.FAILED if compiled.problem else self._read(compiled.text, cut)
        if self._kept is not None:
            self._kept.write(name, answer.encode())
        return answer

    def _name(self, text: str, cut: Cut) -> str:
        """Return the name of the answer: what decides it, and this code, which reads it."""
        descriptions = {
            instruction.name: f"{instruction.opcode} {instruction.shape}"
            for instruction in cut.module.entry.instructions
        }
        pair = [descriptions[cut.producer], descriptions[cut.consumer]]
        versions = {name: self._process.versions.get(name) for name in _VERSIONS}
        target = [self._target.name, self._target.description, self._target.topology]
        content = json.dumps(
            [code_digest(), versions, target, [*self._flags, *cut.flags], pair, text]
        )
        return f"experiment-{hashlib.sha256(content.encode()).hexdigest()}"


def flags_for(module: DumpedModule) -> tuple[str, ...]:
    """Return the flags with which the programs of experiments are compiled."""
    disabled = DISABLED.get(module.backend or "", ())
    return (*own_flags(module), *disable_flag(module, *disabled))


def _settings(module: DumpedModule) -> Iterator[Setting]:
    """Yield the flags that affect fusion, each with every other value that makes sense."""
    values_of_dump = module.flags.values if module.flags is not None else {}
    defaults = {flag.name: flag.default for flag in FUSION_FLAGS}
    for candidate in flag_candidates(module):
        for name, values in candidate.flags.items():
            if name == EXTRA:
                continue  # one program alone cannot have it
            always = DISABLED.get(module.backend or "", ()) if name == DISABLING else ()
            current = values_of_dump.get(name, defaults.get(name)) or ()
            yield Setting(name, ",".join((*always, *current)), ",".join((*always, *values)))
