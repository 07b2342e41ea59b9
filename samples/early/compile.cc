// Runs the HLO passes of XLA's GPU compiler as TensorFlow 2.12 has it (February 2023), with no GPU.
//
//   FINAL=sm_8.0_gpu_after_optimizations XLA_FLAGS=--xla_dump_to=DIR... ./compile MODULE.txt GPU.txtpb
//
// MODULE.txt is HLO as a dump's before_optimizations has it, GPU.txtpb a GpuTargetConfigProto. The
// wheel of that version holds the library, which exports the compiler, and most of its headers; what
// headers there are not is declared here. compile_early.py beside this file builds and runs it.

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <variant>

#include "google/protobuf/text_format.h"
#include "tensorflow/compiler/xla/autotune_results.pb.h"
#include "tensorflow/compiler/xla/debug_options_flags.h"
#include "tensorflow/compiler/xla/service/compiler.h"
#include "tensorflow/compiler/xla/service/gpu/gpu_device_info.h"
#include "tensorflow/compiler/xla/service/hlo_parser.h"
#include "tensorflow/compiler/xla/stream_executor/dnn.h"

namespace xla {

void DumpHloModuleIfEnabled(const HloModule& module, absl::string_view name);

namespace gpu {

struct GpuTargetConfig {
  explicit GpuTargetConfig(const stream_executor::GpuTargetConfigProto& proto);

  GpuDeviceInfo device;
  std::variant<stream_executor::CudaComputeCapability,
               stream_executor::RocmComputeCapability>
      capability;
  std::string platform;
  stream_executor::dnn::VersionInfo dnn;
  std::string description;
};

class GpuCompiler {
 public:
  StatusOr<std::unique_ptr<HloModule>> RunHloPassesWithoutDevice(
      std::unique_ptr<HloModule> module, const Compiler::CompileOptions& options,
      const GpuTargetConfig& target, const AutotuneResults& tuned);
};

}  // namespace gpu
}  // namespace xla

// The constructor of NVPTXCompiler, which is larger than what is declared above.
extern "C" void _ZN3xla3gpu13NVPTXCompilerC1Ev(void*);

namespace {

alignas(64) char place[1 << 16];

std::string Read(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int Fail(const std::string& problem) {
  std::cerr << problem << std::endl;
  std::_Exit(1);
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return Fail("usage: compile MODULE.txt GPU.txtpb");
  auto parsed = xla::ParseAndReturnUnverifiedModule(Read(words[1]));
  if (!parsed.ok()) return Fail(parsed.status().ToString());
  auto module = std::move(parsed).value();
  module->config().set_debug_options(xla::GetDebugOptionsFromFlags());
  stream_executor::GpuTargetConfigProto proto;
  if (!google::protobuf::TextFormat::ParseFromString(Read(words[2]), &proto)) {
    return Fail("no GpuTargetConfigProto");
  }
  xla::DumpHloModuleIfEnabled(*module, "before_optimizations");
  _ZN3xla3gpu13NVPTXCompilerC1Ev(place);
  auto done = reinterpret_cast<xla::gpu::GpuCompiler*>(place)->RunHloPassesWithoutDevice(
      std::move(module), {}, xla::gpu::GpuTargetConfig(proto), {});
  if (!done.ok()) return Fail(done.status().ToString());
  const char* name = std::getenv("FINAL");
  xla::DumpHloModuleIfEnabled(**done, name ? name : "sm_gpu_after_optimizations");
  std::_Exit(0);  // the library does not end well
}
