// zt.remote:s3 — finds credentials and settings: environment, profile files, a process, a
// container, an instance.
module;

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :http;
import :s3;
import :url;
import zt.core;
import zt.source;

namespace zt::remote::internal {

namespace {

constexpr std::uint64_t kMostFile = 1 << 20;

// The content of a small file; empty if it cannot be read.
std::string ReadSmall(const std::string& path) {
  const auto file = OpenFile(path);
  if (!file.ok() || !(*file)->size() || *(*file)->size() > kMostFile) return "";
  std::string text(*(*file)->size(), '\0');
  return (*file)->ReadAt(0, std::as_writable_bytes(std::span(text))).ok() ? text : "";
}

std::string HomeFile(const char* variable, const std::string& name) {
  const std::string given = Environment(variable);
  if (!given.empty()) return given;
  return Environment("HOME") + "/" + name;
}

std::string Member(const std::map<std::string, std::string>& section, const std::string& name) {
  const auto found = section.find(name);
  return found == section.end() ? "" : found->second;
}

// The standard output of a command. Its standard error is ours. The command is from a configuration
// file of the user.
StatusOr<std::string> OutputOf(const std::string& command) {
  FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return IoError(errno, "credential_process cannot be started");
  std::string text;
  char piece[4096];
  for (std::size_t got; (got = std::fread(piece, 1, sizeof piece, pipe)) > 0;) {
    if (text.size() < kMostFile) text.append(piece, got);
  }
  const int status = ::pclose(pipe);
  if (status != 0) {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return IoError("credential_process ended with status " + std::to_string(code));
  }
  return text;
}

StatusOr<HttpAnswer> AskNear(const std::string& method, const std::string& url,
                             std::vector<std::string> fields, long patience, int tries) {
  ZT_ASSIGN_OR_RETURN(Transport* const transport, Transport::Get());
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.secrets = std::move(fields);
  request.redirects = 0;
  request.direct = true;
  request.patience = patience;
  request.tries = tries;
  HttpAnswer answer = transport->Perform(std::move(request));
  ZT_RETURN_IF_ERROR(answer.status);
  if (!answer.ok()) return IoError("it answered " + std::to_string(answer.head.status));
  return answer;
}

// Asks the credentials URI of a container of ECS or EKS. An http URI must be an address of this
// machine or one of the known metadata addresses.
StatusOr<Credentials> FromContainer() {
  constexpr std::string_view kHosts[] = {"169.254.170.2", "169.254.170.23", "fd00:ec2::23"};
  std::string uri = Environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const std::string relative = Environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!relative.empty()) uri = "http://169.254.170.2" + relative;
  ZT_ASSIGN_OR_RETURN(const Url url, ParseUrl(uri));
  if (url.scheme != "https" && !IsLoopback(url) &&
      std::ranges::find(kHosts, HostName(url)) == std::end(kHosts)) {
    return InvalidArgument("AWS_CONTAINER_CREDENTIALS_FULL_URI is an http URL of another machine");
  }
  std::string token = Environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = Environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) token = Trimmed(ReadSmall(file));
  std::vector<std::string> fields;
  if (!token.empty()) fields.push_back("Authorization: " + token);
  constexpr int kTries = 3;
  const auto answer = AskNear("GET", url.text(), std::move(fields), 5, kTries);
  if (!answer.ok()) return Annotate(answer.status(), "the container's credentials");
  return ParseCredentials(answer->text);
}

// Asks the metadata service of an instance of EC2, in its second version only.
StatusOr<Credentials> FromInstance() {
  std::string base = Environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (base.empty()) base = "http://169.254.169.254";
  while (base.ends_with('/')) base.pop_back();
  constexpr std::string_view kRoles = "/latest/meta-data/iam/security-credentials/";
  ZT_ASSIGN_OR_RETURN(const HttpAnswer token,
                      AskNear("PUT", base + "/latest/api/token",
                              {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}, 1, 1));
  const std::string field = "X-aws-ec2-metadata-token: " + std::string(Trimmed(token.text));
  ZT_ASSIGN_OR_RETURN(const HttpAnswer role,
                      AskNear("GET", base + std::string(kRoles), {field}, 1, 2));
  std::string name(Trimmed(role.text));
  name = name.substr(0, name.find('\n'));
  ZT_ASSIGN_OR_RETURN(
      const HttpAnswer answer,
      AskNear("GET", base + std::string(kRoles) + PercentEncoded(name), {field}, 1, 2));
  return ParseCredentials(answer.text);
}

}  // namespace

