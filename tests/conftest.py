"""What all tests share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# They check what the tests of rules are about, and are to say what they found.
pytest.register_assert_rewrite(
    "cpu_examples", "gpu_examples", "gpu_pass_examples", "operation_examples"
)

# A machine that does much else beside is slow, and no fault.
settings.register_profile("fusionscope", deadline=None)
settings.load_profile("fusionscope")


@pytest.hookimpl(tryfirst=True)  # before tests are selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reasons = (mark.kwargs["reason"] for mark in item.iter_markers("skipif"))
        if any("jax" in reason for reason in reasons):
            item.add_marker("compiler")


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's own cache is neither read nor written."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(home))
        yield home


@pytest.fixture(autouse=True)
def no_results_of_other_tests(cache_home: Path) -> None:
    shutil.rmtree(cache_home / "fusionscope" / "results", ignore_errors=True)
