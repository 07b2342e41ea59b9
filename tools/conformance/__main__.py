"""python -m conformance [-v] CHECK [OPTION...]

Each check is a module beside this one: ``add_options`` declares its options, ``findings`` yields
what it comes to. Problems make the exit code 1.
"""

from __future__ import annotations

import ast
import sys
from argparse import REMAINDER, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from conformance.findings import report


@cache
def checks() -> dict[str, str]:
    """The first line of each check's docstring, by its name."""
    lines = {}
    for file in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "findings" for node in tree.body):
            lines[file.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    lines = checks()
    parser = ArgumentParser(
        "python -m conformance",
        description="\n".join(f"{name:16} {line}" for name, line in lines.items()),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is right, too")
    parser.add_argument("check", choices=lines, metavar="CHECK")
    parser.add_argument("options", nargs=REMAINDER, metavar="OPTION")
    options = parser.parse_args(arguments)
    check = import_module(f"conformance.{options.check}")
    parser_of_check = ArgumentParser(
        f"{parser.prog} {options.check}",
        description=check.__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    check.add_options(parser_of_check)
    return report(
        check.findings(parser_of_check.parse_args(options.options)), is_verbose=options.verbose
    )


if __name__ == "__main__":
    sys.exit(main())
