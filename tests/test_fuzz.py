"Inputs at the edges: whatever the text, the library answers or raises a ValueError"
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from xfeval.apps.cli import to_instance
from xfeval.core.explanation import Explanation
from xfeval.core.text import Instance, split_words
from xfeval.engine.run import Engine
from xfeval.explainers.explain import explain
from xfeval.metrics.evaluate import evaluate
from xfeval.truth.tiny import new_tiny

LABELS = ["no", "yes"]
CLF = {a: new_tiny(a, ["a man plays guitar in the park", "小猫 睡觉", "кот спит"], LABELS, init="lively", layers=1,
                   width=16, heads=2, max_length=24) for a in ("bert", "roberta", "gpt2")}
strange = st.text(st.one_of(st.characters(), st.sampled_from(list("\x00\x01\t\r\n\u200b\u200d\u202e\ufeff\ufffd😀👨‍👩‍👧小猫ضшक้์<>&\"'[]"))), max_size=60)
words = st.lists(st.sampled_from(["man", "小猫", "кот", "[MASK]", "[SEP]", "<s>", "\u0130stanbul", "e\u0301", "ﬁ",
                                  "...", "--", "don't", "x"*80, "\x07", "🙂"]), max_size=40)
texts = st.one_of(strange, words.map(" ".join))
quick = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def check(clf, x):
    e = Engine(clf)
    ex = explain(clf, x, "occlusion", absent="delete", engine=e) + explain(clf, x, "saliency", engine=e)
    for y in ex:
        assert np.isfinite(y.scores).all() and set(y.items) <= set(range(x.n_words))
        assert Explanation.from_dict(json.loads(json.dumps(y.to_dict()))).scores.tolist() == y.scores.tolist()
        assert "<script" not in y.to_html().lower() if hasattr(y, "to_html") else True
    df = evaluate(clf, ex, {"aopc_comprehensiveness": {}, "complexity": {}, "taucorr_loo": {}}, engine=e)
    assert (df.value.notna() | df.note.ne("")).all()


@quick
@given(st.lists(texts, min_size=1, max_size=2), st.sampled_from(sorted(CLF)))
def test_any_text_is_explained_or_refused(parts, arch):
    try: x = Instance.from_text(parts)
    except ValueError: return
    for t, o in zip(x.texts, x.offsets): assert all(0 <= a < b <= len(t) for a, b in o)
    assert Instance.from_dict(json.loads(json.dumps(x.to_dict()))) == x
    try: check(CLF[arch], x)
    except ValueError as e: assert str(e)


@quick
@given(strange)
def test_words_never_overlap_and_miss_no_letter(text):
    spans = split_words(text)
    last = 0
    for a, b in spans:
        assert last <= a < b <= len(text)
        last = b
    rest = "".join(c for i, c in enumerate(text) if not any(a <= i < b for a, b in spans))
    assert not rest.strip()


anything = st.recursive(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True),
                                  st.text(max_size=8)),
                        lambda s: st.one_of(st.lists(s, max_size=3),
                                            st.dictionaries(st.sampled_from(["parts", "words", "id", "lang", "label",
                                                                             "fixed", "meta", "texts", "offsets",
                                                                             "gold", "x"]), s, max_size=4)),
                        max_leaves=6)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(["parts", "words", "id", "lang", "label", "fixed", "meta", "x"]), anything,
                       max_size=4))
def test_any_json_line_is_an_instance_or_a_mistake(d):
    try: x = to_instance(d)
    except (ValueError, TypeError, KeyError, IndexError): return # the command line turns these into one line that names the input's line
    assert isinstance(x, Instance)


@pytest.mark.parametrize("arch", sorted(CLF))
def test_ten_thousand_words(arch):
    x = Instance.from_text([" ".join(["man", "plays"]*5000), "a park"])
    clf = CLF[arch]
    check(clf, x)
    assert x.n_words == 10_002 and clf.encode(x).truncated > 9_900 and explain(clf, x, "occlusion",
                                                                               absent="delete")[0].notes


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\x00", "\u200b", "a"*5000, "猫"*3000,
                                  "\U0001F468\u200d\U0001F469"*500, "\u202eabc", "[MASK] [SEP] [CLS]", "a\r\nb"])
@pytest.mark.parametrize("arch", sorted(CLF))
def test_single_odd_texts(arch, text):
    check(CLF[arch], Instance.from_text(text))
    check(CLF[arch], Instance.from_text([text, text]))


def test_surrogates_are_refused_or_explained():
    try: check(CLF["bert"], Instance.from_text("a \ud800 b"))
    except ValueError as e: assert str(e)