std::optional<std::int64_t> ParseTime(const std::string& text) {
  struct tm time = {};
  int end = 0;
  if (::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon,
               &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec, &end) != 6 ||
      end == 0) {
    return std::nullopt;
  }
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  return static_cast<std::int64_t>(::timegm(&time));
}

StatusOr<Credentials> ParseCredentials(std::string_view json) {
  constexpr std::string_view kNames[] = {"AccessKeyId", "SecretAccessKey", "SessionToken", "Token",
                                         "Expiration"};
  std::vector<std::string> values;
  if (!JsonStrings(json, kNames, values) || values[0].empty() || values[1].empty())
    return IoError("the credentials are not the JSON that AWS describes");
  Credentials found{.id = values[0], .secret = values[1], .token = values[2], .expires = {}};
  if (found.token.empty()) found.token = values[3];
  if (!values[4].empty()) found.expires = ParseTime(values[4]);
  return found;
}

std::map<std::string, std::string> ParseIniSection(std::string_view text,
                                                   std::string_view section) {
  std::map<std::string, std::string> members;
  bool inside = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view raw = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view line = Trimmed(raw);
    if (line.empty() || line.starts_with('#') || line.starts_with(';')) continue;
    if (line.starts_with('[')) {
      std::string name(Trimmed(line.substr(1, line.find(']') - 1)));
      if (name.starts_with("profile ")) name = Trimmed(std::string_view(name).substr(8));
      inside = name == section;
      continue;
    }
    const std::size_t equals = line.find('=');
    const bool nested = std::isspace(static_cast<unsigned char>(raw.front())) != 0;
    if (!inside || nested || equals == line.npos) continue;
    members.emplace(Lower(Trimmed(line.substr(0, equals))), Trimmed(line.substr(equals + 1)));
  }
  return members;
}

Profile ReadProfile() {
  Profile profile;
  profile.name = Environment("AWS_PROFILE");
  if (profile.name.empty()) profile.name = "default";
  const auto config =
      ParseIniSection(ReadSmall(HomeFile("AWS_CONFIG_FILE", ".aws/config")), profile.name);
  const auto secrets = ParseIniSection(
      ReadSmall(HomeFile("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")), profile.name);
  const auto either = [&](const std::string& name) {
    const std::string value = Member(secrets, name);
    return value.empty() ? Member(config, name) : value;
  };
  profile.id = either("aws_access_key_id");
  profile.secret = either("aws_secret_access_key");
  profile.token = either("aws_session_token");
  profile.process = either("credential_process");
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    if (profile.region.empty()) profile.region = Environment(name);
  }
  if (profile.region.empty()) profile.region = either("region");
  for (const char* name : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    if (profile.endpoint.empty()) profile.endpoint = Environment(name);
  }
  if (profile.endpoint.empty()) profile.endpoint = either("endpoint_url");
  while (profile.endpoint.ends_with('/')) profile.endpoint.pop_back();
  return profile;
}

StatusOr<Credentials> FindCredentials(const Profile& profile) {
  const std::string id = Environment("AWS_ACCESS_KEY_ID"),
                    secret = Environment("AWS_SECRET_ACCESS_KEY");
  if (!id.empty() && !secret.empty())
    return Credentials{id, secret, Environment("AWS_SESSION_TOKEN"), std::nullopt};
  if (!profile.id.empty() && !profile.secret.empty())
    return Credentials{profile.id, profile.secret, profile.token, std::nullopt};
  if (!profile.process.empty()) {
    ZT_ASSIGN_OR_RETURN(const std::string text, OutputOf(profile.process));
    return ParseCredentials(text);
  }
  if (!Environment("AWS_CONTAINER_CREDENTIALS_FULL_URI").empty() ||
      !Environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty()) {
    return FromContainer();
  }
  if (Lower(Environment("AWS_EC2_METADATA_DISABLED")) != "true") {
    if (auto found = FromInstance(); found.ok()) return found;
  }
  return IoError(
      "there are no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
      "AWS_PROFILE to a profile (for SSO and roles one with 'credential_process = aws configure "
      "export-credentials --profile NAME'), or give --no-sign-request where the bucket is public");
}

}  // namespace zt::remote::internal
