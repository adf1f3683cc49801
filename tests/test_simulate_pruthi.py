"The tables of Pruthi et al. from students: forms, ranks, agreement, human teachers; a killed grid and a repeated one"
import ast, json, os, subprocess, sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats as st

from xfeval.core.text import Gold, Instance
from xfeval.core.utils import data_root
from xfeval.truth.tiny import new_tiny
from xfeval.papers.published import published
from xfeval.papers.pruthi2022 import study as pruthi
from xfeval.simulate.students import StudentConfig, n_top, random_words, run_students, select_words
from xfeval.simulate.train import Recipe


def defined_in(notebook):
    "The functions that a result notebook defines for itself, as the attributes of an object"
    path = Path(__file__).resolve().parent.parent/"nbs"/"papers"/"pruthi2022"/f"{notebook}.ipynb"
    cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    wanted = [n for c in cells for n in ast.parse(c).body if isinstance(n, kinds) or ast.unparse(n).startswith("sampled = ")]
    names = {}
    exec(compile(ast.Module(wanted, []), str(path), "exec"), names)
    return SimpleNamespace(**names)


students, humans = defined_in("students"), defined_in("humans")


@pytest.fixture(autouse=True)
def one_thread():
    n = torch.get_num_threads(); torch.set_num_threads(1); yield; torch.set_num_threads(n)


@pytest.fixture(scope="module")
def parts(): return pruthi.divide(pruthi.student_reviews(50), 16, 10, 24)


tiny = [StudentConfig("bert", dict(width=8, heads=2, inner=8), Recipe(epochs=1), "BERT-base"), StudentConfig("bilstm", dict(width=4, hidden=4), Recipe(epochs=1), "BiLSTM")]
both = dict(attention_regularization=[8, 16], multitask=[8, 16])


def truth(xs): return {"LIME": [set(x.gold.tokens) for x in xs]}


