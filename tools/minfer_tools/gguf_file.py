# SPDX-License-Identifier: MIT
"""GGUF v3 files, as far as the tools need them: read the table of contents, write a file as a
stream.

The standard library is enough for it, so that a cached model is found without importing numpy.
Metadata is kept as the bytes it has in the file: what is carried over from one file to another is
carried over bit for bit.

A GGUF file is a header (magic, version, tensor count, key count), the key-value pairs, the tensor
infos (name, shape with the fastest axis first, type, offset), padding up to the alignment, and the
tensors' data, each padded to the alignment again. All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from typing import BinaryIO, Callable, Iterable, Iterator

from .errors import Failure

MAGIC = b"GGUF"
VERSION = 3
DEFAULT_ALIGNMENT = 32
MAX_NAME_BYTES = 64
CHUNK_BYTES = 1 << 20

# Value types of the metadata.
UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32 = range(7)
BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(7, 13)

_SCALAR_FORMATS = {
    UINT8: "<B",
    INT8: "<b",
    UINT16: "<H",
    INT16: "<h",
    UINT32: "<I",
    INT32: "<i",
    FLOAT32: "<f",
    BOOL: "<?",
    UINT64: "<Q",
    INT64: "<q",
    FLOAT64: "<d",
}


@dataclass(frozen=True)
class TensorType:
    """A tensor type: its number in the file, and how many values a block holds in how many
    bytes."""

    name: str
    number: int
    block_values: int
    block_bytes: int

    def row_bytes(self, values: int) -> int:
        """Bytes of a row of `values` values, which must be whole blocks."""
        if values % self.block_values:
            raise ValueError(
                f"a row of {values} values is not a multiple of {self.block_values}, the block"
                f" of {self.name}"
            )
        return values // self.block_values * self.block_bytes


TENSOR_TYPES = {
    t.name: t
    for t in (
        TensorType("F32", 0, 1, 4),
        TensorType("F16", 1, 1, 2),
        TensorType("Q4_0", 2, 32, 18),
        TensorType("Q4_1", 3, 32, 20),
        TensorType("Q5_0", 6, 32, 22),
        TensorType("Q8_0", 8, 32, 34),
        TensorType("Q4_K", 12, 256, 144),
        TensorType("Q6_K", 14, 256, 210),
        TensorType("BF16", 30, 1, 2),
    )
}
_TYPES_BY_NUMBER = {t.number: t for t in TENSOR_TYPES.values()}


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of the table: `shape` has the fastest axis (the row) first, `offset` counts from
    the data's start."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int = 0

    @property
    def rows(self) -> int:
        rows = 1
        for extent in self.shape[1:]:
            rows *= extent
        return rows

    @property
    def row_bytes(self) -> int:
        return self.type.row_bytes(self.shape[0])

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class KeyValue:
    """A metadata pair as it stands in the file: `value` is the encoded value, without its type."""

    key: str
    value_type: int
    value: bytes

    def encode(self) -> bytes:
        return encode_string(self.key) + struct.pack("<I", self.value_type) + self.value


def encode_string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _scalar_pair(key: str, value_type: int, value) -> KeyValue:
    return KeyValue(key, value_type, struct.pack(_SCALAR_FORMATS[value_type], value))


def uint32(key: str, value: int) -> KeyValue:
    return _scalar_pair(key, UINT32, value)


def float32(key: str, value: float) -> KeyValue:
    return _scalar_pair(key, FLOAT32, value)


def boolean(key: str, value: bool) -> KeyValue:
    return _scalar_pair(key, BOOL, value)


def string(key: str, value: str) -> KeyValue:
    return KeyValue(key, STRING, encode_string(value))


def string_array(key: str, values: Iterable[str]) -> KeyValue:
    encoded = [encode_string(value) for value in values]
    return KeyValue(key, ARRAY, struct.pack("<IQ", STRING, len(encoded)) + b"".join(encoded))


def int32_array(key: str, values: Iterable[int]) -> KeyValue:
    numbers = list(values)
    return KeyValue(
        key,
        ARRAY,
        struct.pack("<IQ", INT32, len(numbers)) + struct.pack(f"<{len(numbers)}i", *numbers),
    )


class _Cursor:
    """Reads numbers and strings from a file, refusing to run past its end."""

    def __init__(self, file: BinaryIO, path: str):
        self.file = file
        self.path = path
        self.size = os.fstat(file.fileno()).st_size

    def take(self, count: int) -> bytes:
        if count > self.size - self.file.tell():
            raise Failure(
                f"{self.path}: a record of {count} bytes at {self.file.tell()} runs past the"
                f" end, {self.size}"
            )
        return self.file.read(count)

    def number(self, layout: str) -> int:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def string(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8")

    def skip_value(self, value_type: int) -> None:
        if value_type in _SCALAR_FORMATS:
            self.take(struct.calcsize(_SCALAR_FORMATS[value_type]))
        elif value_type == STRING:
            self.take(self.number("<Q"))
        elif value_type == ARRAY:
            element_type, count = self.number("<I"), self.number("<Q")
            if element_type in _SCALAR_FORMATS:
                self.take(count * struct.calcsize(_SCALAR_FORMATS[element_type]))
            elif element_type == STRING:
                for _ in range(count):
                    self.take(self.number("<Q"))
            else:
                raise Failure(
                    f"{self.path}: an array of value type {element_type}, expected numbers or"
                    " strings"
                )
        else:
            raise Failure(f"{self.path}: value type {value_type}, expected 0 to 12")


class Reader:
    """The table of contents of a GGUF file: `pairs`, `tensors` (in file order) and where the data
    begins."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self.pairs: list[KeyValue] = []
        self.tensors: list[TensorInfo] = []
        with open(self.path, "rb") as file:
            cursor = _Cursor(file, self.path)
            if cursor.size < 24 or cursor.take(4) != MAGIC:
                raise Failure(f"{self.path}: does not begin with GGUF's magic")
            version = cursor.number("<I")
            if version != VERSION:
                raise Failure(f"{self.path}: GGUF version {version}, expected {VERSION}")
            tensor_count, pair_count = cursor.number("<Q"), cursor.number("<Q")
            for _ in range(pair_count):
                self.pairs.append(self._read_pair(cursor))
            for _ in range(tensor_count):
                self.tensors.append(self._read_info(cursor))
            self.data_start = _align(file.tell(), self.alignment)
            for tensor in self.tensors:
                end = self.data_start + tensor.offset + tensor.nbytes
                if end > cursor.size:
                    raise Failure(
                        f"{self.path}: tensor {tensor.name} ends at {end}, past the end,"
                        f" {cursor.size}"
                    )

    @property
    def alignment(self) -> int:
        for pair in self.pairs:
            if pair.key == "general.alignment":
                return struct.unpack("<I", pair.value)[0]
        return DEFAULT_ALIGNMENT

    @staticmethod
    def _read_pair(cursor: _Cursor) -> KeyValue:
        key, value_type = cursor.string(), cursor.number("<I")
        start = cursor.file.tell()
        cursor.skip_value(value_type)
        end = cursor.file.tell()
        cursor.file.seek(start)
        return KeyValue(key, value_type, cursor.take(end - start))

    @staticmethod
    def _read_info(cursor: _Cursor) -> TensorInfo:
        name, n_dims = cursor.string(), cursor.number("<I")
        if not 1 <= n_dims <= 4:
            raise Failure(f"{cursor.path}: tensor {name} has {n_dims} dimensions, expected 1 to 4")
        shape = tuple(cursor.number("<Q") for _ in range(n_dims))
        number = cursor.number("<I")
        if number not in _TYPES_BY_NUMBER:
            raise Failure(
                f"{cursor.path}: tensor {name} has type {number}, expected one of"
                f" {', '.join(TENSOR_TYPES)}"
            )
        return TensorInfo(name, shape, _TYPES_BY_NUMBER[number], cursor.number("<Q"))

    def read(self, tensor: TensorInfo, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The tensor's data in pieces of whole rows, at least one row and otherwise at most
        `chunk_bytes`."""
        piece = max(1, chunk_bytes // tensor.row_bytes) * tensor.row_bytes
        with open(self.path, "rb") as file:
            file.seek(self.data_start + tensor.offset)
            left = tensor.nbytes
            while left:
                data = file.read(min(piece, left))
                if not data:
                    raise Failure(f"{self.path}: tensor {tensor.name} lacks its last {left} bytes")
                left -= len(data)
                yield data


def _align(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment


def write(
    file: BinaryIO,
    pairs: list[KeyValue],
    tensors: list[TensorInfo],
    data_of: Callable[[TensorInfo], Iterable[bytes]],
    alignment: int = DEFAULT_ALIGNMENT,
) -> None:
    """Writes a GGUF file: the tensors in the order given, each one's data drawn from `data_of`
    piece by piece.

    The offsets of `tensors` are ignored and computed here. An `alignment` other than 32 must stand
    in `pairs` too.
    """
    header = bytearray(MAGIC + struct.pack("<IQQ", VERSION, len(tensors), len(pairs)))
    for pair in pairs:
        header += pair.encode()
    offset = 0
    for tensor in tensors:
        if len(tensor.name.encode()) >= MAX_NAME_BYTES:
            raise ValueError(f"tensor name {tensor.name} has {MAX_NAME_BYTES} bytes or more")
        header += encode_string(tensor.name)
        header += struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        header += struct.pack("<IQ", tensor.type.number, offset)
        offset = _align(offset + tensor.nbytes, alignment)
    file.write(header)
    file.write(bytes(_align(len(header), alignment) - len(header)))
    for tensor in tensors:
        written = 0
        for piece in data_of(tensor):
            file.write(piece)
            written += len(piece)
        if written != tensor.nbytes:
            raise ValueError(
                f"tensor {tensor.name}: {written} bytes given, expected {tensor.nbytes}"
            )
        file.write(bytes(_align(written, alignment) - written))


def tensor_digest(path: str | os.PathLike) -> str:
    """SHA-256, in hexadecimal, of what the tensors of a file are, whatever its metadata, order or
    alignment.

    Hashed for each tensor, in the order of the names' UTF-8 bytes:

        uint64    length of the name in bytes
        bytes     the name
        uint32    type number, as in the file
        uint32    number of dimensions
        uint64[]  the dimensions, fastest axis first, as in the file
        uint64    length of the data in bytes
        bytes     the data, without padding

    All numbers are little-endian; nothing stands before, between or after.
    """
    reader = Reader(path)
    digest = hashlib.sha256()
    for tensor in sorted(reader.tensors, key=lambda t: t.name.encode()):
        digest.update(encode_string(tensor.name))
        digest.update(struct.pack("<II", tensor.type.number, len(tensor.shape)))
        digest.update(struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape))
        digest.update(struct.pack("<Q", tensor.nbytes))
        for piece in reader.read(tensor):
            digest.update(piece)
    return digest.hexdigest()
