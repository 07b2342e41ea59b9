"""Which condition keeps a step out of a convolution's call of cuDNN.

The expectations are those of XLA's source; the compiler agrees.
"""

from __future__ import annotations

import pytest

from fusionscope.capture.capture import capture
from fusionscope.capture.targets import Program, ProgramKind, read_target
from fusionscope.dump import open_dump
from fusionscope.findings.epilogues.facts import Epilogue
from fusionscope.findings.epilogues.find import find_epilogues
from fusionscope.hlo import parse
from fusionscope.passes.gpu.conv_rewriter.epilogues import (
    Step,
    find_follower,
    find_refusal,
    is_convolution_call,
)

HEAD = """HloModule convolution

ENTRY main {
  x = TYPE[1,8,8,64] parameter(0)
  w = TYPE[3,3,IN,64] parameter(1)
  channels = TYPE[64] parameter(2)
  number = TYPE[] parameter(3)
  array = TYPE[1,8,8,64] parameter(4)
  zero = TYPE[] constant(0)
  zeros = TYPE[1,8,8,64] broadcast(zero), dimensions={}
  six = TYPE[] constant(6)
  sixes = TYPE[1,8,8,64] broadcast(six), dimensions={}
  numbers = TYPE[1,8,8,64] broadcast(number), dimensions={}
  bias = TYPE[1,8,8,64] broadcast(channels), dimensions={3}
"""
SHAPE = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=GROUPS"
CALL = f"""  call = (TYPE[1,8,8,64], u8[0]) custom-call(OPERANDS), {SHAPE}, \
custom_call_target="__cudnn$convBiasActivationForward", \
backend_config={{"cudnn_conv_backend_config":{{"activation_mode":"MODE","conv_result_scale":1}}}}
  conv = TYPE[1,8,8,64] get-tuple-element(call), index=0
"""
CONVOLUTION = f"  conv = TYPE[1,8,8,64] convolution(x, w), {SHAPE}\n"
LAST = "ROOT last = TYPE[1,8,8,64] "
ABOVE = "above = pred[1,8,8,64] compare(conv, zeros), direction="
USUAL = {"OPERANDS": "x, w", "MODE": "kNone", "TYPE": "f16", "IN": "64", "GROUPS": "1"}
DEPTHWISE = {"IN": "1", "GROUPS": "64"}
# What follows the convolution in a program, how that is configured, which step it is, and the
# condition that is not met.
PROGRAMS: dict[str, tuple[str, dict[str, str], Step, str | None]] = {
    "a bias": (f"{LAST}add(conv, bias)", {}, Step.BIAS, None),
    "another array": (f"{LAST}add(array, conv)", {}, Step.ADDITION, None),
    "ReLU": (f"{LAST}maximum(conv, zeros)", {}, Step.RELU, None),
    "ReLU6": (f"{LAST}clamp(zeros, conv, sixes)", {}, Step.RELU6, None),
    "a factor": (f"{LAST}multiply(conv, sixes)", {}, Step.SCALING, None),
    "ELU": (
        f"{ABOVE}GT\n  below = TYPE[1,8,8,64] exponential-minus-one(conv)\n"
        f"  {LAST}select(above, conv, below)",
        {},
        Step.ELU,
        None,
    ),
    "leaky ReLU from zero on": (
        f"{ABOVE}GE\n  below = TYPE[1,8,8,64] multiply(conv, sixes)\n"
        f"  {LAST}select(above, conv, below)",
        {},
        Step.LEAKY_RELU,
        "conv-formula",
    ),
    "a kernel for each channel": (
        f"{LAST}add(conv, bias)", DEPTHWISE, Step.BIAS, "conv-depthwise",
    ),
    "a maximum with a number": (f"{LAST}maximum(conv, numbers)", {}, Step.RELU, "conv-formula"),
    "another bound": (
        f"{LAST}clamp(zeros, conv, numbers)", {}, Step.RELU6, "conv-formula",
    ),
    "ReLU6 of bf16": (
        f"{LAST}clamp(zeros, conv, sixes)", {"TYPE": "bf16"}, Step.RELU6, "conv-half",
    ),
    "a factor that is an argument": (
        f"{LAST}multiply(conv, numbers)", {}, Step.SCALING, "conv-factor",
    ),
    "a bias in another type": (
        "wide = f32[1,8,8,64] convert(conv)\n  few = f32[64] convert(channels)\n"
        "  wide_bias = f32[1,8,8,64] broadcast(few), dimensions={3}\n"
        "  ROOT last = f32[1,8,8,64] add(wide, wide_bias)",
        {},
        Step.BIAS,
        "conv-between",
    ),
    "a convolution that is a result, too": (
        "sum = TYPE[1,8,8,64] add(conv, bias)\n"
        "  ROOT both = (TYPE[1,8,8,64], TYPE[1,8,8,64]) tuple(sum, conv)",
        {},
        Step.BIAS,
        "conv-users",
    ),
}  # fmt: skip
# Further calls.
CALLS: dict[str, tuple[str, dict[str, str], Step, str | None]] = {
    "a bias after ReLU": (
        f"{LAST}add(conv, bias)", {"MODE": "kRelu"}, Step.BIAS, "conv-order",
    ),
    "a third sum": (
        f"{LAST}add(conv, bias)", {"OPERANDS": "x, w, channels, array"}, Step.BIAS, "conv-order",
    ),
    "ReLU6 after another array": (
        f"{LAST}clamp(zeros, conv, sixes)",
        {"OPERANDS": "x, w, channels, array"},
        Step.RELU6,
        "conv-channels",
    ),
}  # fmt: skip


