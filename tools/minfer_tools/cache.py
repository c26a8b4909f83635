# SPDX-License-Identifier: MIT
"""Where models lie on this machine, and what is known about them.

A fetched model is a file and a record beside it, `FILE.json`, with its SHA-256 and the size and
time of modification that it had when that was checked: while those two are unchanged, the hash is
taken as checked. `FILE.lock` lets one process at a time fetch a model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Callable, Iterator

from .catalogue import Catalogue, HubSource, Model
from .errors import Failure
from .progress import Reporter, human
from .whole_file import replace_text

CHUNK_BYTES = 1 << 20
DISK_MARGIN_BYTES = 16 << 20


def user_cache() -> Path:
    """XDG_CACHE_HOME, which counts only if it is absolute, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base) if os.path.isabs(base) else Path.home() / ".cache"


def minfer_cache() -> Path:
    return user_cache() / "minfer"


def model_path(model: Model) -> Path:
    """Where our own cache has, or would have, the model's file."""
    return minfer_cache() / "models" / model.file


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def hub_caches() -> list[Path]:
    """The caches of the hub's own tools: HF_HUB_CACHE and HF_HOME/hub, and where those are unset,
    their default."""
    caches = []
    if os.environ.get("HF_HUB_CACHE"):
        caches.append(Path(os.environ["HF_HUB_CACHE"]).expanduser())
    home = os.environ.get("HF_HOME")
    caches.append((Path(home).expanduser() if home else user_cache() / "huggingface") / "hub")
    return caches


def read_json(path: Path) -> dict:
    """The object that the file holds, or an empty one where there is no such file or it was cut
    short."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: dict) -> None:
    """Replaces the file in one step, so that no reader ever sees half of it."""
    replace_text(path, json.dumps(value, indent=2) + "\n")


def sha256_of(path: Path, progress: Callable[[int], object] = lambda count: None) -> str:
    """In hexadecimal; `progress` is told the bytes of each piece read."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            progress(len(chunk))
    return digest.hexdigest()


def describe_content(head: bytes) -> str | None:
    """What a file with these first bytes is, where it is no GGUF file; None where it is one."""
    text = head.lstrip().lower()
    if head.startswith(b"GGUF"):
        return None
    if not head:
        return "is empty"
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "is a web page: use the /resolve/ link, not the page's"
    if head.startswith(b"version https://git-lfs"):
        return "is a git-lfs pointer, not the file: run git lfs pull, or use the /resolve/ link"
    if head[8:9] == b"{" and len(head) > 8:
        return "is a safetensors file, expected GGUF"
    if head.startswith(b"FUGG"):
        return "is big-endian, expected a little-endian GGUF file"
    if head.startswith((b"lmgg", b"fmgg", b"tjgg", b"algg")):
        return "is a GGML file from before GGUF, expected a GGUF file: convert it first"
    if head.startswith((b"PK\3\4", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zX", b"BZh")):
        return "is an archive or a compressed file, expected a GGUF file: unpack it first"
    shown = "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in head[:4])
    return f'begins with "{shown}", expected "GGUF"'


def check_content(path: Path) -> Path:
    """The path itself, if it is a file that can be read and begins as a GGUF file does."""
    if path.is_dir():
        raise Failure(f"{path}: is a directory, expected a GGUF file")
    if path.exists() and not path.is_file():
        raise Failure(f"{path}: is a device or a pipe, expected a GGUF file")
    try:
        with open(path, "rb") as file:
            problem = describe_content(file.read(512))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    if problem:
        raise Failure(f"{path}: {problem}")
    return path


def _in_hub_cache(model: Model) -> Path | None:
    """The model's file in a cache of the hub's tools: the revision asked for, else whichever is
    there."""
    if not isinstance(model.source, HubSource):
        return None
    folder = "models--" + model.source.repository.replace("/", "--")
    for cache in hub_caches():
        root = cache / folder
        commits = [model.revision]
        with contextlib.suppress(OSError):
            commits.insert(0, (root / "refs" / model.revision).read_text().strip())
        with contextlib.suppress(OSError):
            commits += sorted(os.listdir(root / "snapshots"))
        for commit in commits:
            path = root / "snapshots" / commit / model.file
            with contextlib.suppress(OSError, Failure):
                return check_content(path)
    return None


def is_verified(path: Path, sha256: str | None) -> bool:
    """Whether the file is the one that its record was written for, and that one had the hash (any,
    where None)."""
    record = read_json(beside(path, ".json"))
    try:
        status = path.stat()
    except OSError:
        return False
    return (
        record.get("size") == status.st_size
        and record.get("mtime_ns") == status.st_mtime_ns
        and bool(record.get("sha256"))
        and sha256 in (None, record["sha256"])
    )


def find(model: Model) -> Path | None:
    """The model's file, if this machine has it; nothing is hashed and nothing is asked of the
    network. What lies in a cache of the hub's tools was checked by them."""
    path = model_path(model)
    return _in_hub_cache(model) or (path if is_verified(path, model.sha256) else None)


def find_default(catalogue: Catalogue) -> Model | None:
    """The first of the default models that this machine has."""
    return next((catalogue[name] for name in catalogue.default if find(catalogue[name])), None)


def adopt(model: Model, path: Path, sha256: str, facts: dict) -> None:
    """Writes the record of a file whose hash was found to be right."""
    status = path.stat()
    record = {
        "name": model.name,
        "sha256": sha256,
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "licence": model.licence,
        **facts,
    }
    write_json(beside(path, ".json"), record)


def install(model: Model, partial: Path, sha256: str, facts: dict, reporter: Reporter) -> Path:
    """Renames `partial` to the model's file if its hash is right; removes it and fails if not."""
    with reporter.bar(desc="checking", total=partial.stat().st_size) as bar:
        found = sha256_of(partial, bar.update)
    path = model_path(model)
    if found != sha256:
        partial.unlink()
        raise Failure(
            f"{model.name}: SHA-256 of {path.name} is {found}, expected {sha256}: removed, fetch"
            " it again"
        )
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)
    adopt(model, path, sha256, facts)
    return path


def check_disk(folder: Path, needed: int, what: str) -> None:
    """Fails if the file system lacks room for `needed` bytes more and a small margin."""
    free = shutil.disk_usage(folder).free
    if free < needed + DISK_MARGIN_BYTES:
        raise Failure(
            f"{what} needs {human(needed)} of disk, and {folder} has {human(free)} free;"
            " make room, or set XDG_CACHE_HOME to a place that has it"
        )


@contextlib.contextmanager
def locked(lock: Path, say: Callable[[str], None], doing: str) -> Iterator[None]:
    """Holds a lock, a file that stays, and says so where another process holds it and has to be
    waited for. The kernel frees the lock of one that died."""
    import fcntl

    with open(lock, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another minfer, which is {doing}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
