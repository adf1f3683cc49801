"Metrics as functions: ranges, invariances, missing values with a reason, rows asked once"
import inspect, math, pickle, re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy.stats import kendalltau, pearsonr, spearmanr
from sklearn.metrics import auc, average_precision_score, precision_recall_curve

import xfeval.metrics.evaluate # registers every metric
from random_explanations import random_explanation
from xfeval.core.game import Query, as_query, run_game
from xfeval.core.explanation import Explanation
from xfeval.core.text import Gold, Instance
from xfeval.metrics.base import (Context, average_precision, check_metric_options, direction, keep, metric_options,
                                 metric_value, metrics, result_rows, share_count)
from xfeval.metrics.erasure import aopc, erasure_curve
from xfeval.metrics.plausibility import corpus_f1, pr_area
from xfeval.metrics.diagnosticity import corrupt_rationale, diagnosticity, rationale_explanation
from xfeval.metrics.soft import scale_importance, scalings, soft_kinds
from xfeval.metrics.unified import average_budget_all, average_budgets, budgets, matched_sets
from xfeval.papers.zhao2023.study import function_words, rationale_profile, word_class
from xfeval.stats.values import ScoreWithNote, Skip, note_of

fast = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 10**6)
score_list = st.lists(st.one_of(st.floats(-3, 3).map(lambda v: round(v, 3)), st.sampled_from([0., 1.])), min_size=1,
                      max_size=12)

def game(seed, labels=False):
    "A random game on any number of players, values in [0, 1]; linear inside, so that soft rows work too"
    def value(rows):
        r = np.asarray(rows, float)
        rng = np.random.default_rng(seed)
        w = rng.normal(size=r.shape[1])
        q = rng.normal(size=(r.shape[1],)*2)
        p = 1/(1+np.exp(-(r @ w + ((r @ q)*r).sum(1) - .3)))
        return (p > .5).astype(int) if labels else p
    return value

def text(n): return Instance.from_words([f"w{i}" for i in range(n)], id=f"t{n}")
def tokens(scores, **kw): return Context(Explanation.from_scores(text(len(scores)).replace(**kw), scores))

def run(name, ctx, seed=0, **options):
    "Play a metric; labels where labels are asked"
    out = metrics[name](ctx, **check_metric_options(name, options))
    if not inspect.isgenerator(out): return out
    try:
        ask = next(out)
        while True:
            assert isinstance(ask, Query) and ask.absent is not None and ask.rows.shape[1] == ctx.n
            ask = out.send(game(seed, ask.output == "label")(ask.rows))
    except StopIteration as stop: return stop.value

# the register
def test_every_metric_says_what_it_is():
    assert len(metrics) >= 25
    for name in metrics:
        info = metrics.info(name)
        for field in ("paper", "formula", "range", "cost", "kinds", "description"): assert info[field], (name, field)
        assert info["direction"] in ("higher", "lower")
        assert set((info.get("parts") or {}).values()) <= {"higher", "lower"} and "needs" in info
        asks = inspect.isgeneratorfunction(metrics[name])
        assert asks == (info["cost"] != "none"), name
        if asks and not name.startswith("soft_"): assert metric_options(name)["absent"] == info["absent"]

@pytest.mark.parametrize("name,absent",
                         [("unified_comprehensiveness", "mask"), ("aopc_sufficiency", "delete"),
                          ("eraser_comprehensiveness", "delete"), ("normalised_sufficiency", "pad"),
                          ("comprehensiveness", "delete")])
def test_default_absence(name, absent): assert metric_options(name)["absent"] == absent

def test_unknown_names_and_options_are_refused():
    ctx = tokens([1., 2.])
    with pytest.raises(ValueError, match="did you mean 'absent'"): metric_value("deletion", ctx, game(0), abset="mask")
    with pytest.raises(ValueError, match="did you mean 'deletion'"): metric_value("delection", ctx, game(0))
    for name, bad in (("taucorr_loo", dict(correlation="kendal")), ("aopc_sufficiency", dict(percent_of="al")),
                      ("eraser_sufficiency", dict(divisor="men")), ("soft_sufficiency", dict(perturb="bernouli")),
                      ("soft_sufficiency", dict(scaling="min-max")), ("deletion", dict(absent="masked")),
                      ("infidelity", dict(normalise=True)), ("soft_sufficiency", dict(n_draws=0))):
        with pytest.raises(ValueError): metric_value(name, ctx, game(0), **bad)
    with pytest.raises(ValueError, match="must be a span explanation"): Context(ctx.ex, reference=ctx.ex)

