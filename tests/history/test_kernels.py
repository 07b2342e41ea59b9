"""What the final module launches, and what it moves. Figures are worked out by hand in comments."""

import re
from collections import Counter
from pathlib import Path

import pytest
from sample_kinds import all_samples

from fusionscope.history import Kernel, KernelKind, Numbering, find_kernels
from fusionscope.hlo import parse

DUMPS = Path(__file__).resolve().parents[2] / "samples" / "dumps"


def kernels(samples, dump: Path) -> tuple[Kernel, ...]:
    module = samples.module(dump)
    return find_kernels(Numbering().number(module.read(module.final)), module.backend)


def kernels_of(text: str, backend: str | None = None) -> dict[str, Kernel]:
    return {
        kernel.name: kernel for kernel in find_kernels(Numbering().number(parse(text)), backend)
    }


def traffic(kernel: Kernel) -> tuple[int, int]:
    return kernel.bytes_read, kernel.bytes_written


@pytest.mark.parametrize("dump", all_samples(lambda dump: any(dump.glob("*.thunk_sequence.txt"))))
def test_launches_are_those_of_the_thunk_sequence(dump, samples):
    """The GPU compiler lists beside the dump what the program will launch."""
    (sequence,) = dump.glob("*.thunk_sequence.txt")
    older = re.findall(
        r"^(?:kKernel\t, kernel = (?=\w+))?(\w+)(?:,| +\t$)", sequence.read_text(), re.M
    )
    launched = Counter(
        actual[2].partition(" grid")[0] if actual[1] == "kCustomKernel" else actual[1]
        for actual in re.finditer(r"^ *\d+: (\w+) +\[.*?\] *(.*)$", sequence.read_text(), re.M)
        if actual[1] not in ("kAsyncDone", "kAsyncStart", "kWhile")
    )
    actual = kernels(samples, dump)
    if older:  # this form leaves out what stands in a loop
        launched.update(name for name in older if name != "kWhile")
        actual = tuple(kernel for kernel in actual if kernel.path == "entry")
    names = {re.sub(r"\W", "_", kernel.name) for kernel in actual}
    assert len(actual) == launched.total()
    assert names >= {name for name in launched if not name.startswith("k")}


@pytest.mark.parametrize("dump", all_samples())
def test_each_launch_counts_once(dump, samples):
    actual = kernels(samples, dump)
    assert len({kernel.instruction for kernel in actual}) == len(actual)
    for kernel in actual:
        assert kernel.runs > 0 or "condition" in _role(kernel)  # of a loop of known length
        assert kernel.bytes_read >= 0 and kernel.bytes_written >= 0
        assert kernel.bytes_moved == (kernel.bytes_read + kernel.bytes_written) * kernel.runs


def _role(kernel: Kernel) -> str:
    """What the callers of its computation call it, with that computation's name."""
    computation = kernel.instruction.computation
    callers = computation.module.callers.get(computation, ())
    roles = (role for caller in callers for role in caller.attributes.items())
    return " ".join(role for role, name in roles if name.lstrip("%") == computation.name)


@pytest.mark.parametrize("dump", all_samples())
def test_what_the_compiler_calls_wrapped_is_no_fusion(dump, samples):
    for kernel in kernels(samples, dump):
        if kernel.name.startswith("wrapped_"):
            assert kernel.kind is KernelKind.WRAPPED
            assert len(kernel.operations) == 1
        if kernel.kind is KernelKind.FUSION:
            assert len(kernel.operations) > 1
        if kernel.emitter.startswith(("__ynn", "__cublas", "__cudnn")):
            assert kernel.kind is KernelKind.LIBRARY


def test_softmax_on_the_cpu(samples):
    """f32[256,512] is 524,288 bytes, f32[256] 1,024. The library gets the maximum with what follows
    it, and the sum; the quotients are computed row by row, then multiplied."""
    rows, row = 524_288, 1_024
    actual = {kernel.name: kernel for kernel in kernels(samples, DUMPS / "cpu" / "softmax")}
    assert {
        name: (kernel.kind, *traffic(kernel), kernel.runs) for name, kernel in actual.items()
    } == {
        "ynn_fusion.1": (KernelKind.LIBRARY, rows, rows, 1),
        "ynn_fusion": (KernelKind.LIBRARY, rows, row, 1),
        "broadcast_divide_fusion": (KernelKind.FUSION, row, row, 1),
        "broadcast_multiply_fusion": (KernelKind.FUSION, rows + row, rows, 1),
    }


