// zt.remote:files — s3://: objects, and folders, which are common prefixes of keys.
module;

#include "core/status_macros.h"

module zt.remote;

import zt.std;
import :files;
import :http;
import :s3;
import :upload;
import zt.core;
import zt.sink;
import zt.source;

namespace zt::remote::internal {
namespace {

// A page of the keys in a folder, or with `below` of those in the folders below it, too.
// It is the one after `before`, which said where the listing goes on.
StatusOr<ListPage> AskPage(S3Client& client, const S3Name& folder, const ListPage& before, int most,
                           bool below) {
  QueryPairs query = {{"list-type", "2"},
                      {"encoding-type", "url"},
                      {"max-keys", std::to_string(most)},
                      {"prefix", folder.key}};
  if (!below) query.emplace_back("delimiter", "/");
  if (before.after_key) {
    // Either version of the request has a name for a key to come after.
    query.emplace_back("marker", before.next);
    query.emplace_back("start-after", before.next);
  } else if (!before.next.empty()) {
    query.emplace_back("continuation-token", before.next);
  }
  ZT_ASSIGN_OR_RETURN(const HttpAnswer answer,
                      client.Ask({.name = {folder.bucket, ""}, .query = query}));
  return ParseListPage(answer.text);
}

StatusOr<S3Name> ParseFolder(const std::string& url) {
  ZT_ASSIGN_OR_RETURN(S3Name folder, ParseS3(url));
  if (!folder.is_folder()) folder.key += '/';
  return folder;
}

class S3Files final : public Scheme {
 public:
  explicit S3Files(SharedSettings settings)
      : client_(std::make_shared<S3Client>(std::move(settings))) {}
  StatusOr<std::shared_ptr<ByteSource>> Open(const std::string& url, Pins& pins) override {
    ZT_ASSIGN_OR_RETURN(S3Name name, ParseS3(url));
    if (name.is_folder()) return InvalidArgument("it is a folder, a file is needed");
    return OpenObject({.settings = client_->settings(),
                       .name = url,
                       .get = [client = client_, name] { return client->Make({.name = name}); },
                       .explain = [client = client_,
                                   name](auto& answer) { return client->Explain(name, answer); },
                       .refresh = [client = client_,
                                   name](auto& answer) { return client->Refresh(name, answer); }},
                      pins);
  }
  StatusOr<bool> IsFolder(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(const S3Name name, ParseS3(url));
    if (name.is_folder()) return true;
    if (HasExtension(name.key)) return false;
    ZT_ASSIGN_OR_RETURN(const S3Name folder, ParseFolder(url));
    ZT_ASSIGN_OR_RETURN(const ListPage page, AskPage(*client_, folder, {}, 1, false));
    return !page.keys.empty() || !page.prefixes.empty();
  }
  StatusOr<Listing> List(const std::string& url, bool below) override {
    ZT_ASSIGN_OR_RETURN(const S3Name folder, ParseFolder(url));
    Listing listing{.files = {}, .below = true};
    Pages pages;
    ListPage page;
    do {
      ZT_ASSIGN_OR_RETURN(page, AskPage(*client_, folder, page, 1000, below));
      for (ListPage::Key& each : page.keys) {
        std::string& key = each.key;
        if (!key.starts_with(folder.key))
          return InvalidData("the server's listing names " + Quote(key) + ", of another folder");
        ZT_RETURN_IF_ERROR(pages.Add(key));
        key.erase(0, folder.key.size());
        // A key equal to the prefix stands for the folder itself, and an empty one that ends with a
        // slash for another folder.
        if (!key.empty() && (!key.ends_with('/') || each.bytes != 0))
          listing.files.push_back(std::move(each));
      }
      // Without folders in it, there is nothing below.
      listing.below = listing.below && page.prefixes.empty();
      ZT_RETURN_IF_ERROR(pages.GoOn(page.next));
    } while (!pages.next().empty());
    return listing;
  }
  StatusOr<std::optional<bool>> Exists(const std::string& url) override {
    ZT_ASSIGN_OR_RETURN(const S3Name name, ParseS3(url));
    if (name.is_folder()) return false;
    ZT_ASSIGN_OR_RETURN(const HttpAnswer answer, client_->Send({.method = "HEAD", .name = name}));
    ZT_RETURN_IF_ERROR(answer.status);
    if (answer.head.status == 404) return false;
    if (!answer.ok()) return client_->Explain(name, answer);
    return true;
  }
  StatusOr<std::unique_ptr<Sink>> Create(const std::string& url, const FileSinkOptions& options,
                                         std::function<void()> forget) override {
    ZT_ASSIGN_OR_RETURN(S3Name name, ParseS3(url));
    if (name.is_folder()) return InvalidArgument("the output is a folder; name a file");
    return CreateUpload(client_, url, std::move(name), options, std::move(forget));
  }

 private:
  const std::shared_ptr<S3Client> client_;
};

}  // namespace

std::unique_ptr<Scheme> MakeS3(SharedSettings settings) {
  return std::make_unique<S3Files>(std::move(settings));
}

}  // namespace zt::remote::internal
