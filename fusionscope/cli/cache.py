"""``fusionscope cache``."""

from __future__ import annotations

import click

from fusionscope.cli.output import write_text
from fusionscope.errors import UnusableInput
from fusionscope.system.cache import find_cache
from fusionscope.system.files import is_there
from fusionscope.words.text import plural, safe, size


@click.command(name="cache")
@click.option("--clear", is_flag=True, help="Remove everything that is cached.")
def command(clear: bool) -> None:
    """Show where results are kept between runs, and how much, or remove them.

    explain and check keep what they find out about a dump, so that another question about the same
    dump is answered at once. The directory is fusionscope in XDG_CACHE_HOME, by default ~/.cache.

    \b
    Examples:
      fusionscope cache
      fusionscope cache --clear
    """
    cache = find_cache("results")
    if cache is None:
        raise UnusableInput("there is no home directory: nothing is cached")
    problem = cache.find_problem() if is_there(cache.root) else ""
    files, total = cache.measure()
    if clear:
        cache.clear()
    verb = "removed from" if clear else "in"
    text = f"{plural(files, 'file')}, {size(total)}, {verb} {safe(str(cache.root))}\n"
    write_text(text + f"not used: {safe(problem)}\n" * bool(problem), None)
