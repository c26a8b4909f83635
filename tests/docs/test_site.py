# SPDX-License-Identifier: MIT
"""What a reader needs of the site, in Chromium."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SITE, chapters, pages

pytestmark = pytest.mark.docs

PLAIN = [name for name in pages() if not name.startswith("source/")]
SOURCES = [name for name in pages() if name.startswith("source/")]
WITH_DIFF = [name for name in chapters() if 'class="chapter-diff"' in (SITE / name).read_text(encoding="utf-8")]
KINDS = ["index.html", "start/cuda.html", "chapters/05-dp4a.html", "chapters/05-dp4a/api.html", "ladder.html", "roofline.html",
         "glossary.html", "dead-ends.html", "platforms.html", "search.html", "source/chapters/05-dp4a/gemv.cuh.html"]


def failed(trouble, request):
    """A request that failed, unless the next page is what ended it."""
    if "ERR_ABORTED" not in (request.failure or ""):
        trouble.append(f"{request.url}: {request.failure}")


def watched(page, address):
    """Errors of the console and requests that leave the site, as they come."""
    trouble = []
    page.on("console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith((address, "data:")) else trouble.append(request.url))
    page.on("requestfailed", lambda request: failed(trouble, request))
    return trouble


def test_every_page_loads_without_errors_or_outside_requests(page, address):
    trouble = watched(page, address)
    for name in [*PLAIN, *SOURCES[::10]]:
        page.goto(f"{address}/{name}")
        assert not trouble, f"{name}: {trouble}"


class Links(HTMLParser):
    """A page's links and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.update(filter(None, (found.get("id"), found.get("name") if tag == "a" else None)))
        self.links += [found[key] for key in ("href", "src") if found.get(key)]


def test_all_internal_links_resolve():
    parsed = {name: Links((SITE / name).read_text(encoding="utf-8")) for name in pages()}
    broken, seen = [], 0
    for name, page in parsed.items():
        for link in page.links:
            target, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", target):
                assert target.startswith("data:") or link.startswith("https://"), f"{name}: {link}"
                continue
            target = target.partition("?")[0]
            path = ((SITE / name).parent / unquote(target)).resolve() if target else SITE / name
            seen += 1
            if not path.is_file():
                broken.append(f"{name}: {link}")
            elif anchor and path.suffix == ".html" and unquote(anchor) not in parsed[str(path.relative_to(SITE))].anchors:
                broken.append(f"{name}: {link}")
    assert seen > 1000
    assert not broken, "\n".join(broken[:20])


def test_no_page_names_a_machine_of_its_build():
    for name in pages():
        text = (SITE / name).read_text(encoding="utf-8")
        assert str(SITE.parent.parent) not in text and "/docs/source/" not in text, name


def test_search_finds_a_kernel_by_its_name(page, address):
    page.goto(f"{address}/search.html?q=gemv_q4_0")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert any("/api.html" in link and "gemv_q4_0" in link for link in found), found[:10]
    assert not any(link.startswith("source/") for link in found), "sources drown what explains them"


def test_copy_takes_the_code_and_nothing_else(page, address):
    page.goto(f"{address}/index.html")
    block = page.locator("div.highlight", has_text="./minfer test").first
    block.hover()
    block.locator("button.copybtn").click()
    assert page.evaluate("navigator.clipboard.readText()") == './minfer run "Write a haiku about the sea."\n./minfer test'


@pytest.mark.parametrize("name", WITH_DIFF)
def test_the_diff_folds_and_changes_its_form(page, address, name):
    page.goto(f"{address}/{name}")
    diff = page.locator(".chapter-diff")
    file = diff.locator("details").filter(has=page.locator(".added")).first
    was_open = file.evaluate("element => element.open")
    file.locator("summary").click()
    assert file.evaluate("element => element.open") != was_open
    if was_open:
        file.locator("summary").click()
    assert file.locator(".diff-view.unified").is_visible() and not file.locator(".diff-view.split").is_visible()
    diff.locator(".diff-toggle").click()
    assert file.locator(".diff-view.split").is_visible() and not file.locator(".diff-view.unified").is_visible()


def test_there_are_diffs():
    assert len(WITH_DIFF) >= len(chapters()) - 2


