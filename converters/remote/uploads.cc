// zt.remote:upload — all uploads in progress, and what is done about them at the end.
module;

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/md5.h>

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :http;
import :s3;
import :upload;
import :url;
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

template <typename Number>
Number NumberOf(const std::string& text) {
  Number number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// One page of something that a store lists. moto calls it ListPartsResponse, where S3 has a Result.
StatusOr<std::string> AskPage(S3Client& client, const S3Request& request, std::string_view root) {
  constexpr std::size_t kMostPage = 4 << 20;
  ZT_ASSIGN_OR_RETURN(const HttpAnswer answer,
                      client.Send(request, [](HttpRequest& made) { made.most_text = kMostPage; }));
  ZT_RETURN_IF_ERROR(answer.status);
  if (!answer.ok()) return client.Explain(request.name, answer);
  if (XmlRoot(answer.text).starts_with(root)) return answer.text;
  return InvalidData("the store does not list uploads as S3 does; write without resuming");
}

}  // namespace

std::string Crc32cField(std::span<const std::byte> bytes) {
  const std::uint32_t crc = Crc32c(bytes);
  const std::array big = {static_cast<std::byte>(crc >> 24), static_cast<std::byte>(crc >> 16),
                          static_cast<std::byte>(crc >> 8), static_cast<std::byte>(crc)};
  return Base64(big);
}

bool HasBytes(const StoredPart& part, std::span<const std::byte> bytes) {
  if (part.size != bytes.size()) return false;
  if (!part.checksum.empty()) return part.checksum == Crc32cField(bytes);
  return Unquoted(part.etag) == Md5Hex(bytes);
}

std::string JoinedEtag(const StoredParts& parts) {
  std::vector<std::byte> digests;
  for (const auto& [number, part] : parts) {
    const std::string hex = Unquoted(part.etag);
    if (hex.size() != std::size_t{2} * MD5_DIGEST_LENGTH) return "";
    for (std::size_t at = 0; at < hex.size(); at += 2) {
      unsigned value = 0;
      const char* const end = hex.data() + at + 2;
      if (std::from_chars(hex.data() + at, end, value, 16).ptr != end) return "";
      digests.push_back(static_cast<std::byte>(value));
    }
  }
  return "\"" + Md5Hex(digests) + "-" + std::to_string(parts.size()) + "\"";
}

StatusOr<EarlierUpload> FindUpload(S3Client& client, const S3Name& name) {
  EarlierUpload found;
  const S3Request uploads{.name = {name.bucket, ""},
                          .query = {{"uploads", ""}, {"prefix", name.key}}};
  ZT_ASSIGN_OR_RETURN(const std::string page, AskPage(client, uploads, "ListMultipartUploads"));
  std::map<std::string, std::string, std::less<>> members;
  std::string begun;  // when the latest one was
  const auto keep = [&](std::string_view element, const std::string& text) {
    members.insert_or_assign(std::string(element), text);
  };
  ScanXml(page, keep, [&](std::string_view element) {
    if (element != "Upload") return;
    if (members["Key"] == name.key && !members["UploadId"].empty() &&
        members["Initiated"] >= begun) {
      found = {members["UploadId"], members["ChecksumAlgorithm"] == "CRC32C", {}};
      begun = members["Initiated"];
    }
    members.clear();
  });
  for (unsigned after = 0; !found.id.empty();) {
    const S3Request parts{
        .name = name,
        .query = {{"uploadId", found.id}, {"part-number-marker", std::to_string(after)}}};
    ZT_ASSIGN_OR_RETURN(const std::string listed, AskPage(client, parts, "ListParts"));
    members.clear();
    ScanXml(listed, keep, [&](std::string_view element) {
      if (element != "Part") return;
      found.parts[NumberOf<unsigned>(members["PartNumber"])] = {
          NumberOf<std::uint64_t>(members["Size"]), members["ETag"], members["ChecksumCRC32C"]};
      for (const char* name : {"PartNumber", "Size", "ETag", "ChecksumCRC32C"}) members.erase(name);
    });
    const unsigned next = found.parts.empty() ? 0 : found.parts.rbegin()->first;
    if (next > kMostParts || found.parts.contains(0))
      return InvalidData("the store lists parts that no upload has");
    if (Lower(members["IsTruncated"]) != "true" || next <= after) break;
    after = next;
  }
  return found;
}

