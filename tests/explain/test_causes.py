"""Of a pair of which one end can never be fused, the reason says which and why."""

import json
from pathlib import Path

import pytest
from sample_kinds import all_samples

from fusionscope.explain import PairFacts
from fusionscope.passes.causes import BY_OPCODE, CAUSES
from fusionscope.reasons.causes import CAUSELESS
from fusionscope.rules.messages import rule_ids, rule_of
from fusionscope.rules.pages import read_page

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"
GATED = Path(__file__).parent / "data" / "gated"


def refused(samples, dump: str | Path) -> list[PairFacts]:
    modules = samples.explanation(dump).modules
    return [pair for module in modules for pair in module.pairs if pair.reason]


def find(samples, dump: str, producer: str, consumer: str) -> PairFacts:
    """The costliest refusal of that form."""
    ends = (producer, consumer)
    return next(p for p in refused(samples, dump) if (p.producer.opcode, p.consumer.opcode) == ends)


@pytest.mark.parametrize("dump", all_samples())
def test_no_reason_is_only_that_one_end_can_never_be_fused(dump, samples):
    pairs = refused(samples, dump)
    assert [pair for pair in pairs if pair.reason in CAUSELESS] == []
    for pair in pairs:
        if pair.reason.startswith("never-"):
            numbers = dict(pair.numbers)
            assert numbers.keys() & {"producer", "consumer"}
            if pair.evidence == "inferred":
                continue
            # What the compiler said, or would say, is still there, and means the rule beside it.
            assert rule_of(pair.message) in CAUSELESS
            assert set(numbers.values()) & CAUSELESS.keys()


@pytest.mark.parametrize(
    ("dump", "producer", "consumer", "reason", "numbers"),
    [
        ("cpu/cartpole", "while", "xor", "never-control-flow", {"producer": "while"}),
        ("cpu/cartpole", "add", "while", "never-control-flow", {"consumer": "while"}),
        ("h100/libraries", "multiply", "fft", "never-library",
         {"consumer": "Fourier transform by cuFFT"}),
        ("h100/libraries", "custom-call", "select", "never-library",
         {"producer": "Cholesky decomposition by cuSOLVER"}),
        # The call has the bias already, and has taken the activation in.
        ("a100/convolution", "custom-call", "transpose", "never-library",
         {"producer": "convolution by cuDNN", "took": "bias + ReLU"}),
        ("a100-jaxlib-0.4.35/library_random", "slice", "custom-call", "never-library",
         {"consumer": "random bits (threefry) by JAX", "fusion": "leg-pc-consumer"}),
    ],
)  # fmt: skip
def test_the_operation_is_named(dump, producer, consumer, reason, numbers, samples):
    pair = find(samples, dump, producer, consumer)
    assert pair.reason == reason
    assert numbers.items() <= dict(pair.numbers).items()
    assert pair.decided_by is None


@pytest.mark.parametrize(
    ("dump", "producer", "consumer", "by", "reason"),
    [
        # Split along the contracted dimension, by either algorithm of the pass.
        ("h100/dense", "dot", "reduce", "triton-gemm-rewriter", "gf-split-k"),
        ("h100-jaxlib-0.11/dense", "dot", "reduce", "triton-gemm-rewriter", "gf-split-k"),
        ("h100/attention", "multiply", "select", "triton-gemm-rewriter", "gf-other-inputs"),
        ("cpu/softmax", "exponential", "multiply", "dot-library-rewriter", "lib-one-user"),
        ("cpu/attention", "multiply", "dot", "dot-library-rewriter", "lib-individual"),
    ],
)
def test_the_pass_that_made_the_kernel_of_one_end_has_the_last_word(
    dump, producer, consumer, by, reason, samples
):
    pair = find(samples, dump, producer, consumer)
    assert (pair.decided_by, pair.reason, pair.evidence) == (by, reason, "re-evaluated")
    assert set(dict(pair.numbers).values()) & CAUSELESS.keys()


def test_who_else_reads_a_value_is_named_as_the_pair_names_it(samples):
    module = samples.facts("cpu/softmax")
    names = {pair.consumer.name for pair in module.pairs if pair.producer.name == "exp.1"}
    (shared,) = {
        dict(pair.numbers)["read_by"] for pair in module.pairs if pair.reason == "lib-one-user"
    }
    assert set(shared.split(", ")) == names


def test_every_cause_is_a_reason_and_has_a_page(run_json):
    for cause in CAUSES:
        assert cause.id in rule_ids()
        assert read_page(cause.id).what
        actual = run_json("explain", DUMPS / "cpu" / "cartpole", "--reason", cause.id)
        assert all(p["reason"] == cause.id for p in actual["modules"][0]["pairs"])
    assert len({cause.id for cause in CAUSES}) == len(CAUSES)