def test_a_wide_page_shows_the_diff_side_by_side(browser, address):
    context = browser.new_context(viewport={"width": 1920, "height": 1000})
    page = context.new_page()
    page.goto(f"{address}/{WITH_DIFF[0]}")
    assert page.locator("details[open] .diff-view.split").first.is_visible()
    context.close()


@pytest.mark.parametrize("name", WITH_DIFF)
def test_the_diff_names_files_as_the_chapter_does(name):
    files = re.findall(r'<span class="name">([^<]+)', (SITE / name).read_text(encoding="utf-8"))
    assert files and all(not file.startswith(("/", "chapters/")) for file in files)


def test_dark_mode_holds(page, address):
    page.goto(f"{address}/index.html")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    for _ in range(3):
        if page.evaluate("document.body.dataset.theme") == "dark":
            break
        page.locator(".theme-toggle:visible").first.click()
    assert page.evaluate("document.body.dataset.theme") == "dark"
    page.goto(f"{address}/{chapters()[-1]}")
    assert page.evaluate("document.body.dataset.theme") == "dark"
    assert page.evaluate(background) != light
    assert page.locator("img.only-dark").first.is_visible() and not page.locator("img.only-light").first.is_visible()


@pytest.mark.parametrize("width", [375, 768, 1024, 1440])
def test_no_page_scrolls_sideways(browser, address, width):
    context = browser.new_context(viewport={"width": width, "height": 812})
    page = context.new_page()
    wide = []
    for name in [*PLAIN, *SOURCES[::25]]:
        page.goto(f"{address}/{name}")
        scroll = page.evaluate("document.scrollingElement.scrollWidth")
        if scroll > width:
            wide.append(f"{name}: {scroll} pixels on a screen of {width}")
    context.close()
    assert not wide, "\n".join(wide)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", KINDS)
def test_axe_finds_nothing_serious(browser, address, name, scheme):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{address}/{name}")
    found = Axe().run(page).response["violations"]
    context.close()
    serious = [f"{v['id']}: {v['help']}; {v['nodes'][0]['html'][:160]} ({len(v['nodes'])} places)"
               for v in found if v["impact"] in ("serious", "critical")]
    assert not serious, "\n".join(serious)


def test_axe_would_find_something(page, address):
    page.goto(f"{address}/index.html")
    faint = '<p style="color:#ccc;background:#fff">faint</p><img src="_static/none.svg">'
    page.evaluate("html => document.querySelector('article').innerHTML += html", faint)
    found = {v["id"] for v in Axe().run(page).response["violations"]}
    assert {"color-contrast", "image-alt"} <= found


@pytest.mark.parametrize("name", chapters())
def test_a_chapter_has_all_its_parts(page, address, name):
    page.goto(f"{address}/{name}")
    headings = " ".join(page.locator("article h2").all_inner_texts()).lower()
    for part in ("prediction", "walk-through", "results", "what did not work", "reproduce", "exercises", "reference"):
        assert part in headings, f"{name}: no {part}"
    assert page.locator(".listing").count() > 0, f"{name}: no code"
    turned = [*page.locator("a.prev-page").all(), *page.locator("a.next-page").all()]
    targets = [link.evaluate("element => element.pathname").lstrip("/") for link in turned]
    at = chapters().index(name)
    neighbours = [*chapters()[max(0, at - 1):at], *chapters()[at + 1:at + 2]]
    assert set(neighbours) <= set(targets), f"{name}: previous and next are {targets}"


def test_solutions_are_folded_until_asked_for(page, address):
    page.goto(f"{address}/chapters/05-dp4a.html")
    solutions = page.locator("details.sd-dropdown", has_text="Solutions")
    assert not solutions.locator(".sd-card-body").is_visible()
    solutions.locator("summary").click()
    assert solutions.locator(".sd-card-body").is_visible()


def test_names_in_prose_lead_to_the_reference(page, address):
    page.goto(f"{address}/chapters/05-dp4a.html")
    link = page.locator("article p a:has(code):has-text('gemv')").first
    assert "/api.html#" in link.evaluate("element => element.href")


def test_terms_lead_to_the_glossary(page, address):
    page.goto(f"{address}/chapters/03-warp-gemv.html")
    links = page.locator("article a:has(.term)").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert links and all("glossary.html#term-" in link for link in links)
    assert len(set(links)) == len(links), "a term is linked from its first use alone"