def test_softmax_on_a_gpu_is_one_launch(samples):
    """It reads the logits once and writes the result once."""
    (kernel,) = kernels(samples, DUMPS / "h100" / "softmax")
    assert (kernel.kind, traffic(kernel)) == (KernelKind.FUSION, (524_288, 524_288))
    assert kernel.emitter == "__triton"


def test_dense_on_a_gpu(samples):
    """The dot is split in four along what it sums over: it reads f32[256,512] (524,288 bytes) and
    f32[512,1024] (2,097,152), and writes f32[4,256,1024] (4,194,304). The other kernel adds the
    four up, with the bias f32[1024] (4,096), and writes f32[256,1024] (1,048,576)."""
    actual = {kernel.name: kernel for kernel in kernels(samples, DUMPS / "h100" / "dense")}
    gemm, remaining = actual["gemm_fusion_dot"], actual["loop_maximum_fusion"]
    assert len(actual) == 2
    assert traffic(gemm) == (524_288 + 2_097_152, 4_194_304)
    assert gemm.emitter.startswith("__triton") and gemm.operations == ("dot",)
    assert traffic(remaining) == (4_096 + 4_194_304, 1_048_576)
    assert remaining.kind is KernelKind.FUSION


def test_a_loop_of_known_length(samples):
    """The random bits of Cartpole come from a loop that runs five times (known_trip_count), and its
    condition never. All of it is one function. The two keys are u32[4,2048], 32,768 bytes each.
    Rounds read both and write one, and besides one u32 and three u32 of a u32[4] that is sliced;
    the condition compares two s32 and gives one pred."""
    actual = {kernel.name: kernel for kernel in kernels(samples, DUMPS / "cpu" / "cartpole")}
    body, condition = actual["broadcast_add_fusion.1"], actual["wrapped_compare"]
    assert (*traffic(body), body.runs) == (2 * 32_768 + 4 + 3 * 4, 32_768, 5)
    assert (*traffic(condition), condition.runs) == (8, 1, 0)
    assert (*traffic(actual["copy.9"]), actual["copy.9"].runs) == (32_768, 32_768, 5)
    assert all(kernel.runs_known for kernel in actual.values())
    assert actual["compare_or_fusion"].launches == actual["call"].launches == 1
    assert body.launches == 0


def test_a_bounded_loop_counts_its_bound(samples):
    """``(step < 100) & (change > 1e-3)``, and the condition once more."""
    actual = {kernel.name: kernel for kernel in kernels(samples, DUMPS / "h100" / "loop")}
    assert {name for name, kernel in actual.items() if kernel.runs == 101} == {"loop_and_fusion"}
    assert sum(kernel.runs for kernel in actual.values()) == 3 + 3 * 100 + 101
    inside = {name for name, kernel in actual.items() if not kernel.runs_known}
    # As in the thunk sequence: one kernel in the condition, three in the body.
    assert inside == {"loop_and_fusion", "loop_add_fusion", "input_add_reduce_fusion", "copy.7"}


def test_copies_on_a_tpu_read_and_write_what_is_copied(samples):
    """copy-start gives a tuple of target, source and context, but only f32[256,512] moves."""
    actual = {kernel.name: kernel for kernel in kernels(samples, DUMPS / "tpu-v5e" / "softmax")}
    assert traffic(actual["copy-start"]) == (524_288, 524_288)
    assert "copy-done" not in actual


