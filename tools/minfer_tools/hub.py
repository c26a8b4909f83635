# SPDX-License-Identifier: MIT
"""Fetches a model's file from the Hugging Face hub, or from a mirror that HF_ENDPOINT names.

The huggingface_hub package does it: redirects, tokens, proxies, trying again and going on by Range are its
work. Ours is what it leaves open: the hash that the hub announces is kept and checked, a file is fetched
into `FILE.partial`, which outlives an interruption (the package's own cache drops what came), and each error
is a line that says what to do.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # the hub is asked for the file and told nothing

import httpx2
from huggingface_hub import HfFileMetadata, constants, get_hf_file_metadata, get_token, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers, logging

from . import cache
from .catalogue import Catalogue, HubSource, Model
from .errors import Failure
from .progress import Reporter, human

PROBE_SECONDS = 4.0

constants.DOWNLOAD_CHUNK_SIZE = 1 << 16  # an interruption loses at most this
logging.set_verbosity_error()


class Unreachable(Failure):
    """The hub couldn't be reached, or not a byte of the file: another source may be tried."""


def _url(models: Catalogue, model: Model, revision: str | None = None) -> str:
    assert isinstance(model.source, HubSource)
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or models.hub
    if not endpoint.startswith(("http://", "https://")):
        raise Failure(f"HF_ENDPOINT is {endpoint!r}, expected an http or https address", 2)
    return hf_hub_url(model.source.repository, model.file, revision=revision or model.revision, endpoint=endpoint)


@contextmanager
def _one_line(url: str):
    """Turns what the package raises into a Failure."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise Unreachable(f"HF_HUB_OFFLINE forbids fetching {url}") from None
    except HfHubHTTPError as error:
        raise _refusal(error.response, url) from None
    except (httpx2.ReadError, httpx2.RemoteProtocolError) as error:
        raise Unreachable(f"{_host(url)}: the connection was cut: {error}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
        raise Unreachable(f"{_host(url)} can't be reached: {reason}") from None


def _refusal(response: httpx2.Response, url: str) -> Failure:
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    if status in (401, 403) and code != "RepoNotFound":
        token = "HF_TOKEN's owner may not read it" if get_token() else "it needs a token"
        return Failure(f"{url}: {status}, {token}: accept the conditions on {url.partition('/resolve/')[0]}"
                       " and set HF_TOKEN to a token that can read it")
    if status in (401, 404):
        what = {"RepoNotFound": "no such repository, or a private one", "RevisionNotFound": "no such revision"}
        return Failure(f"{url}: {status}, {what.get(code, 'no such file')}")
    if status >= 500 or status == 429:
        return Unreachable(f"{_host(url)} answers {status} {response.reason_phrase}; try again later")
    return Failure(f"{url}: {status} {response.reason_phrase}")


def _host(url: str) -> str:
    return urlsplit(url).netloc


def ask(models: Catalogue, model: Model, timeout: float = constants.HF_HUB_ETAG_TIMEOUT) -> HfFileMetadata:
    """What the hub says of the file: its SHA-256 (`etag`), size and commit."""
    url = _url(models, model)
    with _one_line(url):
        metadata = get_hf_file_metadata(url, timeout=timeout)
    if not re.fullmatch("[0-9a-f]{64}", metadata.etag or "") or not metadata.size:
        raise Failure(f"{url}: the answer has no X-Linked-Etag with a SHA-256, so it is not the hub's")
    return metadata


def probe(models: Catalogue, model: Model) -> HfFileMetadata:
    """The same, or Unreachable within a few seconds: whatever is wrong, another model may be taken."""
    try:
        return ask(models, model, PROBE_SECONDS)
    except Failure as error:
        raise Unreachable(str(error)) from None


def fetch(models: Catalogue, model: Model, reporter: Reporter, metadata: HfFileMetadata | None = None) -> Path:
    """Fetches the model's file into our cache and returns its path. The caller holds the model's lock."""
    metadata = metadata or ask(models, model)
    sha256, size = metadata.etag, metadata.size
    if model.sha256 not in (None, sha256):
        raise Failure(f"{model.name}: the hub has SHA-256 {sha256}, models.json {model.sha256}")
    path = cache.model_path(model)
    url = _url(models, model, metadata.commit_hash)
    facts = {"source": url, "commit": metadata.commit_hash, "fetched": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    if path.exists() and cache.sha256_of(path) == sha256:
        cache.adopt(model, path, sha256, facts)
        return path
    partial = cache.beside(path, f".{sha256[:12]}.partial")  # named for the file that it is a part of
    for other in path.parent.glob(f"{path.name}.*.partial"):
        if other != partial or other.stat().st_size > size:
            reporter.say("the file at the source has changed: starting again")
            other.unlink()
    done = partial.stat().st_size if partial.exists() else 0
    if done:
        reporter.say(f"going on after {human(done)} of {human(size)}")
    reporter.say(f"fetching {model.title}, {human(size)}, from {_host(url)}; licence {model.licence}")
    cache.check_disk(path.parent, size - done, model.name)
    _download(url, partial, size, model.file, reporter)
    return cache.install(model, partial, sha256, facts, reporter)


def _download(url: str, partial: Path, size: int, name: str, reporter: Reporter) -> None:
    """Appends what is missing to `partial`, and keeps what came unless it is no part of the model."""
    try:
        with _one_line(url), open(partial, "ab") as file:
            http_get(url, file, resume_size=file.tell(), headers=build_hf_headers(headers={"Accept-Encoding": "identity"}),
                     expected_size=size, displayed_filename=name, tqdm_class=reporter.bar)
    except (Failure, OSError) as error:
        done = partial.stat().st_size
        with open(partial, "rb") as file:
            problem = cache.describe_content(file.read(512)) if done else None
        if problem or done > size:
            partial.unlink()
            raise Failure(f"{url}: what came {problem or f'has {done} bytes, expected {size}'}") from None
        if not done:
            partial.unlink()
        kept = f"; {human(done)} of {human(size)} are kept: the same command goes on from there" if done else ""
        if isinstance(error, Failure):
            raise (Failure if done else type(error))(f"{error}{kept}") from None
        raise Failure(f"{partial if error.errno else url}: {error.strerror or 'the connection was cut'}{kept}") from None
