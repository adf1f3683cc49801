"Metrics against a real, small, untrained transformer through the engine"
import inspect, math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from xfeval.core.explanation import Explanation
from xfeval.core.text import Gold, Instance
from xfeval.engine.run import Engine
from xfeval.engine.rows import Job
from xfeval.metrics.base import Context, metrics, result_rows
import xfeval.metrics.evaluate # registers every metric
from random_explanations import random_explanation
from xfeval.truth.tiny import new_tiny

WORDS = "the a man woman dog plays reads guitar book music in park not and person outside".split()
LABELS = ["yes", "no", "maybe"]
_made = {}
def model(arch):
    if arch not in _made:
        _made[arch] = new_tiny(arch, [" ".join(WORDS)], LABELS, init="lively", width=32, max_length=96)
    return _made[arch]

def instance(m, n=0, seed=0, **kw):
    w = np.random.default_rng(seed).choice(WORDS, m+n).tolist()
    return Instance.from_words([w[:m], w[m:]] if n else w, id=f"i{m}-{n}-{seed}", **kw)

def evaluate(engine, pairs):
    "[(context, metric name, options)] -> results, all in one pool"
    out = [metrics[name](ctx, **opt) for ctx, name, opt in pairs]
    todo = [k for k, o in enumerate(out) if inspect.isgenerator(o)]
    for k, r in zip(todo, engine.run([Job(pairs[k][0].instance, out[k]) for k in todo])): out[k] = r
    return out

def context(clf, ex, **kw): return Context(ex, players=clf.encode(ex.instance).players, **kw)

@pytest.mark.parametrize("arch", ["bert", "gpt2"])
def test_every_metric_on_every_kind(arch):
    torch.set_num_threads(1)
    clf = model(arch)
    x = instance(5, 4, gold=Gold({0, 6}, {(0, 6)}, {((0, 1), (6, 6))}))
    ref = random_explanation(x, "span", 0)
    todo = [(context(clf, random_explanation(x, kind, 1), reference=ref), name, {})
            for kind in ("token", "pair", "span") for name in metrics]
    if clf.tokenizer.mask_token_id is None:
        todo = [(c, n, dict(absent="delete") if o_has_absent(n, "mask") else o) for c, n, o in todo]
    for (ctx, name, _), r in zip(todo, evaluate(Engine(clf), todo)):
        for row in result_rows(name, r): assert math.isfinite(row["value"]) or row["note"], (name, row)

def o_has_absent(name, kind): return metrics.info(name).get("absent") == kind

@pytest.mark.parametrize("arch", ["bert", "bart", "gpt2"])
def test_soft_metrics_of_zeros_and_ones_are_the_hard_ones(arch):
    torch.set_num_threads(1)
    clf = model(arch)
    engine = Engine(clf)
    close = 0
    for seed in range(4):
        x = instance(5, seed=seed)
        ctx = context(clf, Explanation.from_scores(x, [1., 0, 0, 1, 0]))
        opt = dict(zero="zero_embedding", clip=False, eps=1e-4)
        r = evaluate(engine,
                     [(ctx, "soft_sufficiency", dict(where="word", **opt)),
                      (ctx, "normalised_sufficiency", dict(bins=(.4,), absent="zero_embedding", **opt)),
                              (ctx, "soft_comprehensiveness", dict(where="word", **opt)),
                      (ctx, "normalised_comprehensiveness", dict(bins=(.4,), absent="zero_embedding", **opt))])
        assert r[0] == pytest.approx(r[1], abs=1e-3, rel=1e-3) and r[2] == pytest.approx(r[3], abs=1e-3, rel=1e-3)
        close += r[0] != 1
    assert close

@pytest.mark.parametrize("positive,limit", [(True, 140), (False, 151)])
def test_rows_of_six_explanations_and_three_metrics(positive, limit):
    torch.set_num_threads(1)
    clf = model("bert")
    x = instance(30, seed=9)
    rng = np.random.default_rng(0)
    before = clf.rows
    def scores():
        s = rng.random(30)+.01
        if not positive: s[rng.permutation(30)[:3]] *= -1
        return s
    todo = [(context(clf, Explanation.from_scores(x, scores())), name, {}) for _ in range(6)
            for name in ("aopc_comprehensiveness", "aopc_sufficiency", "taucorr_loo")]
    evaluate(Engine(clf), todo)
    assert 100 < clf.rows-before <= limit

def test_values_are_the_models_probabilities():
    torch.set_num_threads(1)
    clf = model("bert")
    x = instance(6, seed=2)
    ex = Explanation.from_scores(x, [6., 5, 4, 3, 2, 1])
    (got,) = evaluate(Engine(clf), [(context(clf, ex), "comprehensiveness", dict(share=.5))])
    p, q = clf.predict([x])[0], clf.predict([Instance.from_words(x.words[3:])])[0]
    assert got == pytest.approx(p.max()-q[p.argmax()], abs=1e-5)
