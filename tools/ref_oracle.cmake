# SPDX-License-Identifier: MIT
# Adds our ref_oracle to llama.cpp's own build, which tools/build_llama_cpp configures with this file
# as CMAKE_PROJECT_llama.cpp_INCLUDE: so it is compiled and linked as llama.cpp's programs are.
set(MINFER_REF_ORACLE "${CMAKE_CURRENT_LIST_DIR}/ref_oracle.cpp")

function(minfer_add_ref_oracle)
  add_executable(ref_oracle "${MINFER_REF_ORACLE}")
  target_link_libraries(ref_oracle PRIVATE llama)
  target_compile_features(ref_oracle PRIVATE cxx_std_17)
endfunction()

cmake_language(DEFER CALL minfer_add_ref_oracle) # the target llama comes later
