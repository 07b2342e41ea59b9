"""What is said about changes that were tried."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace

import pytest
from conformance.follow_advice import printed_commands
from rich.console import Console

from fusionscope.advise.worth import why_not_better
from fusionscope.facts.suggestions import (
    Answer,
    Exclusion,
    Figures,
    HowTried,
    Step,
    Suggestion,
    SuggestionKind,
    Suggestions,
    Together,
)
from fusionscope.findings.suggestions.sheet import for_pair, sections
from fusionscope.words.markdown import to_markdown
from fusionscope.words.terminal import print_sections

PAIR = ("a", "b")


BEFORE = Figures(57, 1000, 111.0)


def tried(
    change: str = "--xla_disable_hlo_passes=multi_output_fusion",
    kind: SuggestionKind = SuggestionKind.FLAG,
    how: HowTried = HowTried.REPLAYED,
    why_not: str = "",
) -> Suggestion:
    return Suggestion(
        number=1,
        kind=kind,
        change=change,
        evidence=how,
        pairs=(PAIR,),
        before=BEFORE,
        after=Figures(85, 1200, 98.4),
        why_not=why_not,
        title="a title" if kind is SuggestionKind.RECIPE else "",
    )


def screen_of(suggestions: Suggestions, width: int) -> str:
    screen = io.StringIO()
    print_sections(sections(suggestions, None), Console(file=screen, width=width))
    return screen.getvalue()


@pytest.mark.parametrize(
    ("launches", "bytes_moved", "time_us", "why_not"),
    [
        (85, 1200, 98.4, "more launches and bytes, so the estimated time is not trusted"),
        (85, 1000, 98.4, "more launches, so the estimated time is not trusted"),
        (57, 1200, 98.4, "more bytes, so the estimated time is not trusted"),
        (85, 900, 98.4, ""),
        (57, 1000, 98.4, ""),
        (57, 1000, 111.0, "it saves less than 0.1% of the time"),
        (57, 900, 110.99, "it saves less than 0.1% of the time"),
        (57, 900, 111.01, "it saves less than 0.1% of the time"),
        (57, 900, 111.2, "it takes longer"),
        (85, 1200, None, "more launches and bytes"),
        (57, 1000, None, "no fewer launches or bytes"),
        (57, 900, None, ""),
    ],
)
def test_why_a_change_is_not_worth_it(
    launches: int, bytes_moved: int, time_us: float | None, why_not: str
) -> None:
    assert why_not_better(BEFORE, Figures(launches, bytes_moved, time_us)) == why_not


def test_every_report_says_why_a_change_is_not_worth_it() -> None:
    actual = Suggestions(
        answers=(Answer(pairs=(PAIR,)),), rejected=(tried(why_not="it takes longer"),)
    )
    for text in (
        screen_of(actual, 200),
        "\n".join(to_markdown(sections(actual, None))),
        for_pair(actual, *PAIR),
    ):
        assert "(replayed; it takes longer)" in text


@pytest.mark.parametrize("width", [20, 80, 100])
@pytest.mark.parametrize("path", ["dump", 'a dump\'s "$HOME"', "a" * 90])
def test_a_command_can_be_copied(width: int, path: str) -> None:
    allow = " ".join(f"--allow 'add.{n} -> a-long-name.{n}'" for n in range(8))
    actual = Suggestions(
        helpful=(
            tried(f"--xla_disable_hlo_passes={'a,' * 80}b"),
            tried(allow, SuggestionKind.RULE),
        )
    ).with_commands(["fusionscope", "rerun", path, "--module", "3"])
    flag = f"xla_disable_hlo_passes={'a,' * 80}b"
    expected = [
        ["fusionscope", "rerun", path, "--module", "3", "--flag", flag],
        ["fusionscope", "rerun", path, "--module", "3", *shlex.split(allow)],
    ]
    assert printed_commands(screen_of(actual, width)) == expected


def test_a_module_that_cannot_be_compiled_has_no_command() -> None:
    actual = Suggestions(helpful=(tried(),), cannot_rerun="the dump lacks the program")
    text = screen_of(actual.with_commands(["fusionscope", "rerun", "dump"]), 100)
    assert not printed_commands(text)
    assert "--xla_disable_hlo_passes=multi_output_fusion" in text
    assert "cannot be compiled from this dump: the dump lacks the program" in text


def test_no_figure_of_a_recipe_that_was_not_tried_is_shown() -> None:
    recipe = tried("unroll-loop", SuggestionKind.RECIPE, HowTried.UNTRIED)
    actual = Suggestions(helpful=(recipe,)).with_commands(["fusionscope", "rerun", "dump"])
    text = screen_of(actual, 100)
    assert printed_commands(text) == [["fusionscope", "recipes", "unroll-loop"]]
    assert "nothing known that helps" in text
    for words in (text, "\n".join(to_markdown(sections(actual, None)))):
        assert "a title" in words
        assert not any(figure in words for figure in ("57", "85", "1.2 kB", "98", "111"))
    assert for_pair(actual, *PAIR) == "1 not tried here: --compile"


@pytest.mark.parametrize(
    ("rejected", "untried", "words"),
    [
        (0, 0, "nothing known that helps"),
        (1, 0, "nothing known that helps: 1 change tried"),
        (1, 2, "nothing so far that helps: 1 change tried"),
        (0, 2, "nothing tried so far"),
    ],
)
def test_other_advice_is_named_where_nothing_helps(rejected: int, untried: int, words: str) -> None:
    actual = Suggestions(rejected=(tried(why_not="it takes longer"),) * rejected, untried=untried)
    advice = "; other advice, under What could be faster, was not tried"
    for has_advice in (False, True):
        (section, *_) = sections(actual, 3, has_advice=has_advice)
        more = " (--all shows them)" if rejected else ""
        expected = f"- {words}{more}{advice if has_advice else ''}"
        assert expected in list(to_markdown([section]))
        helpful = Suggestions(helpful=(tried(),))
        assert advice not in "".join(to_markdown(sections(helpful, 3, has_advice=has_advice)))


def together(*excluded: Exclusion) -> Suggestions:
    steps = (
        Step(change="--a=1", after=Figures(57, 1000, 90.0)),
        Step(change="unroll-loop", after=Figures(30, 1000, 80.0)),
    )
    changes = tried("--a=1"), tried("unroll-loop", SuggestionKind.RECIPE), tried("--b=2")
    both = Together(before=BEFORE, steps=steps, excluded=excluded, evidence=HowTried.REGION)
    return Suggestions(helpful=changes[: 2 + len(excluded)], together=both).numbered()


def test_the_best_changes_together_are_the_last_line() -> None:
    text = screen_of(together(), 120)
    assert "all of these: time 111 µs → 80 µs (-28%), launches 57 → 30 (region)" in text
    assert "one after the other: 111 µs, with 1 90 µs, 2 80 µs" in text


def test_what_is_left_out_is_named() -> None:
    text = screen_of(together(Exclusion(change="--b=2", why="adds nothing to them")), 120)
    assert "1 and 2 together: time 111 µs → 80 µs" in text
    assert "(region); 3 adds nothing to them" in text


def test_a_command_takes_all_of_them() -> None:
    recipe = replace(tried("unroll-loop", SuggestionKind.RECIPE), recipe="unroll-loop,times=8")
    changes = replace(together(), helpful=(tried("--a=1"), recipe)).numbered()
    both = changes.with_commands(["fusionscope", "rerun", "dump"]).together
    assert both is not None
    options = ("--flag", "a=1", "--recipe", "unroll-loop,times=8")
    assert both.command == ("fusionscope", "rerun", "dump", *options)


def test_for_some_pairs_nothing_is_said_of_all() -> None:
    assert together().about(frozenset({PAIR})).together is None


def test_recipes_that_were_not_tried_are_one_line_of_a_first_screen() -> None:
    recipes = tuple(
        tried(id, SuggestionKind.RECIPE, HowTried.UNTRIED) for id in ("unroll-loop", "reduce-parts")
    )
    screen = sections(Suggestions(helpful=recipes).numbered(), 3, is_brief=True)
    (text,) = (line for line in to_markdown(screen) if "Recipes" in line)
    assert "1 unroll-loop, 2 reduce-parts" in text
