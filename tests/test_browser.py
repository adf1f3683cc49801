"The explorer in a real browser: it loads, typing changes the picture, mistakes are one message, and no text can run a script"
from xfeval.view.text import compare_html, heatmap_html
from xfeval.view.html import page as html_page
import os, shutil, subprocess, urllib.error, urllib.request

import pytest

from xfeval.core.explanation import Explanation
from xfeval.core.text import Instance

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("XFEVAL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
WHY = "no Chromium found (Debian: apt install chromium, or set XFEVAL_CHROMIUM)"
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.skipif(not CHROMIUM, reason=WHY)]
PATIENCE = 300_000 # milliseconds; a busy machine may be slow, a working one is not
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script> "quoted" & plain'


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield b
        b.close()


def ended(server, seconds):
    "Whether the server stops within so many seconds"
    try: return server.wait(seconds) is not None
    except subprocess.TimeoutExpired: return False


def answers(where):
    try: urllib.request.urlopen(where + "/voila/static/none", timeout=30)
    except urllib.error.HTTPError: return True # any answer is one
    except OSError: return False
    return True


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    "The address of the explorer under Voilà"
    from xfeval.apps.explorer import serve_command
    command, env, where = serve_command(port=0, browser=False, method="occlusion")
    log = tmp_path_factory.mktemp("voila")/"log"
    with open(log, "w") as f: server = subprocess.Popen(command, env=env, stdout=f, stderr=f)
    for _ in range(PATIENCE//500):
        if answers(where): break
        if ended(server, .5): pytest.fail(f"Voilà stopped: {log.read_text()[-800:]}")
    yield where
    server.terminate()
    if not ended(server, 30): server.kill()


def watched(page):
    "A page that remembers what it asked for and which dialogs it opened"
    page.asked, page.dialogs = [], []
    def on_dialog(d):
        page.dialogs.append(d.message)
        d.dismiss()
    page.on("request", lambda r: page.asked.append(r.url))
    page.on("dialog", on_dialog)
    page.set_default_timeout(PATIENCE)
    return page


@pytest.fixture(scope="module")
def explorer(browser, served):
    "One open page"
    page = watched(browser.new_page(viewport=dict(width=1300, height=1200)))
    page.goto(served, timeout=PATIENCE, wait_until="commit")
    page.wait_for_selector(".xf p.t span.w")
    yield page
    page.close()


def picture(page): return page.locator(".xf:has(p.t)").first
def unharmed(page): return page.evaluate("window.hacked === undefined") and page.dialogs == []

def see(page, text):
    "Wait until a picture shows `text`"
    page.wait_for_function("t => [...document.querySelectorAll('.xf p.t')].some(e => e.textContent.includes(t))", arg=text)


def test_explorer_loads(explorer, served):
    text = explorer.inner_text("body")
    assert "occlusion" in picture(explorer).inner_text() and "Traceback" not in text
    for label in ("Model", "Data set", "Instance", "Premise", "Hypothesis", "Kind", "Method", "Compare with", "Class",
                  "Absent words", "Effort"):
        assert label in text
    assert "deletion" in text and "without the best 3" in text and "load_model(" in text
    ours = (served, served.replace("http", "ws"), "data:", "blob:")
    assert [u for u in explorer.asked if not u.startswith(ours)] == []


def test_controls_stand_beside_their_labels(explorer):
    "Every control shares a line with its label, and nothing sticks out of the panel"
    panel = explorer.locator(".xf-left").bounding_box()
    for name in ("Model", "Kind", "Method", "Best k", "Picture"):
        label = explorer.locator(f".xf-left .widget-label:text-is('{name}')").first
        row, box = label.locator("xpath=..").bounding_box(), label.bounding_box()
        assert row["height"] < 60 and row["x"] + row["width"] <= panel["x"] + panel["width"], name
        assert abs(box["x"] + box["width"] - panel["x"] - 118) < 40, name


def test_typing_a_sentence_changes_the_picture(explorer):
    before = picture(explorer).inner_html()
    explorer.locator("textarea").nth(1).fill("Nobody here wears a velvet coat.")
    see(explorer, "velvet")
    assert picture(explorer).inner_html() != before
    assert "velvet" in explorer.locator("pre.xf-code").inner_text() and explorer.locator("a[download]").count() == 2


def test_two_methods_stand_side_by_side(explorer):
    explorer.locator("select").nth(5).select_option("random")
    explorer.wait_for_function("document.querySelectorAll('.xf p.t').length >= 4")
    assert "random" in explorer.inner_text("body")


def test_bad_input_is_a_message_and_no_traceback(explorer):
    box = explorer.locator("textarea").first
    was = box.input_value()
    box.fill("   ")
    explorer.wait_for_selector("[role=alert]")
    said = explorer.inner_text("[role=alert]")
    assert "first text" in said and "empty" in said and len(said.splitlines()) == 1
    assert "Traceback" not in explorer.inner_text("body")
    box.fill(was)
    explorer.wait_for_selector("[role=alert]", state="detached")
    see(explorer, was.split()[1])


def test_typed_text_cannot_run_a_script(explorer):
    explorer.locator("textarea").first.fill(HOSTILE)
    see(explorer, "<script>window.hacked=1</script>")
    assert unharmed(explorer) and explorer.locator(".xf img, .xf script").count() == 0


def test_saved_pictures_cannot_run_a_script(browser, tmp_path):
    x = Instance.from_text([HOSTILE, "it's <b>bold</b>"], label="<i>x</i>")
    m, page = x.sizes[0], watched(browser.new_page())
    scores = [(-1)**i/(i+1) for i in range(x.n_words)]
    token = Explanation.from_scores(x, scores, method="<u>m</u>", target='"><script>window.hacked=1</script>')
    pair = Explanation.from_scores(x, {(1, m): .5, (2, m+1): -.2}, kind="pair", method="<u>m</u>")
    for e in (token, pair):
        for ending in ("html", "svg"):
            page.goto(f"file://{e.save(tmp_path/f'{e.kind}.{ending}')}")
            assert unharmed(page) and page.evaluate("document.querySelectorAll('script, img, u').length") == 0
    every = tmp_path/"all.html"
    every.write_text(html_page(compare_html([token, pair]) + heatmap_html(pair)), encoding="utf8")
    page.goto(f"file://{every}")
    assert unharmed(page) and "window.hacked=1" in page.inner_text("body")
    page.close()