HEADER = "HloModule m\n\n"
LOOPS = """HloModule m

%inner_condition (p: (s32[], f32[8])) -> pred[] {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %c = s32[] constant(7)
  ROOT %compare = pred[] compare(%i, %c), direction=LT
}

%inner_body (q: (s32[], f32[8])) -> (s32[], f32[8]) {
  %q = (s32[], f32[8]) parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %v = f32[8] get-tuple-element(%q), index=1
  %sine = f32[8] sine(%v)
  ROOT %t = (s32[], f32[8]) tuple(%j, %sine)
}

%outer_condition (r: (s32[], f32[8])) -> pred[] {
  %r = (s32[], f32[8]) parameter(0)
  %k = s32[] get-tuple-element(%r), index=0
  %d = s32[] constant(3)
  ROOT %compare.2 = pred[] compare(%k, %d), direction=LT
}

%outer_body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[], f32[8]) parameter(0)
  ROOT %while = (s32[], f32[8]) while(%s), condition=%inner_condition, body=%inner_body, backend_config={"known_trip_count":{"n":"7"}}
}

ENTRY %main (a: s32[], b: f32[8]) -> (s32[], f32[8]) {
  %a = s32[] parameter(0)
  %b = f32[8] parameter(1)
  %u = (s32[], f32[8]) tuple(%a, %b)
  ROOT %while.2 = (s32[], f32[8]) while(%u), condition=%outer_condition, body=%outer_body, backend_config={"known_trip_count":{"n":"3"}}
}
"""  # noqa: E501


def test_loops_in_loops_multiply():
    actual = kernels_of(LOOPS)
    assert {name: kernel.runs for name, kernel in actual.items()} == {
        "sine": 3 * 7,
        "compare": 0,  # the runtimes count the steps
        "compare.2": 0,
    }
    assert actual["sine"].bytes_moved == 3 * 7 * (32 + 32)


def test_a_loop_of_unknown_length_makes_what_it_holds_unknown():
    outer_unknown = LOOPS.replace(', backend_config={"known_trip_count":{"n":"3"}}', "")
    actual = kernels_of(outer_unknown)
    assert (actual["sine"].runs, actual["sine"].runs_known) == (7, False)


def one(instruction: str, *parameters: str, computations: str = "") -> Kernel:
    """The kernel of a module of one instruction, which reads these parameters."""
    lines = [f"  %p{n} = {shape} parameter({n})" for n, shape in enumerate(parameters)]
    result = instruction.partition(" = ")[2]
    end = result.index(")") + 1 if result.startswith("(") else result.index(" ")
    signature = ", ".join(f"p{n}: {shape}" for n, shape in enumerate(parameters))
    text = "\n".join(
        [
            f"{HEADER}{computations}ENTRY %main ({signature}) -> {result[:end]} {{",
            *lines,
            f"  ROOT {instruction}",
            "}",
        ]
    )
    (kernel,) = kernels_of(text).values()
    return kernel


@pytest.mark.parametrize(
    ("instruction", "parameters", "read", "output"),
    [
        # A value that is read twice by one operation passes through memory once.
        ("%r = f32[8] add(%p0, %p0)", ["f32[8]"], 32, 32),
        # Of what is only sliced, the slice is read, and the places.
        ("%r = f32[2] slice(%p0), slice={[0:2]}", ["f32[100]"], 8, 8),
        (
            "%r = f32[2] dynamic-slice(%p0, %p1), dynamic_slice_sizes={2}",
            ["f32[100]", "s32[]"],
            8 + 4,
            8,
        ),
        # What is updated in place stays where it is: the update is read and written, and the place
        # is read.
        (
            "%r = f32[100] dynamic-update-slice(%p0, %p1, %p2)",
            ["f32[100]", "f32[3]", "s32[]"],
            12 + 4,
            12,
        ),
        # What is sent stands in the result, too.
        (
            "%r = (f32[8], f32[16]) all-gather-start(%p0), replica_groups={{0,1}}, dimensions={0}",
            ["f32[8]"],
            32,
            64,
        ),
    ],
)
def test_traffic_of_one_operation(instruction, parameters, read, output):
    assert traffic(one(instruction, *parameters)) == (read, output)


