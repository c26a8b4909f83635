# SPDX-License-Identifier: MIT
# Whether a CUDA toolkit works: it may be cut short, or the host compiler be newer than it knows. As a
# script it prints what is wrong:
#
#   cmake -D NVCC=/usr/local/cuda/bin/nvcc -P common/cmake/CudaProblem.cmake

# In `result` why this nvcc builds no program here, in one line; nothing where it does.
function(minfer_cuda_problem result nvcc folder)
  set(flags "$ENV{CUDAFLAGS} ${CMAKE_CUDA_FLAGS}")
  separate_arguments(flags UNIX_COMMAND "${flags}")
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND flags -ccbin "${CMAKE_CUDA_HOST_COMPILER}")
  elseif(DEFINED ENV{CUDAHOSTCXX})
    list(APPEND flags -ccbin "$ENV{CUDAHOSTCXX}")
  endif()
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    if(architecture MATCHES "^([0-9]+[a-z]?)(-real|-virtual)?$")
      list(APPEND flags "-gencode=arch=compute_${CMAKE_MATCH_1},code=sm_${CMAKE_MATCH_1}")
    endif()
  endforeach()
  file(REMOVE "${folder}/probe")
  file(WRITE "${folder}/probe.cu" "__global__ void kernel() {}\nint main() { kernel<<<1, 1>>>(); }\n")
  execute_process(COMMAND "${nvcc}" ${flags} -o "${folder}/probe" "${folder}/probe.cu"
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(why "")
  if(NOT EXISTS "${folder}/probe")
    string(REGEX MATCH "[^\n]*(No space left|error|fatal)[^\n]*" line "${output}")
    if(NOT line)
      string(REGEX MATCH "[^\n]+" line "${output}")
    endif()
    if(NOT line)
      set(line "it ended with '${status}' and built nothing")
    endif()
    set(why "${nvcc} does not work: ${line}")
  endif()
  set(${result} "${why}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  execute_process(COMMAND mktemp -d OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE)
  minfer_cuda_problem(why "${NVCC}" "${folder}")
  file(REMOVE_RECURSE "${folder}")
  if(why)
    message("${why}")
  endif()
endif()
