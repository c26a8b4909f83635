// SPDX-License-Identifier: MIT
//
// Files that are not GGUF at all, paths that are not files, and files that change.
#include <fcntl.h>
#include <minfer/gguf/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "refusal.h"

namespace minfer::test {
namespace {

std::string open_refusal(const std::string& path) {
  const auto open = [&](ReadMode mode) {
    return refusal_by(path, [mode](const std::string& p) { GgufFile::open(p, mode); });
  };
  const std::string mapped = open(ReadMode::kMap);
  REQUIRE(open(ReadMode::kRead) == mapped);
  return mapped;
}

TEST_CASE("a missing file, a directory, and what else is no file") {
  TempDir dir;
  CHECK(open_refusal(dir.path("missing")) == "cannot be opened: No such file or directory");
  CHECK(open_refusal("/") == "is a directory, expected a GGUF file");
  CHECK(open_refusal("/dev/zero") == "is a device, expected a GGUF file");
  CHECK(open_refusal("/dev/null") == "is a device, expected a GGUF file");

  const std::string fifo = dir.path("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(open_refusal(fifo) == "is a FIFO, expected a GGUF file");

  const std::string below_a_file = dir.write("file", "x") + "/model.gguf";
  CHECK(open_refusal(below_a_file) == "cannot be opened: Not a directory");
  const std::string loop = dir.path("loop");
  REQUIRE(symlink("loop", loop.c_str()) == 0);
  CHECK(open_refusal(loop) == "cannot be opened: Too many levels of symbolic links");
}

TEST_CASE("a socket is no file") {
  TempDir dir;
  const std::string path = dir.path("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::strcpy(address.sun_path, path.c_str());
  const int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  close(descriptor);
  CHECK(open_refusal(path) == "cannot be opened: No such device or address");
}

TEST_CASE("an unreadable file") {
  TempDir dir;
  const std::string path = dir.write("secret.gguf", small_model().build());
  // The super-user may read everything: be another for the test's length.
  const bool is_root = geteuid() == 0;
  REQUIRE(chmod(path.c_str(), 0) == 0);
  if (is_root) REQUIRE(chmod(path.substr(0, path.rfind('/')).c_str(), 0755) == 0);
  if (is_root) REQUIRE(seteuid(65534) == 0);
  const std::string message = open_refusal(path);
  if (is_root) REQUIRE(seteuid(0) == 0);
  CHECK(message == "cannot be opened: Permission denied");
}

TEST_CASE("a symbolic link to a file is that file") {
  TempDir dir;
  const std::string path = dir.write("model.gguf", small_model().build());
  const std::string link = dir.path("link.gguf");
  REQUIRE(symlink(path.c_str(), link.c_str()) == 0);
  CHECK(open_refusal(link) == "accepted");
}

TEST_CASE("an empty file") {
  CHECK(refusal_of("") == "is empty, expected a GGUF file");
}

TEST_CASE("a file shorter than a header") {
  CHECK(refusal_of("GG") == "begins with \"GG\", expected \"GGUF\"");
  CHECK(refusal_of("GGUF") == "header needs 4 bytes from byte 4 on, but the file ends at byte 4");
  CHECK(refusal_of(std::string("GGUF\3\0\0\0\0\0", 10)) ==
        "header needs 8 bytes from byte 8 on, but the file ends at byte 10");
}

TEST_CASE("a web page") {
  const std::string expected = "this is a web page, expected a GGUF file: use the /resolve/ link";
  for (const char* page :
       {"<!doctype html>\n<html class=\"\">", "<!DOCTYPE html PUBLIC \"-//W3C//DTD", "<html>",
        "<HTML><BODY>", " \r\n\t<!DOCTYPE HTML>", "\xef\xbb\xbf<!doctype html>",
        "<!-- saved from --><html>", "<head><title>404</title></head>"}) {
    CHECK(refusal_of(page) == expected);
  }
  CHECK(refusal_of("<htm") == "begins with \"<htm\", expected \"GGUF\"");
}

TEST_CASE("a git-lfs pointer") {
  CHECK(refusal_of("version https://git-lfs.github.com/spec/v1\n"
                   "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                   "size 428730208\n") ==
        "this is a git-lfs pointer, expected the GGUF file itself: run git lfs pull");
}

TEST_CASE("a safetensors file") {
  const std::string expected = "this is a safetensors file, expected a GGUF file: convert it first";
  const std::string head = "{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
  CHECK(refusal_of(string_bytes(head) + "data") == expected);
  CHECK(refusal_of(string_bytes("{\"__metadata__\":{}}" + std::string(100, ' '))) == expected);
  CHECK(refusal_of(number_bytes<std::uint64_t>(1 << 20) + head) == expected);  // cut in its header
  CHECK(refusal_of(number_bytes<std::uint64_t>(1) + "{\"") ==
        "begins with \"\\x01\\x00\\x00\\x00\", expected \"GGUF\"");
}

TEST_CASE("files of other kinds") {
  for (const char* old : {"lmgg", "fmgg", "tjgg", "algg"}) {
    CHECK(refusal_of(old + std::string(40, '\0')) ==
          "this is a GGML file from before GGUF, expected a GGUF file: convert it first");
  }
  for (const char* packed : {"PK\x03\x04 zip", "\x1f\x8b gzip", "\x28\xb5\x2f\xfd zstd",
                             "\xfd"
                             "7zXZ",
                             "BZh91AY&SY"}) {
    CHECK(refusal_of(packed) ==
          "this is an archive or a compressed file, expected a GGUF file: unpack it first");
  }
  CHECK(refusal_of("Entry not found") == "begins with \"Entr\", expected \"GGUF\"");
}

TEST_CASE("a path is shown on one line") {
  TempDir dir;
  const std::string path = dir.path("a\n\x1b[31m\x7f\xc2\x9b\xc3\xa9.gguf");
  const std::string folder = path.substr(0, path.rfind('/'));
  CHECK_THROWS_WITH(GgufFile::open(path), folder +
                                              "/a\\x0a\\x1b[31m\\x7f\\xc2\\x9b\xc3\xa9.gguf: "
                                              "cannot be opened: No such file or directory");
  CHECK_THROWS_WITH(GgufFile::open(""), "\"\": cannot be opened: No such file or directory");
}

TEST_CASE("a file that is cut short while it is read") {
  TempDir dir;
  const std::string path = dir.write("file", "0123456789");
  const InputFile file(path);
  REQUIRE(truncate(path.c_str(), 4) == 0);
  std::byte bytes[10];
  CHECK_THROWS_WITH(
      file.read(0, bytes, 10),
      path + ": was cut short while it was read: it had 10 bytes and ends at byte 4 now");
  file.read(0, bytes, 4);
  CHECK(std::memcmp(bytes, "0123", 4) == 0);
}

TEST_CASE("what was read of a file outlives the file") {
  TempDir dir;
  const std::string path = dir.write("model.gguf", small_model().build());
  const GgufFile read = GgufFile::open(path, ReadMode::kRead);
  const GgufFile mapped = GgufFile::open(path, ReadMode::kMap);
  REQUIRE(truncate(path.c_str(), 0) == 0);
  CHECK(mapped.get_string("general.architecture") == "qwen2");  // metadata is never mapped
  const Tensor& tensor = read.tensor("output.weight");
  CHECK(std::memcmp(tensor.data, "12345678", 8) == 0);
}

TEST_CASE("a file that is larger than memory is mapped, but not read", "[terabytes]") {
  TempDir dir;
  const std::string path = dir.write("large.gguf", small_model().build());
  const off_t size = off_t{1} << 43;  // sparse; 8 TiB
  if (truncate(path.c_str(), size) != 0) {
    WARN("the file system holds no file of 8 TiB: not tested");
    return;
  }
  CHECK(refusal_by(path, [](const std::string& p) { GgufFile::open(p, ReadMode::kMap); }) ==
        "accepted");
  const std::string message =
      refusal_by(path, [](const std::string& p) { GgufFile::open(p, ReadMode::kRead); });
  CHECK(message.find("has 8796093022208 bytes, expected no more than this machine's memory of ") ==
        0);
  CHECK_THAT(message, ContainsSubstring("; map it instead"));
}

/// Bytes of the file's mapping that are in this process's memory now.
std::uint64_t resident_bytes(const std::string& path) {
  FILE* maps = fopen("/proc/self/smaps", "r");
  REQUIRE(maps != nullptr);
  char line[4096];
  bool in_mapping = false;
  unsigned long kilobytes = 0;
  unsigned long total = 0;
  while (fgets(line, sizeof line, maps) != nullptr) {
    unsigned long first, last;
    if (sscanf(line, "%lx-%lx ", &first, &last) == 2) {  // a mapping's first line
      in_mapping = std::strstr(line, path.c_str()) != nullptr;
    }
    if (in_mapping && sscanf(line, "Rss: %lu kB", &kilobytes) == 1) total += kilobytes;
  }
  fclose(maps);
  return total * 1024;
}

std::uint64_t sum_of(const Tensor& tensor) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < tensor.bytes; ++i) sum += std::to_integer<unsigned>(tensor.data[i]);
  return sum;
}

TEST_CASE("release gives back a tensor's pages, and all can still be read") {
  GgufBuilder builder;
  builder.add_tensor("before", {1 << 10}, TensorType::kF32);
  builder.add_tensor("large", {1 << 20}, TensorType::kF32);
  builder.add_tensor("after", {1 << 10}, TensorType::kF32);
  TempDir dir;
  const std::string path = dir.write("file.gguf", builder.build());
  for (const ReadMode mode : {ReadMode::kMap, ReadMode::kRead}) {
    const GgufFile file = GgufFile::open(path, mode);
    std::uint64_t before = 0;
    for (const Tensor& tensor : file.tensors()) before += sum_of(tensor);
    const std::uint64_t touched = resident_bytes(path);

    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    file.release(file.tensor("large"));
    const std::uint64_t released = touched - resident_bytes(path);
    if (mode == ReadMode::kMap) {
      CHECK(touched >= (4u << 20) + 8192);
      CHECK(released >= (4u << 20) - 2 * page);
    }
    std::uint64_t after = 0;
    for (const Tensor& tensor : file.tensors()) after += sum_of(tensor);
    CHECK(after == before);
  }
}

}  // namespace
}  // namespace minfer::test
