// zt.remote:s3 — finds credentials: environment, profile, its role, its SSO, its process, a
// container, an instance. What a profile asks for and cannot be had is an error: another identity
// is not taken in its place.
module;

#define OPENSSL_SUPPRESS_DEPRECATED
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import :s3;
import zt.core;
import zt.digest;

namespace zt::remote::internal {

namespace {

// nullopt where nothing says who asks.
using Found = StatusOr<std::optional<Credentials>>;

std::string Of(const Profile& profile) { return "profile " + Quote(profile.name); }

// What is not built, and what to use for it.
Status NotBuilt(const Profile& profile, const std::string& what) {
  return Unsupported(
      Of(profile) + what +
      "; use a profile with 'credential_process = aws configure export-credentials --profile " +
      profile.name + "'");
}

StatusOr<Credentials> Checked(Credentials found, const std::string& expiration) {
  if (found.id.empty() || found.secret.empty())
    return IoError("the credentials are not what AWS describes");
  if (expiration.empty()) return found;
  found.expires = ParseTime(expiration);
  if (!found.expires)
    return IoError("the Expiration of the credentials is no time: " + Quote(expiration));
  return found;
}

// A pair of keys, if one is there.
Found Pair(const std::string& id, const std::string& secret, const std::string& token,
           const std::string& where) {
  if (id.empty() && secret.empty()) return std::optional<Credentials>();
  if (id.empty() || secret.empty())
    return IoError(where + " has half a pair of keys: the " + (id.empty() ? "access" : "secret") +
                   " key is missing");
  return std::optional(Credentials{id, secret, token, std::nullopt});
}

Found FromEnvironment() {
  return Pair(Environment("AWS_ACCESS_KEY_ID"), Environment("AWS_SECRET_ACCESS_KEY"),
              Environment("AWS_SESSION_TOKEN"),
              "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)");
}

Found FromKeys(Members members, const Profile& profile) {
  return Pair(members["aws_access_key_id"], members["aws_secret_access_key"],
              members["aws_session_token"], Of(profile));
}

// The standard output of a command of a configuration file of the user, whose standard error is
// ours. What has not ended in a minute never will: nobody answers it.
StatusOr<std::string> OutputOf(const std::string& command, const Settings& settings) {
  constexpr std::size_t kMost = 1 << 20;
  constexpr std::chrono::seconds kLeastWait(5), kMostWait(60);
  const auto wait = std::clamp(settings.most_wait(), kLeastWait, kMostWait);
  const auto until = std::chrono::steady_clock::now() + wait;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return IoError(errno, "credential_process cannot be started");
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const char* const arguments[] = {"sh", "-c", command.c_str(), nullptr};
  ::pid_t child = -1;
  const int problem = ::posix_spawn(&child, "/bin/sh", &actions, &attributes,
                                    const_cast<char* const*>(arguments), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  std::string text;
  int status = 0;
  bool late = false;
  for (bool open = problem == 0, running = open; running && !late;) {
    constexpr int kPause = 10;  // milliseconds
    struct pollfd ready = {.fd = open ? ends[0] : -1, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kPause) > 0) {
      char piece[4096];
      const ::ssize_t got = ::read(ends[0], piece, sizeof piece);
      if (got > 0 && text.size() < kMost) text.append(piece, static_cast<std::size_t>(got));
      open = got > 0 || (got < 0 && errno == EINTR);
    }
    if (!open) running = ::waitpid(child, &status, WNOHANG) == 0;
    late = running && std::chrono::steady_clock::now() > until;
  }
  ::close(ends[0]);
  if (problem != 0) return IoError(problem, "credential_process cannot be started");
  if (late) {
    ::kill(child, SIGKILL);
    (void)::waitpid(child, &status, 0);
    return IoError("credential_process has not ended in " + std::to_string(wait.count()) + " s");
  }
  if (status != 0) {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return IoError("credential_process ended with status " + std::to_string(code));
  }
  return text;
}

// Sends a request that has a secret, and refuses to over http to another machine.
StatusOr<std::string> Ask(HttpRequest request) {
  request.redirects = 0;
  if (!request.direct) {
    request.ca_file = Environment("AWS_CA_BUNDLE");
    ZT_ASSIGN_OR_RETURN(const Url url, ParseUrl(request.url));
    if (url.scheme != "https" && !IsLoopback(url))
      return InvalidArgument(url.origin() + ": a token is not sent over http; use https");
  }
  const HttpAnswer answer = Perform(std::move(request));
  ZT_RETURN_IF_ERROR(answer.status);
  if (answer.ok()) return answer.text;
  std::string code = XmlText(answer.text, "Code"), message = XmlText(answer.text, "Message");
  for (const std::string& value : JsonStrings(answer.text, {"message", "Message"})) {
    if (message.empty()) message = value;
  }
  return IoError(Said(answer, code.empty() ? message : code + ": " + message));
}

StatusOr<std::string> AskNear(const SharedSettings& settings, const std::string& method,
                              const std::string& url, std::vector<std::string> fields,
                              long patience) {
  return Ask({.settings = settings,
              .method = method,
              .url = url,
              .fields = std::move(fields),
              .direct = true,
              .patience = patience,
              .tries = 3});
}

// Asks the credentials URI of a container of ECS or EKS. An http URI must be an address of this
// machine or one of the known metadata addresses.
StatusOr<Credentials> FromContainer(const SharedSettings& settings) {
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
  if (!file.empty()) {
    ZT_ASSIGN_OR_RETURN(const std::string text, ReadSmall(file));
    token = Trimmed(text);
  }
  std::vector<std::string> fields;
  if (!token.empty()) fields.push_back("Authorization: " + token);
  const auto answer = AskNear(settings, "GET", url.text(), std::move(fields), 5);
  if (!answer.ok()) return Annotate(answer.status(), "the container's credentials");
  return ParseCredentials(*answer);
}

// Asks the metadata service of an instance of EC2, in its second version only.
StatusOr<Credentials> FromInstance(const SharedSettings& settings) {
  const bool v6 = Lower(Environment("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE")) == "ipv6";
  std::string base =
      WithoutSlashes(FirstOf({Environment("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
                              v6 ? "http://[fd00:ec2::254]" : "http://169.254.169.254"})) +
      "/latest/";
  ZT_ASSIGN_OR_RETURN(const std::string token,
                      AskNear(settings, "PUT", base + "api/token",
                              {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}, 1));
  const std::string field = "X-aws-ec2-metadata-token: " + std::string(Trimmed(token));
  base += "meta-data/iam/security-credentials/";
  ZT_ASSIGN_OR_RETURN(const std::string roles, AskNear(settings, "GET", base, {field}, 1));
  const std::string role(Trimmed(roles.substr(0, roles.find('\n'))));
  ZT_ASSIGN_OR_RETURN(const std::string answer,
                      AskNear(settings, "GET", base + PercentEncoded(role), {field}, 1));
  return ParseCredentials(answer);
}

// Asks STS for the credentials of a role. Without `by` it is not signed.
StatusOr<Credentials> AskSts(const Profile& profile, QueryPairs form,
                             const std::optional<Credentials>& by) {
  const std::string region = FirstOf({profile.region, "us-east-1"});
  const std::string given =
      FirstOf({FirstSet({"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"}), profile.Find("endpoint_url"),
               profile.region.empty() ? "https://sts.amazonaws.com" : ""});
  ZT_ASSIGN_OR_RETURN(const std::string endpoint, AwsUrl(given, "sts", region));
  ZT_ASSIGN_OR_RETURN(const Url url, ParseUrl(endpoint));
  form.emplace_back("Version", "2011-06-15");
  if (const std::string duration = profile.Find("duration_seconds"); !duration.empty() && by)
    form.emplace_back("DurationSeconds", duration);
  const std::string body = QueryText(form);
  const ToSign sign{.method = "POST",
                    .host = HostField(url),
                    .path = url.path.empty() ? "/" : url.path,
                    .payload = Sha256Hex(body),
                    .region = region,
                    .service = "sts"};
  HttpRequest request{.settings = profile.settings,
                      .method = "POST",
                      .url = url.origin() + sign.path,
                      .fields = {"Content-Type: application/x-www-form-urlencoded"},
                      .body = std::as_bytes(std::span(body))};
  if (by) request.sign = [&](std::vector<std::string>& fields) { Sign(sign, *by, Now(), fields); };
  auto answer = Ask(std::move(request));
  if (!answer.ok()) return Annotate(answer.status(), "the role of " + Of(profile));
  return Checked({.id = XmlText(*answer, "AccessKeyId"),
                  .secret = XmlText(*answer, "SecretAccessKey"),
                  .token = XmlText(*answer, "SessionToken")},
                 XmlText(*answer, "Expiration"));
}

StatusOr<Credentials> FromWebIdentity(const Profile& profile, const std::string& file,
                                      const std::string& role, const std::string& session) {
  if (role.empty())
    return IoError(
        "AWS_WEB_IDENTITY_TOKEN_FILE or web_identity_token_file is set without a role "
        "(AWS_ROLE_ARN, role_arn)");
  ZT_ASSIGN_OR_RETURN(const std::string token, ReadSmall(file));
  return AskSts(profile,
                {{"Action", "AssumeRoleWithWebIdentity"},
                 {"RoleArn", role},
                 {"RoleSessionName", FirstOf({session, "ztstream"})},
                 {"WebIdentityToken", std::string(Trimmed(token))}},
                std::nullopt);
}

// Asks the portal of SSO with the token that 'aws sso login' has left.
StatusOr<Credentials> FromSso(const Profile& profile) {
  std::string missing;
  for (const char* name : {"sso_start_url", "sso_region", "sso_account_id", "sso_role_name"}) {
    if (profile.Find(name).empty()) missing += std::string(" ") + name;
  }
  if (!missing.empty()) return IoError(Of(profile) + " is one of SSO and lacks" + missing);
  const std::string session = profile.Find("sso_session");
  const std::string key = FirstOf({session, profile.Find("sso_start_url")});
  std::array<std::byte, SHA_DIGEST_LENGTH> digest;
  SHA_CTX context;
  SHA1_Init(&context);
  SHA1_Update(&context, key.data(), key.size());
  SHA1_Final(reinterpret_cast<unsigned char*>(digest.data()), &context);
  const auto text = ReadSmall(Environment("HOME") + "/.aws/sso/cache/" + Hex(digest) + ".json");
  auto values = JsonStrings(text.value_or(""), {"accessToken", "expiresAt"});
  const bool read = !values.empty() && !values[0].empty();
  if (!read || ParseTime(values[1]).value_or(0) <= Now())
    return IoError("the SSO login of " + Of(profile) + (read ? " has expired" : " is missing") +
                   "; run 'aws sso login --profile " + profile.name + "'");
  ZT_ASSIGN_OR_RETURN(const std::string endpoint, AwsUrl(Environment("AWS_ENDPOINT_URL_SSO"),
                                                         "portal.sso", profile.Find("sso_region")));
  HttpRequest request{.settings = profile.settings};
  request.url = endpoint + "/federation/credentials?" +
                QueryText({{"account_id", profile.Find("sso_account_id")},
                           {"role_name", profile.Find("sso_role_name")}});
  request.fields = {"x-amz-sso_bearer_token: " + values[0]};
  auto answer = Ask(std::move(request));
  if (!answer.ok()) return Annotate(answer.status(), "the SSO of " + Of(profile));
  values = JsonStrings(*answer, {"roleCredentials/accessKeyId", "roleCredentials/secretAccessKey",
                                 "roleCredentials/sessionToken", "roleCredentials/expiration"});
  values.resize(4);
  // In milliseconds.
  const std::uint64_t expires = NumberOf(values[3]).value_or(0);
  ZT_ASSIGN_OR_RETURN(Credentials found, Checked({values[0], values[1], values[2]}, ""));
  if (expires > 0) found.expires = static_cast<std::int64_t>(expires / 1000);
  return found;
}

Found FromProfile(const Profile& profile, std::vector<std::string> seen);

// The credentials by which the role of a profile is taken.
Found FromSource(const Profile& profile, std::vector<std::string> seen) {
  const std::string source = profile.Find("source_profile"),
                    other = profile.Find("credential_source");
  if (source.empty() == other.empty())
    return IoError(Of(profile) + " has role_arn and " + (source.empty() ? "neither" : "both") +
                   " of source_profile and credential_source");
  if (other == "Environment") return FromEnvironment();
  if (other == "EcsContainer") return FromContainer(profile.settings);
  if (other == "Ec2InstanceMetadata") return FromInstance(profile.settings);
  if (!other.empty())
    return IoError(Of(profile) + ": no credential_source is named " + Quote(other));
  ZT_ASSIGN_OR_RETURN(const Profile from, ReadProfile(profile.settings, source));
  if (!from.exists)
    return IoError("there is no profile " + Quote(source) + ", the source_profile of " +
                   Quote(profile.name));
  return FromProfile(from, std::move(seen));
}

StatusOr<Credentials> FromRole(const Profile& profile, std::vector<std::string> seen) {
  if (!profile.Find("mfa_serial").empty())
    return NotBuilt(profile, " asks for a code of MFA (mfa_serial), which is not asked for");
  ZT_ASSIGN_OR_RETURN(const auto by, FromSource(profile, std::move(seen)));
  if (!by) return IoError("the source of the role of " + Of(profile) + " has no credentials");
  QueryPairs form = {{"Action", "AssumeRole"},
                     {"RoleArn", profile.Find("role_arn")},
                     {"RoleSessionName", FirstOf({profile.Find("role_session_name"), "ztstream"})}};
  if (const std::string id = profile.Find("external_id"); !id.empty())
    form.emplace_back("ExternalId", id);
  return AskSts(profile, std::move(form), by);
}

// What a profile says, in the order of the AWS tools; nullopt if it says nothing of credentials.
// `seen` are the profiles that lead to it.
Found FromProfile(const Profile& profile, std::vector<std::string> seen) {
  const bool first = seen.empty();
  const bool again = std::ranges::find(seen, profile.name) != seen.end();
  seen.push_back(profile.name);
  ZT_ASSIGN_OR_RETURN(const auto keys, FromKeys(profile.secrets, profile));
  ZT_ASSIGN_OR_RETURN(const auto config_keys, FromKeys(profile.config, profile));
  const bool has_keys = keys || config_keys;
  // A profile may take a role with its own keys.
  if (again && !has_keys)
    return IoError("the source_profile of " + Of(profile) + " leads to itself");
  std::string web = profile.Find("web_identity_token_file");
  std::string role = profile.Find("role_arn"), session = profile.Find("role_session_name");
  if (!role.empty() && web.empty() && (first || !has_keys))
    return FromRole(profile, std::move(seen));
  if (first && profile.settings->profile.empty()) {
    web = FirstOf({Environment("AWS_WEB_IDENTITY_TOKEN_FILE"), web});
    role = FirstOf({Environment("AWS_ROLE_ARN"), role});
    session = FirstOf({Environment("AWS_ROLE_SESSION_NAME"), session});
  }
  if (!web.empty()) return FromWebIdentity(profile, web, role, session);
  for (const char* name : {"sso_session", "sso_start_url", "sso_account_id", "sso_role_name"}) {
    if (!profile.Find(name).empty()) return FromSso(profile);
  }
  if (keys) return keys;
  if (!profile.Find("login_session").empty())
    return NotBuilt(profile, " is one of 'aws login', which is not read");
  const std::string process = profile.Find("credential_process");
  if (process.empty()) return config_keys;
  ZT_ASSIGN_OR_RETURN(const std::string text, OutputOf(process, *profile.settings));
  return ParseCredentials(text);
}

}  // namespace

StatusOr<Credentials> ParseCredentials(std::string_view json) {
  const auto values = JsonStrings(json, {"AccessKeyId", "SecretAccessKey", "SessionToken", "Token",
                                         "Expiration", "Code", "Message"});
  if (values.empty()) return IoError("the credentials are not the JSON that AWS describes");
  if (values[0].empty() && !values[5].empty())
    return IoError("there are no credentials: " + values[5] + " " + values[6]);
  return Checked({.id = values[0], .secret = values[1], .token = FirstOf({values[2], values[3]})},
                 values[4]);
}

StatusOr<Credentials> FindCredentials(const SharedSettings& settings) {
  ZT_ASSIGN_OR_RETURN(const Profile profile, ReadProfile(settings));
  const bool given = !settings->profile.empty();
  if (profile.named && !profile.exists)
    return IoError("there is no profile " + Quote(profile.name) +
                   (given ? "" : ", which AWS_PROFILE names,") +
                   " in ~/.aws/config or ~/.aws/credentials");
  const auto from = [](std::string source, StatusOr<Credentials> found) {
    if (found.ok()) found->source = std::move(source);
    return found;
  };
  std::optional<Credentials> found;
  if (!given) {
    ZT_ASSIGN_OR_RETURN(found, FromEnvironment());
  }
  if (found) return from("the environment", *std::move(found));
  // It may say who asks.
  if (!profile.missing.empty())
    return IoError(profile.missing + ", and there is no such file; name another, or unset it");
  ZT_ASSIGN_OR_RETURN(found, FromProfile(profile, {}));
  if (found) return from(Of(profile), *std::move(found));
  if (!FirstSet({"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"})
           .empty()) {
    return from("the container", FromContainer(settings));
  }
  std::string why;
  if (Lower(Environment("AWS_EC2_METADATA_DISABLED")) != "true") {
    auto instance = from("the instance", FromInstance(settings));
    if (instance.ok()) return instance;
    why = " (the instance's metadata: " + Message(instance.status()) + ")";
  }
  return WithAdvice(
      IoError("there are no credentials for S3" + why +
              "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE to a profile"),
      Advice::kUnsigned);
}

}  // namespace zt::remote::internal
