# SPDX-License-Identifier: MIT
"""Fetches a model's file from the Hugging Face hub, or from a mirror that HF_ENDPOINT names.

The hub answers a request for a file with a redirect to where the bytes lie, and with the file's
SHA-256 and size in headers, which is where the hash of an official file comes from. A fetch that
was cut goes on where it stopped: the rest is asked for by Range, on condition (If-Range) that the
file is still the one begun.
"""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from . import cache
from .catalogue import Catalogue, HubSource, Model
from .errors import Failure
from .progress import Bar, Reporter, human

TIMEOUT_SECONDS = 30.0
PROBE_SECONDS = 4.0
UNREACHABLE_MEMORY_SECONDS = 600.0
RETRY_WAITS_SECONDS = (1.0, 2.0, 4.0)
MAX_REDIRECTS = 8
CHUNK_BYTES = 1 << 18


class Unreachable(Failure):
    """The hub couldn't be reached, or not a byte of the file: another source may be tried."""


class Interrupted(Failure):
    """The connection was cut within the file; what came is kept."""


@dataclass(frozen=True)
class Metadata:
    """What the hub says of a file."""

    url: str
    sha256: str
    size: int
    commit: str | None


def is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Hands redirects back as errors: which headers may follow them is decided in `_open`."""

    def redirect_request(self, *_):
        return None


class Hub:
    """One endpoint, with the token that goes to it and to no other host."""

    def __init__(self, catalogue: Catalogue, timeout: float = TIMEOUT_SECONDS):
        self.endpoint = (os.environ.get("HF_ENDPOINT") or catalogue.hub).rstrip("/")
        if not re.fullmatch(r"https?://[\w.\[\]:-]+(/[\x21-\x7e]*)?", self.endpoint, re.ASCII):
            raise Failure(
                f"HF_ENDPOINT is {self.endpoint!r}, expected an http or https address", status=2
            )
        self.token = os.environ.get("HF_TOKEN", "").strip()
        if not re.fullmatch(r"[\x21-\x7e]*", self.token):
            raise Failure("HF_TOKEN holds a space or a character outside ASCII", status=2)
        self.timeout = timeout
        self._opener = urllib.request.build_opener(_NoRedirects)

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.endpoint).netloc

    def url(self, model: Model, verb: str = "resolve") -> str:
        assert isinstance(model.source, HubSource)
        parts = f"{model.source.repository}/{verb}/{model.revision}/{model.file}"
        return f"{self.endpoint}/{urllib.parse.quote(parts)}"

    def page(self, model: Model) -> str:
        """The page of the model, where a person accepts its conditions."""
        assert isinstance(model.source, HubSource)
        return f"{self.endpoint}/{model.source.repository}"

    def _open_once(self, url: str, method: str, headers: dict[str, str]):
        """The response, redirects and errors included."""
        headers = {"User-Agent": "minfer", "Accept-Encoding": "identity", **headers}
        if self.token and _origin(url) == _origin(self.endpoint):
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(url, method=method, headers=headers)
        try:
            return self._opener.open(request, timeout=self.timeout)
        except urllib.error.HTTPError as response:
            return response
        except urllib.error.URLError as error:
            raise Unreachable(f"{_host(url)} can't be reached: {_reason(error.reason)}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unreachable(f"{_host(url)} can't be reached: {_reason(error)}") from None

    def open(
        self, url: str, method: str, headers: dict[str, str] | None = None, stay: bool = False
    ):
        """The response after all redirects; with `stay`, only after those within the same host."""
        for _ in range(MAX_REDIRECTS):
            response = self._open_once(url, method, headers or {})
            location = response.headers.get("Location")
            if response.status not in (301, 302, 303, 307, 308) or not location:
                return response
            target = urllib.parse.urljoin(url, location)
            if stay and _origin(target) != _origin(url):
                return response
            response.close()
            if not target.startswith(
                ("https://", "http://") if url.startswith("http://") else "https://"
            ):
                raise Failure(f"{url} redirects to {target}, expected https")
            url = target
        raise Failure(f"{url}: more than {MAX_REDIRECTS} redirects")

    def metadata(self, model: Model) -> Metadata:
        """Asks for the file's hash and size: in the headers of the hub's own answer, else in the
        git-lfs pointer."""
        url = self.url(model)
        with self.open(url, "HEAD", stay=True) as response:
            self.check_status(response, url, model)
            headers = response.headers
        sha256 = headers.get("X-Linked-Etag", "").removeprefix("W/").strip('"')
        size = headers.get("X-Linked-Size", "")
        if not re.fullmatch("[0-9a-f]{64}", sha256) or not size.isdecimal():
            sha256, size = self._pointer(model)
        if not int(size):
            raise Failure(f"{url}: the hub says that the file is empty")
        return Metadata(url, sha256, int(size), headers.get("X-Repo-Commit"))

    def _pointer(self, model: Model) -> tuple[str, str]:
        url = self.url(model, "raw")
        with self.open(url, "GET") as response:
            self.check_status(response, url, model)
            text = response.read(1024).decode("utf-8", "replace")
        match = re.match(
            r"version https://git-lfs\S*\noid sha256:([0-9a-f]{64})\nsize (\d+)\n", text
        )
        if not match:
            raise Failure(
                f"{self.url(model)}: the answer has no X-Linked-Etag with a SHA-256, so it is"
                " not the hub's"
            )
        return match[1], match[2]

    def check_status(self, response, url: str, model: Model) -> None:
        """Does nothing for an answer that is good, and turns an error into a line that says what to
        do about it."""
        status, code = response.status, response.headers.get("X-Error-Code", "")
        if status < 400:
            return
        if status in (401, 403) and code != "RepoNotFound":
            token = "HF_TOKEN's owner may not read it" if self.token else "it needs a token"
            raise Failure(
                f"{url}: {status}, {token}: accept the conditions on {self.page(model)}"
                " and set HF_TOKEN to a token that can read it"
            )
        if status in (401, 404):
            what = {
                "RepoNotFound": "no such repository, or a private one",
                "RevisionNotFound": "no such revision",
            }
            raise Failure(f"{url}: {status}, {what.get(code, 'no such file')}")
        if status >= 500 or status == 429:
            raise Unreachable(f"{_host(url)} answers {status} {response.reason}; try again later")
        raise Failure(f"{url}: {status} {response.reason}")


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).netloc


def _reason(error) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


class _Download:
    """One file on its way: what of it is here (`partial`), and what it is a part of."""

    def __init__(
        self, hub: Hub, model: Model, metadata: Metadata, partial: Path, reporter: Reporter
    ):
        self.hub = hub
        self.model = model
        self.metadata = metadata
        self.partial = partial
        self.reporter = reporter
        self.done = 0
        self.etag: str | None = None

    def resume(self) -> None:
        """Takes up a partial file if it is part of the very file that the hub has now; drops it if
        not."""
        record = cache.read_json(cache.beside(self.partial, ".json"))
        if not self.partial.exists():
            return
        size = self.partial.stat().st_size
        if record.get("sha256") == self.metadata.sha256 and size <= self.metadata.size:
            self.done, self.etag = size, record.get("etag")
            self.reporter.say(f"going on after {human(size)} of {human(self.metadata.size)}")
        else:
            self.reporter.say("the file at the source has changed: starting again")
            self.partial.unlink()

    def remember(self, etag: str | None) -> None:
        self.etag = etag
        record = {"sha256": self.metadata.sha256, "size": self.metadata.size, "etag": etag}
        cache.write_json(cache.beside(self.partial, ".json"), record)

    def run(self) -> None:
        """Fetches what is missing, trying again after a cut; gives up when several tries in a row
        bring nothing.

        While not a byte has come nothing is tried again, since then there may be another source.
        """
        with self.reporter.bar(self.model.file, self.metadata.size, self.done) as bar:
            waits = iter(RETRY_WAITS_SECONDS)
            while self.done < self.metadata.size:
                before = self.done
                try:
                    self._request(bar)
                except (Unreachable, Interrupted) as error:
                    if self.done > before:
                        waits = iter(RETRY_WAITS_SECONDS)
                    if not self.done:
                        self.partial.unlink(missing_ok=True)
                        raise Unreachable(str(error)) from None
                    wait = next(waits, None)
                    if wait is None:
                        kept = f"{human(self.done)} of {human(self.metadata.size)} are kept"
                        raise Interrupted(
                            f"{error}; {kept}: the same command goes on from there"
                        ) from None
                    time.sleep(wait)

    def _request(self, bar: Bar) -> None:
        headers = {}
        if self.done:
            headers["Range"] = f"bytes={self.done}-"
            if self.etag and not self.etag.startswith("W/"):
                headers["If-Range"] = self.etag
        with self.hub.open(self.metadata.url, "GET", headers) as response:
            if response.status == 416:
                self.done = 0
                return
            self.hub.check_status(response, self.metadata.url, self.model)
            if not self._continues(response):
                self.done = 0
            if not self.done:
                self.remember(response.headers.get("ETag"))
            self._receive(response, bar)

    def _continues(self, response) -> bool:
        """Whether the answer is the part asked for; else it is the whole file, since Range or
        If-Range didn't hold."""
        if response.status != 206 or not self.done:
            return False
        content_range = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range)
        if not match or int(match[1]) != self.done:
            raise Failure(
                f"{self.metadata.url}: Content-Range is {content_range!r}, expected it from byte"
                f" {self.done}"
            )
        return True

    def _receive(self, response, bar: Bar) -> None:
        """Appends what comes to the partial file, which is truncated first to what of it counts."""
        with open(self.partial, "r+b" if self.done else "wb") as file:
            file.truncate(self.done)
            file.seek(self.done)
            while True:
                try:
                    chunk = response.read(CHUNK_BYTES)
                except http.client.IncompleteRead as error:
                    chunk = error.partial
                except (OSError, http.client.HTTPException) as error:
                    raise Interrupted(f"the connection was cut: {_reason(error)}") from None
                if not chunk:
                    break
                if not self.done:
                    self._check_head(chunk)
                if self.done + len(chunk) > self.metadata.size:
                    raise Failure(
                        f"{self.metadata.url}: more than the {self.metadata.size} bytes that the"
                        " hub announced"
                    )
                file.write(chunk)
                self.done += len(chunk)
                bar.move_to(self.done)
        if self.done < self.metadata.size:
            raise Interrupted(f"the connection was cut at {human(self.done)}")

    def _check_head(self, head: bytes) -> None:
        problem = cache.describe_content(head[:512])
        if problem:
            self.partial.unlink()
            raise Failure(f"{self.metadata.url}: what came {problem}")


