"""Compiles modules of HLO text, for the scripts beside this one that hold rules against it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fusionscope.versions.compiler import Compiler
from fusionscope.versions.known import COMPILERS, load_compiler

# Compiles the modules from a given one on, and prints after each what went wrong. The record is
# written before the compiler finds that it cannot generate code for what it fused.
_CHILD = """
import json, sys
import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir

devices = jax.devices()[:1]
for text in json.load(open(sys.argv[1]))[int(sys.argv[2]):]:
    problem = ""
    try:
        module = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
        with mlir.make_ir_context():
            stable = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(module))
        options = compiler.get_compile_options(1, 1)
        devices[0].client.compile_and_load(stable, _jax.DeviceList(tuple(devices)), options)
    except Exception as error:
        problem = str(error)
    print(json.dumps(problem), flush=True)
"""


def compile_all(python: str, flags: str, texts: Sequence[str], directory: Path) -> list[str]:
    """What went wrong with each module, empty where nothing did. Dumps into ``directory/dump``.

    ``python`` is one that has jax. A compiler that crashes is started again behind the module.
    """
    file = directory / "modules.json"
    file.write_text(json.dumps(texts), encoding="utf-8")
    flags = f"{flags} --xla_dump_to={directory / 'dump'}"
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    problems: list[str] = []
    while len(problems) < len(texts):
        command = [python, "-c", _CHILD, str(file), str(len(problems))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        problems += [json.loads(line) for line in done.stdout.splitlines()]
        if len(problems) < len(texts):
            problems.append("the compiler crashed: " + " ".join(done.stderr.split()[-20:]))
    return problems


def version_of(python: str) -> str:
    command = [python, "-c", "import jaxlib; print(jaxlib.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def compiler_of(version: str) -> Compiler:
    """That of the version, the newest one where it has none of its own."""
    key = f"cpu-{'.'.join(version.split('.')[:2])}"
    return load_compiler(key if key in COMPILERS else next(iter(COMPILERS)))
