"""What all tests share."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from warm_python import WarmPythons

import fusionscope
from fusionscope.advise.recipes import region_trials
from fusionscope.dump import Dump, DumpedModule, open_dump
from fusionscope.errors import UnusableInput
from fusionscope.explain import Explanation, ModuleFacts, explain
from fusionscope.system import processes

DUMPS = Path(__file__).resolve().parents[1] / "samples" / "dumps"

# They check what the tests of rules are about, and are to say what they found.
pytest.register_assert_rewrite(
    "cpu_examples", "gpu_examples", "gpu_pass_examples", "operation_examples"
)

# A machine that does much else beside is slow, and no fault.
settings.register_profile("fusionscope", deadline=None)
settings.load_profile("fusionscope")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """None, for all cores, but where one file is run: starting workers would take longer."""
    (first, *remaining) = config.args or [""]
    return 0 if not remaining and Path(first.partition("::")[0]).is_file() else None


@pytest.hookimpl(tryfirst=True)  # before tests are selected
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        reasons = (mark.kwargs["reason"] for mark in item.iter_markers("skipif"))
        if any("jax" in reason for reason in reasons) or "oracle" in item.fixturenames:
            item.add_marker("compiler")
        if item.get_closest_marker("repeats"):
            item.add_marker("long" if item.get_closest_marker("slow") else "slow")


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's own cache is neither read nor written."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(home))
        yield home


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[None]:
    """Where this process keeps no bytecode, those that tests start share some of their own."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode:
            session = tmp_path_factory.getbasetemp()
            place = session if worker_id == "master" else session.parent
            patch.setenv("PYTHONPYCACHEPREFIX", str(place / "bytecode"))
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def warm_pythons(bytecode: None) -> Iterator[None]:
    """Child processes that compile are forks of one that has imported jax."""
    if not hasattr(os, "fork") or importlib.util.find_spec("jax") is None:
        yield
        return
    pythons = WarmPythons(processes._start, Path(fusionscope.__file__).parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_start", pythons.start)
        yield
    pythons.close()


@pytest.fixture(autouse=True)
def no_results_of_other_tests(cache_home: Path) -> None:
    shutil.rmtree(cache_home / "fusionscope" / "results", ignore_errors=True)


@pytest.fixture(autouse=True)
def no_compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes are tried where a test asks for it, so that the rest does not depend on JAX."""
    if request.node.get_closest_marker("compiler") is None:
        monkeypatch.setattr(region_trials, "CompilerProcess", _NoCompiler)


class _NoCompiler:
    def __init__(self, *_: object, **_options: object) -> None:
        raise UnusableInput("this Python has no jax", hint="pip install jax")


class Samples:
    """The dumps in samples/dumps, by names such as `h100/softmax`. Each is opened and explained
    once, for tests that change nothing of it."""

    def __init__(self) -> None:
        self._open = cache(open_dump)
        self._explain = cache(lambda path: explain(self._open(path)))

    def dump(self, name: str | Path) -> Dump:
        return self._open(DUMPS / name)

    def module(self, name: str | Path) -> DumpedModule:
        (module,) = self.dump(name).modules
        return module

    def explanation(self, name: str | Path) -> Explanation:
        return self._explain(DUMPS / name)

    def facts(self, name: str | Path) -> ModuleFacts:
        """What is said of the only module."""
        (module,) = self.explanation(name).modules
        return module


@pytest.fixture(scope="session")
def samples() -> Samples:
    return Samples()
