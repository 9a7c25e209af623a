// ztstream — the words of a command line, before and after CLI11: what is meant, and what to say where it is not clear.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace zt::cli {

// The words as CLI11 takes them: `help COMMAND` is COMMAND --help, options before the command come after it,
// --version is what it is anywhere, and a bare --zstd takes nothing that follows. `problem` says what cannot be meant.
struct Words {
  std::vector<std::string> words;
  std::string problem;
};
Words Arrange(const CLI::App& app, std::vector<std::string> words);

// One line for `error`: the word that is wrong, what may have been meant, and which --help tells more.
std::string Explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace zt::cli
