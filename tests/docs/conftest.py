# SPDX-License-Identifier: MIT
"""The site in Chromium: MINFER_SITE is the folder that docs/build.py made."""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

SITE = Path(os.environ.get("MINFER_SITE", "build/docs/html")).resolve()
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def address():
    """The site on a local port: a browser refuses some of what it allows there on file:// addresses."""
    assert (SITE / "index.html").exists(), f"{SITE}: no site here; build it with ./minfer docs"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    assert CHROMIUM, "no Chromium on this machine"
    with sync_playwright() as playwright:
        # Root, as in a container, can't use Chromium's sandbox; the pages are our own.
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        yield started
        started.close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"],
                                  reduced_motion="reduce")
    yield context.new_page()
    context.close()


def pages():
    """Every page of the site, as a path."""
    return sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))


def chapters():
    return [name for name in pages() if name.startswith("chapters/") and name.count("/") == 1 and name != "chapters/index.html"]
