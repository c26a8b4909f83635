# SPDX-License-Identifier: MIT
# Builds for aarch64 on another machine, and runs what was built under qemu-user. Libraries come
# from MINFER_SYSROOT, a folder of unpacked arm64 packages, which `./minfer test` makes.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

find_program(MINFER_QEMU NAMES qemu-aarch64-static qemu-aarch64 REQUIRED)
set(CMAKE_CROSSCOMPILING_EMULATOR "${MINFER_QEMU};-L;/usr/aarch64-linux-gnu")

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES MINFER_SYSROOT)
set(CMAKE_FIND_ROOT_PATH "${MINFER_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
