# SPDX-License-Identifier: MIT
"""What a reader needs of the site, in Chromium."""

import posixpath
import re
import xml.etree.ElementTree as ET
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SITE, chapters, pages

pytestmark = pytest.mark.docs

PLAIN = [name for name in pages() if not name.startswith("source/")]
SOURCES = [name for name in pages() if name.startswith("source/")]
DIFFS = [name for name in PLAIN if name.endswith("/diff.html")]
ANNOTATED = [name for name in chapters() if "annotated docutils" in (SITE / name).read_text(encoding="utf-8")]
KINDS = ["index.html", "start/cuda.html", "chapters/05-dp4a.html", "chapters/05-dp4a/api.html", "chapters/05-dp4a/diff.html",
         "ladder.html", "roofline.html", "glossary.html", "dead-ends.html", "platforms.html", "search.html",
         "source/chapters/05-dp4a/gemv.cuh.html"]


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
    assert page.evaluate("navigator.clipboard.readText()") == (
        './minfer run -n 87 "Write a CUDA kernel that adds two vectors."\n./minfer test')


@pytest.mark.parametrize("name", DIFFS)
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


@pytest.mark.parametrize("name", DIFFS)
def test_the_engine_and_its_kernels_are_open_and_come_first(name):
    heads = r'<details class="diff-file"( open)?><summary><span class="name">([^<]+)'
    files = re.findall(heads, (SITE / name).read_text(encoding="utf-8"))
    ideas = [not re.search(r"_(test|testing|bench)\.(cu|h)$|README\.md$", file) for _, file in files]
    assert [bool(opened) for opened, _ in files] == ideas == sorted(ideas, reverse=True) and len(set(ideas)) == 2
    kernels = [file.endswith(".cuh") for _, file in files]
    assert kernels == sorted(kernels, reverse=True)


def test_every_chapter_but_an_engine_s_first_has_a_diff_that_it_leads_to():
    assert len(DIFFS) == len([name for name in chapters() if name[9:11] > "02"]) > 0
    for name in DIFFS:
        chapter = (SITE / name).parent.with_suffix(".html")
        assert f'href="{chapter.stem}/diff.html"' in chapter.read_text(encoding="utf-8"), name


def test_a_wide_page_shows_the_diff_side_by_side(browser, address):
    context = browser.new_context(viewport={"width": 1920, "height": 1000})
    page = context.new_page()
    page.goto(f"{address}/{DIFFS[0]}")
    assert page.locator("details[open] .diff-view.split").first.is_visible()
    context.close()


@pytest.mark.parametrize("name", DIFFS)
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
    page.goto(f"{address}/chapters/05-dp4a.html")
    assert page.evaluate("document.body.dataset.theme") == "dark"
    assert page.evaluate(background) != light
    assert page.locator("img.only-dark").first.is_visible() and not page.locator("img.only-light").first.is_visible()


@pytest.mark.parametrize("half", [0, 1])
def test_no_page_scrolls_sideways(browser, address, half):
    context = browser.new_context(viewport={"width": 360, "height": 812})
    page = context.new_page()
    wide = []
    for name in [*PLAIN, *SOURCES[::25]][half::2]:
        page.set_viewport_size({"width": 360, "height": 812})
        page.goto(f"{address}/{name}")
        for width in (360, 768, 1280, 1440, 1680):
            page.set_viewport_size({"width": width, "height": 812})
            # On a narrow screen the theme lets the text's own box scroll.
            excess = page.evaluate("""Math.max(...[document.scrollingElement, document.querySelector('.content')].map(
                element => element.scrollWidth - element.clientWidth))""")
            if excess > 0:
                wide.append(f"{name}: {excess} pixels too many for a screen of {width}")
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
    for part in ("the question", "walk-through", "results", "try it", "exercises", "next", "reference"):
        assert re.search(part, headings), f"{name}: no {part}"
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


def test_the_reference_has_what_stands_beside_a_kernel_s_parameters(page, address):
    page.goto(f"{address}/chapters/16-fused-kernels/api.html")
    kernel = page.locator("dl.cpp.function", has=page.locator("dt .descname", has_text=re.compile("^rmsnorm$"))).first
    parameters = kernel.locator("dl.field-list li").all_inner_texts()
    assert len(parameters) >= 3 and any(re.match(r"\w+ – out \[.*\]", text) for text in parameters), parameters
    assert kernel.locator("dt", has_text="Why").count() == 1


