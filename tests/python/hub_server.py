# SPDX-License-Identifier: MIT
"""A stand-in for the hub on loopback: one server answers for it, another has the bytes, as a
content network would.

What a server does wrong is set by a test through the attributes of `FakeHub`.
"""

import hashlib
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Request:
    """A request that came in: to which of the two servers, and what it asked."""

    server: str
    method: str
    path: str
    headers: dict


@dataclass
class FakeHub:
    """The file that the hub has, and how it behaves."""

    content: bytes
    file: str
    served: bytes | None = None  # what is sent in place of the content
    content_type: str = "application/octet-stream"
    sha256: str | None = None  # what is announced in place of the content's
    moved_to: str = ""  # the repository's new name, to which its old one redirects
    forgets_where: bool = False  # and so redirects to the old one again
    announces_hash: bool = True
    status: int = 200  # of the hub's own answers
    answers: int | None = None  # requests for bytes that are answered; the next get errors 503
    error_code: str = ""
    needs_token: str = ""
    ignores_range: bool = False
    cut_after: int | None = None  # bytes of an answer after which the connection is cut
    cuts: int = 0  # how many answers are cut
    silent: threading.Event | None = None  # the hub answers nothing before this
    stall: threading.Event | None = None  # the answer stops at cut_after and waits for this
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self):
        self.hub = _serve(self, _HubHandler)
        self.cdn = _serve(self, _CdnHandler)
        self.endpoint = f"http://127.0.0.1:{self.hub.server_port}"
        self.cdn_url = f"http://127.0.0.1:{self.cdn.server_port}/blob"

    def close(self):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    @property
    def announced(self) -> str:
        return self.sha256 or hashlib.sha256(self.content).hexdigest()

    def fetches(self) -> list[Request]:
        """The requests for bytes of the file."""
        return [request for request in self.requests if request.server == "cdn"]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Says nothing of a client that has gone, which is what some tests are about."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _serve(hub, handler):
    server = _Server(("127.0.0.1", 0), type("Handler", (handler,), {"fake": hub}))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    fake: FakeHub
    name: str

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def note(self):
        self.fake.requests.append(Request(self.name, self.command, self.path, {k.title(): v for k, v in self.headers.items()}))

    def respond(self, status, headers=(), body=b""):
        self.send_response(status)
        for key, value in {"Content-Length": len(body), **dict(headers)}.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _HubHandler(_Handler):
    name = "hub"

    def answer(self):
        self.note()
        fake = self.fake
        if fake.silent:
            fake.silent.wait(30)
        if fake.needs_token and self.headers.get("Authorization") != f"Bearer {fake.needs_token}":
            return self.respond(401, {"X-Error-Code": "GatedRepo"})
        if fake.status != 200:
            return self.respond(fake.status, {"X-Error-Code": fake.error_code})
        if fake.moved_to and fake.moved_to not in self.path:
            there = (
                self.path if fake.forgets_where else self.path.replace("some/model", fake.moved_to)
            )
            return self.respond(307, {"Location": there})
        if not self.path.endswith(fake.file):
            return self.respond(404, {"X-Error-Code": "EntryNotFound"})
        headers = {"Location": fake.cdn_url, "X-Repo-Commit": "c0ffee"}
        if fake.announces_hash:
            headers |= {"X-Linked-Etag": f'"{fake.announced}"', "X-Linked-Size": len(fake.content)}
        return self.respond(302, headers)


class _CdnHandler(_Handler):
    name = "cdn"

    def answer(self):
        self.note()
        fake = self.fake
        if fake.answers is not None and len(fake.fetches()) > fake.answers:
            return self.respond(503)
        body = fake.content if fake.served is None else fake.served
        headers = {"Content-Type": fake.content_type}
        status, start = 200, 0
        wanted = self.headers.get("Range")
        if wanted and not fake.ignores_range:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                return self.respond(416, {"Content-Range": f"bytes */{len(body)}"})
            status = 206
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        body = body[start:]
        if fake.cut_after is None or not fake.cuts or len(body) <= fake.cut_after:
            return self.respond(status, headers, body)
        fake.cuts -= 1
        self.respond(status, {**headers, "Content-Length": len(body)}, body[: fake.cut_after])
        self.wfile.flush()
        if fake.stall:
            fake.stall.wait(30)
        self.close_connection = True
        return None
