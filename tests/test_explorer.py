"The explorer without a browser: wishes, answers, code that makes the same result, exports, cancelling"
import asyncio, json, re, threading
from dataclasses import replace

import numpy as np
import pytest

from xfeval.apps import explorer as E
from xfeval.core.explanation import Explanation
from xfeval.view.html import contrast

FIRST = E.Request(texts=E.offered("controlled-nli")[0].texts, data="controlled-nli", method="occlusion")


@pytest.fixture(scope="module")
def session(): return E.Session()


@pytest.fixture
def app(session): return E.Explorer(replace(FIRST), session, wait=None)


@pytest.mark.parametrize("change, says",
                         [(dict(texts=("", "a")), "first text"), (dict(texts=("a", " \n")), "second text"),
                          (dict(texts=("",)), "the text"), (dict(texts=()), "one or two"),
                          (dict(texts=("a "*500, "b")), "at most"), (dict(method="shaply"), "did you mean 'shapley'"),
                          (dict(other="nonsense"), "nonsense"), (dict(kind="word"), "word"),
                          (dict(kind="span", method="lime"), "no span form"),
                          (dict(texts=("one",), kind="pair", method="shapley"), "two texts"), (dict(k=0), "k must"),
                          (dict(absent="gone"), "gone"), (dict(target="maybe"), "maybe"),
                          (dict(effort="huge"), "huge"), (dict(view="film"), "film"),
                          (dict(model="no-such-model"), "no-such-model"), (dict(data="no-such-data"), "no-such-data")])
def test_bad_wishes_are_named(session, change, says):
    with pytest.raises(ValueError, match=re.escape(says)): session.answer(replace(FIRST, **change))


@pytest.mark.parametrize("kind, method, other",
                         [("token", "shapley", "integrated_gradients"), ("pair", "shapley_interaction", ""),
                          ("span", "attention", "random")])
def test_code_makes_the_same_result(session, kind, method, other):
    w = replace(FIRST, kind=kind, method=method, other=other, target="contradiction", absent="delete"
                if kind == "token" else "", seed=1 if kind == "span" else 0)
    a = session.answer(w)
    space = {}
    exec(E.code_for(w).replace("for e in ex: e.show()", ""), space)
    assert [e.items for e in space["ex"]] == [e.items for e in a.explanations]
    assert all(np.allclose(x.scores, y.scores, atol=1e-6) for x, y in zip(space["ex"], a.explanations))
    assert space["df"].metric.tolist() == a.metrics.metric.tolist()
    assert np.allclose(space["df"].value, a.metrics.value, equal_nan=True, atol=1e-6)


def test_code_for_own_text_quotes_it(session):
    w = E.Request(texts=('He said "no" \\ and \'left\'.', "A man\nleft."), method="occlusion")
    space = {}
    exec(E.code_for(w).replace("for e in ex: e.show()", ""), space)
    assert space["x"].texts == w.texts


def test_perturbed_rows_are_what_the_model_says(session):
    a = session.answer(replace(FIRST, k=2))
    t, e = a.tables[0], a.explanations[0]
    clf = session.engine(a.request.model).clf
    enc = clf.encode(e.instance)
    row = np.isin(enc.players, [i for i in range(e.instance.n_words) if i not in e.T(2)])
    import torch
    p = torch.softmax(torch.as_tensor(clf.logits([enc], [row], "mask")), -1)[0]
    assert t.what.tolist()[:4] == ["the whole text", "without the best 2", "only the best 2", "no words"]
    assert len(t) == 6
    assert np.allclose(t.loc[1, clf.labels].astype(float), p, atol=1e-5)
    assert set(t.left[1]) == set(enc.players[row].tolist())


def test_k_and_picture_cost_no_rows(session):
    session.answer(replace(FIRST, method="shapley"))
    assert session.answer(replace(FIRST, method="shapley", view="highlight")).rows == 0


def test_stop_is_obeyed_by_every_kind_of_method(session):
    stop = threading.Event()
    stop.set()
    for m in ("sobol", "smooth_grad", "attention"):
        with pytest.raises(E.Stopped):
            session.answer(replace(FIRST, texts=("A cat and a dog sleep.", f"Nobody sleeps {m}."), data="", method=m),
                           stop)
    assert session.answer(replace(FIRST, texts=("A cat and a dog sleep.", "Nobody sleeps."), data="",
                                  method="sobol")).rows > 0


def test_exports(session):
    a = session.answer(replace(FIRST, other="random"))
    d = json.loads(json.dumps(E.answer_json(a)))
    assert [Explanation.from_dict(e).method for e in d["explanations"]] == ["occlusion", "random"]
    assert d["request"]["k"] == 3 and len(d["perturbed"]) == 2 and d["metrics"][0]["metric"]
    page = E.answer_html(a)
    assert page.startswith("<!doctype html>") and "load_model(" in page and not re.search(r'(?:src|href)="http', page)


