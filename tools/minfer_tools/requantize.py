# SPDX-License-Identifier: MIT
"""Turns the matrices of a GGUF file into Q4_0, as `llama-quantize --allow-requantize IN OUT Q4_0`
does.

Each value is dequantized to fp32 and quantized again by the `gguf` package, a few rows at a time,
so that memory stays small whatever the model's size. The output is llama-quantize's byte for byte:
its order of the tensors and of the keys is followed too, and so its file's published hash can be
compared with.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Iterator

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType

from . import gguf_file
from .errors import Failure
from .gguf_file import TENSOR_TYPES, KeyValue, Reader, TensorInfo
from .whole_file import writing

FILE_TYPE_Q4_0 = 2
QUANTIZATION_VERSION = 2
CHUNK_VALUES = 1 << 21

Q4_0 = TENSOR_TYPES["Q4_0"]
Q6_K = TENSOR_TYPES["Q6_K"]
Q8_0 = TENSOR_TYPES["Q8_0"]


def target_type(tensor: TensorInfo) -> gguf_file.TensorType:
    """The type that a tensor has in a q4_0 file: vectors stay, the lm_head keeps more bits, the
    rest is Q4_0."""
    if len(tensor.shape) == 1:
        return tensor.type
    if tensor.name == "output.weight":
        return Q8_0 if tensor.shape[0] % Q6_K.block_values else Q6_K
    return Q4_0


def _order(tensor: TensorInfo) -> tuple[int, bytes]:
    """llama-quantize's order: what belongs to no layer first, then layer by layer; by name within
    each."""
    layer = re.match(r"blk\.(\d+)\.", tensor.name)
    return (int(layer[1]) if layer else -1, tensor.name.encode())


def _metadata(pairs: list[KeyValue]) -> list[KeyValue]:
    """The source's metadata less what describes its split, with the two keys that the
    requantization sets at its end."""
    changed = [
        gguf_file.uint32("general.quantization_version", QUANTIZATION_VERSION),
        gguf_file.uint32("general.file_type", FILE_TYPE_Q4_0),
    ]
    keys = {pair.key for pair in changed}
    return [p for p in pairs if p.key not in keys and not p.key.startswith("split.")] + changed


def _quantized(reader: Reader, source: TensorInfo, target: gguf_file.TensorType) -> Iterator[bytes]:
    chunk_rows = max(1, CHUNK_VALUES // source.shape[0])
    for data in reader.read(source, chunk_rows * source.row_bytes):
        rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, source.row_bytes)
        values = quants.dequantize(rows, GGMLQuantizationType(source.type.number))
        try:
            yield quants.quantize(values, GGMLQuantizationType(target.number)).tobytes()
        except NotImplementedError:
            raise Failure(
                f"{reader.path}: tensor {source.name} is {source.type.name} and was to be"
                f" {target.name}, which the gguf"
                " package can't write"
            ) from None


def requantize(
    source: str | os.PathLike,
    target: str | os.PathLike,
    progress: Callable[[int], object] = lambda n: None,
) -> None:
    """Writes `source`'s weights to `target` as q4_0; `progress` is told the bytes of each piece
    written.

    A tensor that has its target type already is copied bit for bit.
    """
    reader = Reader(source)
    sources = {tensor.name: tensor for tensor in reader.tensors}
    tensors = [
        TensorInfo(tensor.name, tensor.shape, target_type(tensor))
        for tensor in sorted(reader.tensors, key=_order)
    ]

    def data_of(tensor: TensorInfo) -> Iterator[bytes]:
        original = sources[tensor.name]
        same = original.type == tensor.type
        for piece in reader.read(original) if same else _quantized(reader, original, tensor.type):
            progress(len(piece))
            yield piece

    with writing(target) as file:
        gguf_file.write(file, _metadata(reader.pairs), tensors, data_of, reader.alignment)
