"""Kernels that take too much of a TPU's vector memory: what the compiler says, in one line."""

from __future__ import annotations

import pytest

from fusionscope.capture.vmem import vmem_problem

# As libtpu 0.0.52 prints them, shortened.
WHOLE = """RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory \
space vmem. Used 159.80M of 128.00M vmem. Exceeded vmem capacity by 31.80M.

Program vmem requirement 159.80M:
    scoped          159.80M

  Largest program allocations in vmem:

  1. Size: 64.00M
     Operator: op_name="jit(step)/softmax/pallas_call"
     Shape: u8[67108864]{0}
     Unpadded size: 64.00M
     Tag: input window allocation for operator input 0. The window shape is f32[256,32768], while \
the full shape is f32[2048,32768]. The u8 shape/size shown above represents the raw byte size of \
this window in VMEM. This allocation has 2 buffering levels.
     XLA label: softmax.1 = custom-call(tanh.1), custom_call_target="tpu_custom_call"
     Allocation type: scoped
     ==========================

  2. Size: 64.00M
     Shape: u8[67108864]{0}
     XLA label: softmax.1 = custom-call(tanh.1), custom_call_target="tpu_custom_call"
     Allocation type: scoped
     ==========================

  3. Size: 31.80M
     XLA label: register allocator spill slots in HLO :: softmax.1
     Allocation type: scoped
     ==========================
"""
SCOPED = """RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:
Ran out of memory in memory space vmem while allocating on stack for %copy = \
f32[4096,4096]{1,0:T(8,128)} copy(%div.7), metadata={op_name="jit(plain)/div" stack_frame_id=2}. \
Scoped allocation with size 384.0K and limit 128.0K exceeded scoped vmem limit by 256.0K. It \
should not be possible to run out of scoped vmem -"""


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (
            WHOLE,
            "out of vector memory: softmax.1 (jit(step)/softmax/pallas_call) takes 159.80M, and "
            "there are 128.00M: the window f32[256,32768] of operand 0 in 2 buffers 64.00M, other "
            "64.00M, spilled registers 31.80M",
        ),
        (
            SCOPED,
            "out of vector memory: copy (jit(plain)/div) takes 384.0K, and a kernel may take "
            "128.0K",
        ),
        (
            WHOLE.partition("\n\n")[0],
            "out of vector memory: the program takes 159.80M, and there are 128.00M",
        ),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 3G of 2G hbm.", ""),
        ("", ""),
    ],
)
def test_the_kernel_is_named_with_what_it_takes(message: str, problem: str) -> None:
    assert vmem_problem(message) == problem
