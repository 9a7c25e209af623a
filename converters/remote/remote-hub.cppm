// zt.remote:hub — names of the Hugging Face Hub. Internal.
module zt.remote:hub;

import zt.std;
import zt.core;

namespace zt::remote::internal {

// The parts of "hf://[models/|datasets/|spaces/]ORG/NAME[@REVISION][/PATH]".
struct HubName {
  std::string kind = "models";
  std::string id;  // "ORG/NAME"
  std::string revision = "main";
  std::string path;  // in the repository, without slashes around it; empty for the repository

  // Identifies the repository at a revision.
  std::string repository() const { return kind + "/" + id + "@" + revision; }
};
StatusOr<HubName> ParseHub(const std::string& url);

}  // namespace zt::remote::internal
