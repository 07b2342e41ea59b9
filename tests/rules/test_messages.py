from pathlib import Path

import pytest

from fusionscope.dump.fusion_explorer import Kind, read_fusion_explorer
from fusionscope.dump.priority_fusion import Ineligible, read_priority_fusion
from fusionscope.rules.messages import MESSAGES, UNKNOWN, rule_ids, rule_of
from fusionscope.versions.known import all_rules

# Where two rules have one message, the first one in its book is meant.
ALL = {rule.message: rule.id for rule in reversed(all_rules()) if rule.message} | dict(MESSAGES)


def test_each_message_is_there_once():
    messages = [message for message, _ in MESSAGES]
    assert len(set(messages)) == len(messages)
    assert {rule.message for rule in all_rules()}.isdisjoint(messages)


@pytest.mark.parametrize("inserted", ["fusion.3", "", "a; b is not supported", "x" * 10_000])
def test_no_message_is_taken_for_another(inserted):
    for message, rule in ALL.items():
        assert rule_of(message.replace("{…}", inserted)) == rule, message


@pytest.mark.parametrize(
    ("reason", "pass_name", "rule"),
    [
        ("Negative benefit (-16.61125us)", "PriorityFusion", "pf-negative"),
        (
            "Fusion can not be tiled with SymbolicTileAnalysis: No valid tilings found.",
            "PriorityFusion",
            "tri-tiling",
        ),
        ("No valid tilings found.", None, "tri-exec"),
        ("fusion.11 and fusion.9 are connected", "multi-output fusion", "mof-connected"),
        (
            "expensive producer would be duplicated ; "
            "multi-output fusion not supported by this pass",
            "InstructionFusion",
            "base-expensive-dup",
        ),
        (
            "operand can not be duplicated at: a/b/instruction_fusion.cc:675 ; Not allowed at: "
            "a/tpu_instruction_fusion.cc:4866 at: a/decision.h:119",
            "InstructionFusion",
            "base-globally-unfusible",
        ),
        ("shared memory usage would be over the budget of 49152B", None, "budget-shmem"),
        ("over 8 unnested reductions in fusion", "FusionMerger", "budget-reductions"),
        ("not fusing into the output of the root instruction", "PriorityFusion", "pf-root"),
        ("not fusing into the output of the root instruction", "InstructionFusion", "base-root"),
        ("will execute slower if fused", "multi-output fusion", "mof-pc-cost"),
        ("will execute slower if fused", "FusionMerger", "leg-fm-cost"),
        ("gather is not supported", None, "triton-support"),
        ("Not allowed at: a/tpu_instruction_fusion.cc:5079 ; x", "InstructionFusion", UNKNOWN),
        ("", None, UNKNOWN),
    ],
)
def test_reasons_of_real_records(reason, pass_name, rule):
    assert rule_of(reason, pass_name) == rule
    assert rule in rule_ids()


RECORDS = Path(__file__).parent.parent / "dump" / "data"


def test_every_reason_of_cpu_and_gpu_records_is_known():
    reasons = set()
    for file in RECORDS.glob("*/*._fusion.*"):
        if file.parent.name != "tpu":  # its compiler often names a line of its source instead
            for decision in read_fusion_explorer(file.read_bytes(), file.name).decisions:
                if decision.kind is not Kind.OTHER and decision.reason:
                    reasons.add((decision.reason, decision.pass_name))
    for file in RECORDS.glob("*/*.priority_fusion_dump.txt"):
        for step in read_priority_fusion(file.read_bytes(), file.name).steps:
            if isinstance(step, Ineligible):
                reasons.add((step.reason, "PriorityFusion"))
    assert len(reasons) > 20
    assert [reason for reason in reasons if rule_of(*reason) == UNKNOWN] == []


def test_long_reasons_take_linear_time():
    # With backtracking this would take years.
    assert rule_of("Instruction a " + " tensor size of" * 100_000) == UNKNOWN
    assert rule_of(" and" * 100_000 + " at:" * 100_000) == UNKNOWN
