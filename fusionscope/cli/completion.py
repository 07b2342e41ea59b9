"""What shells offer for the value of an argument or option, by click's ``shell_complete``."""

from __future__ import annotations

from click import Context, Parameter
from click.shell_completion import CompletionItem


def complete_rule(_context: Context, _parameter: Parameter, begun: str) -> list[CompletionItem]:
    from fusionscope.rules.pages import find_title, page_ids

    matches = (id for id in page_ids() if id.startswith(begun))
    return [CompletionItem(id, help=find_title(id)) for id in matches]


def complete_recipe(_context: Context, _parameter: Parameter, begun: str) -> list[CompletionItem]:
    from fusionscope.advise.recipes.catalogue import RECIPES

    matches = (recipe for recipe in RECIPES if recipe.id.startswith(begun))
    return [CompletionItem(recipe.id, help=recipe.title) for recipe in matches]


def complete_compiler(_context: Context, _parameter: Parameter, begun: str) -> list[str]:
    from fusionscope.versions.known import COMPILERS

    return [name for name in COMPILERS if name.startswith(begun)]


def complete_device(
    _context: Context, _parameter: Parameter, begun: str
) -> list[str | CompletionItem]:
    """A device may also be a file that describes one."""
    from fusionscope.dump.device import device_names

    names = [name for name in device_names() if name.startswith(begun)]
    return [*names] if names else [CompletionItem(begun, type="file")]
