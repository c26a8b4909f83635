# SPDX-License-Identifier: MIT
"""The shapes that models are made in, and what stands in a file of each besides the weights. Nothing but the
standard library is needed for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import gguf_file, vocabulary
from .errors import Failure
from .gguf_file import TENSOR_TYPES, KeyValue, TensorInfo
from .vocabulary import Vocabulary

QUANTIZATION_VERSION = 2
FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q8_0": 7,
    "Q5_0": 8,
    "Q4_K": 14,
    "Q6_K": 18,
    "BF16": 32,
}


@dataclass(frozen=True)
class Shape:
    """The shape of a model, the types of its tensors, and the seed of its weights."""

    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    vocab: int
    unused: int
    tied: bool = False
    type: str = "Q4_0"
    head_type: str = "Q6_K"
    embd_type: str = "Q4_0"
    context: int = 32768
    rope_base: float = 1e6
    rms_eps: float = 1e-6
    alignment: int | None = None
    seed: int = 1
    unused_gain: float = 1.0
    """How much larger the weights of UNUSED rows are: above 1, one of those would win if it were
    let."""
    attention_gain: float = 1.0
    """How much larger what attention adds is: far below 1, the last token nearly decides the next
    one by itself, and texts run in circles."""
    name: str | None = None
    """What records of measurements call it; none where it is no preset of a real model's shape."""

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    def check(self) -> None:
        """Fails if no Qwen2.5 model has this shape, or a row doesn't divide into its type's
        blocks."""
        for flag, value in vars(self).items():
            if isinstance(value, int) and flag not in ("unused", "seed", "tied") and value < 1:
                raise Failure(
                    f"--{flag.removeprefix('n_').replace('_', '-')} is {value}, expected 1 or more",
                    status=2,
                )
        if self.d_model % self.n_heads or self.head_dim % 2:
            raise Failure(
                f"--d-model {self.d_model} is not an even multiple of --heads {self.n_heads}",
                status=2,
            )
        if self.n_heads % self.n_kv_heads:
            raise Failure(
                f"--heads {self.n_heads} is not a multiple of --kv-heads {self.n_kv_heads}",
                status=2,
            )
        if self.alignment is not None and (
            self.alignment & (self.alignment - 1) or self.alignment < 8
        ):
            raise Failure(
                f"--alignment is {self.alignment}, expected a power of two from 8 on", status=2
            )
        for tensor in tensor_table(self):
            block = tensor.type.block_values
            if tensor.shape[0] % block:
                raise Failure(
                    f"{tensor.name} has rows of {tensor.shape[0]} values, expected a multiple of"
                    f" {block} for"
                    f" {tensor.type.name}",
                    status=2,
                )


def _qwen(
    name: str, n_layers: int, d_model: int, d_ff: int, n_heads: int, head_type: str
) -> Shape:
    return Shape(n_layers, d_model, d_ff, n_heads, 2, 151936, 271, head_type=head_type, name=name)


def _tiny(n_layers: int, d_model: int, d_ff: int, n_heads: int, n_kv_heads: int, **others) -> Shape:
    return Shape(
        n_layers,
        d_model,
        d_ff,
        n_heads,
        n_kv_heads,
        512,
        32,
        context=2048,
        unused_gain=2.0,
        **others,
    )


# The tiny ones' dimensions are multiples of 32, the quantization block, and otherwise fill no tile
# evenly.
PRESETS = {
    "0.5b": _qwen("0.5b-synthetic", 24, 896, 4864, 14, "Q8_0"),
    "1.5b": _qwen("1.5b-synthetic", 28, 1536, 8960, 12, "Q6_K"),
    "3b": _qwen("3b-synthetic", 36, 2048, 11008, 16, "Q6_K"),
    "tiny-a": _tiny(2, 224, 352, 7, 1, head_type="Q8_0"),
    "tiny-b": _tiny(2, 192, 416, 3, 1, tied=True),
    "tiny-c": _tiny(2, 256, 544, 2, 1, head_type="Q6_K"),
    "tiny-d": _tiny(1, 160, 288, 5, 5, head_type="Q4_0"),
    # A row of more blocks than a warp has lanes, and tokens that leave one row after whole batches.
    "tiny-e": replace(_tiny(1, 1056, 288, 33, 11, head_type="Q4_0"), vocab=545),
    # One that repeats itself, for drafts that are right.
    "tiny-loop": _tiny(1, 160, 288, 5, 5, head_type="Q4_0", attention_gain=0.01),
}


