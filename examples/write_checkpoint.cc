// Writes a checkpoint from memory to the file named by the argument: two names, one of them tied.
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

import zt;

zt::Status Export(const std::string& path, const std::vector<float>& embedding) {
  auto sink = zt::CreateFileSink(path, {.overwrite = true});
  if (!sink.ok()) return sink.status();
  auto writer = zt::Writer::Create(*std::move(sink), {.threads = 0});
  if (!writer.ok()) return writer.status();
  zt::Status status = (*writer)->Add("model.embed_tokens.weight", {4, 3}, {zt::DType::kF32},
                                     std::as_bytes(std::span(embedding)));
  if (status.ok()) status = (*writer)->AddAlias("lm_head.weight", "model.embed_tokens.weight");
  return status.ok() ? (*writer)->Finish() : status;
}

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: write_checkpoint FILE.zt\n"), 2;
  const zt::Status status = Export(argv[1], {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(zt::Message(status)).c_str());
  return zt::ExitStatus(status);
}