def text_of(middle: str, steps: str, replacements: dict[str, str]) -> str:
    text = f"{HEAD}{middle}  {steps}\n}}\n"
    for name, value in (USUAL | replacements).items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize("words", [*PROGRAMS, *CALLS])
def test_the_condition_that_is_not_met_is_named(words: str) -> None:
    steps, replacements, step, rule = (PROGRAMS | CALLS)[words]
    module = parse(text_of(CALL, steps, replacements))
    (call,) = filter(is_convolution_call, module.walk())
    follower = find_follower(call, has_engine=True)
    assert follower is not None and follower.step is step
    refusal = find_refusal(follower)
    assert (refusal.rule if refusal is not None else None) == rule


def test_cudnn_compiles_no_kernels_unless_it_may() -> None:
    module = parse(text_of(CALL, PROGRAMS["ReLU6"][0], {}))
    (call,) = filter(is_convolution_call, module.walk())
    follower = find_follower(call, has_engine=False)
    assert follower is not None
    refusal = find_refusal(follower)
    assert refusal is not None and refusal.rule == "conv-engine"


def test_a_call_says_what_it_includes(samples) -> None:
    (epilogue,) = samples.facts("h100/convolution").find_all(Epilogue)
    assert (epilogue.library, epilogue.step) == ("cuDNN", None)
    assert epilogue.includes == ("bias", "ReLU")


@pytest.mark.compiler
@pytest.mark.long
@pytest.mark.parametrize("words", PROGRAMS)
def test_the_compiler_agrees(words, tmp_path) -> None:
    steps, replacements, step, rule = PROGRAMS[words]
    file = tmp_path / "program.hlo"
    file.write_text(text_of(CONVOLUTION, steps, replacements))
    program = Program(kind=ProgramKind.HLO, file=file)
    flags = ["--xla_gpu_use_runtime_fusion=true"]
    capture(program, read_target("h100"), tmp_path / "dump", flags=flags)
    (module,) = open_dump(tmp_path / "dump").modules
    epilogues = find_epilogues(module)
    if rule is None:
        assert [part for epilogue in epilogues for part in epilogue.includes]
        assert all(epilogue.step is None for epilogue in epilogues)
    else:
        (epilogue,) = epilogues
        assert (epilogue.step, epilogue.rule) == (step, rule)
