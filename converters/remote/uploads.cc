// zt.remote:upload — all uploads in progress, and what is done about them at the end.
module;

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/md5.h>

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import :s3;
import :upload;
import zt.core;
import zt.digest;

namespace zt::remote::internal {
namespace {

std::string Md5Hex(std::span<const std::byte> bytes) {
  std::array<std::byte, MD5_DIGEST_LENGTH> digest;
  MD5(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
      reinterpret_cast<unsigned char*>(digest.data()));
  return Hex(digest);
}

std::string Unquoted(std::string text) {
  std::erase(text, '"');
  return text;
}

// Calls `take` with the members of each `row` of what a store lists. `next` gives the query of the
// page after one with these members; `after` is that of the first page. moto's root is
// ListPartsResponse, where S3's is a Result.
Status ListRows(S3Client& client, const S3Request& asked, std::string_view root,
                std::string_view row, const std::function<void(Members&)>& take,
                const std::function<StatusOr<QueryPairs>(Members&)>& next, QueryPairs after = {}) {
  return ReadPages([&](const std::string&, std::vector<std::string>&) -> StatusOr<std::string> {
    S3Request request = asked;
    request.query.insert(request.query.end(), after.begin(), after.end());
    ZT_ASSIGN_OR_RETURN(const HttpAnswer answer, client.Ask(request));
    XmlDocument page = ParseXml(answer.text);
    if (!page.root.starts_with(root))
      return InvalidData("the store does not list uploads as S3 does; write without resuming");
    for (auto& [name, members] : page.rows) {
      if (name == row) take(members);
    }
    ZT_ASSIGN_OR_RETURN(after, next(page.members));
    return Lower(Trimmed(page.members["IsTruncated"])) == "true" ? QueryText(after) : "";
  });
}

}  // namespace

std::string Crc32cField(std::span<const std::byte> bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::uint64_t bits = std::uint64_t{Crc32c(bytes)} << 4;  // six letters of six bits
  std::string out;
  for (int shift = 30; shift >= 0; shift -= 6) out += kLetters[bits >> shift & 63];
  return out + "==";
}

bool HasBytes(const StoredPart& part, std::span<const std::byte> bytes) {
  if (part.size != bytes.size()) return false;
  if (!part.checksum.empty()) return part.checksum == Crc32cField(bytes);
  return Unquoted(part.etag) == Md5Hex(bytes);
}

std::string JoinedEtag(const StoredParts& parts) {
  std::string digests;
  for (const auto& [number, part] : parts) {
    const std::string hex = Unquoted(part.etag);
    for (std::size_t at = 0; at < hex.size(); at += 2)
      digests += PercentDecoded("%" + hex.substr(at, 2));
  }
  return "\"" + Md5Hex(std::as_bytes(std::span(digests))) + "-" + std::to_string(parts.size()) +
         "\"";
}

StatusOr<EarlierUpload> FindUpload(S3Client& client, const S3Name& name) {
  EarlierUpload found;
  std::string begun;  // when the latest one was
  ZT_RETURN_IF_ERROR(ListRows(
      client, {.name = {name.bucket, ""}, .query = {{"uploads", ""}, {"prefix", name.key}}},
      "ListMultipartUploads", "Upload",
      [&](Members& upload) {
        if (upload["Key"] != name.key || upload["UploadId"].empty() || upload["Initiated"] < begun)
          return;
        found = {upload["UploadId"], upload["ChecksumAlgorithm"] == "CRC32C", {}};
        begun = upload["Initiated"];
      },
      [](Members& page) {
        return QueryPairs{{"key-marker", page["NextKeyMarker"]},
                          {"upload-id-marker", page["NextUploadIdMarker"]}};
      }));
  if (found.id.empty()) return found;
  ZT_RETURN_IF_ERROR(ListRows(
      client, {.name = name, .query = {{"uploadId", found.id}}}, "ListParts", "Part",
      [&](Members& part) {
        found.parts[NumberOf(part["PartNumber"]).value_or(0)] = {
            NumberOf(part["Size"]).value_or(0), part["ETag"], part["ChecksumCRC32C"]};
      },
      [&, before = std::uint64_t{0}](Members& page) mutable -> StatusOr<QueryPairs> {
        const std::uint64_t last = found.parts.empty() ? 0 : found.parts.rbegin()->first;
        if (last > kMostParts || found.parts.contains(0))
          return InvalidData("the store lists parts that no upload has");
        // What is not listed is sent again.
        if (std::exchange(before, last) == last) page.clear();
        return QueryPairs{{"part-number-marker", std::to_string(last)}};
      },
      {{"part-number-marker", "0"}}));
  return found;
}

Living<Progress>& Uploads() {
  static auto* const uploads = new Living<Progress>;
  return *uploads;
}

std::string RemoveThem(const Progress& upload, const std::string& id) {
  const Settings& settings = *upload.client->settings();
  std::string line = "remove them with: aws s3api abort-multipart-upload --bucket " +
                     upload.name.bucket + " --key " + ShellQuoted(upload.name.key) +
                     " --upload-id " + ShellQuoted(id);
  // What the environment says is said to the other program, too.
  const auto add = [&](const std::string& option, const std::string& value) {
    if (!value.empty()) line += " --" + option + " " + ShellQuoted(value);
  };
  add("endpoint-url", settings.endpoint_url);
  add("profile", settings.profile);
  add("region", settings.region);
  return line;
}

std::string KeptParts(const Progress& upload, const std::string& id, bool exists) {
  return upload.name.url() + ": the parts that were sent are kept, which costs money: " +
         (exists ? "a run that replaces the object" : "the same run") + " goes on after them; or " +
         RemoveThem(upload, id);
}

std::string LookAtIt(const Progress& upload, const std::string& id) {
  return "; look at the object, or write it again" +
         (id.empty() ? "" : "; parts may be left, which cost money; " + RemoveThem(upload, id));
}

std::string EndUpload(const Progress& upload, const std::string& id, int tries) {
  const auto answer =
      upload.client->Send({.name = upload.name,
                           .query = {{"uploadId", id}},
                           .http = {.method = "DELETE", .patience = 5, .tries = tries}});
  // A page, as of a proxy, is no answer of a store.
  const bool gone = answer.ok() && (answer->ok() || answer->head.status == 404);
  if (gone && Lower(XmlRoot(answer->text)) != "html") return "";
  const Status why = answer.ok() ? upload.client->Explain(upload.name, *answer) : answer.status();
  return upload.name.url() + ": parts of a failed upload are left, which cost money (" +
         Message(why) + "); " + RemoveThem(upload, id);
}

}  // namespace zt::remote::internal