def tensor_table(shape: Shape) -> list[TensorInfo]:
    """The tensors of the model, in the order in which they stand in the file."""
    matrix, fp32 = TENSOR_TYPES[shape.type], TENSOR_TYPES["F32"]
    d_kv = shape.n_kv_heads * shape.head_dim
    table = [
        TensorInfo("output_norm.weight", (shape.d_model,), fp32),
        TensorInfo(
            "token_embd.weight", (shape.d_model, shape.vocab), TENSOR_TYPES[shape.embd_type]
        ),
    ]
    if not shape.tied:
        table.insert(
            0,
            TensorInfo(
                "output.weight", (shape.d_model, shape.vocab), TENSOR_TYPES[shape.head_type]
            ),
        )
    for layer in range(shape.n_layers):
        for name, extents, tensor_type in (
            ("attn_norm.weight", (shape.d_model,), fp32),
            ("attn_q.weight", (shape.d_model, shape.d_model), matrix),
            ("attn_q.bias", (shape.d_model,), fp32),
            ("attn_k.weight", (shape.d_model, d_kv), matrix),
            ("attn_k.bias", (d_kv,), fp32),
            ("attn_v.weight", (shape.d_model, d_kv), matrix),
            ("attn_v.bias", (d_kv,), fp32),
            ("attn_output.weight", (shape.d_model, shape.d_model), matrix),
            ("ffn_norm.weight", (shape.d_model,), fp32),
            ("ffn_gate.weight", (shape.d_model, shape.d_ff), matrix),
            ("ffn_up.weight", (shape.d_model, shape.d_ff), matrix),
            ("ffn_down.weight", (shape.d_ff, shape.d_model), matrix),
        ):
            table.append(TensorInfo(f"blk.{layer}.{name}", extents, tensor_type))
    return table


def metadata(shape: Shape, words: Vocabulary) -> list[KeyValue]:
    """The keys of a real Qwen2.5 file; `general.alignment` only where one was asked for."""
    g = gguf_file
    pairs = [
        g.string("general.architecture", "qwen2"),
        g.string("general.type", "model"),
        g.string("general.name", shape.name or f"Synthetic Qwen2.5, seed {shape.seed}"),
        g.uint32("qwen2.block_count", shape.n_layers),
        g.uint32("qwen2.context_length", shape.context),
        g.uint32("qwen2.embedding_length", shape.d_model),
        g.uint32("qwen2.feed_forward_length", shape.d_ff),
        g.uint32("qwen2.attention.head_count", shape.n_heads),
        g.uint32("qwen2.attention.head_count_kv", shape.n_kv_heads),
        g.float32("qwen2.rope.freq_base", shape.rope_base),
        g.float32("qwen2.attention.layer_norm_rms_epsilon", shape.rms_eps),
        g.string("tokenizer.ggml.model", "gpt2"),
        g.string("tokenizer.ggml.pre", "qwen2"),
        g.string_array("tokenizer.ggml.tokens", words.tokens),
        g.int32_array("tokenizer.ggml.token_type", words.types),
        g.string_array("tokenizer.ggml.merges", words.merges),
        g.uint32("tokenizer.ggml.eos_token_id", words.id_of(vocabulary.END_OF_TURN)),
        g.uint32("tokenizer.ggml.padding_token_id", words.id_of(vocabulary.END_OF_TEXT)),
        g.uint32("tokenizer.ggml.bos_token_id", words.id_of(vocabulary.END_OF_TEXT)),
        g.boolean("tokenizer.ggml.add_bos_token", False),
        g.string("tokenizer.chat_template", vocabulary.CHAT_TEMPLATE),
        g.uint32("general.quantization_version", QUANTIZATION_VERSION),
        g.uint32("general.file_type", FILE_TYPES[shape.type]),
    ]
    if shape.alignment is not None:
        pairs.append(g.uint32("general.alignment", shape.alignment))
    return pairs


def overridden(shape: Shape, options: dict) -> Shape:
    """The shape with those options that were given, which are not None, in place of its own. With
    any it is another model, and has no name."""
    given = {name: value for name, value in options.items() if value is not None}
    return replace(shape, **given, name=None) if given else shape
