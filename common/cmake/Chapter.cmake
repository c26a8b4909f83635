# SPDX-License-Identifier: MIT
# A chapter's targets, from what its directory is called and holds. Included after minfer_setup().
include_guard(GLOBAL)
include(MinferCuda) # not in a function: a language is enabled for the rest of the file only

# For chapters/NN-slug: the library `engine-slug` of its sources, and the program `slug` at the top
# of the build folder. Where there are .cu files, `engine-slug` and `slug` are built by nvcc, and
# `engine-slug-emulated` and `slug-emulated` run the kernels on the CPU; what this machine has no
# tools for is left out, by name. The sources see MINFER_PROGRAM, "slug".
function(minfer_add_chapter)
  get_filename_component(directory "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  string(REGEX REPLACE "^[0-9]+-" "" slug "${directory}")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  file(GLOB kernels CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cu")
  list(REMOVE_ITEM sources "${CMAKE_CURRENT_SOURCE_DIR}/main.cpp")
  list(FILTER kernels EXCLUDE REGEX "_(test|bench)\\.cu$") # programs of their own: tests/chapters
  minfer_add_shared_code()

  if(kernels)
    minfer_add_kernels(engine-${slug} ${sources} ${kernels} LIBRARIES minfer_oracle minfer_common)
    minfer_add_cuda_executable(${slug} SOURCES main.cpp LIBRARIES engine-${slug})
    if(MINFER_HAVE_LAB)
      minfer_add_lab(lab-${slug} SOURCES ${sources} ${kernels} "${MINFER_CUDA_DIR}/emulator/lab/main.cpp"
                     LIBRARIES minfer_oracle minfer_common)
    endif()
  else()
    add_library(engine-${slug} STATIC ${sources})
    target_link_libraries(engine-${slug} PUBLIC minfer_oracle minfer_common)
    add_executable(${slug} main.cpp)
    target_link_libraries(${slug} PRIVATE engine-${slug})
  endif()

  foreach(target IN ITEMS engine-${slug} engine-${slug}-emulated ${slug} ${slug}-emulated lab-${slug})
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
      target_compile_definitions(${target} PRIVATE "MINFER_PROGRAM=\"${slug}\"")
      target_include_directories(${target} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}")
    endif()
  endforeach()
endfunction()

# common/ and oracle/, where the chapter is built by itself.
function(minfer_add_shared_code)
  foreach(part IN ITEMS common oracle)
    if(NOT TARGET minfer_${part})
      add_subdirectory("${MINFER_ROOT}/${part}" "${CMAKE_BINARY_DIR}/${part}")
    endif()
  endforeach()
endfunction()
