# SPDX-License-Identifier: MIT
"""tools/make_model: the same bytes everywhere, files that others can read, and models that say
something."""

import hashlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gguf import GGUFReader, quants

from minfer_tools import blocks, cache, catalogue, gguf_file, synthetic, vocabulary
from minfer_tools.errors import Failure
from minfer_tools.generator import Stream

TOOLS = Path(__file__).resolve().parents[2] / "tools"

PRESET_SHA256 = {
    "tiny-a": "9429f6fa33fcdde0c0665d335f08ac578a86fc1cc9e2180fddfb52a94212cffc",
    "tiny-b": "28267e4f627f344966908224ecdb36bd46c350124012ad89cbd9477404fd13f8",
    "tiny-c": "c758213d1908b8f03b8ea83e4293b0b5208f751ed2607cd4fa5140515ac0afd5",
    "tiny-d": "19affff3c960a6542eed6647643c10da97d7c620c46eb321a7b0d5a7bc797ed9",
    "tiny-loop": "7eeba7f40fbc064ae40843ba48f77ff57202c647a00379cd4b9560499f28be73",
    "tiny-e": "c18e057815ccbe2252e82f4cd353ff9ec618f187c5a21c8f3d53019574fe480d",
}
TYPES = list(gguf_file.TENSOR_TYPES)


