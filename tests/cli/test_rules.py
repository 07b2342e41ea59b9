"""The `rules` command: the list, the pages, and what it refuses."""

import json
import re

import pytest
from sample_dumps import unlike_documented

from fusionscope.hlo import parse
from fusionscope.passes.causes import CAUSES
from fusionscope.passes.gpu.conv_rewriter.epilogues import CONVOLUTIONS
from fusionscope.passes.gpu.gemm_rewriter.epilogues import EPILOGUES
from fusionscope.passes.gpu.gemm_rewriter.float8 import FLOAT8
from fusionscope.passes.tpu.rules import TPU_RULES
from fusionscope.versions.known import all_rules

pytestmark = pytest.mark.slow


def pages(run, *arguments):
    return json.loads(run(*arguments, "--format", "json").out)["rules"]


IDS = {rule.id for rule in (*all_rules(), *CAUSES, *TPU_RULES, *FLOAT8, *EPILOGUES, *CONVOLUTIONS)}


@pytest.mark.main
def test_every_rule_is_listed_once(run):
    result = run()
    assert (result.code, result.errors) == (0, "")
    listed = re.findall(r"^  ([a-z][a-z0-9-]+)  ", result.out, re.MULTILINE)
    assert len(listed) == len(set(listed)) and set(listed) == IDS
    assert {page["id"] for page in pages(run)} == IDS


def test_the_list_has_the_thresholds(run):
    (line,) = [
        item for item in run(COLUMNS="200").out.splitlines() if " cpu-max-reductions " in item
    ]
    assert "limit=5" in line


@pytest.mark.parametrize("width", [50, 100])
def test_text_fits_its_width_and_no_id_is_cut(run, width):
    printed = run(COLUMNS=str(width)).out
    assert max(map(len, printed.splitlines())) <= width
    assert all(f"  {id} " in printed for id in IDS)


@pytest.mark.main
@pytest.mark.parametrize("format_name", ["text", "markdown"])
def test_a_page_says_everything_of_its_rule(run, format_name):
    (page,) = pages(run, "cpu-concat")
    result = run("cpu-concat", "--format", format_name, COLUMNS="100000")
    assert result.code == 0
    printed = " ".join(result.out.replace("`", "").replace("**", "").split())
    for part in (
        page["what"], page["why"], page["message"], page["try"], page["source"],
        "max_operands=8", "0.10.2", "min_extent=128",  # of older versions
    ):  # fmt: skip
        assert part in printed, part
    visible = [example for example in page["examples"] if example["why"] in printed]
    assert {example["decided"] for example in visible} == {True, False}
    assert len(visible) == (2 if format_name == "text" else len(page["examples"]))


def test_every_page_can_be_printed_in_every_format(run):
    for page in pages(run):
        (alone,) = pages(run, page["id"])
        assert alone == page
        for format_name in ("text", "markdown"):
            result = run(page["id"], "--format", format_name)
            assert result.code == 0 and page["id"] in result.out


def test_what_a_page_proposes_to_try_is_an_option_that_exists(run):
    for page in pages(run):
        line = run(page["id"], "--format", "markdown").out
        if "**What if**" not in line:
            continue
        (proposal,) = re.findall(r"what-if DUMP (--\S+ [^`\s]+)`", line)
        option, value = proposal.split()
        if page["thresholds"]:
            id, name, number = re.fullmatch(r"([\w-]+)\.(\w+)=(\d+)", value).groups()
            assert (option, id) == ("--set", page["id"])
            assert int(number) != page["thresholds"][name]
        else:
            assert (option, value) == ("--disable", page["id"])


def test_examples_are_hlo(run):
    texts = [example["text"] for page in pages(run) for example in page["examples"]]
    assert len(texts) > len(IDS)
    for text in texts:
        parse(text).check()


def test_json_is_as_documented(run):
    document = json.loads(run("--format", "json").out)
    assert document["schema"] == "fusionscope.rules/1"
    assert not unlike_documented("rules", document)
