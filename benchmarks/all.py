"""Measures everything again and rewrites the tables of benchmarks/README.md.

    python benchmarks/all.py [--only NAME]... [--python PATH] [--directory DIRECTORY]

Each table of the page stands between two comments, the first of which names the benchmark and the
command that prints it:

    <!-- start-up: python benchmarks/start_up.py -->
    <!-- end -->

The commands run in turn from the checkout, and what one prints replaces what stood there. In a
command, PYTHON stands for ``--python``, a Python that has jax and fusionscope (this one, if it
has), and DIRECTORY for where the large dumps are kept (a temporary one). Text between the tables is
written by hand. A command that fails leaves its table as it was, and the exit code is then 1.
"""

import argparse
import fnmatch
import re
import shlex
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "benchmarks" / "README.md"
TABLE = re.compile(r"(<!-- (?P<name>[\w-]+): (?P<command>.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def measure(command: str, words: dict[str, str]) -> str:
    """What a command prints. Raises ``subprocess.CalledProcessError`` where it fails."""
    known = re.compile(rf"\b({'|'.join(words)})\b")
    arguments = [known.sub(lambda word: words[word[0]], each) for each in shlex.split(command)]
    if arguments[0] == "python":
        arguments[0] = sys.executable
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="GLOB", help="benchmarks by name")
    parser.add_argument("--python", default=sys.executable, help="one that has jax")
    parser.add_argument("--directory", help="keeps the large dumps")
    options = parser.parse_args()
    names = [found["name"] for found in TABLE.finditer(PAGE.read_text())]
    wanted = options.only or ["*"]
    names = [name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in wanted)]
    if not names:
        parser.error("--only names no table of the page")
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        words = {
            "PYTHON": options.python,
            "DIRECTORY": str(Path(options.directory or temporary).resolve()),
        }
        for name in names:
            page = PAGE.read_text()
            found = next(each for each in TABLE.finditer(page) if each["name"] == name)
            print(f"{name}: {found['command']}", flush=True)
            try:
                printed = measure(found["command"], words)
            except subprocess.CalledProcessError as error:
                failed.append(f"{name} ended with {error.returncode}")
                continue
            start, end = found.end(1), found.start(4)
            PAGE.write_text(f"{page[:start]}\n{date.today()}, {printed.strip()}\n\n{page[end:]}")
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
