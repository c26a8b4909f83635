// SPDX-License-Identifier: MIT
// The reader and the block formats as a program, for tests that compare with the gguf package and
// for tests that measure what a refusal costs.
//
//     gguf_tool load PATH [read]       Model::load; prints its description
//     gguf_tool cost PATH [read]       the same; prints milliseconds, the peak of resident memory
//     in
//                                      KB, and the description or the refusal
//     gguf_tool list PATH              every tensor: name, type, shape, offset of its data
//     gguf_tool dequantize TYPE N      rows of N values from standard input, as f32 to the output
//     gguf_tool quantize TYPE N        the other way round
//
// TYPE is GGUF's number. Exit status 1 and one line on standard error when a file is refused.
#include <minfer/gguf/model.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

namespace minfer {
namespace {

std::string load(const std::string& path, ReadMode mode) {
  return Model::load(path, {mode, false}).describe();
}

/// The most memory that this process had resident, since it began to run this program.
long peak_kilobytes() {
  long kilobytes = -1;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kilobytes;
  }
  return kilobytes;
}

void cost(const std::string& path, ReadMode mode) {
  std::string answer;
  const std::clock_t start = std::clock();
  try {
    answer = load(path, mode);
  } catch (const FileError& error) {
    answer = error.what();
  }
  const double milliseconds = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%.3f %ld %s\n", milliseconds, peak_kilobytes(), answer.c_str());
}

void list(const std::string& path) {
  const GgufFile file = GgufFile::open(path);
  for (const Tensor& tensor : file.tensors()) {
    std::printf("%s %u", tensor.name.c_str(), static_cast<unsigned>(tensor.type));
    for (const std::uint64_t dimension : tensor.shape) {
      std::printf(" %llu", static_cast<unsigned long long>(dimension));
    }
    const auto first = file.tensors()[0].data;
    std::printf(" %lld %llu\n", static_cast<long long>(tensor.data - first),
                static_cast<unsigned long long>(tensor.bytes));
  }
}

/// Calls convert(in, out) for every row of standard input, in the sizes given.
template <class Convert>
void convert_rows(std::size_t in_bytes, std::size_t out_bytes, Convert convert) {
  std::vector<std::byte> in(in_bytes);
  std::vector<std::byte> out(out_bytes);
  while (std::fread(in.data(), 1, in_bytes, stdin) == in_bytes) {
    convert(in.data(), out.data());
    std::fwrite(out.data(), 1, out_bytes, stdout);
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) return 2;
  const std::string& command = arguments[0];
  if (command == "load" || command == "cost") {
    const bool read = arguments.size() > 2 && arguments[2] == "read";
    const ReadMode mode = read ? ReadMode::kRead : ReadMode::kMap;
    if (command == "cost") {
      cost(arguments[1], mode);
    } else {
      std::printf("%s\n", load(arguments[1], mode).c_str());
    }
  } else if (command == "list") {
    list(arguments[1]);
  } else if (command == "dequantize" || command == "quantize") {
    if (arguments.size() != 3) return 2;
    const auto type = static_cast<TensorType>(std::stoul(arguments[1]));
    const std::size_t n = std::stoull(arguments[2]);
    if (command == "dequantize") {
      convert_rows(row_bytes(type, n), n * sizeof(float), [&](const std::byte* in, std::byte* out) {
        dequantize_row(type, in, n, reinterpret_cast<float*>(out));
      });
    } else {
      convert_rows(n * sizeof(float), row_bytes(type, n), [&](const std::byte* in, std::byte* out) {
        quantize_row(type, reinterpret_cast<const float*>(in), n, out);
      });
    }
  } else {
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  try {
    const int status = minfer::run({argv + 1, argv + argc});
    if (status == 2)
      std::fprintf(stderr, "usage: gguf_tool load|cost|list|dequantize|quantize ...\n");
    return status;
  } catch (const minfer::FileError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
