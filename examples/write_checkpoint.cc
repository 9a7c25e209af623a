// Writes a checkpoint from memory to the file named by the argument: two names, one of them tied.
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "ztstream/status_macros.h"

import zt;

zt::Status Export(const std::string& path, const std::vector<float>& embedding) {
  ZT_ASSIGN_OR_RETURN(auto sink, zt::CreateFileSink(path, {.overwrite = true}));
  ZT_ASSIGN_OR_RETURN(auto writer, zt::Writer::Create(std::move(sink)));
  ZT_RETURN_IF_ERROR(writer->Add("model.embed_tokens.weight", {4, 3}, embedding));
  ZT_RETURN_IF_ERROR(writer->AddAlias("lm_head.weight", "model.embed_tokens.weight"));
  return writer->Finish();
}

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: write_checkpoint FILE.zt\n", 2;
  const zt::Status status = Export(argv[1], {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  if (!status.ok()) std::cerr << zt::Message(status) << '\n';
  return zt::ExitStatus(status);
}
