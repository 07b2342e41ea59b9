"""What is worth saying about a module: one folder for each finding.

``__init__.py`` has ``discover``, if every explanation looks for the finding, and ``find.py`` finds
the facts. ``facts.py`` defines them: its ``Fields`` are what a module has of them in JSON.
``sheet.py`` puts them into words: ``sheet(module, top)`` yields its sections, with at most ``top``
entries of each list (None: all), and ``brief(module)``, where there is one, what the first screen
shows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, get_type_hints

from msgspec import Struct, defstruct

if TYPE_CHECKING:
    from fusionscope.facts.finding_input import FindingInput
    from fusionscope.facts.result import Findings, ModuleFacts
    from fusionscope.words.section import Section

# The folders, in the order in which a report shows the findings.
NAMES = (
    "advisories",
    "headroom",
    "run",
    "opportunities",
    "breakdown",
    "measured",
    "kernels",
    "refusals",
    "libraries",
    "float8",
    "epilogues",
    "collectives",
    "movements",
    "resources",
    "recomputed",
    "memory",
    "vector_memory",
    "autotuned",
    "compile_time",
    "suggestions",
)
BRIEF = 3  # entries of a list on the first screen


def find_all(module: FindingInput, read: Callable[[Callable[[], object]], Any | None]) -> Findings:
    """Return what every explanation looks for, by its name in JSON.

    ``read`` returns what it is given to call returns, None if a file of the dump cannot be used.
    """
    findings: Findings = {}
    for name in NAMES:
        discover = getattr(import_module(f"{__name__}.{name}"), "discover", None)
        facts = read(partial(discover, module)) if discover is not None else None
        if facts:
            findings[(facts[0] if isinstance(facts, tuple) else facts).finding] = facts
    return findings


def sheets_of(names: Iterable[str], module: ModuleFacts, top: int | None) -> Iterator[Section]:
    """Yield the sections of the findings with these names."""
    for name in names:
        yield from _words(name).sheet(module, top)


def briefs(module: ModuleFacts) -> Iterator[Section]:
    """Yield what the first screen shows."""
    for name in NAMES:
        words = _words(name)
        if hasattr(words, "brief"):
            yield from words.brief(module)


def _words(name: str) -> Any:
    return import_module(f"{__name__}.{name}.sheet")


@cache
def fields_of_module() -> type[Struct]:
    """Return a struct with the fields that findings add to a module, and what these mean."""
    types: list[tuple[str, Any, Any]] = []
    meanings: list[str] = []
    for name in NAMES:
        if find_spec(f"{__name__}.{name}.facts"):
            fields: type[Struct] = import_module(f"{__name__}.{name}.facts").Fields
            kinds = get_type_hints(fields)
            defaults = zip(fields.__struct_fields__, fields.__struct_defaults__, strict=True)
            types += ((field, kinds[field], default) for field, default in defaults)
            meanings.append(cleandoc(fields.__doc__ or ""))
    return defstruct("Findings", types, namespace={"__doc__": "\n".join(meanings)}, frozen=True)
