"""Compiles one program and prints, as JSON, the processor time of the compiler alone.

    python benchmarks/compiling.py PROGRAM TARGET [DIRECTORY] [--dump KIND] [--flag FLAG]...

Needs a Python with jax; PROGRAM and TARGET are as for samples/compile.py, without a mesh. Where a
DIRECTORY is given, the compiler writes its dump there: text, also protos (as samples/compile.py
makes it), or the record of the fusion visualization. User and system time of all threads and child
processes count: ``lower`` is tracing and lowering, ``compile`` what follows, and ``process`` all
from the start of Python.
"""

import argparse
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "samples"))

import compile as sample  # noqa: E402


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def dump_flags(kind: str, is_gpu: bool) -> tuple[str, ...]:
    if kind == "record":
        return sample.RECORD
    if kind == "text":
        return sample.TEXT, "--xla_dump_hlo_pass_re=.*"
    return (*sample.STAGES, *(sample.GPU_STAGES if is_gpu else ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("program")
    parser.add_argument("target")
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--dump", choices=("text", "protos", "record"), default="protos")
    parser.add_argument("--flag", action="append", default=[])
    options = parser.parse_args()

    description = sample.DEVICES / f"{options.target}.txtpb"
    is_gpu = description.exists()
    flags = [*options.flag, *(sample.GPU if is_gpu else ())]
    if options.directory is not None:
        flags += [f"--xla_dump_to={options.directory}", *dump_flags(options.dump, is_gpu)]
    os.environ["XLA_FLAGS"] = " ".join(flags)
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"

    import jax

    times: dict[str, Any] = {"jaxlib": jax.lib.__version__}
    compiled = jax.stages.Lowered.compile

    def timed(*arguments: Any, **keywords: Any) -> Any:
        times["lower"] = processor_seconds() - begin
        start = processor_seconds()
        result = compiled(*arguments, **keywords)
        times["compile"] = processor_seconds() - start
        return result

    jax.stages.Lowered.compile = timed
    path, _, name = options.program.partition(":")
    program = sample.load(Path(path), name or None)
    begin = processor_seconds()
    sample.compile_program(program, str(description) if is_gpu else options.target)
    times["process"] = processor_seconds()
    print(json.dumps(times))


if __name__ == "__main__":
    main()
