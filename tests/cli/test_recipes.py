"""The `recipes` command: the list, the pages, and what it refuses."""

import json
import re

import pytest

from fusionscope.advise.recipes.catalogue import RECIPES

IDS = [recipe.id for recipe in RECIPES]


def pages(run, *arguments):
    return json.loads(run(*arguments, "--format", "json").out)["recipes"]


@pytest.mark.parametrize("width", [50, 100])
def test_every_recipe_is_listed_once_in_any_width(run, width):
    printed = run(COLUMNS=str(width)).out
    assert re.findall(r"^(\S+)  ", printed, re.MULTILINE) == IDS
    assert max(map(len, printed.splitlines())) <= width


def test_json_has_all_of_them(run):
    assert [page["id"] for page in pages(run)] == IDS


@pytest.mark.parametrize("format_name", ["text", "markdown"])
@pytest.mark.parametrize("id", IDS)
def test_a_page_has_both_programs_and_when_the_edit_backfires(run, id, format_name):
    (page,) = pages(run, id)
    printed = run(id, "--format", format_name, COLUMNS="100000").out
    assert page["backfires"].replace("`", "") in printed.replace("`", "")
    for code in (page["before"], page["after"]):
        assert all(line.strip() in printed for line in code.splitlines())


def test_an_unknown_recipe_names_a_known_one(run):
    result = run("reduce-part")
    assert result.code == 2
    assert "no recipe is called 'reduce-part', expected one such as reduce-parts" in result.errors
