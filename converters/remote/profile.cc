// zt.remote:s3 — the files of the AWS tools: profiles, and what they say of S3.
module;

#include <errno.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :s3;
import zt.core;
import zt.source;

namespace zt::remote::internal {
namespace {

constexpr std::uint64_t kMostFile = 1 << 20;

// The sections of an INI file, and their members. What is indented below a member is passed over.
using Sections = std::map<std::string, Members>;
Sections ParseIni(std::string_view text) {
  Sections sections;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Members* section = nullptr;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view raw = text.substr(0, end), line = Trimmed(raw);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.starts_with('#') || line.starts_with(';')) continue;
    if (line.starts_with('[')) {
      section = &sections[std::string(Trimmed(line.substr(1, line.find(']') - 1)))];
      continue;
    }
    const std::size_t equals = line.find_first_of("=:");
    const bool nested = std::isspace(static_cast<unsigned char>(raw.front())) != 0;
    if (section == nullptr || nested || equals == line.npos) continue;
    section->emplace(Lower(Trimmed(line.substr(0, equals))), Trimmed(line.substr(equals + 1)));
  }
  return sections;
}

// The section "KIND NAME" of a configuration file, whose name may be quoted; nullptr if there is
// none.
const Members* Section(const Sections& sections, std::string_view kind, const std::string& name) {
  for (const auto& [title, members] : sections) {
    if (!title.starts_with(kind)) continue;
    const std::string_view rest = std::string_view(title).substr(kind.size()), word = Trimmed(rest);
    if (word.size() == rest.size()) continue;
    if (word == name || word == "'" + name + "'" || word == '"' + name + '"') return &members;
  }
  return nullptr;
}

// Reads the file that a variable names, or the one in the home. One that is named and not there is
// added to `missing`.
StatusOr<Sections> ReadIni(const char* variable, const std::string& usual, std::string& missing) {
  const std::string given = Environment(variable);
  const std::string path = FirstOf({given, Environment("HOME") + "/" + usual});
  if (path == "/dev/null") return Sections();
  // Any other reason may hide an identity.
  if (::access(path.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    if (!given.empty()) missing = std::string(variable) + " names " + Quote(given);
    return Sections();
  }
  ZT_ASSIGN_OR_RETURN(const std::string text, ReadSmall(path));
  return ParseIni(text);
}

}  // namespace

StatusOr<std::string> ReadSmall(const std::string& path) {
  const auto file = OpenFile(path);
  auto text = file.ok() ? ReadAll(**file, kMostFile) : StatusOr<std::string>(file.status());
  if (!text.ok()) return Annotate(text.status(), path);
  return text;
}

StatusOr<Profile> ReadProfile(SharedSettings settings, const std::string& given) {
  Profile profile{.settings = std::move(settings)};
  const Settings& options = *profile.settings;
  profile.name =
      FirstOf({given, options.profile, FirstSet({"AWS_DEFAULT_PROFILE", "AWS_PROFILE"})});
  profile.named = !profile.name.empty();
  if (!profile.named) profile.name = "default";
  ZT_ASSIGN_OR_RETURN(const Sections config,
                      ReadIni("AWS_CONFIG_FILE", ".aws/config", profile.missing));
  ZT_ASSIGN_OR_RETURN(const Sections secrets,
                      ReadIni("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", profile.missing));
  const Members* members = Section(config, "profile", profile.name);
  if (members == nullptr && profile.name == "default" && config.contains("default"))
    members = &config.at("default");
  if (members != nullptr) profile.config = *members;
  const auto keys = secrets.find(profile.name);
  if (keys != secrets.end()) profile.secrets = keys->second;
  profile.exists = members != nullptr || keys != secrets.end();
  if (const std::string session = profile.Find("sso_session"); !session.empty()) {
    if (const Members* const sso = Section(config, "sso-session", session)) {
      for (const auto& [name, value] : *sso) profile.config[name] = value;
    }
  }
  profile.region = FirstOf(
      {options.region, FirstSet({"AWS_REGION", "AWS_DEFAULT_REGION"}), profile.Find("region")});
  const std::string endpoint =
      FirstOf({options.endpoint_url, FirstSet({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"})});
  profile.endpoint = WithoutSlashes(FirstOf({endpoint, profile.Find("endpoint_url")}));
  const std::string services = profile.Find("services");
  const Members* const named = Section(config, "services", services);
  if (named != nullptr && named->contains("s3") && endpoint.empty()) {
    return Unsupported("profile " + Quote(profile.name) +
                       " takes the endpoint of S3 from services " + Quote(services) +
                       ", which are not read; set AWS_ENDPOINT_URL_S3");
  }
  if (profile.endpoint.find_first_of("?#") != std::string::npos)
    return InvalidArgument("the endpoint of S3 has a query or a fragment; leave it out");
  return profile;
}

std::string Profile::Find(const std::string& member) const {
  const auto of = [&](Members members) { return members[member]; };
  return FirstOf({of(secrets), of(config)});
}

}  // namespace zt::remote::internal