def test_no_operation_has_two_causes():
    assert len(BY_OPCODE) == sum(len(cause.opcodes) for cause in CAUSES)


@pytest.fixture
def run_json():
    from click.testing import CliRunner

    from fusionscope.cli.main import cli

    def run(*arguments):
        words = [*map(str, arguments), "--format", "json"]
        return json.loads(CliRunner().invoke(cli, words, standalone_mode=False).stdout)

    return run


def priced(samples, dump: str | Path) -> list[PairFacts]:
    return [pair for pair in refused(samples, dump) if pair.cost is not None]


@pytest.mark.parametrize(
    "dump",
    [
        "h100/concatenate",
        "h100/cartpole",
        "a100/reductions",
        "h100-without-multi-output-fusion/reductions",
    ],
)
def test_the_times_of_all_consumers_add_up_to_the_estimate(dump, samples):
    actual = priced(samples, dump)
    assert actual
    for pair in actual:
        cost = pair.cost
        unfused = cost.producer_us + sum(share.unfused_us for share in cost.shares)
        assert unfused == pytest.approx(cost.unfused_us)
        assert sum(share.fused_us for share in cost.shares) == pytest.approx(cost.fused_us)
        assert sum(share.consumers for share in cost.shares) == cost.consumers
        assert sum(share.share for share in cost.shares) == pytest.approx(1)
        losses = [share.fused_us - share.unfused_us for share in cost.shares]
        assert max(losses) == losses[0]
        # What the compiler recorded is the same sum, as long as nothing changed around it since.
        if pair.evidence == "agree":
            assert cost.unfused_us - cost.fused_us == pytest.approx(cost.benefit_us, abs=1e-3)


def test_the_consumer_that_decides_is_named(samples):
    # Tanh would be computed anew by a reduction with few threads, and that alone is the loss.
    pair = next(p for p in priced(samples, "h100/concatenate") if p.producer.opcode == "tanh")
    worst = pair.cost.shares[0]
    assert worst.name == "reduce_sum.7.0" != pair.consumer.name
    assert worst.share > 0.9
    assert [kernel.name for kernel in pair.cost.kernels] == [
        pair.producer.name, worst.name, "both in one",
    ]  # fmt: skip
    together = pair.cost.kernels[2]
    assert together.total_us + pair.cost.launch_us == pytest.approx(worst.fused_us)


def test_the_consumer_that_keeps_a_producer_out_of_all_others_is_named(samples):
    # The program also returns whether a pole fell, so one user is the result, not a kernel.
    pair = find(samples, "h100/cartpole", "or", "broadcast")
    assert pair.reason == "pf-all-users"
    numbers = dict(pair.numbers)
    assert numbers["because"].endswith(", the result of its computation")
    assert numbers["refusing"] == "1 of 3 consumers"


def test_who_shares_a_value_that_must_not_be_duplicated_is_named(samples):
    pairs = [
        p for p in refused(samples, "cpu-multi-output/cartpole") if p.reason == "base-expensive-dup"
    ]
    shared = next(pair for pair in pairs if pair.producer.name == "add.69")
    readers = {pair.consumer.name for pair in pairs if pair.producer.name == "add.69"}
    numbers = dict(shared.numbers)
    assert numbers["users"] == len(readers) == 2
    assert set(numbers["read_by"].split(", ")) == readers


def test_a_fusion_of_a_dot_ends_behind_a_view_that_several_read(samples):
    # x @ w + b is reshaped, and then read by tanh and by a product.
    pairs = [pair for pair in refused(samples, GATED) if pair.reason == "gf-one-user"]
    assert {pair.producer.opcode for pair in pairs} == {"add"}
    assert {pair.consumer.opcode for pair in pairs} == {"tanh", "multiply"}
    for pair in pairs:
        assert set(dict(pair.numbers)["read_by"].split(", ")) == {p.consumer.name for p in pairs}


def test_a_conversion_between_the_two_hides_no_reason(samples):
    # A GPU has no tanh of bf16: it is computed in f32, and another instruction makes it bf16 again.
    module = samples.facts(GATED)
    gated = [
        pair for pair in module.pairs if pair.producer.opcode == "tanh" and pair.fused_by_later_pass
    ]
    assert {pair.consumer.opcode for pair in gated} == {"multiply", "subtract"}
    assert {pair.fused_by_later_pass.reason for pair in gated} == {"pf-negative"}
    assert {pair.fused_by_later_pass.evidence for pair in gated} == {"agree"}
    assert "unknown" not in {pair.reason for pair in module.pairs}