def test_no_escape_of_a_comment_reaches_a_reader():
    escaped = [name for name in pages() if "\\," in (SITE / name).read_text(encoding="utf-8")]
    assert not escaped, escaped


# What a link to the glossary is looked for in: the text of paragraphs, but not code, other links, heads of tables, captions.
FIRST_USES = r"""
groups => {
  const skipped = 'code, pre, th, figcaption, .entry, .sd-card, .eyebrow, .chapter-diff';
  const walker = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
  const found = {};
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    const link = parent.closest('a');
    const isTerm = link !== null && link.querySelector('.term') !== null;
    if (!parent.closest('p') || parent.closest(skipped) || (link && !isTerm)) continue;
    groups.forEach((names, group) => {
      const pattern = names.map(name => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|');
      if (!(group in found) && new RegExp(`(?<![\\w-])(${pattern})(es|s)?(?![\\w-])`, 'i').test(walker.currentNode.data)) {
        found[group] = isTerm;
      }
    });
  }
  return found;
}
"""


def glossary_entries(page, address):
    """The names of each entry: a term and what else it is called."""
    page.goto(f"{address}/glossary.html")
    return page.evaluate("""[...document.querySelectorAll('dl.glossary > dd')].map(entry => {
        const names = [];
        for (let e = entry.previousElementSibling; e && e.tagName === 'DT'; e = e.previousElementSibling) {
          names.push(e.firstChild.textContent.trim());
        }
        return names;
      })""")


def prose_pages():
    return [name for name in PLAIN if not name.startswith("api/") and not name.endswith("/api.html")
            and name not in ("glossary.html", "search.html", "genindex.html")]


def test_every_term_leads_to_the_glossary_from_its_first_use(page, address):
    groups = glossary_entries(page, address)
    assert len(groups) > 80
    # A term within another, as "launch" in "cooperative launch", is linked with the longer one.
    used, without = set(), []
    for name in prose_pages():
        page.goto(f"{address}/{name}")
        linked = page.locator("article a:has(.term)").evaluate_all("links => links.map(link => link.innerText.toLowerCase())")
        for group, is_link in page.evaluate(FIRST_USES, groups).items():
            names = groups[int(group)]
            used.add(int(group))
            within = any(re.search(rf"\b{re.escape(n)}", text) for n in map(str.lower, names) for text in linked)
            if not is_link and not within:
                without.append(f"{name}: {names[0]}")
        assert all("glossary.html#term-" in link for link in page.locator("article a:has(.term)").evaluate_all(
            "links => links.map(link => link.getAttribute('href'))"))
    assert not without, "\n".join(without)
    assert len(used) > 80


# What the field calls things, whether or not a page uses it yet: a page that does owes its reader an entry.
FIELD = r"""
activation|argmax|atomics?|attention|bandwidth|bank conflicts?|barriers?|batch|coalesced|compute capability|context|
cooperative (?:launch|kernel)|CTAs?|CUDA|decod(?:e|ing)|dequantiz\w+|divergen(?:t|ce)|dot product|double.buffer\w*|draft|
embedding|epilogue|fast-math|feed-forward|fences?|GEMM|GEMV|GQA|CUDA graph|greedy|grid|intrinsics?|kernels?|KV|lanes?|
latency|launch(?:es)?|layers?|lm_head|logits?|n-gram|nibbles?|occupancy|outliers?|paged KV|persistent kernels?|positions?|
predicat\w+|prefetch\w*|prefill|prologue|prompts?|quantiz\w+|registers?|residual stream|RMSNorm|roofline|RoPE|sampling|
sectors?|shared memory|shuffles?|softmax|speculat\w+|spill\w*|split-KV|streaming multiprocessor|swizzl\w+|SwiGLU|
teacher.forc\w+|tensor cores?|tensors?|threads?|throughput|tokens?|tokenizer|unified memory|unroll\w*|vocabulary|warps?|
weights?"""
# Letters that need no entry: units, file formats, names of products, what any programmer knows, and NVIDIA's own.
KNOWN = set("""A AMD AND API CI CPU CPUs EPYC F32 GB GCC GNU GPU GPUs H200 IEEE JSON KB MAXN MB MIT
NVIDIA OS PATH PCIe RAII README SVG SUPER URL EPUB M1 LLM MLC NEOX PDL XML A100""".split())


