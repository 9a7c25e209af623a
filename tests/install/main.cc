// Writes two tensors that share their bytes to the file named by the argument, with the installed library.
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

import zt;

namespace {

zt::Status Export(const std::string& path) {
  zt::StatusOr<std::unique_ptr<zt::Sink>> sink = zt::CreateFileSink(path, {.overwrite = true});
  if (!sink.ok()) return sink.status();
  zt::StatusOr<std::unique_ptr<zt::Writer>> writer = zt::Writer::Create(*std::move(sink));
  if (!writer.ok()) return writer.status();
  const std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  const zt::ElementType f32 = {.dtype = zt::DType::kF32, .type = ""};
  zt::Status status = (*writer)->Add("embed", {2, 3}, f32, std::as_bytes(std::span(weights)));
  if (status.ok()) status = (*writer)->AddAlias("head", "embed");
  if (status.ok()) status = (*writer)->Finish();
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const zt::Status status = Export(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(zt::Message(status)).c_str());
  return zt::ExitStatus(status);
}
