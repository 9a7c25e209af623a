// zt.cli:rules — --include, --exclude, --rename, --dtype and --dequantize as functions of a plan. Internal.
module;

#include <functional>
#include <optional>
#include <string>

module zt.cli:rules;

import :args;
import zt;

namespace zt::cli::internal {

// Plan options from the command line; kInvalidArgument names the option that is wrong.
StatusOr<PlanOptions> MakePlanOptions(const ConvertArgs& args);

}  // namespace zt::cli::internal
