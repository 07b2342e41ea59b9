"""What the GPU compiler's autotuner measured, in the file of ``--xla_gpu_dump_autotune_logs_to``,
and what it chose, in ``*.autotune_results.pbtxt`` of each module or the file of
``--xla_gpu_dump_autotune_results_to``.

A log is text, to which each compilation of the process appends: AutotuningLogs, or, with
``--xla_gpu_use_new_autotune_cache_format``, as in jaxlib 0.12, AllRawConfigProfiles. The compiler
writes it where the device is present: it times candidates on it. Sources: ``xla/autotuning.proto``;
``xla/backends/autotuner/autotuning.proto`` and ``autotuner.cc``, ``LogConfigProfiles``.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from fusionscope.dump.text_proto import Message, parse, unquote
from fusionscope.errors import UnusableInput
from fusionscope.hlo.search import unfold

# By the field that has the configuration of a candidate.
_GENERATORS = {
    "gemm": "cuBLAS",
    "triton": "Triton",
    "algorithm": "cuDNN",
    "conv": "cuDNN",
    "cuda_conv_plan": "cuDNN",
    "custom_kernel_fusion": "custom kernel",
}
_OTHER = "other"  # a message with the name of the generator and its configuration
_FAILURES = {
    "REDZONE_MODIFIED": "wrote outside its results",
    "WRONG_RESULT": "gave another result than the reference",
    "DISQUALIFIED": "failed to run",
    "COMPILATION_FAILED": "failed to compile",
    "EXECUTION_FAILED": "failed to run",
    "REDZONE_CHECK_FAILED": "wrote outside its results",
    "WRONG_RESULTS": "gave another result than the reference",
}
# By the backend of a profile; the others keep their names.
_BACKENDS = {
    "TRITON": "Triton",
    "CUBLASLT": "cuBLAS",
    "CUBLASLT_FISSION": "cuBLAS",
    "CUDNN": "cuDNN",
}
_METADATA = frozenset(
    "device explicit_version codegen_version codegen_options_fingerprint per_backend_versions"
    " logs instruction_profiles".split()
)
_OF_RESULTS = frozenset("version results device_scope explicit_version_scope entries".split())
_INSTRUCTION = re.compile(r"%?(?P<name>[\w.\-]+) = (?P<shape>.+?) [\w\-]+\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to generate an instruction.

    generator: the library or emitter
    configuration: its settings as ``name=value``
    time_us: measured microseconds, null if it failed
    scratch_bytes: the temporary memory that it takes
    failure: how it failed, empty if it ran
    """

    generator: str
    configuration: str
    time_us: float | None
    scratch_bytes: int
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedInstruction:
    """An instruction and the candidates that were timed for it, in the compiler's order.

    ``shape`` is that of the result, empty if the log does not have it.
    """

    name: str
    shape: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class TuningResult:
    """What was chosen for an instruction: ``hlo`` is its text, of a fusion that of the computation
    in braces.
    """

    hlo: str
    candidate: Candidate


def read_autotuner_results(data: bytes, file: str) -> tuple[TuningResult, ...]:
    """Return the results. Those of ``--xla_gpu_use_new_autotune_cache_format`` (``entries``) do not
    say for which instruction they are, and are left out. Raises ``UnusableInput`` if it is no such
    text.
    """
    expected = "results { device: … hlo: … result { … } }"
    root = _parse(data, file, _OF_RESULTS, expected, "xla_gpu_dump_autotune_results_to")
    return tuple(
        TuningResult(entry.string("hlo"), _read_candidate(result))
        for entry in root.messages("results")
        if (result := entry.message("result")) is not None
    )


def read_autotuner_log(data: bytes, file: str) -> tuple[TunedInstruction, ...]:
    """Return the tuned instructions in order. Raises ``UnusableInput`` if it is no such text."""
    expected = "logs { … } or instruction_profiles { … }"
    root = _parse(data, file, _METADATA, expected, "xla_gpu_dump_autotune_logs_to")
    return (
        *map(_read_instruction, root.messages("logs")),
        *map(_read_profiles, root.messages("instruction_profiles")),
    )


