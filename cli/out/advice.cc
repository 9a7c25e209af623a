// zt.cli:output — the words for what would help: each kind of advice as an option of the program.
module zt.cli;

import zt.std;
import :options;
import :output;

namespace zt::cli::internal {
namespace {

struct Words {
  Advice advice;
  std::string_view option, text;
};
constexpr Words kWords[] = {
    {Advice::kExclude, "exclude", "--exclude leaves it out"},
    {Advice::kRename, "rename", "--rename gives it another name"},
    {Advice::kDtype, "dtype", "--dtype converts it"},
    {Advice::kDequantize, "dequantize", "--dequantize makes numbers of it"},
    {Advice::kAllowLoss, "allow-loss", "--allow-loss drops fractions"},
    {Advice::kOnOverflow, "on-overflow", "choose --on-overflow inf or saturate, or another type"},
    {Advice::kVoidDtype, "npy-void", "name it with --npy-void"},
    {Advice::kReplace, "force", "use -f to replace it"},
    {Advice::kMetadata, "no-metadata", "--no-metadata leaves them out"},
    {Advice::kFrames, "chunk", "--chunk sets their size"},
    {Advice::kMemory, "memory", "--memory raises the limit"},
    {Advice::kFormat, "from", "--from chooses a format"},
    {Advice::kVariant, "variant", "--variant chooses one"},
    {Advice::kBase, "base", "--base names it"},
    {Advice::kFiles, "files", "--files all takes all of them"},
    {Advice::kFollowLinks, "follow-links", "--follow-links allows that"},
    {Advice::kUnsigned, "no-sign-request", "--no-sign-request reads public buckets"},
    {Advice::kPartSize, "part-size", "--part-size sets its size"},
    {Advice::kShards, "shard-size", "--shard-size writes smaller files"},
    {Advice::kCanonical, "canonical", "'ztstream convert --spec 2.0 --canonical' writes one"},
};

// The words of advice, if the command has the option; else empty.
std::string_view WordsOf(const Common& common, Advice advice) {
  const auto* const words = std::ranges::find(kWords, advice, &Words::advice);
  const auto command = std::ranges::find(Commands(), common.command, &Command::name);
  const auto option = std::ranges::find_if(Options(), [&](const Option& each) {
    return each.name == words->option && command != Commands().end() && each.of(command->bit);
  });
  return option == Options().end() ? std::string_view() : words->text;
}

}  // namespace

std::string AdviceText(const Common& common, std::optional<Advice> advice) {
  const std::string_view words = advice ? WordsOf(common, *advice) : "";
  return words.empty() ? "" : "; " + std::string(words);
}

std::string Worded(const Common& common, const Status& status) {
  std::string text = Message(status);
  for (const Advice advice : AdviceOf(status)) text += AdviceText(common, advice);
  return text;
}

Json AdviceJson(const Common& common, const Status& status) {
  Json json = Json::object();
  for (const Advice advice : AdviceOf(status)) {
    const std::string_view words = WordsOf(common, advice);
    if (!words.empty()) json[std::string(AdviceName(advice))] = words;
  }
  return json;
}

std::vector<std::string> WordedWarnings(const Common& common, const TensorSource& source,
                                        std::size_t told) {
  std::vector<std::string> lines = source.warnings();
  for (const auto& [index, advice] : source.warning_advice())
    lines[index] += AdviceText(common, advice);
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(told));
  return lines;
}

}  // namespace zt::cli::internal