def test_missing_scores_survive_copies():
    for v in (Skip("empty gold"), ScoreWithNote(.5, "odd")): assert note_of(pickle.loads(pickle.dumps(v))) == v.note

# every metric on every odd input: a number in its range, or a reason
def in_range(v, text):
    if text == "[0, ln k_x]": return -1e-9 <= v
    lo, hi = re.match(r"[\[(]([^,]+), ([^\])]+)", text).groups()
    return float(lo)-1e-9 <= v <= float(hi)+1e-9

@st.composite
def contexts(draw):
    m, n = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(seeds))
    x = Instance.from_words([[f"p{i}" for i in range(m)], [f"h{i}" for i in range(n)]], id="z")
    def some(items): return {i for i in items if rng.random() < .4}
    pairs, spans = [(p, m+q) for p in range(m) for q in range(n)], [((a, b), (m+c, m+d)) for a in range(m)
                                                                    for b in range(a, m) for c in range(n)
                                                                    for d in range(c, n)]
    gold = draw(st.sampled_from(["none", "empty", "some"]))
    if gold != "none":
        x = x.replace(gold=Gold(some(range(m+n)), some(pairs), some(spans)) if gold == "some" else Gold((), (), ()))
    kind = draw(st.sampled_from(["token", "pair", "span"]))
    items = dict(token=list(range(m+n)), pair=pairs, span=spans)[kind]
    if draw(st.booleans()) and kind != "token": items = sorted(some(items))
    s = draw(st.sampled_from(["normal", "constant", "zero", "negative", "binary"]))
    k = len(items)
    scores = dict(normal=rng.normal(size=k), constant=np.ones(k), zero=np.zeros(k), negative=-rng.random(k),
                  binary=(rng.random(k) < .5)*1.)[s]
    players = np.arange(m+n) if draw(st.booleans()) else np.arange(draw(st.integers(0, m+n)))
    ref = draw(st.sampled_from(["none", "empty", "random"]))
    reference = dict(none=None, empty=Explanation(x, "span", [], []), random=random_explanation(x, "span", 3))[ref]
    return Context(Explanation(x, kind, items, scores), players=players, reference=reference,
                   seed=draw(st.integers(0, 5)))

@settings(fast, max_examples=150)
@given(contexts(), seeds)
def test_a_number_in_range_or_a_reason(ctx, seed):
    for name in metrics:
        for row in result_rows(name, run(name, ctx, seed)):
            v = row["value"]
            assert row["note"] if math.isnan(v) else in_range(v, metrics.info(name)["range"]), (name, row)
            assert row["direction"] in ("higher", "lower")

@pytest.mark.parametrize("name", sorted(metrics))
def test_one_word(name):
    for row in result_rows(name, run(name, tokens([.7], gold=Gold(tokens={0})))):
        assert row["note"] or math.isfinite(row["value"])

def test_reasons_are_the_right_ones():
    x = text(4)
    empty, none = tokens([1, 2, 3, 4.], gold=Gold(tokens=())), tokens([1, 2, 3, 4.])
    for m in ("token_iou", "token_f1", "auprc", "map_plausibility", "token_agreement"):
        assert note_of(metric_value(m, empty)) == "empty gold" and note_of(metric_value(m, none)) == "no gold"
    assert note_of(metric_value("taucorr_loo", tokens([2.]*4), game(1))) == "constant scores"
    assert note_of(metric_value("taucorr_loo", tokens([2.]), game(1))) == "one word"
    assert note_of(metric_value("corr", tokens([1., 2, 3]), lambda r: np.ones(len(r)))) == "constant leave-one-out drops"
    nothing = Context(Explanation(x, "token", [], []))
    for m in ("aopc_comprehensiveness", "deletion", "soft_sufficiency", "comprehensiveness",
              "unified_comprehensiveness"):
        assert note_of(metric_value(m, nothing, game(1))) == "empty explanation"
    assert note_of(metric_value("deletion", Context(none.ex, players=[]), game(1))) == "no visible word"
    assert {note_of(v) for v in metric_value("normalised_curve", nothing, game(1)).values()} == {"empty explanation"}

