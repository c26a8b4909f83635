# SPDX-License-Identifier: MIT
"""The block formats and the reader against the gguf package, through tests/gguf/gguf_tool.cpp."""

import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, quants

from minfer_tools import cache, catalogue, synthetic

ROOT = Path(__file__).resolve().parents[2]
TOOL = Path(os.environ.get("MINFER_BUILD_DIR", ROOT / "build")) / "tests" / "gguf" / "gguf_tool"
READ = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K")
N = 1 << 20

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"not built: {TOOL.name}")


def tool(*arguments, stdin=b""):
    return subprocess.run([TOOL, *map(str, arguments)], input=stdin, stdout=subprocess.PIPE, check=True).stdout


def is_nan(bits):
    return (bits & 0x7FFFFFFF) > 0x7F800000


@pytest.mark.parametrize("name", READ)
def test_dequantize_any_bytes(name):
    number = GGMLQuantizationType[name]
    elements, size = GGML_QUANT_SIZES[number]
    raw = np.random.default_rng(int(number)).integers(0, 256, N // elements * size, np.uint8)
    found = np.frombuffer(tool("dequantize", int(number), N, stdin=raw.tobytes()), np.uint32)
    with np.errstate(all="ignore"):
        expected = quants.dequantize(raw.reshape(1, -1), number).reshape(-1).view(np.uint32)
    assert np.all((found == expected) | (is_nan(found) & is_nan(expected)))


@pytest.mark.parametrize("name", ("F16", "BF16"))
def test_dequantize_every_pattern(name):
    raw = np.arange(1 << 16, dtype=np.uint16)
    number = GGMLQuantizationType[name]
    found = np.frombuffer(tool("dequantize", int(number), raw.size, stdin=raw.tobytes()), np.uint32)
    expected = quants.dequantize(raw.view(np.uint8).reshape(1, -1), number).reshape(-1).view(np.uint32)
    assert np.all((found == expected) | (is_nan(found) & is_nan(expected)))


def numbers(kind):
    generator = np.random.default_rng(7)
    normal = generator.standard_normal(N)
    if kind == "normal":
        return normal
    if kind == "any bits":
        return generator.integers(0, 1 << 32, N, np.uint32).view(np.float32)
    if kind == "any magnitude":
        return np.repeat(np.exp2(generator.uniform(-150, 128, N // 32)), 32) * normal
    if kind == "ties":
        return generator.integers(-16, 17, N) / 2
    if kind == "denormal":
        return generator.integers(0, 1 << 12, N, np.uint32).view(np.float32)
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0])[generator.integers(0, 5, N)]
    return np.where(generator.random(N) < 0.02, special, normal)


def is_x86_64():
    return platform.machine() in ("x86_64", "AMD64")


def has_finite_quotients(rows, name):
    """Which blocks never convert a NaN or an infinity: what numpy makes of those is the processor's choice, and
    minfer's on every machine is that of x86-64."""
    with np.errstate(all="ignore"):
        extreme = np.abs(rows).max(axis=1)
        scale = extreme / np.float32({"Q4_0": 8, "Q8_0": 127}[name])
        return np.isfinite(extreme) & ((scale == 0) | np.isfinite(1 / scale))


@pytest.mark.parametrize("kind", ("normal", "any bits", "any magnitude", "ties", "denormal", "special"))
@pytest.mark.parametrize("name", ("Q4_0", "Q8_0"))
def test_quantize(name, kind):
    number = GGMLQuantizationType[name]
    size = GGML_QUANT_SIZES[number][1]
    with np.errstate(all="ignore"):
        values = numbers(kind).astype(np.float32)
        expected = quants.quantize(values.reshape(1, -1), number).reshape(-1, size)
    found = np.frombuffer(tool("quantize", int(number), N, stdin=values.tobytes()), np.uint8).reshape(-1, size)
    if name == "Q8_0":  # of NaNs with a payload, numpy's maximum keeps one or none, by the processor's vectors
        scales = expected[:, :2].copy().view(np.uint16)
        expected[:, :2] = np.where((scales & 0x7FFF) > 0x7C00, np.uint16(0x7E00), scales).view(np.uint8)
    compared = np.full(len(found), True) if is_x86_64() else has_finite_quotients(values.reshape(-1, 32), name)
    assert np.array_equal(found[compared], expected[compared])


def check_tensors(path):
    """The tool lists the tensors that the gguf package reads, in the same places."""
    reader = GGUFReader(path)
    first = min(tensor.data_offset for tensor in reader.tensors)
    expected = [
        " ".join(map(str, (t.name, int(t.tensor_type), *t.shape, t.data_offset - first, t.n_bytes))) for t in reader.tensors
    ]
    assert tool("list", path).decode().splitlines() == expected


@pytest.mark.parametrize("preset", [name for name in synthetic.PRESETS if name.startswith("tiny")])
def test_synthetic_models(preset, tmp_path):
    path = tmp_path / "model.gguf"
    synthetic.make(path, synthetic.PRESETS[preset])
    check_tensors(path)
    assert tool("load", path) == tool("load", path, "read") != b""


@pytest.mark.model
@pytest.mark.parametrize(
    "name, described", [("coder-0.5b", "Q4_0 layers, Q8_0 head"), ("coder-1.5b", "Q4_0 layers, Q6_K head")]
)
def test_real_models(name, described):
    path = cache.find(catalogue.load()[name])
    if path is None:
        pytest.skip(f"{name} is not here")
    check_tensors(path)
    assert tool("load", path).decode() == described + "\n"
    assert tool("load", path, "read").decode() == described + "\n"