def _parse(data: bytes, file: str, names: Set[str], expected: str, flag: str) -> Message:
    """Return a message of fields with these ``names``, in a file that ``flag`` has written."""
    root = parse(data, file)
    for name, _ in root.fields:
        if name not in names:
            raise UnusableInput(
                f"found {name}, expected {expected}",
                file=file,
                hint=f"this is the file that --{flag} names",
            )
    return root


def _read_profiles(profiles: Message) -> TunedInstruction:
    instruction = _INSTRUCTION.match(profiles.string("hlo_text"))
    return TunedInstruction(
        name=instruction["name"] if instruction is not None else "",
        shape=instruction["shape"] if instruction is not None else "",
        candidates=tuple(
            _read_profile(profile)
            for name, profile in profiles.fields
            if isinstance(profile, Message) and name in ("config_profiles", "failed_configs")
        ),
    )


def _read_profile(profile: Message) -> Candidate:
    config = profile.message("config")
    backend = (config.scalar("backend") if config is not None else None) or "unknown"
    settings = config.message("backend_config") if config is not None else None
    run_time = profile.message("run_time")
    return Candidate(
        generator=_BACKENDS.get(backend, backend),
        configuration=_words(settings) if settings is not None else "",
        time_us=_microseconds(run_time) if run_time is not None else None,
        scratch_bytes=profile.integer("scratch_bytes"),
        failure=_failure(profile.scalar("kind"), profile.string("message"))
        if run_time is None
        else "",
    )


def _microseconds(duration: Message) -> float:
    return duration.integer("seconds") * 1e6 + duration.integer("nanos") / 1e3


def _read_instruction(log: Message) -> TunedInstruction:
    instruction = _unpacked(log.message("instr"))
    shape = instruction.message("shape") if instruction is not None else None
    return TunedInstruction(
        name=log.string("fusion_name") or (instruction.string("name") if instruction else ""),
        shape=_shape_text(shape) if shape is not None else "",
        candidates=tuple(map(_read_candidate, log.messages("results"))),
    )


def _unpacked(packed: Message | None) -> Message | None:
    """Return the message inside an Any, which is printed below the name of its type."""
    inner = [value for name, value in packed.fields if name[0] == "["] if packed else []
    return inner[-1] if inner and isinstance(inner[-1], Message) else None


def _read_candidate(result: Message) -> Candidate:
    generator, settings = "unknown", None
    for name, value in result.fields:
        if isinstance(value, Message) and name == _OTHER:
            generator, settings = value.string("name"), value.message("config")
        elif isinstance(value, Message) and name in _GENERATORS:
            generator, settings = _GENERATORS[name], value
    failure = result.message("failure")
    run_time = result.message("run_time")
    return Candidate(
        generator=generator,
        configuration=_words(settings) if settings is not None else "",
        time_us=_microseconds(run_time) if failure is None and run_time is not None else None,
        scratch_bytes=result.integer("scratch_bytes"),
        failure=_failure(failure.scalar("kind"), failure.string("msg"))
        if failure is not None
        else "",
    )


def _failure(kind: str | None, message: str) -> str:
    words = _FAILURES.get(kind or "", "failed")
    return f"{words}: {message}" if message else words


def _words(settings: Message) -> str:
    """Return the settings as ``name=value``, those of inner messages without the names of these."""
    fields = unfold(
        settings.fields, lambda field: field[1].fields if isinstance(field[1], Message) else ()
    )
    return " ".join(f"{name}={unquote(value)}" for name, value in fields if isinstance(value, str))


def _shape_text(shape: Message) -> str:
    """Return a ShapeProto as HLO has it, without layouts."""
    parts: list[str] = []
    pending: list[Message | str] = [shape]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            parts.append(part)
        elif part.scalar("element_type") == "TUPLE":
            inner = part.messages("tuple_shapes")
            between = [piece for element in inner for piece in (", ", element)][1:]
            pending += [")", *between[::-1], "("]
        else:
            kind = (part.scalar("element_type") or "").lower()
            parts.append(f"{kind}[{','.join(part.scalars('dimensions'))}]")
    return "".join(parts)
