// zt.remote:upload — all uploads in progress, and what is done about them at the end.
module;

#include "core/status_macros.h"
#include "core/thread_annotations.h"

module zt.remote;

import zt.std;
import :http;
import :s3;
import :upload;
import :url;
import zt.core;

namespace zt::remote::internal {

LiveUploads& Live() {
  static LiveUploads* const live = new LiveUploads;
  return *live;
}

std::string AbortCommand(const S3Name& name, const std::string& id) {
  return "aws s3api abort-multipart-upload --bucket " + name.bucket + " --key " +
         ShellQuoted(name.key) + " --upload-id " + ShellQuoted(id);
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