# average precision and areas against the libraries
@fast
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=30))
def test_average_precision_is_scikit_learns(items):
    s, h = np.array([i for i, _ in items])/6, np.array([g for _, g in items])
    if not h.any(): assert note_of(average_precision(s, h)) == "empty gold"; return
    assert math.isclose(average_precision(s, h), average_precision_score(h, s), abs_tol=1e-12)
    p, r, _ = precision_recall_curve(h, s)
    assert math.isclose(pr_area(s, h), auc(r, p), abs_tol=1e-12)
    assert math.isclose(average_precision(s, h, 2*h.sum()), average_precision(s, h)/2, abs_tol=1e-12)

def test_average_precision_refuses_nonsense():
    with pytest.raises(ValueError, match="2 hits but only 1"): average_precision([1, 2], [1, 1], 1)
    with pytest.raises(ValueError): average_precision([1, 2], [1])
    assert average_precision([], [], 3) == 0

@fast
@given(score_list, seeds)
def test_correlations_are_scipys(s, seed):
    s = np.array(s)
    n, v = len(s), game(seed)
    drops = v(np.ones((1, n)))[0] - v(1-np.eye(n))
    loo = np.round(drops, 6)
    if n < 2 or np.ptp(s) == 0 or np.ptp(loo) == 0: assert math.isnan(metric_value("taucorr_loo", tokens(s), v)); return
    assert math.isclose(metric_value("taucorr_loo", tokens(s), v), kendalltau(s, loo).statistic, abs_tol=1e-9)
    assert math.isclose(metric_value("taucorr_loo", tokens(s), v, correlation="spearman"), spearmanr(s, loo).statistic,
                        abs_tol=1e-9)
    assert math.isclose(metric_value("corr", tokens(s), v), pearsonr(s, drops).statistic, abs_tol=1e-9)

# invariances
RANK_ONLY = ("aopc_comprehensiveness", "aopc_sufficiency", "taucorr_loo", "eraser_comprehensiveness",
             "eraser_sufficiency", "deletion", "insertion", "normalised_sufficiency", "normalised_comprehensiveness",
             "token_iou", "token_f1", "auprc", "map_plausibility", "token_agreement", "decision_flip", "monotonicity")
def same(a, b):
    return all(x["note"] == y["note"] and (math.isclose(x["value"], y["value"], abs_tol=1e-9) or math.isnan(x["value"]))
               for x, y in zip(a, b, strict=True))

@fast
@given(score_list, seeds)
def test_ranks_alone_count(s, seed):
    gold = Gold(tokens={i for i in range(len(s)) if i % 2})
    s = np.array(s)
    for name in RANK_ONLY:
        a, b = tokens(s, gold=gold), tokens(np.sign(s)*np.abs(s)**3*10 + s, gold=gold)
        assert same(result_rows(name, run(name, a, seed)), result_rows(name, run(name, b, seed))), name

@fast
@given(score_list, seeds, st.floats(.1, 9))
def test_scale_does_not_count(s, seed, c):
    s = np.array(s)
    for name in ("complexity", "corr", "infidelity", "soft_sufficiency", "soft_comprehensiveness"):
        a, b = result_rows(name, run(name, tokens(s), seed)), result_rows(name, run(name, tokens(s*c), seed))
        for x, y in zip(a, b, strict=True):
            assert x["note"] == y["note"], name
            assert math.isnan(x["value"]) or math.isclose(x["value"], y["value"], abs_tol=1e-6), name

def test_linear_correlation_does_not_round_scores():
    s = np.array([-.75, 1., 0.])
    assert math.isclose(metric_value("corr", tokens(s), game(0)), metric_value("corr", tokens(s*.15625), game(0)), abs_tol=1e-12)

@fast
@given(score_list, seeds)
def test_order_of_words_does_not_count(s, seed):
    s = np.array(s) + np.arange(len(s))*1e-4
    n = len(s)
    perm = np.random.default_rng(seed).permutation(n)
    v = game(seed)
    if len(np.unique(np.round(s, 6))) < n: return
    def moved(rows): return v(np.asarray(rows)[:, np.argsort(perm)])
    for name in ("aopc_comprehensiveness", "aopc_sufficiency", "taucorr_loo", "eraser_sufficiency", "deletion",
                 "normalised_comprehensiveness", "soft_sufficiency"):
        a, b = metric_value(name, tokens(s), v), metric_value(name, tokens(s[perm]), moved)
        assert math.isnan(a) and math.isnan(b) or math.isclose(a, b, abs_tol=1e-9), name