def test_hostile_text_stays_text(session):
    a = session.answer(E.Request(texts=('<img src=x onerror=alert(1)> "q"', "</pre><script>1</script>"),
                              method="occlusion", other="random"))
    for page in (E.answer_html(a), E.code_html(a.request), E.prediction_html(a),
                 E.perturbed_html(a.instance, a.tables[0], a.explanations[0].target)):
        assert "<img" not in page and "<script" not in page and page.count("</pre>") <= 1


# ---------------------------------------------------------------- widgets

def test_widgets_follow_each_other(app):
    shown = lambda: app.pictures[0].value
    before = shown()
    app.w["second"].value = "Nobody is a velvet giraffe."
    assert shown() != before and "velvet" in shown() and app.w["row"].value == -1
    app.w["row"].value = 3
    assert app.w["first"].value == E.offered("controlled-nli")[3].texts[0] and app.answered.instance.gold
    app.w["kind"].value = "span"
    assert app.w["method"].value in E.methods_of("span")
    assert app.answered.explanations[0].kind == "span" and "<svg" in shown()
    app.w["other"].value = "random"
    assert len(app.answered.explanations) == 2 and "random" in app.pictures[1].value
    assert app.places[0][1].layout.display is None
    app.w["target"].value = "entailment"
    assert app.answered.explanations[0].target == "entailment"
    app.w["k"].value = 1
    assert "without the best" in app.perturbed[0].value and "without the best 3" not in app.perturbed[0].value
    app.w["view"].value = "heatmap"
    assert "heat" in shown() and not app.message


def test_data_sets_with_one_text(session):
    if "tiny-bert-sentiment" not in E.list_models(): pytest.skip("the embedded sentiment model is not there")
    app = E.Explorer(FIRST, session, wait=None)
    app.w["kind"].value = "pair"
    app.w["model"].value = "tiny-bert-sentiment"
    assert app.w["data"].value == "controlled-sentiment" and app.w["kind"].value == "token"
    assert app.w["second"].layout.display == "none" and len(app.answered.instance.texts) == 1
    assert not app.message
    app.w["model"].value = "tiny-bert-nli"
    assert len(app.answered.instance.texts) == 2 and not app.message


def test_mistakes_are_messages(app):
    app.w["first"].value = ""
    assert "first text" in app.message and 'role="alert"' in app.says.value
    assert app.pictures[0].value == app.code.value == "" and "Traceback" not in app.says.value
    app.w["first"].value = "A man sings."
    assert not app.message and app.pictures[0].value


def test_surprises_are_messages_too(app, monkeypatch):
    monkeypatch.setattr(app.session, "answer", lambda w, stop: 1/0)
    app.refresh()
    assert app.message.startswith("ZeroDivisionError") and "Traceback" not in app.says.value


def test_newest_wish_wins_and_cancel_stops(session, monkeypatch):
    "With a loop, work is done by another thread, a newer request drops the older one, and cancel ends it"
    real, started, release, seen = session.answer, threading.Event(), threading.Event(), []
    def slow(w, stop=None):
        seen.append(w.texts[1])
        if "slow" in w.texts[1]:
            started.set()
            stop.wait(60)
            raise E.Stopped()
        return real(w, stop)
    async def play():
        app = E.Explorer(FIRST, session, wait=0)
        monkeypatch.setattr(session, "answer", slow)
        while app._tasks: await asyncio.gather(*app._tasks)
        app.w["second"].value = "A slow man sleeps."
        while not started.is_set(): await asyncio.sleep(.01)
        spinning, enabled = app.status.value, not app.stop.disabled
        app.w["second"].value = "A quick man sleeps."
        while app._tasks: await asyncio.gather(*app._tasks)
        newest = app.answered.request.texts[1]
        started.clear()
        app.w["second"].value = "Another slow man sleeps."
        while not started.is_set(): await asyncio.sleep(.01)
        app.cancel()
        while app._tasks: await asyncio.gather(*app._tasks)
        return spinning, enabled, newest, app.status.value, app.stop.disabled
    spinning, enabled, newest, status, off = asyncio.run(play())
    assert "xf-spin" in spinning and enabled and newest == "A quick man sleeps."
    assert "stopped" in status and off


def test_start_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("XFEVAL_EXPLORER", json.dumps(dict(method="attention", kind="span", texts=["a", "b"])))
    assert E.first_request() == E.Request(method="attention", kind="span", texts=("a", "b"))
    monkeypatch.setenv("XFEVAL_EXPLORER", json.dumps(dict(methd="attention")))
    with pytest.raises(ValueError, match="did you mean 'method'"): E.first_request()


def test_messages_can_be_read():
    for ink, ground in ((r"\.xf-bad\{background:(#\w+);color:(#\w+)", None),
                        (r"pre\.xf-code\{[^}]*background:(#\w+);color:(#\w+)", None)):
        a, b = re.search(ink, E._look).groups()
        assert contrast(a, b) >= 4.5
