"Our metrics against numbers that the real ferret package printed (benchmarks/ferret_values.py makes the file)"
import json
from pathlib import Path

import numpy as np
import pytest

from xfeval import evaluate, load_model
from xfeval.core.explanation import Explanation
from xfeval.core.text import Gold
from xfeval.engine.run import Engine
from xfeval.papers.ferret.view import ferret_view

FERRET = json.loads((Path(__file__).parent/"ferret_values.json").read_text())
SIX = ("aopc_comprehensiveness", "aopc_sufficiency", "taucorr_loo", "token_iou", "token_f1", "auprc")


@pytest.fixture(scope="module")
def ours():
    "Our values of the stored explanations, as coded and by our own defaults, by (text, name of the scores, metric)"
    clf = load_model(FERRET["model"])
    texts = list(dict.fromkeys(r["text"] for r in FERRET["records"]))
    view, subs = ferret_view(clf, texts)
    instances = dict(zip(texts, subs))
    explanations = []
    for r in FERRET["records"]:
        x = instances[r["text"]]
        assert list(x.words) == r["tokens"]
        x = x.replace(gold=Gold(tokens=np.flatnonzero(r["gold"]).tolist()))
        explanations.append(Explanation.from_scores(x, r["scores"], method=r["name"], target=clf.labels[r["target"]]))
    engine = Engine(view)
    def values(options):
        plausible = {m: dict(k=5, **options) for m in ("token_iou", "token_f1")}
        df = evaluate(view, explanations, {m: plausible.get(m, options) for m in SIX}, engine=engine)
        return df.value.to_numpy().reshape(-1, len(SIX))
    return dict(coded=values(dict(as_coded=True)), default=values({}))


theirs = np.array([[r["values"][m] for m in SIX] for r in FERRET["records"]])
names = np.array([r["name"] for r in FERRET["records"]])


def test_the_values_came_from_the_package():
    assert FERRET["versions"]["ferret-xai"] and len(FERRET["records"]) >= 10
    assert any(t.startswith("##") for r in FERRET["records"] for t in r["tokens"]) # sub-words are among the units
    assert {"signed", "tied", "negative", "small"} <= set(names)


@pytest.mark.parametrize("metric", SIX)
def test_as_coded_is_what_ferret_prints(ours, metric):
    same = np.ones(len(names), bool)
    if metric not in ("taucorr_loo", "auprc"): # NumPy orders ties as the processor likes: compare where it does so alike
        same = np.array([np.argsort(r["scores"]).tolist() == r["order"] for r in FERRET["records"]])
        assert same[names != "tied"].all()
    k = SIX.index(metric)
    np.testing.assert_allclose(ours["coded"][same, k], theirs[same, k], atol=1e-5)


def test_our_defaults_differ_only_where_they_should(ours):
    "Scores without ties and of ordinary size: only the rounding of drops may change a value, that of the correlation"
    plain = np.isin(names, ("signed", "positive", "negative"))
    rest = [SIX.index(m) for m in SIX if m != "taucorr_loo"]
    np.testing.assert_allclose(ours["default"][plain][:, rest], theirs[plain][:, rest], atol=1e-5)
    assert np.isnan(ours["default"][names == "small", SIX.index("taucorr_loo")]).all() # rounded, they are constant