@fast
@given(score_list, seeds)
def test_whole_text_as_rationale(s, seed):
    v, n = game(seed), len(s)
    full, empty = v(np.ones((1, n)))[0], v(np.zeros((1, n)))[0]
    assert math.isclose(metric_value("comprehensiveness", tokens(s), v, share=1.), full-empty, abs_tol=1e-12)
    assert abs(metric_value("sufficiency", tokens(s), v, share=1.)) < 1e-12
    x, p = run_game(erasure_curve(tokens(s), "deletion", None), v)
    y, q = run_game(erasure_curve(tokens(s), "insertion", None), v)
    assert x.tolist() == y.tolist()
    np.testing.assert_allclose([p[0], p[-1], q[-1], q[0]], [full, empty, full, empty], atol=1e-12)

def test_rationale_longer_than_the_text():
    assert share_count(1, .5) == 1 and share_count(3, 1.) == 3
    ctx = replace(tokens([3., 2, 1]), theta=(2, 5, 9))
    assert budgets(ctx) == (2, 3, 3) and len(matched_sets(ctx)[-1]) == 3
    assert metric_value("token_iou", tokens([3., 2, 1], gold=Gold(tokens={0})), k=50) == 1/3
    two = Instance.from_words([["a"], ["b"]])
    short = Context(Explanation(two, "pair", [(0, 1)], [1.]), theta=(2,), players=[0, 1])
    assert note_of(metric_value("unified_comprehensiveness", short, game(1, True), k=1)) == ""
    four = Instance.from_words([["a", "c"], ["b", "d"]])
    assert note_of(metric_value("unified_comprehensiveness", Context(Explanation(four, "pair", [(0, 2)], [1.]), theta=(3,)),
                         game(1, True), k=1)) == "explanation shorter than the budget"

# meaning
def test_true_weights_beat_reversed_ones():
    w = np.array([.3, .2, .1, .05, .02, .01])
    def v(rows): return .2 + np.asarray(rows, float) @ w
    good, bad = tokens(w), tokens(w[::-1].copy())
    for name in ("aopc_comprehensiveness", "aopc_sufficiency", "taucorr_loo", "corr", "eraser_comprehensiveness",
                 "eraser_sufficiency", "comprehensiveness", "sufficiency", "deletion", "insertion",
                 "normalised_sufficiency", "normalised_comprehensiveness", "soft_sufficiency",
                 "soft_comprehensiveness", "infidelity"):
        a, b = metric_value(name, good, v), metric_value(name, bad, v)
        assert a > b if direction(name) == "higher" else a < b, name

def test_pairs_and_spans_are_scored_flattened():
    x = Instance.from_words([["a", "b"], ["c", "d"]])
    pairs = Explanation(x, "pair", [(0, 2), (1, 3)], [.8, .3])
    def v(rows): return .1 + np.asarray(rows, float) @ np.array([.3, .1, .2, .05])
    for name in ("aopc_comprehensiveness", "eraser_sufficiency", "taucorr_loo", "soft_comprehensiveness", "deletion"):
        assert math.isclose(metric_value(name, Context(pairs), v), metric_value(name, Context(pairs.flat()), v))
        assert math.isclose(metric_value(name, Context(pairs.flat()), v),
                            metric_value(name, Context(Explanation.from_scores(x, [.8, .3, .8, .3])), v))

def test_words_the_model_cannot_see_have_no_column():
    ctx = replace(tokens([.1, .9, .5, .7]), players=np.array([0, 1, 2]))
    asked = []
    metric_value("comprehensiveness", ctx, lambda rows: asked.append(rows) or rows.mean(1), share=.4)
    assert asked[0].shape == (2, 3) and np.flatnonzero(~asked[0][1]).tolist() == [1]

def test_captum_infidelity():
    torch = pytest.importorskip("torch")
    captum = pytest.importorskip("captum.metrics")
    w, q = torch.tensor([.4, -.2, .3, .1]), torch.tensor(np.random.default_rng(0).normal(size=(4, 4)))
    def f(r): return (r @ w.double()) + ((r @ q)*r).sum(1)
    ctx = replace(tokens([.5, -.1, .2, .3]), seed=5)
    asked = []
    def value(rows): asked.append(~rows[1:]); return f(torch.tensor(rows, dtype=torch.double)).numpy()
    ours = {n: metric_value("infidelity", ctx, value, n_samples=40, normalise=n) for n in ("none", "free")}
    z = torch.tensor(asked[0], dtype=torch.double)
    for name, normalize in (("none", False), ("free", True)):
        theirs = captum.infidelity(f, lambda x: (z, x-z), torch.ones(1, 4, dtype=torch.double),
                                   torch.tensor([[.5, -.1, .2, .3]], dtype=torch.double), n_perturb_samples=40,
                                   normalize=normalize)
        assert math.isclose(float(theirs), ours[name], rel_tol=1e-9)
    assert (asked[0] == asked[1]).all()

