# SPDX-License-Identifier: MIT
# Builds CUDA sources twice: by nvcc for a GPU, and by the C++ compiler for the emulator. Included
# after minfer_setup(), in the top directory of the build.
#
#   MINFER_HAVE_CUDA       there is a CUDA compiler, and it works
#   MINFER_HAVE_EMULATOR   there is Boost.Context, which the emulator's threads are made of
#
#   minfer_add_kernels(NAME SOURCES... [LIBRARIES ...])
#       static libraries NAME (by nvcc) and NAME-emulated
#   minfer_add_cuda_executable(NAME SOURCES ... [LIBRARIES ...])
#       programs NAME and NAME-emulated
#
# Sources are .cu and .cpp files. A library of LIBRARIES that was made by minfer_add_kernels() is
# linked in the form that fits. What can't be built is left out; test for the target.
include_guard(DIRECTORY)
include(CudaProblem)

option(MINFER_CUDA "Build the kernels for a GPU, where nvcc is found" ON)
option(MINFER_RESOURCE_USAGE "Let nvcc print each kernel's registers, spills and shared memory" ON)
set(MINFER_CUDA_DIR "${CMAKE_CURRENT_LIST_DIR}/../cuda")

# ------------------------------------------------------------------------------ by nvcc

set(MINFER_HAVE_CUDA OFF)
if(MINFER_CUDA)
  set(nvcc "$ENV{CUDACXX}")
  if(CMAKE_CUDA_COMPILER)
    set(nvcc "${CMAKE_CUDA_COMPILER}")
  elseif(NOT nvcc AND NOT CMAKE_CROSSCOMPILING)
    find_program(MINFER_NVCC nvcc HINTS /usr/local/cuda/bin) # the toolkit's installer leaves PATH alone
    mark_as_advanced(MINFER_NVCC)
    set(nvcc "${MINFER_NVCC}")
  endif()
  if(nvcc)
    minfer_cuda_problem(why "${nvcc}" "${CMAKE_BINARY_DIR}/CMakeFiles")
  else()
    set(why "nvcc is not installed (CUDA toolkit 12.6 or newer)")
  endif()
  if(why)
    minfer_left_out("kernels for a GPU" "${why}")
  else()
    set(CMAKE_CUDA_COMPILER "${nvcc}")
    enable_language(CUDA)
    set(MINFER_HAVE_CUDA ON)
    find_package(CUDAToolkit REQUIRED)
  endif()
endif()

if(MINFER_HAVE_CUDA AND NOT TARGET minfer_cuda_flags)
  # No contraction on the device (--fmad) or the host: see minfer_setup(). The other switches of
  # fast-math (--ftz, --prec-div, --prec-sqrt) stand at their exact values unless they are set.
  set(host "-ffp-contract=off" "-Wall" "-Wextra")
  if(MINFER_HOST_MARCH)
    list(APPEND host "${MINFER_HOST_MARCH}")
  endif()
  string(REPLACE ";" "," host "${host}")
  string(REPLACE ";" "," architectures "${CMAKE_CUDA_ARCHITECTURES}")
  add_library(minfer_nvcc_flags INTERFACE)
  target_compile_features(minfer_nvcc_flags INTERFACE cuda_std_17)
  target_compile_options(
    minfer_nvcc_flags
    INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=${host}>"
              "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${MINFER_RESOURCE_USAGE}>>:-Xptxas=-v>"
              "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${MINFER_WERROR}>>:-Werror=all-warnings>")
  target_compile_definitions(minfer_nvcc_flags
                             INTERFACE "MINFER_CUDA_ARCHITECTURES=\"${architectures}\"")
  target_link_libraries(minfer_nvcc_flags INTERFACE minfer_flags CUDA::cudart_static)
  # What of common/cuda only nvcc can compile; once in every program, with the flags of its kernels.
  add_library(minfer_cuda STATIC "${MINFER_CUDA_DIR}/kernel_image.cu")
  target_link_libraries(minfer_cuda PRIVATE minfer_nvcc_flags)
  add_library(minfer_cuda_flags INTERFACE)
  target_link_libraries(minfer_cuda_flags INTERFACE minfer_nvcc_flags minfer_cuda)
endif()

# ------------------------------------------------------------------------------ emulated

find_package(Boost 1.65 QUIET COMPONENTS context)
if(Boost_FOUND AND TARGET Boost::context)
  set(MINFER_HAVE_EMULATOR ON)
else()
  set(MINFER_HAVE_EMULATOR OFF)
  minfer_left_out("kernels in the emulator"
                  "Boost.Context is not installed (Debian: libboost-context-dev)")
endif()

# In `result` the sources as the C++ compiler takes them: each .cu through a .cpp that includes it,
# since CMake knows one language for a file.
function(minfer_emulated_sources result target)
  set(sources "")
  foreach(source IN LISTS ARGN)
    get_filename_component(path "${source}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    if(path MATCHES "\\.cu$")
      get_filename_component(name "${path}" NAME_WE)
      set(wrapper "${CMAKE_CURRENT_BINARY_DIR}/${target}.dir/${name}.cpp")
      file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"${path}\"\n" @ONLY)
      set(path "${wrapper}")
    endif()
    list(APPEND sources "${path}")
  endforeach()
  set(${result} "${sources}" PARENT_SCOPE)