def test_what_the_field_calls_things_is_in_the_glossary(page, address):
    names = {name.lower() for group in glossary_entries(page, address) for name in group}
    entries = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))), re.I)
    words = re.compile(rf"(?<![\w-])(?:{FIELD})(?![\w-])|\b[A-Z]+[A-Z0-9_]+s?\b".replace("\n", ""), re.I)
    capitals = re.compile(r"[A-Z]+[A-Z0-9_]+s?")
    lacking = {}
    for name in prose_pages():
        page.goto(f"{address}/{name}")
        text = page.evaluate("""[...document.querySelectorAll('article p')].map(p => {
            const copy = p.cloneNode(true);
            copy.querySelectorAll('code, a:not(:has(.term))').forEach(e => e.remove());
            return copy.textContent;
          }).join('\\n')""")
        for match in words.finditer(text):
            word = match[0]
            is_field = re.fullmatch(FIELD.replace("\n", ""), word, re.I) is not None
            if (is_field or capitals.fullmatch(word)) and word not in KNOWN and not entries.search(word.lower()):
                lacking.setdefault(word, name)
    assert not lacking, f"no entry for {lacking}"


def test_text_and_code_have_their_fonts(page, address):
    page.goto(f"{address}/{chapters()[-1]}")
    if page.evaluate("document.fonts.size") == 0:
        pytest.skip("the fonts' packages were not installed when the site was built")
    loaded = page.evaluate("""document.fonts.ready.then(() =>
        [...document.fonts].filter(font => font.status === 'loaded' && font.style === 'normal')
                           .map(font => font.family.replaceAll('"', '')))""")
    assert {"Inter", "JetBrains Mono"} <= set(loaded)


@pytest.mark.parametrize("width", [1280, 1440, 1552, 1680])
def test_code_stands_beside_its_text_and_fits(browser, address, width):
    assert len(ANNOTATED) > 5
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    for name in ANNOTATED:
        page.goto(f"{address}/{name}")
        blocks = page.locator(".annotated .listing pre")
        assert blocks.count() > 0
        wide = blocks.evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent.slice(0, 60))")
        assert not wide, f"{name}: {wide}"
        gaps = page.locator(".annotated").evaluate_all("""all => all.map(e => e.children[1].getBoundingClientRect().left -
            e.children[0].getBoundingClientRect().right)""")
        assert all(gap > 10 for gap in gaps), f"{name}: {gaps}"
        cut = page.locator(".listing").evaluate_all("""all => all.filter(e => e.getBoundingClientRect().right >
            document.querySelector('.content').getBoundingClientRect().right).length""")
        assert not cut, name
    context.close()


@pytest.mark.parametrize("width, is_there", [(1280, False), (1440, True), (1680, True)])
def test_a_page_s_contents_stand_in_the_right_margin(browser, address, width, is_there):
    """Or behind a button, where code beside the text leaves it no room."""
    context = browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{address}/{ANNOTATED[-1]}")
    place = "document.querySelector('.toc-drawer').getBoundingClientRect()"
    assert (page.evaluate(f"{place}.right") <= width) == is_there
    button = page.locator(".toc-content-icon")
    assert button.is_visible() != is_there
    if not is_there:
        button.click()
        page.wait_for_function(f"{place}.right <= {width}")
    assert page.locator(".toc-drawer a", has_text="Results").is_visible()
    assert page.evaluate(f"{place}.left") >= width - 250
    context.close()


def test_a_term_explains_itself_where_pointer_or_keyboard_is(page, address):
    page.goto(f"{address}/glossary.html")
    meaning = page.locator("dl.glossary dt:has-text('warp') + dd").first.inner_text()
    page.goto(f"{address}/{chapters()[2]}")
    links = page.locator("article a:has(.term)", has_text=re.compile("^warps?$"))
    assert links.count() == 1, "the first use alone"
    tip = page.locator("[role=tooltip]")
    assert not tip.is_visible()
    links.focus()
    assert tip.is_visible() and " ".join(tip.inner_text().split()) == " ".join(meaning.split())
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == tip.get_attribute("id")
    box = tip.bounding_box()
    assert 0 <= box["x"] and box["x"] + box["width"] <= 1440 and 0 <= box["y"] and box["y"] + box["height"] <= 900
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    links.hover()
    assert tip.is_visible()
    tip.hover()
    page.wait_for_timeout(400)
    assert tip.is_visible(), "a reader may move into it"
    page.mouse.move(5, 5)
    page.wait_for_timeout(400)
    assert not tip.is_visible()
    links.focus()
    assert not [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]


