"""Logs of the autotuner, written by the protobuf library from the published definitions
(xla/autotuning.proto, xla/backends/autotuner/*.proto, xla/service/hlo.proto, xla/xla_data.proto;
the fields that matter here).
"""

from typing import Any

import pytest

_MESSAGES: dict[str, list[tuple[str, int, str]]] = {
    "xla.ShapeProto": [
        ("element_type", 2, "xla.PrimitiveType"),
        ("dimensions", 3, "int64*"),
        ("tuple_shapes", 4, "xla.ShapeProto*"),
    ],
    "xla.HloInstructionProto": [
        ("name", 1, "string"),
        ("opcode", 2, "string"),
        ("shape", 3, "xla.ShapeProto"),
    ],
    "xla.HloComputationProto": [("instructions", 2, "xla.HloInstructionProto*")],
    "xla.HloModuleProto": [("computations", 3, "xla.HloComputationProto*")],
    "xla.HloProto": [("hlo_module", 1, "xla.HloModuleProto")],
    "xla.GemmKey": [("algorithm", 1, "int64")],
    "xla.TritonGemmKey": [
        ("block_m", 1, "int64"),
        ("block_n", 2, "int64"),
        ("num_warps", 6, "int64"),
    ],
    "xla.NativeEmitterBackendConfig": [("block_y", 1, "int64")],
    "xla.BackendConfigKey": [("name", 1, "string"), ("config", 2, "google.protobuf.Any")],
    "xla.FailureResult": [("kind", 1, "xla.FailureKind"), ("msg", 2, "string")],
    "xla.AutotuneResult": [
        ("gemm", 6, "xla.GemmKey"),
        ("failure", 7, "xla.FailureResult"),
        ("scratch_bytes", 8, "int64"),
        ("run_time", 9, "google.protobuf.Duration"),
        ("triton", 17, "xla.TritonGemmKey"),
        ("other", 19, "xla.BackendConfigKey"),
    ],
    "xla.AutotuningLog": [
        ("instr", 1, "google.protobuf.Any"),
        ("results", 2, "xla.AutotuneResult*"),
        ("fusion_name", 7, "string"),
    ],
    "xla.AutotuningLogs": [("logs", 1, "xla.AutotuningLog*")],
    "xla.BackendConfig": [("gemm", 1, "xla.GemmKey"), ("triton", 2, "xla.TritonGemmKey")],
    "xla.Config": [("backend", 1, "xla.Backend"), ("backend_config", 2, "xla.BackendConfig")],
    "xla.ConfigProfile": [
        ("config", 1, "xla.Config"),
        ("run_time", 2, "google.protobuf.Duration"),
        ("scratch_bytes", 3, "int64"),
    ],
    "xla.FailedConfigs": [
        ("config", 1, "xla.Config"),
        ("kind", 2, "xla.ConfigFailure"),
        ("message", 3, "string"),
    ],
    "xla.InstructionRawConfigProfiles": [
        ("hlo_fingerprint", 1, "string"),
        ("config_profiles", 2, "xla.ConfigProfile*"),
        ("failed_configs", 3, "xla.FailedConfigs*"),
        ("hlo_text", 4, "string"),
    ],
    "xla.AllRawConfigProfiles": [
        ("device", 1, "string"),
        ("codegen_version", 3, "string"),
        ("instruction_profiles", 6, "xla.InstructionRawConfigProfiles*"),
    ],
}
_ENUMS = {
    "PrimitiveType": {"PRIMITIVE_TYPE_INVALID": 0, "PRED": 1, "S32": 4, "F16": 10, "F32": 11}
    | {"TUPLE": 13, "BF16": 16},
    "FailureKind": {"UNKNOWN": 0, "REDZONE_MODIFIED": 1, "WRONG_RESULT": 2, "DISQUALIFIED": 3},
    "ConfigFailure": {"FAILURE_KIND_UNSPECIFIED": 0, "COMPILATION_FAILED": 1},
    "Backend": {"UNSPECIFIED_BACKEND": 0, "TRITON": 2, "CUBLASLT_FISSION": 13},
}


class Protobuf:
    """The message classes by their names, without ``xla.``, and the library's printer."""

    def __init__(self) -> None:
        descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
        from google.protobuf import any_pb2, descriptor_pool, duration_pb2

        field = descriptors.FieldDescriptorProto
        file = descriptors.FileDescriptorProto(name="xla.proto", package="xla", syntax="proto3")
        for names in (any_pb2, duration_pb2):
            file.dependency.append(names.DESCRIPTOR.name)
        for name, values in _ENUMS.items():
            enum = file.enum_type.add(name=name)
            for value, number in values.items():
                enum.value.add(name=value, number=number)
        for name, fields in _MESSAGES.items():
            message = file.message_type.add(name=name.removeprefix("xla."))
            for label, number, kind in fields:
                added = message.field.add(name=label, number=number, label=field.LABEL_OPTIONAL)
                if kind.endswith("*"):
                    added.label = field.LABEL_REPEATED
                kind = kind.removesuffix("*")
                if kind in ("string", "int64"):
                    added.type = getattr(field, f"TYPE_{kind.upper()}")
                else:
                    is_enum = kind.removeprefix("xla.") in _ENUMS
                    added.type = field.TYPE_ENUM if is_enum else field.TYPE_MESSAGE
                    added.type_name = f".{kind}"
        self._pool = descriptor_pool.DescriptorPool()
        for item in (any_pb2, duration_pb2):
            self._pool.AddSerializedFile(item.DESCRIPTOR.serialized_pb)
        self._pool.Add(file)

    def __getitem__(self, name: str) -> Any:
        from google.protobuf import message_factory

        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"xla.{name}"))

    def text(self, message: Any) -> str:
        from google.protobuf import text_format

        return text_format.MessageToString(message, descriptor_pool=self._pool)


def add_log(protobuf: Protobuf, logs: Any, instruction: Any, results: list[dict[str, Any]]) -> None:
    """Add what the compiler logs for ``instruction``, with one candidate for each of ``results``:
    its time in ``nanos``, a ``failure``, and ``gemm``, ``triton`` or ``other`` with its settings.
    """
    log = logs.logs.add()
    log.instr.Pack(instruction)
    for item in results:
        result = log.results.add(scratch_bytes=item.get("scratch_bytes", 0))
        result.run_time.FromNanoseconds(item.get("nanos", 0))
        if "failure" in item:
            kind, message = item["failure"]
            result.failure.kind, result.failure.msg = kind, message
        for key in ("gemm", "triton"):
            if key in item:
                getattr(result, key).CopyFrom(_with(protobuf, key, item[key]))
        if "other" in item:
            result.other.name = item["other"]
            result.other.config.Pack(protobuf["NativeEmitterBackendConfig"](block_y=4))


def _with(protobuf: Protobuf, key: str, settings: dict[str, int]) -> Any:
    return protobuf["GemmKey" if key == "gemm" else "TritonGemmKey"](**settings)