def fetch(hub: Hub, model: Model, reporter: Reporter, metadata: Metadata | None = None) -> Path:
    """Fetches the model's file into our cache and returns its path. The caller holds the model's
    lock."""
    metadata = metadata or hub.metadata(model)
    if model.sha256 not in (None, metadata.sha256):
        raise Failure(
            f"{model.name}: the hub has SHA-256 {metadata.sha256}, models.json {model.sha256}"
        )
    path = cache.model_path(model)
    facts = {
        "source": metadata.url,
        "commit": metadata.commit,
        "fetched": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if path.exists() and cache.sha256_of(path) == metadata.sha256:
        cache.adopt(model, path, metadata.sha256, facts)
        return path
    download = _Download(hub, model, metadata, cache.beside(path, ".partial"), reporter)
    download.resume()
    reporter.say(
        f"fetching {model.title}, {human(metadata.size)}, from {hub.host}; licence {model.licence}"
    )
    cache.check_disk(path.parent, metadata.size - download.done, model.name)
    try:
        download.run()
    except OSError as error:
        raise Failure(f"{download.partial}: {_reason(error)}; what came is kept") from None
    return cache.install(model, download.partial, metadata.sha256, facts, reporter)


def probe(catalogue: Catalogue, model: Model) -> Metadata:
    """The model's metadata, or Unreachable within a few seconds.

    That the hub couldn't be reached is remembered for some minutes, so that only the first start
    waits for it. The request runs in a thread of its own, since looking up a name can't be given a
    time limit.
    """
    memory = cache.minfer_cache() / "hub-unreachable.json"
    hub = Hub(catalogue, timeout=PROBE_SECONDS)
    known = cache.read_json(memory)
    age = time.time() - known.get("time", 0)
    if known.get("endpoint") == hub.endpoint and 0 <= age < UNREACHABLE_MEMORY_SECONDS:
        raise Unreachable(f"{known.get('reason')} (asked {age:.0f} s ago)")
    result: list[Metadata | Failure] = []

    def ask() -> None:
        try:
            result.append(hub.metadata(model))
        except Failure as error:
            result.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    silence = Unreachable(f"{hub.host} gave no answer within {PROBE_SECONDS:.0f} s")
    answer = result[0] if result else silence
    if isinstance(answer, Failure):
        memory.parent.mkdir(parents=True, exist_ok=True)
        cache.write_json(
            memory, {"endpoint": hub.endpoint, "time": time.time(), "reason": str(answer)}
        )
        raise Unreachable(str(answer))
    memory.unlink(missing_ok=True)
    return answer
