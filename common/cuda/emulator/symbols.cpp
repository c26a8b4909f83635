// SPDX-License-Identifier: MIT
//
// Kernels are launched by address. Their names stand in the ELF symbol table of the program or
// library that holds them; dladdr() alone would find exported functions only.
#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emulator/fault.h"

namespace minfer::emulator {
namespace {

template <class T>
std::vector<T> read_array(std::ifstream& file, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<T> result(bytes / sizeof(T));
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(result.data()),
            static_cast<std::streamsize>(result.size() * sizeof(T)));
  if (!file) result.clear();
  return result;
}

/// The mangled name of the function that covers `offset` in the ELF file `path`, or nothing.
std::string symbol_at(const char* path, std::uint64_t offset) {
  std::ifstream file(path, std::ios::binary);
  const auto header = read_array<ElfW(Ehdr)>(file, 0, sizeof(ElfW(Ehdr)));
  if (header.empty()) return {};
  const auto sections = read_array<ElfW(Shdr)>(
      file, header[0].e_shoff, std::uint64_t{header[0].e_shnum} * sizeof(ElfW(Shdr)));
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const auto& strings = sections[section.sh_link];
    const auto names = read_array<char>(file, strings.sh_offset, strings.sh_size);
    for (const auto& symbol : read_array<ElfW(Sym)>(file, section.sh_offset, section.sh_size)) {
      const bool is_function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
      const bool covers = offset >= symbol.st_value && offset - symbol.st_value < symbol.st_size;
      if (is_function && covers && symbol.st_name < names.size()) return &names[symbol.st_name];
    }
  }
  return {};
}

std::string demangle(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : name;
}

}  // namespace

std::string function_name(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) != 0) {
    // A program that is not position-independent has its addresses in the symbol table as they are.
    const auto absolute = reinterpret_cast<std::uintptr_t>(address);
    const auto base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
    std::string name = symbol_at(info.dli_fname, absolute - base);
    if (name.empty()) name = symbol_at(info.dli_fname, absolute);
    if (!name.empty()) return demangle(name);
  }
  char text[32];
  std::snprintf(text, sizeof text, "at %p", address);
  return text;
}

}  // namespace minfer::emulator
