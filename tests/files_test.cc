// Files that travel with a model: written, listed, read back, refused by their paths.
#include "testing.h"

import zt;
import zt.convert.files;

namespace zt {
namespace {

using Bytes = std::vector<std::byte>;

std::unique_ptr<Writer> To(Bytes& file, SpecVersion spec = SpecVersion::k1_2) {
  return *Writer::Create(MemorySink(file), {.spec = spec});
}

std::span<const std::byte> Content(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string Text(const Status& status) { return std::string(Message(status)); }

TEST(Files, AreWrittenListedAndRead) {
  for (const SpecVersion spec : {SpecVersion::k1_2, SpecVersion::k2_0}) {
    Bytes file;
    const auto writer = To(file, spec);
    const std::vector<float> values = {1, 2};
    ASSERT_TRUE(writer->Add("t", {2}, values).ok());
    ASSERT_TRUE(writer->AddFile("config.json", Content("{}")).ok());
    ASSERT_TRUE(writer->AddFile("bin/run.sh", Content("#!"), true).ok());
    ASSERT_TRUE(writer->AddFile("empty", {}).ok());
    ASSERT_TRUE(writer->Finish().ok());
    const auto reader = *Reader::Open(MemoryBytes(file, "memory"));
    std::vector<std::string> listed;
    for (const FileEntry& each : reader->files()) {
      listed.push_back(each.path + " " + std::to_string(each.bytes) +
                       (each.executable ? " x" : ""));
      EXPECT_EQ(reader->manifest().objects[each.object].name, "__meta__/files/" + each.path);
    }
    EXPECT_THAT(listed,
                ::testing::UnorderedElementsAre("config.json 2", "bin/run.sh 2 x", "empty 0"));
    Bytes content(2);
    ASSERT_TRUE(reader->ReadAll({*reader->Find("__meta__/files/bin/run.sh"), 0}, content).ok());
    EXPECT_EQ(content, Bytes(Content("#!").begin(), Content("#!").end()));
    EXPECT_TRUE(Verify(*reader)->problems.empty());
  }
}

TEST(Files, AreRefusedByTheirPaths) {
  const auto refuse = [](const std::vector<std::string>& paths) {
    Bytes file;
    const auto writer = To(file);
    Status status;
    for (const std::string& path : paths) {
      EXPECT_TRUE(status.ok()) << path;
      status = writer->AddFile(path, Content("x"));
    }
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(file.empty());
    return Text(status);
  };
  EXPECT_EQ(refuse({"../x"}),
            "tensor '__meta__/files/../x': ztstream.file/1: path '../x': a segment is '..'");
  EXPECT_EQ(refuse({"a", "A"}),
            "tensor '__meta__/files/A': path 'A': it differs from 'a' only in case");
  EXPECT_EQ(refuse({"a/b", "a"}), "tensor '__meta__/files/a': path 'a': it is a folder of 'a/b'");
  EXPECT_EQ(refuse({"a", "a"}), "tensor '__meta__/files/a': the name was added before");
}

TEST(Files, DoNotMeetThoseOfWeights) {
  const auto refuse = [](const Value& folder) {
    Bytes file;
    const auto writer = To(file);
    EXPECT_TRUE(writer->AddFile("a/b", Content("x")).ok());
    writer->SetAttributes({{std::string(kFolderAttribute), folder}});
    const Status status = writer->Finish();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(AdviceOf(status), std::vector{Advice::kMetadata});
    return Text(status);
  };
  const std::string attribute = "attribute 'ztstream.folder': ";
  EXPECT_EQ(refuse("text"), attribute + "it is not an array");
  EXPECT_EQ(refuse(ToValue(std::vector<WeightFile>{{"a/B", ""}})),
            attribute + "path 'a/B': it differs from 'a/b' only in case");
  EXPECT_EQ(refuse(ToValue(std::vector<WeightFile>{{"m", ""}, {"a", ""}})),
            attribute + "path 'a': it is a folder of 'a/b'");
}

TEST(Files, HaveOneName) {
  Bytes file;
  const auto writer = To(file);
  ASSERT_TRUE(writer->AddFile("a", Content("x")).ok());
  EXPECT_EQ(Text(writer->AddAlias("b", "__meta__/files/a")),
            "tensor 'b': tensor '__meta__/files/a' is a file, which has one name");
}

TEST(Files, PathsThatArePermitted) {
  for (const std::string_view path : {"a", ".hidden", "a/b/c", "..a", "com", "com10", "console.log",
                                      "\xe6\x97\xa5\xe6\x9c\xac"}) {
    EXPECT_TRUE(CheckFilePath(path).ok()) << path;
  }
  FilePaths paths;
  for (const std::string_view path : {"A/a", "a/b", "a/c/d", "b"}) {
    EXPECT_TRUE(paths.Add(path).ok()) << path;
  }
  EXPECT_EQ(paths.size(), 4);
}

TEST(Files, AreObjectsOfTheProfileOrDense) {
  const Object file = FileObject("a/b", 3, false);
  EXPECT_EQ(file.name, "__meta__/files/a/b");
  EXPECT_EQ(std::string_view(file.format), "ztstream.file/1");
  EXPECT_TRUE(IsFile(file) && CheckFile(file).ok());
  Object dense = FileObject("a/b", 3, true);
  dense.format = "dense";
  EXPECT_FALSE(IsFile(dense));
  SetMember(dense.attributes, kDenseFileAttribute, 1);
  EXPECT_TRUE(IsFile(dense) && CheckFile(dense).ok() && FileEntryOf(dense, 0).executable);
  SetMember(dense.attributes, kDenseFileAttribute, 2);
  EXPECT_FALSE(IsFile(dense));
}

TEST(Files, OfAFolderThatChangesAreRefused) {
  const zt_test::TempFolder folder;
  const std::string path = folder.path() + "/a";
  zt_test::WriteFile(path, "abc");
  Bytes content(3);
  {
    const auto source = OpenFiles(folder.path(), {{"a", 3, false}}, {}, {});
    ASSERT_OK(source->Read({0, 0}, 0, content));
    EXPECT_OK(source->Finish());
    const auto time = std::filesystem::last_write_time(path);
    std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
    EXPECT_EQ(Text(source->Finish()),
              path + ": it has been written to since it was opened; wait until it is written");
  }
  zt_test::WriteFile(path, "abcd");
  const auto source = OpenFiles(folder.path(), {{"a", 3, false}}, {}, {});
  EXPECT_EQ(Text(source->Read({0, 0}, 0, content)),
            "the file has 4 bytes, it had 3 when the run began");
}

}  // namespace
}  // namespace zt