def test_traffic_inside_fusions():
    """A fusion that updates 3 of 100 elements in place reads the update and a place."""
    computations = """%f (p: f32[100], q: f32[3], i: s32[]) -> f32[100] {
  %p = f32[100] parameter(0)
  %q = f32[3] parameter(1)
  %i = s32[] parameter(2)
  %sine = f32[3] sine(%q)
  ROOT %u = f32[100] dynamic-update-slice(%p, %sine, %i)
}

"""
    instruction = "%r = f32[100] fusion(%p0, %p1, %p2), kind=kLoop, calls=%f"
    kernel = one(instruction, "f32[100]", "f32[3]", "s32[]", computations=computations)
    assert traffic(kernel) == (3 * 4 + 4, 3 * 4)
    assert kernel.kind is KernelKind.FUSION
    assert sorted(kernel.operations) == ["dynamic-update-slice", "sine"]


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("__cublas$lt$matmul", KernelKind.LIBRARY),
        ("__cudnn$convForward", KernelKind.LIBRARY),
        ("__onednn$matmul", KernelKind.LIBRARY),
        ("cusolver_getrf_ffi", KernelKind.LIBRARY),
        ("lapack_sgetrf_ffi", KernelKind.LIBRARY),
        ("xla.gpu.ext.cub_sort_keys", KernelKind.LIBRARY),
        ("TopK", KernelKind.CUSTOM_CALL),
        ("my_own_kernel", KernelKind.CUSTOM_CALL),
    ],
)
def test_custom_calls_are_told_apart_by_what_they_call(target, kind):
    kernel = one(f'%r = f32[8] custom-call(%p0), custom_call_target="{target}"', "f32[8]")
    assert (kernel.kind, kernel.emitter) == (kind, target)


def test_one_operation_in_a_fusion_is_not_a_fusion():
    """Constants, tuples and bitcasts are nothing that a user would call an operation."""
    computations = """%f (p: f32[8]) -> f32[4,2] {
  %p = f32[8] parameter(0)
  %c = f32[] constant(1)
  %sine = f32[8] sine(%p)
  ROOT %b = f32[4,2] bitcast(%sine)
}

"""
    instruction = "%r = f32[4,2] fusion(%p0), kind=kLoop, calls=%f"
    kernel = one(instruction, "f32[8]", computations=computations)
    assert (kernel.kind, kernel.operations) == (KernelKind.WRAPPED, ("sine",))


def test_the_workspace_of_a_library_is_not_moved():
    """A product of two matrices of 64 numbers each, by cuBLAS, and a custom call of a user."""
    text = """HloModule m

ENTRY %main (p0: f32[8,8], p1: f32[8,8]) -> f32[8,8] {
  %p0 = f32[8,8]{1,0} parameter(0)
  %p1 = f32[8,8]{1,0} parameter(1)
  %r = (f32[8,8], s8[4194304]) custom-call(%p0, %p1), custom_call_target="__cublas$lt$matmul"
  ROOT %g = f32[8,8]{1,0} get-tuple-element(%r), index=0
}
"""
    assert kernels_of(text)["r"].bytes_moved == 3 * 64 * 4
    of_a_user = text.replace("__cublas$lt$matmul", "my_own_kernel")
    assert kernels_of(of_a_user)["r"].bytes_moved == 3 * 64 * 4 + 4194304
    read = text.replace(
        "ROOT %g =",
        "%h = s8[4194304] get-tuple-element(%r), index=1\n  %u = s8[4194304] not(%h)\n  ROOT %g =",
    )
    assert kernels_of(read)["r"].bytes_written == 64 * 4 + 4194304


def test_memory_that_is_only_reserved_is_no_launch():
    """The thunk sequence of a program with such a call has nothing for it."""
    text = """HloModule m

ENTRY %main () -> f32[8] {
  ROOT %reserved = f32[8] custom-call(), custom_call_target="AllocateBuffer"
}
"""
    assert kernels_of(text) == {}
    assert kernels_of(text.replace("AllocateBuffer", "Fill")).keys() == {"reserved"}


def test_names_and_orders_launch_nothing():
    text = """HloModule m

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %c = f32[8] constant({...})
  %t = (f32[8], f32[8]) tuple(%a, %c)
  %o = (f32[8], f32[8]) opt-barrier(%t)
  %g = f32[8] get-tuple-element(%o), index=1
  %b = f32[2,4] bitcast(%g)
  ROOT %d = f32[8] bitcast(%b)
}
"""
    assert kernels_of(text) == {}
