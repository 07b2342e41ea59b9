"""Environments with one release of jaxlib each, and the list of releases."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from fusionscope.capture.targets import Target
from fusionscope.errors import UnusableInput, quoted
from fusionscope.system.cache import cache_directory
from fusionscope.system.processes import run_for_output

_RELEASE = re.compile(r"\d+(\.\d+)+")
_LIMIT_S = 900.0
_CUDA_13 = (0, 11)  # the first release whose plugin is tested with these libraries
_ANY_NVCC = (0, 4, 36)  # earlier releases import it, which its later versions do not allow
_NUMPY = (0, 10)  # earlier releases came before numpy 2.4
_READY = "ready"  # a file that the last step leaves


def is_release(words: str) -> bool:
    return _RELEASE.fullmatch(words) is not None


def release_number(release: str) -> tuple[int, ...]:
    """Return what releases are ordered by."""
    return tuple(map(int, re.findall(r"\d+", release)))


def find_python(words: str, target: Target) -> str:
    """Return the interpreter that ``words`` name: a path, or a release such as ``0.10.1``, for
    which an environment is made once, beside the cache.

    Raises ``UnusableInput`` if there is none.
    """
    if not is_release(words):
        if shutil.which(words) is None:
            raise UnusableInput(
                f"{quoted(words)} is neither a Python nor a release such as 0.10.1 of jaxlib"
            )
        return words
    cache = cache_directory()
    if cache is None:
        raise UnusableInput("no place for an environment: this user has no home directory")
    folder = cache.with_name("fusionscope-environments") / f"{words}-{target.platform}"
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (folder / _READY).exists():
        packages = _packages(words, target.platform)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _make(folder, python, packages)
        except UnusableInput:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / _READY).touch()
    return str(python)


def _packages(release: str, platform: str) -> list[str]:
    number = release_number(release)
    packages = [f"jaxlib=={release}", f"jax<={release}"]
    if number < _NUMPY:
        packages.append("numpy<2.4")
    if platform in ("cuda", "gpu"):
        cuda = "cuda12" if number < _CUDA_13 else "cuda13"
        packages += (f"jax-{cuda}-{part}=={release}" for part in ("plugin", "pjrt"))
        if cuda == "cuda13":
            packages += ["nvidia-cuda-nvcc", "nvidia-nvvm"]
        else:
            packages.append(f"nvidia-cuda-nvcc-cu12{'' if number >= _ANY_NVCC else '<12.9'}")
    elif platform == "tpu":
        packages[1] = f"jax[tpu]<={release}"
    elif platform != "cpu":
        raise UnusableInput(f"no packages are known for {platform}: name the two Pythons by path")
    return packages


def _make(folder: Path, python: Path, packages: list[str]) -> None:
    if uv := shutil.which("uv"):
        _run([uv, "venv", "-q", "--seed", "--python", sys.executable, str(folder)], "a venv")
        _run([uv, "pip", "install", "-q", "--python", str(python), *packages], packages[0])
    else:
        _run([sys.executable, "-m", "venv", str(folder)], "a venv")
        _run([str(python), "-m", "pip", "install", *packages], packages[0])


def releases_between(first: str, last: str, pythons: Iterable[str]) -> list[str]:
    """Return the releases of jaxlib after ``first`` and before ``last``, in their order, as the
    pips of ``pythons`` find them: each finds those for its own version. Raises ``UnusableInput`` if
    one cannot.
    """
    releases: list[str] = []
    for python in pythons:
        output = _run([python, "-m", "pip", "index", "versions", "jaxlib"], "the list of releases")
        if listed := re.search(r"^Available versions: (.*)$", output, re.MULTILINE):
            releases += listed[1].split(", ")
    ends = release_number(first), release_number(last)
    between = {
        release
        for release in releases
        if is_release(release) and min(ends) < release_number(release) < max(ends)
    }
    return sorted(between, key=release_number, reverse=ends[0] > ends[1])


def _run(command: list[str], what: str) -> str:
    ended, output = run_for_output(command, None, _LIMIT_S)
    if ended.is_late:
        raise UnusableInput(f"{what} was not there after {_LIMIT_S:g} s")
    if ended.code:
        problem = " ".join(re.findall(r"[\w'].*", ended.errors))[-300:]
        raise UnusableInput(
            f"{what} cannot be had: {problem or 'no more is known'}",
            hint="name a Python that has it by path",
        )
    return output