namespace zt {

using namespace remote::internal;

AbandonedUploads AbandonUploads() {
  using State = Progress::State;
  constexpr std::chrono::milliseconds kMostWait(10'000), kPause(20);
  const auto until = std::chrono::steady_clock::now() + kMostWait;
  const auto is_late = [&] { return std::chrono::steady_clock::now() > until; };
  AbandonedUploads result;
  Progress::abandoned = true;
  for (const auto& upload : Uploads().All()) {
    std::string id;
    State state = State::kWritten;
    while (true) {
      {
        const MutexLock lock(upload->mutex);
        id = upload->upload;
        state = upload->state;
      }
      // A request in progress ends by itself.
      if ((state != State::kBeginning && state != State::kPublishing) || is_late()) break;
      std::this_thread::sleep_for(kPause);
    }
    const std::string url = upload->name.url();
    if (state == State::kPublished) {
      result.published = true;
    } else if (state == State::kPublishing || state == State::kUnknown) {
      result.left.push_back(url + ": whether it was published is not known" +
                            LookAtIt(*upload, id));
    } else if (id.empty()) {
      continue;
    } else if (upload->client->settings()->resume) {
      result.left.push_back(KeptParts(*upload, id, false));
    } else if (is_late()) {
      result.left.push_back(url + ": parts may be left, which cost money; " +
                            RemoveThem(*upload, id));
    } else if (std::string line = EndUpload(*upload, id, 2); !line.empty()) {
      result.left.push_back(std::move(line));
    }
  }
  return result;
}

}  // namespace zt
