"The explorer in a real browser: it loads, typing changes the picture, mistakes are one message, and no text can run a script"
import os, shutil, subprocess, time
from pathlib import Path

import pytest

from xfeval.core import Explanation, Instance
from xfeval import pictures as P

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("XFEVAL_CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.skipif(not CHROMIUM, reason="no Chromium found (Debian: apt install chromium, or set XFEVAL_CHROMIUM)")]
PATIENCE = 300_000 # milliseconds; a busy machine may be slow, a working one is not
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script> "quoted" & plain'


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield b
        b.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    "The address of the explorer under Voilà"
    from xfeval.explorer import serve_command
    command, env, where = serve_command(port=0, browser=False, method="occlusion")
    log = tmp_path_factory.mktemp("voila")/"log"
    with open(log, "w") as f: server = subprocess.Popen(command, env=env, stdout=f, stderr=f)
    import urllib.request, urllib.error
    for _ in range(PATIENCE//500):
        if server.poll() is not None: pytest.fail(f"Voilà stopped: {log.read_text()[-800:]}")
        try: urllib.request.urlopen(where + "/voila/static/none", timeout=30); break
        except urllib.error.HTTPError: break
        except OSError: server_wait(server, .5)
    yield where
    server.terminate()
    try: server.wait(30)
    except subprocess.TimeoutExpired: server.kill()


def server_wait(server, seconds):
    try: server.wait(seconds)
    except subprocess.TimeoutExpired: pass


@pytest.fixture(scope="module")
def explorer(browser, served):
    "One open page, with what went wrong in it"
    page = browser.new_page(viewport=dict(width=1300, height=1200)); page.set_default_timeout(PATIENCE); page.asked, page.dialogs = [], []
    page.on("request", lambda r: page.asked.append(r.url)); page.on("dialog", lambda d: (page.dialogs.append(d.message), d.dismiss()))
    page.goto(served, timeout=PATIENCE, wait_until="commit")
    page.wait_for_selector(".xf p.t span.w")
    yield page
    page.close()


def picture(page): return page.locator(".xf:has(p.t)").first
def words(page): return picture(page).inner_text()
def see(page, text): page.wait_for_function("t => [...document.querySelectorAll('.xf p.t')].some(e => e.textContent.includes(t))", arg=text)


def test_explorer_loads(explorer, served):
    text = explorer.inner_text("body")
    assert "occlusion" in words(explorer) and "Traceback" not in text
    for label in ("Model", "Data set", "Instance", "Premise", "Hypothesis", "Kind", "Method", "Compare with", "Class", "Absent words", "Effort"): assert label in text
    assert "deletion" in text and "without the best 3" in text and "load_model(" in text
    assert [u for u in explorer.asked if not u.startswith((served, served.replace("http", "ws"), "data:", "blob:"))] == []


def test_typing_a_sentence_changes_the_picture(explorer):
    before = picture(explorer).inner_html(); box = explorer.locator("textarea").nth(1)
    box.fill("Nobody here wears a velvet coat."); see(explorer, "velvet")
    assert picture(explorer).inner_html() != before
    assert "velvet" in explorer.locator("pre.xf-code").inner_text() and explorer.locator("a[download]").count() == 2


def test_two_methods_stand_side_by_side(explorer):
    explorer.locator("select").nth(5).select_option("random")
    explorer.wait_for_function("document.querySelectorAll('.xf p.t').length >= 4")
    assert "random" in explorer.inner_text("body")


def test_bad_input_is_a_message_and_no_traceback(explorer):
    box = explorer.locator("textarea").first; was = box.input_value()
    box.fill("   "); explorer.wait_for_selector("[role=alert]")
    said = explorer.inner_text("[role=alert]")
    assert "first text" in said and "empty" in said and len(said.splitlines()) == 1 and "Traceback" not in explorer.inner_text("body")
    box.fill(was); explorer.wait_for_selector("[role=alert]", state="detached")
    see(explorer, was.split()[1])


def test_typed_text_cannot_run_a_script(explorer):
    explorer.locator("textarea").first.fill(HOSTILE); see(explorer, "<script>window.hacked=1</script>")
    assert explorer.evaluate("window.hacked === undefined") and explorer.dialogs == [] and explorer.locator(".xf img, .xf script").count() == 0


def test_saved_pictures_cannot_run_a_script(browser, tmp_path):
    x = Instance.from_text([HOSTILE, "it's <b>bold</b>"], label="<i>x</i>"); m = x.sizes[0]; page = browser.new_page(); dialogs = []
    page.on("dialog", lambda d: (dialogs.append(d.message), d.dismiss()))
    token = Explanation.from_scores(x, [(-1)**i/(i+1) for i in range(x.n_words)], method="<u>m</u>", target='"><script>window.hacked=1</script>')
    pair = Explanation.from_scores(x, {(1, m): .5, (2, m+1): -.2}, kind="pair", method="<u>m</u>")
    for i, e in enumerate((token, pair)):
        for ending in ("html", "svg"):
            f = e.save(tmp_path/f"{i}.{ending}"); page.goto(f"file://{f}")
            assert page.evaluate("window.hacked === undefined") and dialogs == [] and page.evaluate("document.querySelectorAll('script, img, u').length") == 0
    (tmp_path/"all.html").write_text(P.page(P.compare_html([token, pair]) + P.heatmap_html(pair)), encoding="utf8"); page.goto(f"file://{tmp_path/'all.html'}")
    assert page.evaluate("window.hacked === undefined") and "window.hacked=1" in page.inner_text("body")
    page.close()