endfunction()

# minfer_add_emulator(TARGET [OPTIONS...]): the emulator as a static library. OPTIONS are for the
# compiler and the linker, and hold for what links the library as well: sanitizers, in tests.
function(minfer_add_emulator target)
  file(GLOB sources CONFIGURE_DEPENDS "${MINFER_CUDA_DIR}/emulator/*.cpp")
  minfer_emulated_sources(kernels ${target} "${MINFER_CUDA_DIR}/kernel_image.cu")
  add_library(${target} STATIC ${sources} ${kernels})
  target_include_directories(${target} BEFORE PUBLIC "${MINFER_CUDA_DIR}/emulator/include")
  target_compile_definitions(${target} PUBLIC MINFER_EMULATOR)
  target_compile_options(${target} PUBLIC -Wno-unknown-pragmas ${ARGN}) # #pragma unroll
  target_link_options(${target} PUBLIC ${ARGN})
  target_link_libraries(${target} PUBLIC minfer_flags Boost::context ${CMAKE_DL_LIBS} PRIVATE minfer_common)
endfunction()

if(MINFER_HAVE_EMULATOR AND NOT TARGET minfer_emulator)
  minfer_add_emulator(minfer_emulator)
endif()

# ------------------------------------------------------------------------------ in the lab

# GCC's -fsanitize=thread only as far as it makes the compiler call a function at every access: the
# lab has those functions. Aggregates stay whole, so that a load of a float4 is one access.
set(MINFER_HAVE_LAB OFF)
if(MINFER_HAVE_EMULATOR AND MINFER_SANITIZE)
  minfer_left_out("the lab" "MINFER_SANITIZE is set, and an access can be instrumented but once")
elseif(MINFER_HAVE_EMULATOR AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  minfer_left_out("the lab" "the C++ compiler is ${CMAKE_CXX_COMPILER_ID}, expected GCC")
elseif(MINFER_HAVE_EMULATOR)
  set(MINFER_HAVE_LAB ON)
endif()

if(MINFER_HAVE_LAB AND NOT TARGET minfer_lab)
  file(GLOB sources CONFIGURE_DEPENDS "${MINFER_CUDA_DIR}/emulator/lab/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(minfer_lab STATIC EXCLUDE_FROM_ALL ${sources})
  # A call in the place of a return would take the frame away that the walk up the stack begins at.
  target_compile_options(minfer_lab PRIVATE -fno-optimize-sibling-calls)
  target_link_libraries(minfer_lab PUBLIC minfer_emulator)
endif()

# minfer_add_lab(NAME SOURCES ... [LIBRARIES ...]): a program whose sources are seen by the lab.
function(minfer_add_lab name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  minfer_emulated_sources(sources ${name} ${arg_SOURCES})
  add_executable(${name} EXCLUDE_FROM_ALL ${sources})
  target_compile_options(
    ${name} PRIVATE -O1 -g1 -gdwarf-4 -fno-tree-sra -fno-ipa-sra -fno-omit-frame-pointer -fsanitize=thread
                    -Wno-tsan # it does not know fences, and need not
                    "SHELL:--param tsan-instrument-func-entry-exit=0")
  target_link_libraries(${name} PRIVATE minfer_lab ${arg_LIBRARIES})
endfunction()

# ------------------------------------------------------------------------------ both

# Links `target` with LIBRARIES, in the emulated form where there is one.
function(minfer_link_emulated target)
  foreach(library IN LISTS ARGN)
    target_link_libraries(
      ${target}
      PUBLIC "$<IF:$<TARGET_EXISTS:${library}-emulated>,${library}-emulated,${library}>")
  endforeach()
  target_link_libraries(${target} PUBLIC minfer_emulator)
endfunction()

function(minfer_add_kernels name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(sources ${arg_UNPARSED_ARGUMENTS} ${arg_SOURCES})
  if(MINFER_HAVE_CUDA)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC minfer_cuda_flags ${arg_LIBRARIES})
  endif()
  if(MINFER_HAVE_EMULATOR)
    minfer_emulated_sources(emulated ${name}-emulated ${sources})
    add_library(${name}-emulated STATIC ${emulated})
    minfer_link_emulated(${name}-emulated ${arg_LIBRARIES})
  endif()
endfunction()

function(minfer_add_cuda_executable name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(sources ${arg_UNPARSED_ARGUMENTS} ${arg_SOURCES})
  if(MINFER_HAVE_CUDA)
    add_executable(${name} ${sources})
    target_link_libraries(${name} PRIVATE minfer_cuda_flags ${arg_LIBRARIES})
  endif()
  if(MINFER_HAVE_EMULATOR)
    minfer_emulated_sources(emulated ${name}-emulated ${sources})
    add_executable(${name}-emulated ${emulated})
    minfer_link_emulated(${name}-emulated ${arg_LIBRARIES})
  endif()
endfunction()
