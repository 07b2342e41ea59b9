"""Pairs as LLVM's optimization remarks."""

import shutil
import subprocess
from collections import Counter
from dataclasses import replace

import pytest
import yaml

from fusionscope.report.remarks import to_remarks

TOOL = next(filter(None, map(shutil.which, ("llvm-remarkutil", "llvm-remarkutil-19"))), None)


class Loader(yaml.SafeLoader):
    """Documents as mappings that name their tag."""


Loader.add_multi_constructor(
    "!", lambda loader, tag, node: {"tag": tag, **loader.construct_mapping(node, deep=True)}
)


def remarks(explanation):
    return list(yaml.load_all(to_remarks(explanation), Loader))


@pytest.mark.parametrize("name", ["h100/concatenate", "cpu/loop", "tpu-v5e/softmax"])
def test_each_pair_is_a_document(samples, name):
    explanation = samples.explanation(name)
    documents = remarks(explanation)
    outcomes = explanation.modules[0].summary.outcomes
    assert Counter(document["tag"] for document in documents) == Counter(
        Passed=outcomes["fused"] + outcomes["duplicated"],
        Missed=outcomes["not-fused"],
        Analysis=outcomes["gone"],
    )


def test_the_parts_of_a_remark(samples):
    remark = next(
        remark
        for remark in remarks(samples.explanation("h100/concatenate"))
        if remark["tag"] == "Missed"
    )
    assert remark["Name"] == "pf-negative"
    assert remark["Function"] == "jit_program"
    assert remark["DebugLoc"] == {"File": "samples/programs/concatenate.py", "Line": 9, "Column": 0}
    message = "".join(value for argument in remark["Args"] for value in argument.values())
    assert message.startswith("tanh.1.0 -> concatenate.1.0: pf-negative: the cost model")
    assert message.endswith("bytes between: 1048576")


def hostile(explanation):
    (module,) = explanation.modules
    name = "x'\n--- !Passed\u202e: {[\U0001f469\u200d"
    pair = module.pairs[0]
    producer = replace(pair.producer, name=name, source=f"{name}:7")
    return replace(
        explanation, modules=(replace(module, pairs=(replace(pair, producer=producer),)),)
    )


def test_names_cannot_break_a_document(samples):
    (remark,) = remarks(hostile(samples.explanation("h100/concatenate")))
    assert remark["Args"][0]["Producer"].startswith("x'\ufffd--- !Passed\ufffd: {[")
    assert remark["DebugLoc"]["Line"] == 7


@pytest.mark.skipif(TOOL is None, reason="needs llvm-remarkutil")
def test_the_tool_of_llvm_reads_them(samples, tmp_path):
    explanation = samples.explanation("h100/concatenate")
    file = tmp_path / "fusions.opt.yaml"
    for result, count in (
        (explanation, len(explanation.modules[0].pairs)),
        (hostile(explanation), 1),
    ):
        file.write_text(to_remarks(result))
        ended = subprocess.run(
            [TOOL, "count", "--parser=yaml", "--group-by=total", file],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ended.stdout.split() == ["Total,Count", f"Total,{count}"]
