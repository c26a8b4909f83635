# SPDX-License-Identifier: MIT
"""llama.cpp, which minfer is compared with: built from its package where it is not built yet."""

from __future__ import annotations

import os
from pathlib import Path

from cli import ROOT, build, gpu, models, places, system, venv
from cli.console import answer, say

PROGRAMS = ("llama-bench", "llama-quantize", "ref_oracle")


def llama_cpp(on_gpu: bool, install: bool = True) -> Path:
    """The folder of llama.cpp's programs and ref_oracle, built for the GPU that is here or the CPU."""
    device = gpu.find() if on_gpu else None
    place = build.folder() / (f"llama.cpp-sm{device.sm}" if device else "llama.cpp")
    system.ensure((*system.BUILD_NEEDS, *models.fetch_needs()), build.log_dir(), install)
    python = venv.ensure(venv.TOOLS, build.log_dir(), install)
    if not all((place / "build" / "bin" / name).exists() for name in PROGRAMS):
        say(f"building llama.cpp in {place}, which takes minutes")
    command = ["bash", ROOT / "tools" / "build_llama_cpp", "--jobs", build.usable_cpus(),
               *(["--cuda", device.sm] if device else []), place]
    with places.turn(place / "minfer.lock", f"building in {place}"):
        return Path(answer("build_llama_cpp", command, env={**os.environ, "PYTHON": str(python)}))
