// zt.cli:changed — a source with the rules of the command line applied, for output formats other
// than .zt. Internal.
module zt.cli:changed;

import zt.std;
import :args;
import :rules;

namespace zt::cli::internal {

// A source changed by a plan: tensors are left out, renamed, and converted when they are read.
// Finish fails if numbers do not fit and the plan does not allow that.
class ChangedSource final : public WrappedSource {
 public:
  // Appends a warning for each rule that applied to no tensor.
  static StatusOr<std::unique_ptr<ChangedSource>> Make(std::unique_ptr<TensorSource> source,
                                                       const Rules& rules,
                                                       std::vector<std::string>& warnings);

  Status Read(ComponentId id, std::uint64_t offset, std::span<std::byte> out) override;
  // Read in the order of what it is made of.
  bool sequential(ComponentId id) const override { return inner_->sequential(Planned(id).source); }
  std::uint64_t preferred_read(ComponentId id) const override;
  Status Finish() override;

  // The values that the conversion changed; complete after everything was read.
  std::vector<NumericFinding> Findings() const;
  const Plan& plan() const { return plan_; }

 private:
  explicit ChangedSource(std::unique_ptr<TensorSource> inner)
      : WrappedSource(*inner), inner_(std::move(inner)) {}
  const PlannedComponent& Planned(ComponentId id) const {
    return plan_.objects[id.object].components[id.component];
  }
  std::pair<TensorSource&, ComponentId> Origin(ComponentId id) const override {
    return {*inner_, Planned(id).source};
  }
  bool passes(ComponentId id) const override { return Planned(id).transform == nullptr; }

  // Of a component's values: see AddOverflow.
  struct Counts {
    NumericCounts converted;
    std::uint64_t made = 0;
    std::uint64_t bytes = 0;  // counted; more are those of another pass
  };
  void Count(ComponentId id, std::uint64_t bytes, const NumericCounts& converted);
  NumericCounts Total(ComponentId id, const Counts& counts) const;

  const std::unique_ptr<TensorSource> inner_;
  Plan plan_;  // of inner_
  BufferPool pool_{std::uint64_t{64} << 20};
  mutable zt::internal::Mutex mutex_;
  std::map<ComponentId, Counts> counts_;  // under mutex_
};

// Warns of values that were changed by the conversion, and appends the warnings to `warnings`.
void ReportChanges(const Args& args, const ChangedSource& changed,
                   std::vector<std::string>& warnings);

}  // namespace zt::cli::internal
