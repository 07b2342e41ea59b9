"""Compiles fresh dumps of the samples' programs: DIRECTORY/TARGET/PROGRAM for each TARGET.

Each is compiled by compile.py in a process of its own, forked from one that has imported jax, which
takes as long as most of the compiles. With an H100 among the targets, some programs are compiled
for other NVIDIA GPUs, too.
"""

import argparse
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import compile as compiling

PROGRAMS = Path(__file__).parent / "programs"
RECORDED = ("attention", "cartpole", "concatenate", "reductions")  # by the Fusion Explorer, too
OTHERS = ("convolution", "dense", "elementwise", "loop", "softmax")
OTHER_GPUS = ("a100", "b200")
OF_OTHER_GPUS = ("attention", "dense", "elementwise", "reductions", "softmax")


def dumps(targets: Sequence[str]) -> Iterator[tuple[str, str]]:
    for target in targets:
        yield from ((target, program) for program in (*RECORDED, *OTHERS))
    if "h100" in targets:
        yield from ((gpu, program) for gpu in OTHER_GPUS for program in OF_OTHER_GPUS)


def compile_apart(target: str, program: str, directory: Path, *options: str) -> None:
    """Run compile.py in a forked process. Exits if it fails."""
    child = os.fork()
    if child == 0:
        sys.argv = [f"{PROGRAMS / program}.py", target, str(directory), *options]
        sys.argv.insert(0, str(compiling.__file__))
        try:
            compiling.main()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{program} does not compile for {target}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    options = parser.parse_args()

    compiling.set_variables("cpu")  # jax reads some of them when it is imported
    import jax  # noqa: F401

    for target, program in dumps(options.targets):
        dump = options.directory / target / program
        compile_apart(target, program, dump)
        if program in RECORDED and target in options.targets:
            with TemporaryDirectory() as scratch:
                compile_apart(target, program, Path(scratch), "--record")
                for record in Path(scratch).glob("*._fusion.*"):
                    shutil.move(record, dump)


if __name__ == "__main__":
    main()