def made_up(methods=("None", "Random", "LIME", "IG"), seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame([dict(method=m, student=s, strategy=g, n_train=n, seed=k, share=.1, correct=(rng.random(60) < .5 + .1*i).astype(float)) for s, g in (("BERT-base", "attention_regularization"), ("BERT-base", "multitask"), ("BiLSTM", "multitask"))
                         for n in (8, 16) for k in range(3) for i, m in enumerate(methods)]).assign(accuracy=lambda d: [c.mean() for c in d.correct])


def test_reviews_are_learnable_and_fixed():
    a, b = pruthi.student_reviews(30, 1), pruthi.student_reviews(20, 1)
    assert [x.id for x in a[:20]] == [x.id for x in b] and all(x.meta["form"] != "negation" and x.n_words <= 24 for x in a)
    assert {x.label for x in a} == {"positive", "negative"}
    with pytest.raises(ValueError, match="cannot be divided"): pruthi.divide(a, 20, 20)


def test_seven_methods_and_their_options():
    xs = pruthi.student_reviews(4); clf = new_tiny("bert", [x.texts[0] for x in xs], ["negative", "positive"], layers=1, width=8, heads=2)
    e = pruthi.teacher_explanations(clf, xs, steps=3)
    assert list(e) == [m for m in dict.fromkeys(published("pruthi2022_table05").method) if m not in ("None", "Random", "Trivial")]
    assert e["IG"][0].options["steps"] == 3 and all(len(x) == 4 for x in e.values())
    c = pruthi.control_explanations(xs, ["positive", "negative"]*2, clf.labels)
    n = n_top(xs[0].n_words)
    assert select_words(c["Trivial"][0], xs[0]) == set(range(n)) and 0 not in select_words(c["Trivial"][1], xs[1]) and len(select_words(c["Random"][0], xs[0])) == n


def test_tables_have_the_published_keys(parts):
    runs = pruthi.student_grid(truth(parts[0]), parts, "gold", tiny, both, seeds=2); t = pruthi.student_table(runs, n_resamples=100)
    theirs = published("pruthi2022_table05"); keys = ["method", "student", "learning_strategy", "n_train"]
    have = {tuple(r) for r in t[t.student == "BERT-base"][keys].itertuples(index=False)}
    assert have == {tuple(r) for r in theirs[(theirs.student == "BERT-base") & theirs.method.isin(["None", "Random", "Trivial", "LIME"])][keys].itertuples(index=False)}
    assert set(t[t.student == "BiLSTM"].learning_strategy) == {"multitask"} and t[t.method == "None"].gain.eq(0).all()
    r = pruthi.rank_table(t); assert r.groupby(["student", "learning_strategy"]).average_rank.sum().tolist() == [10.]*3
    cell = runs[(runs.method == "LIME") & (runs.student == "BERT-base") & (runs.strategy == "multitask") & (runs.n_train == 8)].accuracy.mean()*100
    assert np.isclose(t[(t.method == "LIME") & (t.student == "BERT-base") & (t.n_train == 4000)].sim_accuracy_percent.item(), cell)


def test_two_runs_give_one_table(parts):
    a, b = (pruthi.student_table(pruthi.student_grid(truth(parts[0]), parts, "gold", tiny, both, seeds=2), n_resamples=100) for _ in range(2))
    pd.testing.assert_frame_equal(a, b, check_exact=True)


def test_taus_against_scipy():
    runs = made_up(); t = pruthi.tau_table(runs, n_resamples=30).set_index(["row_setting", "col_setting"])
    acc = {s: g.groupby(["n_train", "method"]).accuracy.mean().unstack().rank(axis=1, ascending=False).mean() for s, g in runs.assign(s=pruthi.setting_names(runs)).groupby("s")}
    for (a, b), r in t.iterrows(): assert np.isclose(r.kendall_tau, st.kendalltau(acc[a], acc[b][acc[a].index]).statistic)
    assert (t.low <= t.high).all() and t.loc[("BERT-base/AR", "BiLSTM/MTL"), "low"] == t.loc[("BiLSTM/MTL", "BERT-base/AR"), "low"]
    assert np.isnan(pruthi.tau_b(np.ones((4, 1)), np.arange(4)[:, None])).all()


def test_published_means_of_tau():
    t = published("pruthi2022_table10"); m = pruthi.mean_taus(t.assign(low=np.nan, high=np.nan)).groupby("comparison").tau.mean()
    text = published("pruthi2022_text_claims").set_index("claim").value
    for name, claim in (("strategies", "mean tau AR vs MTL rankings, same student (3 students)"), ("students_attention_regularization", "mean tau across students, AR"), ("students_multitask", "mean tau across students, MTL"), ("all", "mean tau over all 21 pairs of settings"), ("erasure", "mean tau of simulation rankings with ERASER rankings")):
        assert abs(m[name] - text[claim]) < .011, name


def test_erasure_ranks():
    rng = np.random.default_rng(0); d = pd.DataFrame([dict(method=m, metric=k, instance=i, value=v + rng.normal(0, .01)) for m, v in dict(A=.1, B=.3, C=.2).items() for k in ("sufficiency", "comprehensiveness") for i in range(20)])
    r = students.erasure_table(d).set_index(["metric", "method"])["rank"]
    assert r["sufficiency"].to_dict() == dict(A=1, B=3, C=2) and r["comprehensiveness"].to_dict() == dict(A=3, B=1, C=2)


def test_whole_against_top():
    a, b = made_up(("None", "Attention")), made_up(("None", "Attention"), 1); pick = lambda r: r[(r.student == "BERT-base") & (r.strategy == "multitask")]
    t = students.whole_against_top(pick(a), pick(b), n_resamples=100); assert t["size"].tolist() == ["small", "large"] and (t.low <= t.gain_points).all() and (t.gain_points <= t.high).all()


def test_overlap():
    assert students.word_overlap({0, 3}, {3, 7}) == .5
    xs = [Instance.from_words([[f"w{i}" for i in range(50)]], id=f"x{j}") for j in range(400)]
    o = students.word_overlap_table(dict(a=[random_words(x, seed=1) for x in xs], b=[random_words(x, seed=2) for x in xs]), xs)
    assert o.loc["a", "b"] == pytest.approx(.1, abs=.02) and o.loc["a", "b"] == pytest.approx(o.loc["b", "a"])


def test_corruption():
    assert humans.noise_correlation(np.arange(11)/10, [81, 81.2, 80.5, 80, 80.3, 79.2, 79.5, 78, 77.5, 77.8, 76]) == pytest.approx(-.9545, abs=1e-4)
    x = Instance.from_words([[f"w{i}" for i in range(4000)]]); kept = [len(humans.corrupt_explanations(range(4000), p, x)) for p in (0, .1, .5, 1)]
    assert kept[0] == 4000 and kept[3] == 0 and abs(kept[1]-3600) < 100 and abs(kept[2]-2000) < 150


def test_sampled_configurations(parts):
    sampled = [(c.recipe.batch, c.options["width"], c.options["hidden"], c.recipe.lr) for c in students.small_configs()]
    assert sampled == [(16, 8, 16, .01), (16, 4, 16, .02), (64, 16, 16, .02), (32, 8, 48, .01)]
    configs = [StudentConfig("bilstm_attention", dict(width=4, hidden=4), Recipe(epochs=1), f"config {i}") for i in (1, 2)]
    sizes = dict(attention_regularization=[16], multitask=[16])
    runs = pruthi.student_grid(truth(parts[0]), parts, "gold", configs, sizes, seeds=1, controls=("none",))
    published_sizes = dict(attention_regularization=(2000,), multitask=(4000,))
    t, ranks = students.config_table(pruthi.student_table(runs, published_sizes, n_resamples=100))
    assert set(t.config) == {1, 2} and ranks.groupby("config").average_rank.sum().tolist() == [3., 3.]
    both = pd.concat([runs, runs.assign(share=.4)])
    shares = students.share_table(both, sizes=published_sizes, n_resamples=100)
    assert shares.k_percent.isna().sum() == 2 and sorted(set(shares.k_percent.dropna())) == [10, 40]


def test_people_and_cuts(parts):
    x = Instance.from_words([[f"w{i}" for i in range(10)]], "positive", gold=Gold(tokens=[1, 8])); y = humans.last_words(x, 4)
    assert y.words == ("w6", "w7", "w8", "w9") and y.gold.tokens == {2} and humans.last_words(x, 99).words == x.words
    assert pruthi.human_rationales([y, humans.last_words(x, 1)]) == [{2}, None]
    with pytest.raises(ValueError, match="only texts with one part"): humans.last_words(Instance.from_words([["a"], ["b"]]))
    runs = run_students({"truth": [set(x.gold.tokens) for x in parts[0]]}, *parts, students=tiny[:1], sizes=[4, 8, 16], seeds=1, share=None)
    t = pruthi.human_table(runs, n_resamples=50); theirs = published("pruthi2022_table03")
    assert {tuple(r) for r in t[["learning_strategy", "n_train"]].itertuples(index=False)} == {tuple(r) for r in theirs[["learning_strategy", "n_train"]].itertuples(index=False)}
    assert np.allclose(pruthi.on_part(runs, slice(0, 6)).accuracy, [c[:6].mean() for c in runs.correct])


@pytest.mark.skipif(data_root() is None or not (data_root()/"eraser_movies").exists(), reason="needs the real data folder (eraser_movies)")
def test_movie_reviews():
    train, dev, test, where = humans.movie_reviews(30, 10, 8, words=60)
    assert len(train) == 30 and len(test) == 24 and list(where) == ["movies", "IMDb", "SST"] and max(x.n_words for x in train) <= 60
    assert sum(m is not None for m in pruthi.human_rationales(train)) >= 10


child = """
import sys, torch; torch.set_num_threads(1)
from xfeval.papers.pruthi2022 import study as pruthi
from xfeval.simulate.students import StudentConfig
from xfeval.simulate.train import Recipe
parts = pruthi.divide(pruthi.student_reviews(50), 16, 10, 24); methods = {"LIME": [set(x.gold.tokens) for x in parts[0]]}
runs = pruthi.student_grid(methods, parts, "gold", [StudentConfig("bert", dict(width=8, heads=2, inner=8), Recipe(epochs=int(sys.argv[2])), "BERT-base")], dict(attention_regularization=[16]), seeds=4, shard=2, cache=sys.argv[1])
"""


def test_a_grid_killed_from_outside_keeps_its_students(tmp_path, parts):
    p = subprocess.Popen([sys.executable, "-c", child, str(tmp_path), "12"], env=dict(os.environ, OMP_NUM_THREADS="1"))
    while p.poll() is None and len(list(tmp_path.glob("*.json"))) < 2: select_wait(p)
    p.kill(); p.wait(); kept = {f.name: f.read_bytes() for f in tmp_path.glob("*.json")}
    assert kept and all(json.loads(b)["predictions"] for b in kept.values())
    subprocess.run([sys.executable, "-c", child, str(tmp_path), "12"], check=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    again = {f.name: f.read_bytes() for f in tmp_path.glob("*.json")}
    assert len(again) == 4*4 and all(again[n] == b for n, b in kept.items())


def select_wait(p): # wait for a moment or for the end of the process
    try: p.wait(.05)
    except subprocess.TimeoutExpired: pass