def test_sensitivity():
    ctx = tokens([3., 4.])
    near = Explanation.from_scores(ctx.instance, [3., 3.])
    assert metric_value("sensitivity", replace(ctx, neighbours=(near, ctx.ex))) == dict(max=.2, mean=.1)

def test_captum_sensitivity():
    torch = pytest.importorskip("torch")
    captum = pytest.importorskip("captum.metrics")
    x = torch.tensor([[.5, -.1, .2, .3]], dtype=torch.double)
    noise = .02*torch.tensor(np.random.default_rng(0).normal(size=(6, 4)))
    def explained(x): return x**3 + x
    def in_tuples(inputs): return (explained(inputs[0] if isinstance(inputs, tuple) else inputs),)
    def perturbed(inputs): return inputs + noise[:len(inputs)]
    theirs = captum.sensitivity_max(in_tuples, x, perturb_func=perturbed, n_perturb_samples=6)
    ctx = tokens(explained(x)[0].tolist())
    near = tuple(Explanation.from_scores(ctx.instance, e.tolist()) for e in explained(x + noise))
    assert metric_value("sensitivity", replace(ctx, neighbours=near))["max"] == pytest.approx(float(theirs), rel=1e-9)

def test_decision_flip_stops_asking():
    rows = []
    def label(r): rows.extend(r.tobytes() for r in r); return np.where(r[:, 0], 1, 0)
    assert metric_value("decision_flip", tokens(np.arange(40, 0, -1.)), label) == dict(most_informative=1.,
                                                                                share_removed=1/40)
    assert len(rows) <= 5

# rows are asked once
def distinct(contexts, names):
    seen = set()
    def value(rows): seen.update(r.tobytes() for r in rows); return game(0)(rows)
    for c in contexts:
        for n in names:
            gen = metrics[n](c); ask = next(gen)
            assert ask.absent == "delete" and ask.output == "prob_top" and ask.rows.dtype == bool
            with pytest.raises(StopIteration): gen.send(value(ask.rows))
    return len(seen)

TRIO = ("aopc_comprehensiveness", "aopc_sufficiency", "taucorr_loo")
@pytest.mark.parametrize("seed", range(5))
def test_six_explanations_of_thirty_words(seed):
    rng = np.random.default_rng(seed)
    assert distinct([tokens(rng.random(30)+.01) for _ in range(6)], TRIO) <= 140
    for negative in (1, 2, 3, 15, 29):
        def signed():
            s = rng.random(30)+.01
            s[rng.permutation(30)[:negative]] *= -1
            return tokens(s)
        assert distinct([signed() for _ in range(6)], TRIO) <= 151

def test_all_explanations_of_a_text_share_random_rows():
    asked = [[], []]
    for a, s in zip(asked, ([1., 2, 3, 4], [4., 3, 2, 1])):
        metric_value("infidelity", tokens(s), lambda r: a.append(r) or r.mean(1))
    assert (asked[0][0] == asked[1][0]).all()
    a, b = (next(metrics["soft_sufficiency"](Context(tokens(s).ex, seed=0))) for s in ([1., 2, 3], [3., 2, 1]))
    assert (a.rows == b.rows).all()

# soft rows
@pytest.mark.parametrize("perturb", list(soft_kinds))
@pytest.mark.parametrize("which", ["sufficiency", "comprehensiveness"])
def test_soft_rows_are_the_share_that_stays(perturb, which):
    asks = []
    gen = metrics[f"soft_{which}"](tokens([0., 1., 2.]), perturb=perturb, sigma=.5, n_draws=3, where="word")
    try:
        ask = next(gen)
        while True: asks.append(ask); ask = gen.send(np.asarray(ask.rows, float).mean(1))
    except StopIteration: pass
    soft = asks[-1]
    want = [0, .5, 1] if which == "sufficiency" else [1, .5, 0]
    assert soft.absent == soft_kinds[perturb] and soft.where == "word"
    assert soft.scale == (.5 if perturb == "gaussian" else 1.)
    assert soft.rows.shape == (1 if perturb.startswith("attention") else 3, 3) and (soft.rows == want).all()
    assert asks[0].absent == "pad" and asks[0].rows.tolist() == [[True]*3, [False]*3]