def make_model(*arguments):
    command = [sys.executable, TOOLS / "make_model", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The paths of the tiny presets' files."""
    folder = tmp_path_factory.mktemp("tiny")
    for name in PRESET_SHA256:
        synthetic.make(folder / name, synthetic.PRESETS[name])
    return {name: folder / name for name in PRESET_SHA256}


# The generator.


def test_generator_gives_the_published_numbers_of_splitmix64():
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert Stream(1234567).words(0, 5).tolist() == published


def test_generator_is_addressed_by_index():
    stream = Stream.named(1, "a")
    assert stream.words(1000, 7).tolist() == stream.words(0, 1007)[1000:].tolist()
    assert Stream.named(2, "a").words(0, 4).tolist() != stream.words(0, 4).tolist()
    assert Stream.named(1, "b").words(0, 4).tolist() != stream.words(0, 4).tolist()


def test_normal_numbers_are_near_normal():
    values = Stream(1).normal(0, 1 << 18).astype(np.float64)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert abs((values**4).mean() - 2.7) < 0.05  # four uniform numbers: 3 - 6 / (5 * 4)


def test_normal_numbers_have_known_bits():
    digest = hashlib.sha256(Stream(1).normal(0, 4096).astype("<f4").tobytes()).hexdigest()
    assert digest == "3d442eb08ac87b85491aea1cb52c303ce4f2a944f098b483ec864b99e8fb650f"


# The blocks.


@pytest.mark.parametrize("type_name", TYPES)
def test_blocks_have_the_deviation_asked_for_and_mean_0(type_name):
    count = (1 << 17) // gguf_file.TENSOR_TYPES[type_name].block_values
    drawn = blocks.DRAW[type_name](Stream(3), 0, np.full(count, 0.125, np.float32))
    assert drawn.shape == (count, gguf_file.TENSOR_TYPES[type_name].block_bytes)
    values = _dequantized(drawn, type_name).astype(np.float64)
    assert abs(values.std() / 0.125 - 1) < 0.05
    assert abs(values.mean() / 0.125) < 0.03


@pytest.mark.parametrize("type_name", TYPES)
def test_blocks_do_not_depend_on_how_they_are_divided(type_name):
    draw = blocks.DRAW[type_name]
    deviation = np.linspace(0.1, 1, 50, dtype=np.float32)
    whole = draw(Stream(5), 10, deviation)
    parts = [draw(Stream(5), 10, deviation[:13]), draw(Stream(5), 23, deviation[13:])]
    assert np.array_equal(whole, np.concatenate(parts))


def test_block_quants_take_every_value():
    drawn = blocks.DRAW["Q4_0"](Stream(3), 0, np.full(512, 1, np.float32))
    assert set(np.unique(drawn[:, 2:] & 15)) == set(np.unique(drawn[:, 2:] >> 4)) == set(range(16))
    drawn = blocks.DRAW["Q8_0"](Stream(3), 0, np.full(512, 1, np.float32))
    assert set(np.unique(drawn[:, 2:].view(np.int8))) == set(range(-127, 128))


def _dequantized(drawn, type_name):
    from gguf import GGMLQuantizationType

    if type_name in ("F32", "F16"):
        return drawn.reshape(-1).view("<f4" if type_name == "F32" else "<f2").astype(np.float32)
    return quants.dequantize(drawn.reshape(1, -1), GGMLQuantizationType[type_name])


# The file.


@pytest.mark.parametrize("name", PRESET_SHA256)
def test_presets_have_the_committed_hash(tiny, name):
    assert hashlib.sha256(tiny[name].read_bytes()).hexdigest() == PRESET_SHA256[name]


def test_a_big_preset_has_the_committed_hash():
    """Not written to disk: what is written is hashed."""
    digest = hashlib.sha256()
    synthetic.write_model(SimpleNamespace(write=digest.update), synthetic.PRESETS["0.5b"])
    assert digest.hexdigest() == "bb1d02aca87af9b879290ddba3272eec38227bc2fc6a4f25c4e6b1038fe913d5"


def test_presets_differ_where_kernels_care():
    shapes = [synthetic.PRESETS[name] for name in PRESET_SHA256]
    assert {shape.head_dim for shape in shapes} == {32, 64, 128}
    assert {shape.n_heads // shape.n_kv_heads for shape in shapes} == {1, 2, 3, 7}
    assert {"tied" if shape.tied else shape.head_type for shape in shapes} == {
        "tied",
        "Q4_0",
        "Q6_K",
        "Q8_0",
    }
    *small, wide = shapes
    assert all(
        shape.d_model <= 256 and shape.n_layers <= 2 and shape.vocab == 512 for shape in small
    )
    # More blocks a row than a warp has lanes, not all of them in whole warps; and a row of the head
    # that is alone behind whole batches of 256.
    assert wide.d_model // 32 > 32 and wide.d_model // 32 % 32
    assert (wide.vocab - wide.unused) % 256 == 1
    assert all(shape.d_ff % 32 == 0 and shape.d_ff % 64 for shape in shapes)


@pytest.mark.parametrize("type_name", TYPES)
def test_every_type_is_read_and_finite(tmp_path, type_name):
    out = tmp_path / "model.gguf"
    flags = [f"--{flag}={type_name.lower()}" for flag in ("type", "head-type", "embd-type")]
    result = make_model(out, "--preset=tiny-c", "--layers=1", "--d-ff=256", *flags)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    tensors = {tensor.name: tensor for tensor in GGUFReader(out).tensors}
    assert len(tensors) == 15
    for name, tensor in tensors.items():
        assert tensor.tensor_type.name == (type_name if len(tensor.shape) == 2 else "F32")
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(values).all() and values.std() > 0, name


def test_our_reader_and_the_gguf_package_agree(tiny):
    for path in tiny.values():
        ours, theirs = gguf_file.Reader(path), GGUFReader(path)
        assert [pair.key for pair in ours.pairs] == [
            key for key in theirs.fields if not key.startswith("GGUF.")
        ]
        for our, their in zip(ours.tensors, theirs.tensors, strict=True):
            assert (our.name, our.type.name) == (their.name, their.tensor_type.name)
            assert list(our.shape) == their.shape.tolist()
            assert b"".join(ours.read(our, 1000)) == their.data.tobytes()


def test_metadata_is_that_of_a_real_file(tiny):
    reader = GGUFReader(tiny["tiny-a"])
    value = {key: field.contents() for key, field in reader.fields.items() if len(field.data) < 100}
    assert value["general.architecture"] == "qwen2"
    assert value["general.file_type"] == 2
    assert value["qwen2.attention.head_count"] == 7
    assert value["qwen2.rope.freq_base"] == 1e6
    assert value["qwen2.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6)
    assert value["tokenizer.ggml.pre"] == "qwen2"
    assert "general.alignment" not in reader.fields


def test_alignment_is_a_key_and_kept(tmp_path):
    shape = synthetic.overridden(synthetic.PRESETS["tiny-d"], {"alignment": 128})
    synthetic.make(tmp_path / "model.gguf", shape)
    reader = GGUFReader(tmp_path / "model.gguf")
    assert reader.fields["general.alignment"].contents() == 128
    assert all(tensor.data_offset % 128 == 0 for tensor in reader.tensors)


def test_a_tied_model_has_no_head(tiny):
    names = {
        name: [tensor.name for tensor in gguf_file.Reader(path).tensors]
        for name, path in tiny.items()
    }
    assert [name for name in names if "output.weight" not in names[name]] == ["tiny-b"]


def test_another_seed_gives_other_weights(tmp_path):
    for seed in (1, 2):
        synthetic.make(
            tmp_path / f"{seed}", synthetic.overridden(synthetic.PRESETS["tiny-d"], {"seed": seed})
        )
    assert gguf_file.tensor_digest(tmp_path / "1") != gguf_file.tensor_digest(tmp_path / "2")


@pytest.mark.model
@pytest.mark.parametrize("preset, real", [("0.5b", "coder-0.5b"), ("1.5b", "coder-1.5b")])
def test_big_presets_have_the_tensors_of_the_real_model(preset, real):
    path = cache.find(catalogue.load()[real])
    if not path:
        pytest.skip(f"{real} is not on this machine")
    table = {
        (tensor.name, tensor.shape, tensor.type)
        for tensor in synthetic.tensor_table(synthetic.PRESETS[preset])
    }
    reader = gguf_file.Reader(path)
    assert table == {(tensor.name, tensor.shape, tensor.type) for tensor in reader.tensors}
    words = vocabulary.build(151936, 271)
    made = {pair.key: pair for pair in synthetic.metadata(synthetic.PRESETS[preset], words)}
    for pair in reader.pairs:
        assert pair.key in made or pair.key in (
            "general.finetune",
            "general.basename",
            "general.size_label",
        )
        if pair.key.startswith("qwen2.") or pair.key.endswith(
            ("_id", "token_type", "pre", "general.file_type")
        ):
            assert made[pair.key] == pair


def test_the_3b_shape_has_the_published_number_of_weights():
    table = synthetic.tensor_table(synthetic.PRESETS["3b"])
    count = sum(tensor.rows * tensor.shape[0] for tensor in table if tensor.name != "output.weight")
    assert round(count / 1e9, 2) == 3.09


# The vocabulary.


def test_vocabulary_is_laid_out_as_the_real_one():
    words = vocabulary.build(151936, 271)
    assert len(words.tokens) == len(set(words.tokens)) == len(words.types) == 151936
    assert (len(words.merges), words.real) == (151387, 151665)
    assert words.id_of("<|endoftext|>") == 151643
    assert words.id_of("<|im_end|>") == 151645
    assert words.tokens[151935] == "[PAD151935]"
    assert (words.tokens[0], words.tokens[255]) == ("!", "\u0143")
    assert [words.types.count(kind) for kind in (1, 3, 4, 5)] == [151643, 20, 2, 271]


@pytest.mark.parametrize("rows, unused", [(512, 32), (151936, 271)])
def test_merges_make_the_tokens_in_order(rows, unused):
    words = vocabulary.build(rows, unused)
    known = set(words.tokens[:256])
    for row, merge in enumerate(words.merges, 256):
        left, right = merge.split(" ")
        assert left in known and right in known
        assert words.tokens[row] == left + right
        known.add(left + right)


def test_vocabulary_tokenizes_and_gives_the_text_back():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = vocabulary.build(512, 32)
    ids = {token: row for row, token in enumerate(words.tokens)}
    tokenizer = Tokenizer(
        models.BPE(vocab=ids, merges=[tuple(merge.split(" ")) for merge in words.merges])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    every_byte = "".join(map(chr, range(256)))
    for text in ("the tokens of the words", "Zürich\n\t 東京 \x00", every_byte):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert len(tokenizer.encode("the tokens of the words").ids) <= 10


def test_chat_template_is_chatml(tiny):
    import jinja2

    template = jinja2.Template(
        GGUFReader(tiny["tiny-a"]).fields["tokenizer.chat_template"].contents()
    )
    messages = [{"role": "user", "content": "Hi"}]
    system = f"<|im_start|>system\n{vocabulary.DEFAULT_SYSTEM_MESSAGE}<|im_end|>\n"
    turn = "<|im_start|>user\nHi<|im_end|>\n"
    assert template.render(messages=messages) == system + turn
    messages.insert(0, {"role": "system", "content": "Be brief."})
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n" + turn + "<|im_start|>assistant\n"
    assert template.render(messages=messages, add_generation_prompt=True) == expected


# The model.


class Decoder:
    """The forward pass of Qwen2.5 in numpy, one token at a time, only to see what the weights
    do."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.weights = {}
        for tensor in reader.tensors:
            values = quants.dequantize(tensor.data, tensor.tensor_type)
            self.weights[tensor.name] = values.reshape(tensor.shape[::-1].tolist())
        self.n_layers = reader.fields["qwen2.block_count"].contents()
        self.n_heads = reader.fields["qwen2.attention.head_count"].contents()
        self.n_kv_heads = reader.fields["qwen2.attention.head_count_kv"].contents()
        self.real = sum(
            kind != vocabulary.UNUSED
            for kind in reader.fields["tokenizer.ggml.token_type"].contents()
        )
        self.keys = [[] for _ in range(self.n_layers)]
        self.values = [[] for _ in range(self.n_layers)]

    def step(self, token):
        """The logits after `token`, which takes the next position: [vocab]."""
        x = self.weights["token_embd.weight"][token]
        for layer in range(self.n_layers):
            x = x + self._attention(layer, x)
            x = x + self._feed_forward(layer, x)
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return head @ self._norm(x, "output_norm")

    def _linear(self, name, x):
        return self.weights[f"{name}.weight"] @ x + self.weights.get(f"{name}.bias", 0)

    def _norm(self, x, name):
        return x / np.sqrt((x * x).mean() + 1e-6) * self.weights[f"{name}.weight"]

    def _rope(self, heads, position):
        half = heads.shape[1] // 2
        angle = position / 1e6 ** (np.arange(half) / half)
        low, high = heads[:, :half], heads[:, half:]
        sine, cosine = np.sin(angle), np.cos(angle)
        return np.concatenate([low * cosine - high * sine, low * sine + high * cosine], axis=1)

    def _attention(self, layer, x):
        block = f"blk.{layer}"
        h = self._norm(x, f"{block}.attn_norm")
        position = len(self.keys[layer])
        q = self._rope(self._linear(f"{block}.attn_q", h).reshape(self.n_heads, -1), position)
        self.keys[layer].append(
            self._rope(self._linear(f"{block}.attn_k", h).reshape(self.n_kv_heads, -1), position)
        )
        self.values[layer].append(self._linear(f"{block}.attn_v", h).reshape(self.n_kv_heads, -1))
        group = self.n_heads // self.n_kv_heads
        keys = np.repeat(np.array(self.keys[layer]), group, axis=1)
        values = np.repeat(np.array(self.values[layer]), group, axis=1)
        scores = np.einsum("phd,hd->hp", keys, q) / np.sqrt(q.shape[1])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return self._linear(
            f"{block}.attn_output", np.einsum("hp,phd->hd", weights, values).reshape(-1)
        )

    def _feed_forward(self, layer, x):
        block = f"blk.{layer}"
        h = self._norm(x, f"{block}.ffn_norm")
        gate = self._linear(f"{block}.ffn_gate", h)
        return self._linear(
            f"{block}.ffn_down", gate / (1 + np.exp(-gate)) * self._linear(f"{block}.ffn_up", h)
        )


@pytest.mark.parametrize("name", PRESET_SHA256)
def test_greedy_decoding_is_varied_and_decided(tiny, name):
    decoder = Decoder(tiny[name])
    token, ids, margins, unused_wins = 0, [], [], 0
    for _ in range(100):
        logits = decoder.step(token)
        assert np.isfinite(logits).all()
        unused_wins += logits.argmax() >= decoder.real
        second, first = np.sort(logits[: decoder.real])[-2:]
        token = int(logits[: decoder.real].argmax())
        ids.append(token)
        margins.append(first - second)
    assert len(set(ids)) >= 60
    assert np.median(margins) > 0.3
    assert unused_wins > 50  # so that an engine that lets UNUSED rows win is found out


# What is refused.


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--heads=5"], "--d-model 224 is not an even multiple of --heads 5"),
        (["--kv-heads=2"], "--heads 7 is not a multiple of --kv-heads 2"),
        (["--type=q4_k"], "rows of 224 values, expected a multiple of 256 for Q4_K"),
        (["--d-ff=100"], "rows of 100 values, expected a multiple of 32 for Q4_0"),
        (["--layers=0"], "--layers is 0, expected 1 or more"),
        (["--vocab=100"], "--vocab is 100, expected at least 310"),
        (["--vocab=1000000"], "--vocab asks for"),
        (["--unused=-1"], "--vocab is 512, expected at least 278"),
        (["--alignment=13"], "--alignment is 13, expected a power of two"),
        (["--type=q2_k"], "invalid choice: 'Q2_K'"),
        (["--preset=7b"], "invalid choice: '7b'"),
    ],
)
def test_wrong_usage_is_refused_in_a_line(tmp_path, flags, message):
    result = make_model(tmp_path / "model.gguf", *flags)
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    result = make_model(tmp_path / "no" / "model.gguf")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"make_model: {tmp_path}/no/model.gguf.partial: No such file or directory"
    ]
    result = make_model(tmp_path)
    assert result.returncode == 1 and "is not a regular file" in result.stderr


def test_nothing_is_left_half_written(tmp_path, monkeypatch):
    out = tmp_path / "model.gguf"
    out.write_text("before")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(blocks.DRAW, "Q4_0", full)
    with pytest.raises(OSError):
        synthetic.make(out, synthetic.PRESETS["tiny-a"])
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]
    assert out.read_text() == "before"


def test_a_failure_is_one_line():
    assert str(Failure("two\nlines")) == "two lines"
