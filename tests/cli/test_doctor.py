"""The `doctor` command: what it says of installations that work, and of damaged ones."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from sample_dumps import unlike_documented

from fusionscope import __version__

with_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")


def script(file: Path, text: str) -> Path:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """This Python without its packages, and with those in the folder ``packages``."""
    folder = tmp_path / "packages"
    folder.mkdir()
    return script(tmp_path / "python", f'PYTHONPATH="{folder}" exec "{sys.executable}" -s -S "$@"')


def install(python: Path, name: str, version: str, code: str) -> None:
    """Give a Python a package, as far as it is asked for."""
    packages = python.with_name("packages")
    (packages / f"{name}.py").write_text(code)
    (packages / f"{name}-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (packages / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)


def findings(result: Any) -> dict[str, Any]:
    return {item["name"]: item for item in json.loads(result.out)["findings"]}


def test_a_python_without_jax_is_no_fault(run, python):
    result = run("--python", python)
    assert result.code == 0
    assert result.out.startswith(f"fusionscope {__version__}, Python ")
    assert "jax     absent" in result.out
    assert f"{python} -m pip install 'fusionscope[jax]'" in " ".join(result.out.split())
    assert result.out.endswith("everything installed works\n")


def test_json_has_the_documented_fields(run, python):
    install(python, "jax", "0.12", "raise ImportError('half of it is missing')")
    document = json.loads(run("--python", python, "--format", "json").out)
    assert not unlike_documented("doctor", document)
    assert document["compiler"]["versions"] == {"jax": "0.12"}
    assert document["compiler"]["path"] == str(python)


def test_text_and_json_go_to_files(run, python, tmp_path):
    assert run("--python", python, "--output", tmp_path / "found.txt").out == ""
    assert "jax     absent" in (tmp_path / "found.txt").read_text()


def test_a_damaged_jax_is_broken(run, python):
    install(python, "jax", "0.12", "raise ImportError('half of it is missing')")
    result = run("--python", python, "--format", "json")
    jax = findings(result)["jax"]
    assert result.code == 1
    assert jax["state"] == "broken"
    assert "half of it is missing" in jax["found"]
    assert "--force-reinstall 'fusionscope[jax]'" in jax["advice"]
    assert "cpu" not in findings(result)


@pytest.mark.parametrize(
    ("jaxlib", "state", "count", "advice"),
    [
        ("0.12.0.1", "works", 0, None),
        ("0.11.0", "limited", 2, "'jaxlib>=0.11.1'"),  # by the threads: two of four
        ("0.10.2.dev20260701", "limited", 4, "'jaxlib>=0.11.1'"),
        ("0.4.35", "works", 0, None),
    ],
)
def test_known_faults_of_a_release(run, python, jaxlib, state, count, advice):
    install(python, "jax", jaxlib, "raise ImportError('not needed')")
    install(python, "jaxlib", jaxlib, "")
    faults = findings(run("--python", python, "--format", "json"))["faults"]
    assert (faults["state"], faults["found"].count("https://")) == (state, count)
    assert (faults["advice"] or "").endswith(advice or "")


def test_a_jax_that_ends_the_process_is_broken(run, python):
    install(python, "jax", "0.12", "import os; os.abort()")
    result = run("--python", python, "--format", "json")
    assert result.code == 1
    assert "SIGABRT" in findings(result)["jax"]["found"]


def test_a_jax_that_never_ends_is_broken(run, python):
    install(python, "jax", "0.12", "import time; time.sleep(1000)")
    result = run("--python", python, "--format", "json", "--limit", 2)
    assert result.code == 1
    assert "longer than 2 s" in findings(result)["jax"]["found"]


@pytest.mark.parametrize("text", ["sleep 1000", "exit 3", "echo no Python >&2; exit 1"])
def test_what_is_no_python_is_refused(run, tmp_path, text):
    run("--python", script(tmp_path / "other", text), "--limit", 1).check_refused("a Python")


def test_a_python_that_is_not_there_is_refused(run, tmp_path):
    run("--python", tmp_path / "nothing").check_refused("cannot be run")


@pytest.mark.parametrize(("mode", "state"), [(0o700, "works"), (0o770, "limited")])
def test_a_cache_that_others_can_write_to_is_not_used(run, python, tmp_path, mode, state):
    results = tmp_path / "home" / "fusionscope" / "results"
    results.mkdir(parents=True)
    results.parent.chmod(0o700)
    results.chmod(mode)
    result = run("--python", python, "--format", "json", XDG_CACHE_HOME=str(tmp_path / "home"))
    cache = findings(result)["cache"]
    assert (result.code, cache["state"]) == (0, state)
    assert list(results.iterdir()) == []
    assert bool(cache["advice"]) is (state == "limited")
    assert state == "works" or "others can write" in cache["found"]


def test_a_cache_without_a_place_is_limited(run, python, tmp_path):
    (tmp_path / "file").touch()
    result = run("--python", python, "--format", "json", XDG_CACHE_HOME=str(tmp_path / "file"))
    assert result.code == 0
    assert findings(result)["cache"]["state"] == "limited"
    assert str(tmp_path / "file") in findings(result)["cache"]["found"]


def test_a_ptxas_that_is_none_is_broken(run, python):
    result = run("--python", python, "--format", "json", PTXAS=shutil.which("true") or "")
    assert result.code == 1
    assert findings(result)["ptxas"]["state"] == "broken"


def test_no_ptxas_is_no_fault(run, python, tmp_path, monkeypatch):
    monkeypatch.delenv("PTXAS", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    result = run("--python", python, "--format", "json", PATH="", CUDA_HOME=str(tmp_path))
    assert result.code == 0
    assert findings(result)["ptxas"]["state"] == "absent"


@pytest.mark.parametrize(
    ("code", "state", "words"),
    [
        ("raise ModuleNotFoundError(name='jinja2')", "absent", "not installed (jinja2)"),
        ("import no_such_module", "broken", "No module named 'no_such_module'"),
        ("1 / 0", "broken", "ZeroDivisionError"),
    ],
)
def test_a_package_of_an_extra_that_does_not_import(
    run, python, tmp_path, monkeypatch, code, state, words
):
    (tmp_path / "jinja2.py").write_text(code)
    monkeypatch.delitem(sys.modules, "jinja2", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    result = run("--python", python, "--format", "json")
    report = findings(result)["report"]
    assert (result.code, report["state"]) == (int(state == "broken"), state)
    assert words in report["found"]
    assert "pip install" in report["advice"]


@pytest.mark.slow
@with_jax
def test_what_is_installed_here_works(run):
    result = run("--format", "json")
    actual = findings(result)
    assert result.code == 0, result.out
    assert actual["cpu"]["state"] == "works"
    assert "compiles and runs" in actual["cpu"]["found"]
    assert "rerun works" in actual["cpu"]["found"]
    cuda = importlib.util.find_spec("jax_cuda13_plugin") is not None
    assert actual["cuda"]["state"] == ("works" if cuda else "absent")
    assert actual["tpu"]["state"] == ("works" if importlib.util.find_spec("libtpu") else "absent")


@pytest.mark.slow
@with_jax
def test_a_flag_that_the_compiler_does_not_know_is_named(run):
    result = run("--format", "json", XLA_FLAGS="--xla_nonsense=3")
    cpu = findings(result)["cpu"]
    assert result.code == 1
    assert cpu["state"] == "broken"
    assert "--xla_nonsense=3" in cpu["found"]
    assert "XLA_FLAGS" in cpu["advice"]


@pytest.mark.slow
@with_jax
def test_a_damaged_plugin_is_broken(run, tmp_path):
    """A library that is not one, under the name of the plugin for CUDA."""
    folder = tmp_path / "jax_plugins" / "xla_cuda99"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("def initialize():\n    raise OSError('cut short')\n")
    install_metadata = tmp_path / "jax_cuda13_plugin-0.0.dist-info"
    install_metadata.mkdir()
    text = "Metadata-Version: 2.1\nName: jax-cuda13-plugin\nVersion: 0.0\n"
    (install_metadata / "METADATA").write_text(text)
    if importlib.util.find_spec("jax_cuda13_plugin") is not None:
        pytest.skip("has a plugin that works")
    result = run("--format", "json", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
    actual = findings(result)
    assert result.code == 1
    assert actual["cpu"]["state"] == "works"
    assert actual["cuda"]["state"] == "broken"
    assert "'fusionscope[cuda]'" in actual["cuda"]["advice"]
