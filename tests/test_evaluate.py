"The evaluate call: one pool for everything, every missing number with its reason"
import numpy as np
import pytest

from xfeval import evaluate, explain, list_metrics, summarise
from xfeval.core.explanation import Explanation
from xfeval.core.text import Gold, Instance
from xfeval.engine.run import Engine
from xfeval.truth.tiny import new_tiny

LABELS = ["entailment", "neutral", "contradiction"]
WORDS = "a the man woman dog cat runs sleeps plays guitar music in park red two three not outside with old".split()


def text(n, seed=0, parts=2):
    rng = np.random.default_rng(seed)
    w = rng.choice(WORDS, n).tolist()
    cut = n*2//3
    return Instance.from_words([w[:cut], w[cut:]] if parts == 2 else [w], id=f"t{seed}",
                               gold=Gold(tokens=range(0, n, 4), pairs=[(0, n-1)] if parts == 2 else None))


@pytest.fixture(scope="module")
def clf(): return new_tiny("bert", [" ".join(WORDS)], LABELS, init="lively", seed=1)


@pytest.mark.parametrize("positive,limit", [(True, 140), (False, 151)])
def test_six_explanations_of_thirty_words_share_their_rows(clf, positive, limit):
    x = text(30)
    rng = np.random.default_rng(5)
    ex = [Explanation.from_scores(x, rng.random(30) if positive else rng.normal(size=30), method=f"m{i}")
          for i in range(6)]
    before = clf.rows
    df = evaluate(clf, ex, ["aopc_comprehensiveness", "aopc_sufficiency", "taucorr_loo"], engine=Engine(clf))
    assert df.attrs["forwards"] == clf.rows - before <= limit and len(df) == 18 and df.value.notna().all()


def test_scores_from_elsewhere_for_one_and_two_parts(clf):
    for parts in (1, 2):
        x = text(9, 2, parts)
        df = evaluate(clf, Explanation.from_scores(x, list(range(9))),
                      ["aopc_comprehensiveness", "soft_sufficiency", "auprc", "complexity"])
        assert df[df.metric != "soft_sufficiency"].value.notna().all() and (df.instance == x.id).all()
        assert (df.value.notna() | df.note.str.contains("denominator|confident|zero")).all(), df.note.tolist()


def test_budget_comes_from_the_span_explanation_of_the_same_technique(clf):
    data = [text(12, s) for s in range(3)]
    ex = explain(clf, data, ["shapley", "random"], ["token", "pair", "span"], budget=60)
    df = evaluate(clf, ex,
                  ["unified_comprehensiveness", "unified_sufficiency", "token_agreement", "interaction_agreement",
                   "complexity"])
    assert df[df.metric == "unified_comprehensiveness"].value.notna().all()
    alone = evaluate(clf, [e for e in ex if e.kind == "token" and e.method == "shapley"], "unified_comprehensiveness")
    assert alone.value.isna().all() and alone.note.str.contains("span explanation").all()


def test_nothing_is_missing_without_a_word(clf):
    x = text(8, 3).replace(gold=None)
    empty = Explanation(x, "token", [], [])
    flat = Explanation.from_scores(x, [1.]*8)
    one = Explanation.from_scores(Instance.from_text("dog", id="one"), [1.])
    names = list_metrics().name.tolist()
    df = evaluate(clf, [empty, flat, one], names)
    assert (df.note[df.value.isna()] != "").all() and set(df.metric) == set(names)
    s = summarise(df, by=["metric", "part"])
    assert (s.n + s.skipped == df.groupby(["metric",
                                           "part"]).size().reindex(list(zip(s.metric, s.part))).to_numpy()).all()


def test_same_seed_same_table(clf):
    ex = explain(clf, [text(10, 4)], "occlusion")
    a, b = (evaluate(clf, ex, ["soft_sufficiency", "infidelity"], seed=3, engine=Engine(clf)) for _ in range(2))
    assert a.equals(b)


def test_predicted_or_explained_class(clf):
    x = text(10, 6)
    ex = explain(clf, x, "occlusion", target=LABELS[int(clf.predict([x]).argmin())])
    a, b = evaluate(clf, ex, "aopc_comprehensiveness"), evaluate(clf, ex, "aopc_comprehensiveness",
                                                                 target="predicted")
    assert a.value[0] != b.value[0]


def test_refusals(clf):
    e = Explanation.from_scores(text(5), [1.]*5)
    with pytest.raises(ValueError, match="did you mean 'auprc'"): evaluate(clf, e, "auprcc")
    with pytest.raises(ValueError, match="unknown option"): evaluate(clf, e, {"complexity": {"kk": 3}})
    with pytest.raises(ValueError, match="from_scores"): evaluate(clf, [[1., 2.]], "auprc")
    with pytest.raises(ValueError, match="did you mean"): evaluate(clf, e, "auprc", target="predict")
    other = new_tiny("bert", ["a b"], LABELS)
    with pytest.raises(ValueError, match="another classifier"): evaluate(clf, e, "auprc", engine=Engine(other))


def test_random_explanations_take_the_budget_of_the_data_set_or_of_each_instance(clf):
    from xfeval.metrics.evaluate import contexts
    data = [text(8, 1), text(16, 2)]
    ex = explain(clf, data, ["attention", "random"], ["token", "span"])
    own = {x: [e.theta(min(k, len(e))) for k in (1, 2, 3)] for e in ex if e.kind == "span" and e.base != "random"
           for x in [e.instance]}
    mean = tuple(round(v) for v in np.mean(list(own.values()), 0))
    def budgets(**kw): return [(c.ex.instance, c.theta) for c in contexts(clf, ex, **kw) if c.ex.base == "random"]
    assert own[data[0]] != own[data[1]]
    assert all(theta == mean for _, theta in budgets())
    assert all(theta == tuple(own[x]) for x, theta in budgets(random_budget="instance"))
    assert len(evaluate(clf, ex, ["unified_comprehensiveness"], random_budget="instance")) == len(ex)
    with pytest.raises(ValueError, match="instance"): evaluate(clf, ex, random_budget="text")