LiveUploads& Live() {
  static LiveUploads* const live = new LiveUploads;
  return *live;
}

std::string AbortCommand(const S3Name& name, const std::string& id) {
  return "aws s3api abort-multipart-upload --bucket " + name.bucket + " --key " +
         ShellQuoted(name.key) + " --upload-id " + ShellQuoted(id);
}

std::string KeptParts(const S3Name& name, const std::string& id) {
  return "s3://" + name.bucket + "/" + name.key +
         ": the parts that were sent are kept, which costs money: the same run goes on after them; "
         "or remove them with: " +
         AbortCommand(name, id);
}

std::string LookAtIt(const S3Name& name, const std::string& id) {
  return "; look at the object, or write it again" +
         (id.empty() ? ""
                     : "; parts may be left, which cost money; remove them with: " +
                           AbortCommand(name, id));
}

std::string EndUpload(S3Client& client, const S3Name& name, const std::string& id, int tries) {
  const S3Request request{.method = "DELETE", .name = name, .query = {{"uploadId", id}}};
  const auto answer = client.Send(request, [&](HttpRequest& made) {
    made.tries = tries;
    made.patience = 5;
  });
  // A page, as of a proxy, is no answer of a store.
  const bool gone = answer.ok() && (answer->ok() || answer->head.status == 404);
  if (gone && Lower(XmlRoot(answer->text)) != "html") return "";
  const Status why = !answer.ok()           ? answer.status()
                     : !answer->status.ok() ? answer->status
                                            : client.Explain(name, *answer);
  return "s3://" + name.bucket + "/" + name.key +
         ": parts of a failed upload are left, which cost money (" + std::string(Message(why)) +
         "); remove them with: " + AbortCommand(name, id);
}

}  // namespace zt::remote::internal

namespace zt {

using namespace remote::internal;

AbandonedUploads AbandonUploads() {
  using State = Progress::State;
  constexpr std::chrono::seconds kMostWait(10);
  const auto until = std::chrono::steady_clock::now() + kMostWait;
  const auto is_late = [&] { return std::chrono::steady_clock::now() > until; };
  AbandonedUploads result;
  LiveUploads& live = Live();
  const zt::internal::MutexLock lock(live.mutex);
  for (const auto& [client, name, progress] : live.all) {
    std::string id;
    State state = State::kWritten;
    while (true) {
      {
        const zt::internal::MutexLock held(progress->mutex);
        progress->abandoned = true;
        id = progress->upload;
        state = progress->state;
        if (!progress->asking || is_late()) break;
      }
      // A request in progress ends by itself.
      constexpr std::chrono::milliseconds kPause(20);
      std::this_thread::sleep_for(kPause);
    }
    const std::string url = "s3://" + name.bucket + "/" + name.key;
    if (state == State::kPublished) {
      result.published = true;
    } else if (state != State::kWritten) {
      result.left.push_back(url + ": whether it was published is not known" + LookAtIt(name, id));
    } else if (id.empty()) {
      continue;
    } else if (client->settings()->resume) {
      result.left.push_back(KeptParts(name, id));
    } else if (is_late()) {
      result.left.push_back(url + ": parts may be left, which cost money; remove them with: " +
                            AbortCommand(name, id));
    } else if (std::string line = EndUpload(*client, name, id, 2); !line.empty()) {
      result.left.push_back(std::move(line));
    }
  }
  return result;
}

}  // namespace zt
