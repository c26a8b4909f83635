# SPDX-License-Identifier: MIT
"""What GPU this machine has, asked of the CUDA driver itself: a Jetson has no full nvidia-smi."""

from __future__ import annotations

import ctypes
import glob
import os
import shutil
import subprocess
from dataclasses import dataclass

from cli import ROOT

LOWEST_SM = 80  # int8 tensor cores, cp.async, cooperative launch
DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvhost-gpu", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu/igpu0",
                "/dev/dxg")
CC_MAJOR, CC_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@dataclass(frozen=True)
class Gpu:
    name: str
    sm: int  # 87 for compute capability 8.7
    memory: int  # bytes
    driver_cuda: tuple[int, int]  # the newest CUDA that the driver can run


def find() -> Gpu | None:
    """The first CUDA device, or None. Starts the driver only where its device files exist."""
    if not any(os.path.exists(path) for path in DEVICE_FILES):
        return None
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    if cuda.cuDeviceGet(ctypes.byref(device), 0):
        return None
    name, memory = ctypes.create_string_buffer(128), ctypes.c_size_t()
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    capability = []
    for attribute in (CC_MAJOR, CC_MINOR):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        capability.append(value.value)
    return Gpu(name.value.decode(errors="replace"), capability[0] * 10 + capability[1],
               memory.value, (version.value // 1000, version.value % 1000 // 10))


def nvcc() -> str | None:
    """The CUDA compiler: on the PATH, or where NVIDIA's packages put it."""
    return (os.environ.get("CUDACXX") or shutil.which("nvcc")
            or next(iter(sorted(glob.glob("/usr/local/cuda*/bin/nvcc"))), None))


def nvcc_problem() -> str:
    """Why the CUDA compiler that is here builds nothing, as CMake finds it out; else nothing."""
    script = ROOT / "common" / "cmake" / "CudaProblem.cmake"
    if not nvcc() or not shutil.which("cmake"):
        return ""
    return subprocess.run(["cmake", "-D", f"NVCC={nvcc()}", "-P", script], stderr=subprocess.PIPE, text=True).stderr.strip()