def test_a_wide_drawing_says_that_it_scrolls_where_it_does(browser, address):
    shown = {}
    for width in (360, 768):
        context = browser.new_context(viewport={"width": width, "height": 800})
        page = context.new_page()
        page.goto(f"{address}/chapters/03-warp-gemv.html")
        shown[width] = page.locator("figure.drawing").first.evaluate(
            "e => [getComputedStyle(e.querySelector('figcaption'), '::before').content, e.scrollWidth > e.clientWidth]")
        context.close()
    assert "Scrolls sideways" in shown[360][0] and shown[360][1]
    assert shown[768] == ["none", False]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_commands_are_boxed(browser, address, scheme):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    for name, within in (("index.html", "article"), ("chapters/05-dp4a.html", ".reproduce")):
        page.goto(f"{address}/{name}")
        box = page.locator(f"{within} div.highlight", has_text="./minfer").first.evaluate(
            "e => [getComputedStyle(e).borderTopWidth, getComputedStyle(e).borderTopColor]")
        assert box[0] == "1px" and "0, 0, 0, 0" not in box[1], f"{name}: {box}"
    context.close()


def test_no_tag_of_a_comment_stands_in_a_listing(page, address):
    for name in ANNOTATED:
        page.goto(f"{address}/{name}")
        text = "\n".join(page.locator(".listing pre").all_inner_texts())
        assert "//" in text and not re.search(r"///|@(pre|why|param|return)\b|\\\\", text), name
    page.goto(f"{address}/chapters/05-dp4a.html")
    note = page.locator(".listing:has-text('__global__ void quantize') .note").inner_text()
    assert note.startswith("Requires: n % 32 == 0. Launched with ceil_div(n, kThreads) blocks of kThreads threads")


def test_a_narrow_page_has_plots_of_its_own(browser, address):
    context = browser.new_context(viewport={"width": 375, "height": 812})
    page = context.new_page()
    page.goto(f"{address}/ladder.html")
    images = page.locator("figure.plot img")
    shown = images.evaluate_all("all => all.filter(e => e.offsetWidth).map(e => e.getAttribute('src'))")
    context.close()
    assert shown and all("-narrow.svg" in source for source in shown)


# --- The book ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def book():
    path = SITE.parent / "epub" / "minfer.epub"
    assert path.exists(), f"{path}: no book here"
    with zipfile.ZipFile(path) as file:
        yield file


def parsed_book(book):
    """The XHTML files that the book's manifest lists, parsed."""
    container = ET.fromstring(book.read("META-INF/container.xml"))
    package = next(e.get("full-path") for e in container.iter() if e.tag.endswith("rootfile"))
    items = [e for e in ET.fromstring(book.read(package)).iter() if e.tag.endswith("}item")]
    folder = posixpath.dirname(package)
    files = {posixpath.join(folder, unquote(item.get("href"))): item.get("media-type") for item in items}
    return files, {name: ET.fromstring(book.read(name)) for name, kind in files.items() if kind == "application/xhtml+xml"}


def test_the_book_is_one(book):
    first = book.infolist()[0]
    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
    assert book.read("mimetype") == b"application/epub+zip"
    assert book.testzip() is None
    files, pages_of_book = parsed_book(book)
    assert set(files) <= set(book.namelist())
    unlisted = set(book.namelist()) - set(files) - {"mimetype", "META-INF/container.xml"}
    assert all(name.endswith(".opf") for name in unlisted), unlisted
    assert all(f"chapters/{Path(name).stem}.xhtml" in " ".join(pages_of_book) for name in chapters())


def test_the_book_s_links_resolve_inside_of_it(book):
    files, pages_of_book = parsed_book(book)
    anchors = {name: {e.get("id") for e in root.iter() if e.get("id")} for name, root in pages_of_book.items()}
    broken, seen = [], 0
    for name, root in pages_of_book.items():
        for element in root.iter():
            for key in ("href", "src"):
                link = element.get(key)
                if not link or (key == "href" and re.match(r"https?:|mailto:", link)):
                    continue
                target, anchor = urldefrag(link)
                path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(target))) if target else name
                seen += 1
                if path not in files or (anchor and path in anchors and unquote(anchor) not in anchors[path]):
                    broken.append(f"{name}: {link}")
    assert seen > 1000
    assert not broken, "\n".join(broken[:20])
