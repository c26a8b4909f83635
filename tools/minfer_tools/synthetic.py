# SPDX-License-Identifier: MIT
"""Synthetic Qwen2.5 models: random weights of any shape, in a GGUF file with all the keys that a
real one has."""

from __future__ import annotations

import math
import os
import re
from typing import BinaryIO, Iterator

import numpy as np

from . import blocks, gguf_file, vocabulary
from .errors import Failure
from .generator import Stream
from .gguf_file import TensorInfo
from .shapes import PRESETS, Shape, metadata, overridden, tensor_table
from .whole_file import replacing

__all__ = ["PRESETS", "Shape", "make", "metadata", "overridden", "tensor_table", "write_model"]

CHUNK_VALUES = 1 << 20

# Deviation of a matrix's weights, times the square root of its row length. With 1, an input of
# deviation 1 gives an output of deviation 1. More for q and k makes attention choose by content and
# place; more for what is added to the residual stream keeps the token itself from deciding the next
# one, which with a tied lm_head would be itself again.
_GAINS = {
    "attn_q": 2.0,
    "attn_k": 2.0,
    "attn_output": 2.0,
    "ffn_down": 4.0,
    "output": 3.0,
    "token_embd": 3.0,
}
_NORM_DEVIATION = 0.1
_BIAS_DEVIATION = 0.1


def _vector(tensor: TensorInfo, stream: Stream) -> bytes:
    """A norm's weights, near 1, or a bias, near 0."""
    is_norm = tensor.name.endswith("norm.weight")
    values = stream.normal(0, tensor.shape[0]) * np.float32(
        _NORM_DEVIATION if is_norm else _BIAS_DEVIATION
    )
    return (values + np.float32(1 if is_norm else 0)).astype("<f4").tobytes()


def _matrix(tensor: TensorInfo, stream: Stream, real_rows: int, shape: Shape) -> Iterator[bytes]:
    """The rows of a matrix, some at a time; rows from `real_rows` on are UNUSED ones."""
    kind = re.fullmatch(r"(?:blk\.\d+\.)?(\w+)\.weight", tensor.name)[1]
    gain = _GAINS.get(kind, 1.0) * (shape.attention_gain if kind == "attn_output" else 1)
    deviation = np.float32(gain / math.sqrt(tensor.shape[0]))
    row_blocks = tensor.shape[0] // tensor.type.block_values
    step = max(1, CHUNK_VALUES // tensor.shape[0])
    for row in range(0, tensor.rows, step):
        rows = np.arange(row, min(row + step, tensor.rows))
        deviations = np.where(rows < real_rows, deviation, deviation * np.float32(shape.unused_gain))
        yield blocks.DRAW[tensor.type.name](
            stream, row * row_blocks, np.repeat(deviations, row_blocks)
        ).tobytes()


def write_model(file: BinaryIO, shape: Shape) -> None:
    """Writes the model's GGUF file: the same bytes for the same shape, on every machine."""
    shape.check()
    words = vocabulary.build(shape.vocab, shape.unused)

    def data_of(tensor: TensorInfo) -> Iterator[bytes]:
        stream = Stream.named(shape.seed, tensor.name)
        if len(tensor.shape) == 1:
            yield _vector(tensor, stream)
        else:
            of_vocabulary = tensor.shape[1] == shape.vocab and not tensor.name.startswith("blk.")
            yield from _matrix(tensor, stream, words.real if of_vocabulary else tensor.rows, shape)

    alignment = shape.alignment or gguf_file.DEFAULT_ALIGNMENT
    gguf_file.write(file, metadata(shape, words), tensor_table(shape), data_of, alignment)


def make(path: str | os.PathLike, shape: Shape) -> int:
    """Writes the model to `path`, which holds nothing or what it held until all is written; returns
    the size."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise Failure(
            f"{os.fspath(path)}: is not a regular file, which a model could take the place of"
        )
    with replacing(path) as file:
        write_model(file, shape)
        return file.tell()
