"""``fusionscope parse FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fusionscope.cli.output import format_options, write_json, write_sections, write_text


@click.command(name="parse")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--print", "prints", is_flag=True, help="Write the module back as HLO text.")
@format_options("text", "json")
def command(file: Path, prints: bool, format_name: str, output: Path | None) -> None:
    """Parse one HLO file and print a summary.

    FILE is HLO text, as XLA prints it or as people write it, optionally compressed with gzip; -
    reads from standard input. If FILE is not HLO, the error names file, line and column, and the
    exit code is 2.

    \b
    Examples:
      fusionscope parse module_0001.jit_f.before_optimizations.txt
      fusionscope parse --format json after.hlo.gz --output after.json
      fusionscope parse --print - < by_hand.hlo
    """
    from fusionscope.dump.files import DumpFile
    from fusionscope.hlo import parse, to_text
    from fusionscope.report.module import module_sheet

    if str(file) == "-":
        text, name = sys.stdin.buffer.read().decode("utf-8", errors="replace"), "<stdin>"
    else:
        text, name = DumpFile(file.name, file).text(), str(file)
    module = parse(text.removeprefix("\ufeff"), file=name)  # some editors mark the encoding
    if prints:
        write_text(to_text(module), output)
    elif format_name == "json":
        write_json("parse", module, output)
    else:
        write_sections(module_sheet(module), format_name, output)
