"""Checks an installation: tries what commands need, on small programs, as the commands do."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from fusionscope import __version__
from fusionscope.capture.capture import capture
from fusionscope.capture.installation import Installation, find_installation
from fusionscope.capture.targets import Target, read_program, read_target
from fusionscope.dump import DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain.explain import explain_module
from fusionscope.facts.facts import Facts
from fusionscope.findings.advisories.faults import Fault, number_of
from fusionscope.findings.advisories.find import faults_for
from fusionscope.findings.resources.ptxas import assemble, find_ptxas
from fusionscope.progress import Progress, silent
from fusionscope.rerun.plans import own_plan
from fusionscope.rerun.trial import Variant, try_variants
from fusionscope.system.cache import find_cache
from fusionscope.system.files import write_file
from fusionscope.verify.agreement import RulesUsed
from fusionscope.versions.known import COMPILERS

_JAX_PROGRAM = """import jax
from jax import numpy as jnp


def program(x):
    return jnp.exp(-x).sum(axis=1)


program.example_args = (jax.ShapeDtypeStruct((64, 32), "float32"),)
"""
_TORCH_PROGRAM = """import torch

program = torch.nn.Softmax(dim=1)
program.example_args = (torch.ones((64, 32)),)
"""
_PTX = b".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry kernel() { ret; }\n"
# The packages of extras that commands themselves import, by the names of their modules.
_LIBRARIES = {
    "report": ("jinja2", "resvg_py"),
    "survey": ("duckdb", "fsspec", "pyarrow"),
    "dask": ("distributed",),
    "mcp": ("mcp",),
}
_ROCM = "jax-rocm7-plugin jax-rocm7-pjrt"
# What commands do without an extra.
WITHOUT = {
    "report": "report cannot write pages, and explain cannot draw bitmaps",
    "survey": "survey cannot write or read tables",
    "dask": "survey cannot use a cluster",
    "mcp": "mcp cannot answer agents",
    "jax": "capture, rerun, tune, bisect and study cannot compile",
    "cuda": "cannot compile for NVIDIA GPUs",
    "tpu": "cannot compile for TPUs",
    "torch": "capture cannot compile torch modules",
}


class State(StrEnum):
    WORKS = "works"
    LIMITED = "limited"  # commands run, and do less
    ABSENT = "absent"
    BROKEN = "broken"


class Finding(Facts, frozen=True):
    """One thing that commands use.

    name: ``cache``, an extra, ``ptxas``, ``cpu``, ``gpu`` or ``rocm``
    state: ``works``, ``limited`` (commands do less), ``absent`` or ``broken``
    found: what it is, or what is wrong with it
    advice: what to do; null if nothing
    """

    name: str
    state: State
    found: str
    advice: str | None = None


class Diagnosis(
    Facts,
    frozen=True,
    kw_only=True,
    rename={"installation": "compiler"},
    tag_field="schema",
    tag="fusionscope.doctor/1",
):
    """What was found.

    fusionscope: the version of fusionscope
    python: the version of the Python that runs it
    rules: the compilers whose rules fusionscope has, by backend and version of jaxlib, as
        ``--rules`` takes them
    installation: the Python that compiles (``--python``)
    findings: what was tried
    works: whether nothing that is installed is broken; the exit code is 1 if not
    """

    computed = ("works",)

    fusionscope: str
    python: str
    rules: tuple[str, ...]
    installation: Installation
    findings: tuple[Finding, ...]

    @property
    def works(self) -> bool:
        """Whether nothing that is installed is broken."""
        return all(finding.state is not State.BROKEN for finding in self.findings)


def diagnose(
    *, python: str = sys.executable, limit_s: float = 120.0, progress: Progress = silent
) -> Diagnosis:
    """Try this installation, and the compilers of the interpreter ``python``. Each of its processes
    takes at most ``limit_s`` seconds. Raises ``UnusableInput`` if there is no such interpreter.
    """
    progress(f"asking {python}")
    installation = find_installation(python, limit_s)
    compilers = _Compilers(installation, limit_s, progress)
    return Diagnosis(
        fusionscope=__version__,
        python=python_version(),
        rules=tuple(COMPILERS),
        installation=installation,
        findings=(
            _try_cache(),
            *(_try_libraries(extra, modules) for extra, modules in _LIBRARIES.items()),
            _try_ptxas(),
            *compilers.try_all(),
        ),
    )


def _try_cache() -> Finding:
    cache = find_cache("results")
    if cache is None:
        problem = "no home directory: results are not cached"
        return Finding("cache", State.LIMITED, problem, "set XDG_CACHE_HOME to a directory")
    if problem := cache.find_problem():
        advice = "set XDG_CACHE_HOME to a directory that only you can write to"
        return Finding("cache", State.LIMITED, f"results are not cached: {problem}", advice)
    return Finding("cache", State.WORKS, str(cache.root))


def _try_libraries(extra: str, modules: tuple[str, ...]) -> Finding:
    """Import the ``modules`` of an extra."""
    absent = []
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a damaged package raises
            if isinstance(error, ModuleNotFoundError) and error.name == name:
                absent.append(name)
                continue
            problem = f"{name} cannot be imported: {type(error).__name__}: {error}"
            return Finding(extra, State.BROKEN, problem, f"pip install --force-reinstall {name}")
    if absent:
        message = f"not installed ({', '.join(absent)}): {WITHOUT[extra]}"
        return Finding(extra, State.ABSENT, message, f"pip install {_extra(extra)}")
    return Finding(extra, State.WORKS, ", ".join(map(_with_version, modules)))


def _with_version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:  # it was not installed by pip
        return name


def _try_ptxas() -> Finding:
    try:
        ptxas = find_ptxas()
        if ptxas is None:
            message = "not found: explain cannot show resources"
            return Finding("ptxas", State.ABSENT, message, "pip install nvidia-cuda-nvcc")
        kernels, problems = assemble(ptxas, [_PTX])
    except UnusableInput as error:
        return Finding("ptxas", State.BROKEN, str(error), "set PTXAS to another one")
    if not kernels:
        problem = problems[0] if problems else f"{ptxas} does not report the registers of a kernel"
        return Finding("ptxas", State.BROKEN, problem, "set PTXAS to another one")
    return Finding("ptxas", State.WORKS, str(ptxas))


@dataclass(frozen=True, slots=True)
class _Compilers:
    """The compilers of one Python."""

    installation: Installation
    limit_s: float
    progress: Progress

    def try_all(self) -> Iterator[Finding]:
        has = self.installation.versions
        if "jax" not in has:
            yield self._absent("jax")
            return
        if "jaxlib" in has:
            yield self._find_faults(has["jaxlib"])
        versions = ", ".join(f"{name} {release}" for name, release in has.items())
        if not self.installation.imports_jax:
            yield self._broken("jax", _extra("jax"), f"{versions}: {self.installation.problem}")
            return
        yield Finding("jax", State.WORKS, versions)
        yield self._try_device("cpu", "cpu", self._largest())
        yield self._try_gpu()
        yield (
            self._try_device("cuda", "h100", _extra("cuda"))
            if self._has_cuda()
            else self._absent("cuda")
        )
        if any(name.startswith("jax-rocm") for name in has):
            yield self._try_device("rocm", "mi300x", _ROCM)
        yield (
            self._try_device("tpu", "tpu", _extra("tpu"))
            if "libtpu" in has
            else self._absent("tpu")
        )
        is_there = "torch" in has and "torchax" in has
        yield self._try_torch() if is_there else self._absent("torch")

    def _find_faults(self, jaxlib: str) -> Finding:
        all_faults: list[Fault] = [*faults_for("cpu"), *faults_for("gpu")]
        faults = [fault for fault in all_faults if fault.is_in(jaxlib)]
        if not faults:
            words = f"jaxlib {jaxlib} has none of {len(all_faults)} known faults"
            return Finding("faults", State.WORKS, words)
        titles = "; ".join(f"{fault.title} ({fault.thread})" for fault in faults)
        fixed_in = max((fault.fixed_in for fault in faults), key=number_of)
        advice = self._pip(f"'jaxlib>={fixed_in}'")
        return Finding("faults", State.LIMITED, f"jaxlib {jaxlib}: {titles}", advice)

    def _try_gpu(self) -> Finding:
        kinds = [kind for platform, kind in self.installation.devices if platform == "gpu"]
        if problem := self.installation.problem:
            return self._broken("gpu", self._largest(), f"jax cannot list devices: {problem}")
        if not kinds:
            absent = "jax finds no GPU; compiling for one does not need it"
            return Finding("gpu", State.ABSENT, absent)
        finding = self._try_device("gpu", "gpu", self._largest())
        return replace(finding, found=f"{len(kinds)} {kinds[0]}: {finding.found}")

    def _try_device(self, name: str, device: str, packages: str) -> Finding:
        """Compile for a device, run there if it is present, and compile again with a plan.
        ``packages`` are those of its compiler, as pip takes them.
        """
        self.progress(f"trying {name}")
        target = read_target(device)
        with TemporaryDirectory() as scratch:
            try:
                module = self._capture(_JAX_PROGRAM, target, Path(scratch), runs=target.is_here)
                rules = explain_module(module).rules
            except UnusableInput as error:
                return self._broken(name, packages, error.problem)
            achievements = ["compiles and runs" if target.is_here else "compiles"]
            limits: list[str] = []
            if rules is None:
                achievements.append("reasons are inferred")
            else:
                (limits if rules.guessed else achievements).append(_agreement(rules))
                try:
                    self._compile_again(module, Path(scratch) / "again")
                    achievements.append("rerun works")
                except UnusableInput as error:
                    limits.append(f"rerun, tune and bisect do not work: {error.problem}")
        if limits:
            return Finding(
                name, State.LIMITED, "; ".join([*achievements, *limits]), self._pip(packages)
            )
        return Finding(name, State.WORKS, "; ".join(achievements))

    def _try_torch(self) -> Finding:
        self.progress("trying torch")
        with TemporaryDirectory() as scratch:
            try:
                self._capture(_TORCH_PROGRAM, read_target("cpu"), Path(scratch), runs=False)
            except UnusableInput as error:
                return self._broken("torch", _extra("torch"), error.problem)
        return Finding("torch", State.WORKS, "compiles")

    def _capture(
        self, program: str, target: Target, directory: Path, *, runs: bool
    ) -> DumpedModule:
        """Raises ``UnusableInput`` if the compiler does not finish."""
        file = directory / "program.py"
        write_file(file, program)
        captured = capture(
            read_program(f"{file}:program"),
            target,
            directory / "dump",
            python=self.installation.path,
            limit_s=self.limit_s,
            runs=runs,
        )
        if captured.problem:
            raise UnusableInput(captured.problem)
        return open_dump(captured.directory).modules[0]

    def _compile_again(self, module: DumpedModule, directory: Path) -> None:
        """Give the compiler its own plan. Raises ``UnusableInput`` if it does not take it."""
        (attempt,) = try_variants(
            module,
            [Variant("replay", own_plan(module))],
            directory,
            baseline=None,
            runs=False,
            python=self.installation.path,
            limit_s=self.limit_s,
        ).variants
        if not attempt.holds:
            problem = attempt.rerun.problem or "the compiler makes other kernels of its own plan"
            raise UnusableInput(problem)

    def _absent(self, extra: str) -> Finding:
        message = f"not installed: {WITHOUT[extra]}"
        return Finding(extra, State.ABSENT, message, self._pip(_extra(extra)))

    def _broken(self, name: str, packages: str, problem: str) -> Finding:
        if "XLA_FLAGS" in problem:
            return Finding(name, State.BROKEN, problem, "correct XLA_FLAGS, or unset it")
        return Finding(name, State.BROKEN, problem, self._pip(f"--force-reinstall {packages}"))

    def _has_cuda(self) -> bool:
        return any(package.startswith("jax-cuda") for package in self.installation.versions)

    def _largest(self) -> str:
        """Return the extra with jax and its plugin: a damaged plugin keeps CPUs from working."""
        return _extra("cuda" if self._has_cuda() else "jax")

    def _pip(self, packages: str) -> str:
        """Return the command that installs them for the Python that compiles."""
        is_own = self.installation.path == sys.executable
        return f"{'' if is_own else f'{self.installation.path} -m '}pip install {packages}"


def _extra(name: str) -> str:
    return f"'fusionscope[{name}]'"


def _agreement(rules: RulesUsed) -> str:
    """Return which version made the dump, and whether a replay of its rules agrees."""
    if not rules.guessed:
        return f"rules for {rules.version} agree with the dump"
    if not rules.are_checked:
        return f"no checked rules for {rules.version}: reasons are guesses, by {rules.name}"
    return f"rules for {rules.version} do not agree with the dump: reasons are guesses"
