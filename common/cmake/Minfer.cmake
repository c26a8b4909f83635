# SPDX-License-Identifier: MIT
# Settings that the whole project and every chapter built by itself share. Included before
# project(), so that CUDA's architectures are set in time; minfer_setup() comes after it.
include_guard(GLOBAL)

get_filename_component(MINFER_ROOT "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
foreach(path IN ITEMS "${MINFER_ROOT}" "${CMAKE_BINARY_DIR}")
  if("${path}" MATCHES "[][;\"|<>]|\\\${") # they mean something in CMake's lists, patterns and expressions
    message(FATAL_ERROR "${path}: CMake can't build where the path has one of [ ] ; \" | < > or \${: rename the folder")
  endif()
endforeach()
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 87 CACHE STRING "GPU architectures to build for")
endif()
if(NOT DEFINED CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type")
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(MINFER_WERROR "Treat warnings as errors" OFF)
set(MINFER_SANITIZE "" CACHE STRING "Sanitizers for host code, as -fsanitize takes them: address,undefined")
set(MINFER_MARCH "auto" CACHE STRING
    "-march for host code; auto: x86-64-v3 where this CPU has it, else the compiler's default")

# Notes what this configuration leaves out, and why; minfer_report_left_out() prints it.
function(minfer_left_out what why)
  string(REPLACE ";" "," why "${why}") # which would end an entry of the list
  set_property(GLOBAL APPEND PROPERTY MINFER_LEFT_OUT "${what}: ${why}")
endfunction()

function(minfer_report_left_out)
  get_property(lines GLOBAL PROPERTY MINFER_LEFT_OUT)
  list(REMOVE_DUPLICATES lines)
  foreach(line IN LISTS lines)
    message(STATUS "left out: ${line}")
  endforeach()
endfunction()

# x86-64-v3 is what has FMA and AVX2. The bits are the same without them: std::fmaf is exact
# either way, only slow in software.
function(minfer_host_march result)
  set(march "")
  if(MINFER_MARCH STREQUAL "auto")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT CMAKE_CROSSCOMPILING
       AND EXISTS /proc/cpuinfo)
      file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
      if(flags MATCHES " avx2 " AND flags MATCHES " fma " AND flags MATCHES " bmi2 ")
        set(march "-march=x86-64-v3")
      endif()
    endif()
  elseif(MINFER_MARCH)
    set(march "-march=${MINFER_MARCH}")
  endif()
  set(${result} "${march}" PARENT_SCOPE)
endfunction()

# After project(): the target minfer_flags, with what every host source is compiled with.
macro(minfer_setup)
  if(NOT TARGET minfer_flags)
    add_library(minfer_flags INTERFACE)
    minfer_host_march(MINFER_HOST_MARCH)
    target_compile_features(minfer_flags INTERFACE cxx_std_17)
    target_include_directories(minfer_flags INTERFACE "${MINFER_ROOT}" "${MINFER_ROOT}/common")
    # No contraction: a*b+c rounds twice unless it is written fmaf, on every compiler and machine.
    target_compile_options(
      minfer_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-Wall;-Wextra>"
                             "$<$<COMPILE_LANGUAGE:CXX>:${MINFER_HOST_MARCH}>")
    if(MINFER_WERROR)
      target_compile_options(minfer_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
    endif()
    if(MINFER_SANITIZE)
      target_compile_options(
        minfer_flags INTERFACE
        "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MINFER_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
      target_link_options(minfer_flags INTERFACE "-fsanitize=${MINFER_SANITIZE}")
    endif()
    find_package(Threads REQUIRED)
    target_link_libraries(minfer_flags INTERFACE Threads::Threads)
  endif()
endmacro()
