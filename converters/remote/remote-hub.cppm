// zt.remote:hub — names of the Hugging Face Hub. Internal.
module zt.remote:hub;

import zt.std;
import zt.core;

namespace zt::remote::internal {

// "hf://[models/|datasets/|spaces/]ORG/NAME[@REVISION][/PATH]" taken apart.
struct HubName {
  std::string kind = "models";
  std::string id;  // "ORG/NAME"
  std::string revision = "main";
  std::string path;  // in the repository, without slashes around it; empty: the repository

  // Without the path: what is asked of the Hub once.
  std::string repository() const { return kind + "/" + id + "@" + revision; }
};
StatusOr<HubName> ParseHub(const std::string& url);

}  // namespace zt::remote::internal
