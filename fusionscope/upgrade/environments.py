"""Environments with one release of jaxlib each, and the list of releases."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import (
    PackageNotFoundError,
    distribution,
    packages_distributions,
    version,
)
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
_PYTHON = "3.12"  # every release that is read has a wheel for it


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
        try:
            _make(folder, python, sys.executable, packages)
        except UnusableInput as error:
            try:
                _make(folder, python, _PYTHON, packages)
            except UnusableInput:
                shutil.rmtree(folder, ignore_errors=True)
                raise error from None
        (folder / _READY).touch()
    return str(python)


def add_package(module: str, release: str, target: Target) -> bool:
    """Add the package of ``module`` to the environment of ``release``: as the Python that runs
    this has it, or the newest that works with the release. Return whether this Python has one.

    Raises ``UnusableInput`` if it cannot be installed.
    """
    packages = packages_distributions().get(module)
    if not packages:
        return False
    python, of_release = find_python(release, target), _packages(release, target.platform)
    try:
        _install(python, [_requirement(packages[0], release), *of_release])
    except UnusableInput:
        _install(python, [packages[0], *of_release])
    return True


def _requirement(package: str, release: str) -> str:
    """Return what pip takes for an installed package: where it came from (PEP 610), or its version.
    That may be too old for releases after the installed one, and packages rarely say so.
    """
    installed = distribution(package)
    match json.loads(installed.read_text("direct_url.json") or "{}"):
        case {"url": url, "vcs_info": {"vcs": vcs, "commit_id": commit}}:
            return f"{package} @ {vcs}+{url}@{commit}"
        case {"url": url}:
            return f"{package} @ {url}"
    try:
        is_newer = release_number(release) > release_number(version("jaxlib"))
    except PackageNotFoundError:
        is_newer = False
    return package if is_newer else f"{package}=={installed.version}"


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


def _make(folder: Path, python: Path, base: str, packages: Sequence[str]) -> None:
    """Make an environment of the Python ``base``: a path, or a version."""
    shutil.rmtree(folder, ignore_errors=True)
    if uv := shutil.which("uv"):
        _run([uv, "venv", "-q", "--seed", "--python", base, str(folder)], "a venv")
    else:
        path = shutil.which(base) or shutil.which(f"python{base}")
        if path is None:
            raise UnusableInput(f"no Python {base} is there")
        _run([path, "-m", "venv", str(folder)], "a venv")
    _install(str(python), packages)


def _install(python: str, packages: Sequence[str]) -> None:
    if uv := shutil.which("uv"):
        _run([uv, "pip", "install", "-q", "--python", python, *packages], packages[0])
    else:
        _run([python, "-m", "pip", "install", *packages], packages[0])


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