@fast
@given(score_list, st.sampled_from(scalings), st.sampled_from(["sufficiency", "comprehensiveness"]))
def test_scalings(s, scaling, which):
    q = scale_importance(s, scaling, which)
    assert ((q >= 0) & (q <= 1)).all()
    order = np.argsort(s, kind="stable")
    assert (np.diff(q[order]) >= -1e-12).all()

# random baselines and corruption
def test_average_budgets_match_the_dataset():
    x = Instance.from_words([list("abcd"), list("efg")])
    def spans(*i): return Explanation(x, "span", i, np.arange(len(i), 0, -1.))
    refs = [spans(((0, 0), (4, 4))), spans(((0, 3), (4, 6))), spans()]
    assert average_budgets(refs, 1) == (4,) and average_budget_all(refs) == 4 and average_budgets([spans()]) == ()
    assert len(matched_sets(Context(random_explanation(x, "pair", 1), theta=(4,)), k=1)[0]) == 4

@fast
@given(st.sets(st.integers(0, 9), max_size=6), st.floats(0, 1), seeds)
def test_corruption(gold, grade, seed):
    out = corrupt_rationale(gold, 20, grade, np.random.default_rng(seed))
    assert len(out) == len(gold) and len(out - gold) == round(grade*len(gold))
    assert corrupt_rationale(gold, 20, 0, np.random.default_rng(seed)) == gold
    assert corrupt_rationale(gold, 20, grade, np.random.default_rng(seed), "drop") <= gold

def test_rationale_explanations_rank_the_rationale_first():
    e = rationale_explanation(text(8), {2, 5}, seed=3)
    assert set(e.items[:2]) == {2, 5} and (e.scores[2:] <= 0).all()
    with pytest.raises(ValueError, match="between 0 and 1"): corrupt_rationale({1}, 3, 1.5, np.random.default_rng(0))

def test_a_metric_prefers_the_truth_more_the_more_is_spoilt():
    w = np.zeros(12)
    w[[2, 5, 7, 9]] = .2
    def v(rows): return .1 + np.asarray(rows, float) @ w
    def spoilt(grade, i):
        words = corrupt_rationale({2, 5, 7, 9}, 12, grade, np.random.default_rng(i))
        return metric_value("eraser_comprehensiveness", Context(rationale_explanation(text(12), words, i)), v)
    scores = {g: [spoilt(g, i) for i in range(30)] for g in (0, .25, .5, 1)}
    d = [diagnosticity(scores[0], s, "half")["diagnosticity"] for s in scores.values()]
    assert d[0] == .5 and d == sorted(d) and d[-1] == 1

# profiles
def test_profiles():
    assert set(function_words()) == {"en", "de", "es", "fr", "vi", "zh", "tr"}
    for lang, word, cls in (("en", "The", "function"), ("de", "nicht", "function"), ("es", "pero", "function"),
                            ("fr", "d’", "function"), ("vi", "không", "function"), ("zh", "的", "function"),
                            ("tr", "değil", "function"),
                            ("en", "guitar", "content"), ("de", "Gitarre", "content"), ("zh", "吉他", "content"),
                            ("en", "。", "punctuation"), ("tr", "42", "number")):
                                assert word_class(word, lang) == cls
    with pytest.raises(ValueError, match="language"): word_class("слово", "ru")
    x = Instance.from_words("the drug and the drug".split())
    p = rationale_profile(Explanation.from_scores(x, [1., .9, 0, .8, .7]), share=.8)
    assert p["repeated"] == .5 and p["function"] == .5 and 0 < p["evenness"] <= 1
    assert note_of(rationale_profile(Explanation(x, "token", [], []))["function"]) == "empty explanation"

def test_corpus_f1():
    a, b = tokens([3., 2, 1, 0], gold=Gold(tokens={0})), tokens([3., 2, 1, 0], gold=Gold(tokens={0, 1, 2}))
    assert corpus_f1([a, b], k=1) == (1 + .5)/2 and corpus_f1([a, b], "micro", k=1) == 2*2/(2+4)
    assert note_of(corpus_f1([tokens([1.])])) == "no gold"
