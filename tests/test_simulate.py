"Agents and students: oracles, brute force, vectorised against one by one, resuming, bad input"
import itertools, json, math
from pathlib import Path

import numpy as np
from xfeval.stats.f1 import weighted_macro_f1
from xfeval.core.utils import seed_for
import pandas as pd
import pytest
import torch
import torchcrf
from torch import nn

from xfeval.truth.corpora import generate
from xfeval.core.explanation import Explanation
from xfeval.core.text import Instance
from xfeval.truth.tiny import new_tiny
from xfeval.truth.questions import load_qa_teacher, new_qa_teacher
from xfeval.truth.teacher import judge_teacher
from xfeval.simulate import agents
from xfeval.apps import annotation as humans
from xfeval.simulate import qa
from xfeval.papers.pruthi2022 import rankings, study
from xfeval.simulate import students
from xfeval.simulate.train import Recipe, Stack, TrainJob, run_jobs, train_together
from xfeval.stats.intervals import crossed_interval

ORACLES = json.loads((Path(__file__).parent/"oracles.json").read_text())


@pytest.fixture(autouse=True)
def one_thread():
    n = torch.get_num_threads(); torch.set_num_threads(1); yield; torch.set_num_threads(n)


@pytest.fixture(scope="module")
def pair():
    return Instance.from_words(["A man plays guitar .".split(), "A person makes music .".split()])


@pytest.fixture(scope="module")
def reviews():
    return [x for x in generate("controlled-sentiment", 200, split="train") if x.meta["form"] != "negation"]


def explanations(x):
    return dict(token=Explanation.from_scores(x, {3: .9, 8: .8, 1: .1}), pair=Explanation.from_scores(x, {(3, 8): .9, (1, 6): .5}, kind="pair"),
                span=Explanation.from_scores(x, {((2, 3), (7, 8)): .7}, kind="span"))


# insertion strings, SPEC B.3
@pytest.mark.parametrize("kind, k, line", [
    ("token", 2, "A man plays < guitar > 1 . [SEP] A person makes < music > 2 ."),
    ("pair", 1, "A man plays < guitar > 1 . [SEP] A person makes < music > 1 ."),
    ("span", 1, "A man < plays guitar > 1 . [SEP] A person < makes music > 1 .")])
def test_symbol_insertion(pair, kind, k, line): assert agents.with_explanation(explanations(pair)[kind], "symbol", k).string() == line


@pytest.mark.parametrize("kind, k, tail", [("token", 2, "guitar; music"), ("pair", 2, "guitar, music; man, person"), ("span", 1, "plays guitar, makes music")])
def test_text_insertion(pair, kind, k, tail):
    a = agents.with_explanation(explanations(pair)[kind], "text", k)
    assert a.tail == tail and a.string() == "A man plays guitar . [SEP] A person makes music . [SEP] " + tail


def test_plain_and_triple(pair):
    assert agents.plain_text(pair).string() == "A man plays guitar . [SEP] A person makes music ."
    assert agents.with_explanation(explanations(pair)["token"], quotes="triple").parts[0] == "A man plays <<< guitar >>> 1 ."


def test_several_interactions(pair):
    e = Explanation.from_scores(pair, {(3, 8): .9, (3, 7): .5, (1, 7): .4}, kind="pair")
    assert agents.with_explanation(e, k=3).string() == "A < man > 3 plays < guitar > 1,2 . [SEP] A person < makes > 2,3 < music > 1 ."


@pytest.mark.parametrize("rule", ["truncate", "floor", "ceil"])
@pytest.mark.parametrize("theta", range(9))
def test_budget_shows_what_take_takes(theta, rule):
    x = Instance.from_words([list("abcd"), list("efgh")]); rng = np.random.default_rng(theta)
    for kind, items in (("pair", [(i, j) for i in range(4) for j in range(4, 8)]), ("span", [((0, 1), (4, 5)), ((1, 2), (6, 7)), ((3, 3), (5, 6))])):
        e = Explanation(x, kind, items, rng.normal(size=len(items)), "m")
        shown = {w for members in agents.chosen_units(e, theta=theta, overflow=rule) for m in members for w in m}
        assert shown == set(e.take(theta, rule))


def test_appended_text_survives(pair):
    clf = new_tiny("bert", ["a man plays guitar . person makes music < > , ; 1 2"], ["x", "y"], layers=1, width=8, heads=1, max_length=14)
    ids, types, over = agents.read_augmented(clf, agents.with_explanation(explanations(pair)["span"], "text"))
    said = clf.tokenizer.convert_ids_to_tokens(ids)
    assert len(ids) == len(types) == 14 and over == 5
    assert said == "[CLS] [SEP] a person makes music . [SEP] plays guitar , makes music [SEP]".split()
    one = Instance.from_words(["a man plays guitar . a man plays guitar . a man plays guitar .".split()])
    ids, _, over = agents.read_augmented(clf, agents.with_explanation(Explanation.from_scores(one, {2: 1., 3: .5}), "text", 2))
    assert clf.tokenizer.convert_ids_to_tokens(ids)[-5:] == "[SEP] plays ; guitar [SEP]".split() and over == 7


@pytest.mark.parametrize("arch", ["bert", "distilbert", "bart", "gpt2", "roberta"])
def test_agents_of_every_architecture(pair, arch):
    clf = new_tiny(arch, [" ".join(p) for p in pair.parts], ["x", "y", "z"], layers=1, width=16, heads=2, max_length=40)
    a = agents.new_agent(clf, start=clf, together=True); a.model.load_state_dict(clf.model.state_dict())
    ids, types, _ = agents.read_augmented(clf, agents.plain_text(pair))
    got = a(torch.tensor([ids]), torch.tensor([types]), torch.ones(1, len(ids), dtype=torch.bool))
    b = clf.batch([clf.encode(Instance.from_words([list(p) for p in pair.parts]).replace(texts=agents.plain_text(pair).parts, offsets=[_offsets(p) for p in pair.parts]))])
    with torch.no_grad(): want = clf.forward(b)
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    stack = Stack([agents.new_agent(clf, s, together=True) for s in (0, 1)])
    t = dict(ids=torch.tensor([[ids]]*2), types=torch.tensor([[types]]*2), mask=torch.ones(2, 1, len(ids), dtype=torch.bool))
    both = stack.call(lambda call, b: call(b["ids"], b["types"], b["mask"]), t)
    for s in (0, 1): torch.testing.assert_close(both[s], agents.new_agent(clf, s)(t["ids"][s], t["types"][s], t["mask"][s]), atol=1e-5, rtol=1e-4)


def _offsets(words):
    ends = np.cumsum([len(w)+1 for w in words])
    return [(int(e)-len(w)-1, int(e)-1) for w, e in zip(words, ends)]


def test_macro_f1_and_table():
    from sklearn.metrics import f1_score
    rng = np.random.default_rng(0); y = rng.integers(0, 3, 40); rows = []
    for kind, method, keep in (("none", "none", .3), ("span", "a", .7), ("span", "trivial", .9)):
        for s in range(3):
            p = np.where(rng.random(40) < keep, y, rng.integers(0, 3, 40)); rows.append(dict(kind=kind, method=method, seed=s, sf=agents.macro_f1(y, p), predicted=p, said=y))
            assert agents.macro_f1(y, p) == pytest.approx(f1_score(y, p, average="macro"))
    df = pd.DataFrame(rows); t = agents.agent_table(df).set_index("method")
    assert t.rsf["a"] == pytest.approx(t.sf["a"]-t.sf["none"]) and t.share_of_trivial["a"] == pytest.approx(t.rsf["a"]/t.rsf["trivial"])
    one = weighted_macro_f1(y, np.stack(df.predicted[:3].tolist()), 3, np.full((1, 40), 1/40))
    assert one[0] == pytest.approx(df.sf[:3].to_numpy())


def test_agents_complain(pair):
    clf = new_tiny("bert", ["a man plays guitar"], ["x", "y"], layers=1, width=8, heads=1)
    e = explanations(pair)
    with pytest.raises(ValueError, match="no span explanation with base"): agents.run_agents(clf, [e["pair"]])
    with pytest.raises(ValueError, match="did you mean 'symbol'"): agents.run_agents(clf, [e["span"]], form="symbl")
    with pytest.raises(ValueError, match="two span explanations"): agents.run_agents(clf, [e["span"]]*2)
    with pytest.raises(ValueError, match="a part would be empty"): agents.run_agents(clf, [e["span"]])
    other = Explanation.from_scores(Instance.from_words([["a"], ["b"]]), {(0, 1): 1.}, kind="pair")
    with pytest.raises(ValueError, match="missing for 1 of 2"): agents.run_agents(clf, [e["span"], other])


def test_trivial_explanations(pair):
    assert agents.trivial_explanation(pair, 0, "token", 2).items == (0, 1) and agents.trivial_explanation(pair, 1, "token", 2).items == (2, 3)
    assert agents.trivial_explanation(pair, 9, "token", 2).items == (8, 9)
    for kind, theta in itertools.product(("token", "pair", "span"), range(2, 7)):
        assert agents.trivial_explanation(pair, 1, kind, theta).theta(99) == theta


# losses, SPEC B.10
def test_kl_and_gradient():
    t = students.explanation_attention(torch.tensor([0., 1, 1, 0], dtype=torch.float64), torch.ones(4, dtype=torch.bool))
    z = torch.tensor([.3, -.2, .5, 0.], dtype=torch.float64, requires_grad=True)
    s = torch.tensor([.1, .4, .4, .1], dtype=torch.float64)
    assert students.attention_kl(t, s).item() == pytest.approx(ORACLES["kl_exp_student"], abs=1e-6) == pytest.approx(.223143, abs=1e-6)
    assert students.attention_kl(s, t).item() == pytest.approx(ORACLES["kl_student_exp"], abs=1e-4)
    g, = torch.autograd.grad(students.attention_kl(t, z.softmax(-1)), z)
    torch.testing.assert_close(g, (z.softmax(-1)-t).detach(), atol=1e-9, rtol=0)
    assert torch.autograd.gradcheck(lambda z: students.attention_kl(t, z.softmax(-1)), z)


def test_attention_ignores_padding():
    content = torch.tensor([False, True, True, True, False])
    t = students.explanation_attention(torch.tensor([1., 0, 1, 0, 1]), content)
    assert t[~content].sum() == 0 and t.sum().item() == pytest.approx(1) and t[2] > .999


def test_crf_oracle():
    crf = torchcrf.CRF(2, batch_first=True)
    with torch.no_grad(): crf.start_transitions.zero_(); crf.end_transitions.zero_(); crf.transitions.copy_(torch.tensor([[.5, -.5], [-.5, .5]]))
    E, m = torch.tensor([[[1., 0.], [0., 2.]]]), torch.ones(1, 2, dtype=torch.bool)
    assert students.crf_log_partition(E, m, crf.start_transitions, crf.transitions, crf.end_transitions).item() == pytest.approx(3.382803, abs=1e-6)
    assert students.crf_nll(crf, E, torch.tensor([[0, 1]]), m).item() == pytest.approx(.882803, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_crf_brute_force(n):
    torch.manual_seed(n); crf = torchcrf.CRF(2, batch_first=True).double()
    for p in crf.parameters(): nn.init.normal_(p)
    E = torch.randn(1, 9, 2, dtype=torch.float64); mask = (torch.arange(9) < n)[None]; tags = torch.randint(0, 2, (1, 9))
    def score(path): return (crf.start_transitions[path[0]] + crf.end_transitions[path[-1]] + sum(E[0, i, t] for i, t in enumerate(path)) + sum(crf.transitions[a, b] for a, b in zip(path, path[1:]))).item()
    Z = math.log(sum(math.exp(score(p)) for p in itertools.product((0, 1), repeat=n)))
    assert students.crf_nll(crf, E, tags, mask).item() == pytest.approx(Z-score(tags[0, :n].tolist()), abs=1e-9)
    assert students.crf_nll(crf, E, tags, mask).item() == pytest.approx(-crf(E, tags, mask).item(), abs=1e-9)


def test_alignment_loss():
    A = torch.zeros(1, 2, 4, 4); A[0, 0, 0] = torch.tensor([.5, 0, .2, .3]); A[0, 1, 0] = torch.tensor([.8, 0, .1, .1])
    phi, pi = torch.tensor([[[1., 0, 0, 0], [0, 0, 0, 0]]]), torch.tensor([[[0, 0, 1., 1], [0, 0, 0, 0]]])
    assert qa.alignment_loss(A, phi, pi).item() == pytest.approx(ORACLES["qa_align_loss"], abs=1e-6) == pytest.approx(1.049822, abs=1e-6)


def test_answer_f1():
    assert qa.answer_f1("the gravity falls show", "gravity falls") == pytest.approx(.8)
    assert qa.answer_f1("", "") == 1 and qa.answer_f1("", "x") == 0 and qa.answer_f1("The", "a") == 1


def test_best_span_against_enumeration():
    E = torch.tensor(np.random.default_rng(0).normal(size=(20, 7, 2)))
    for e, got in zip(E, qa.best_span(E, longest=3).tolist()):
        assert tuple(got) == max(((a, b) for a in range(7) for b in range(a, min(7, a+3))), key=lambda s: e[s[0], 0] + e[s[1], 1])


# selection and controls
def test_selection():
    x = Instance.from_words([[f"w{i}" for i in range(25)]]); e = Explanation.from_scores(x, np.arange(25.))
    assert [len(students.select_words(e, x, k)) for k in (.01, .05, .1, .2, .4, 1)] == [max(1, round(k*25)) for k in (.01, .05, .1, .2, .4, 1)]
    assert students.select_words(e, x, .2) == {20, 21, 22, 23, 24}
    with pytest.raises(ValueError, match="was given for instance"): students.select_words(e, Instance.from_text("another text"))


def test_trivial_blocks():
    x = Instance.from_words([[f"w{i}" for i in range(20)]])
    assert students.trivial_words(x, 0) == {0, 1} and students.trivial_words(x, 1) == {2, 3} and students.trivial_words(x, 50) == {18, 19}
    shown = students.with_controls({}, [x, x], ["negative", "positive"], ["negative", "positive"])
    assert shown["trivial"] == [{2, 3}, {0, 1}] and shown["none"] == [None, None] and len(shown["random"][0]) == 2


# ranks
def test_average_ranks():
    acc = dict(none=(91.5, 92.6), A=(93.9, 95.2), B=(92.6, 93.6), C=(91.5, 92.4))
    df = pd.DataFrame([dict(method=m, student="s", strategy="t", n_train=n, accuracy=a) for m, r in acc.items() for n, a in zip((1, 2), r)])
    assert rankings.average_ranks(df)["s/t"].tolist() == list(ORACLES["avg_ranks"].values()) == [3.25, 1, 2, 3.75]


def test_published_taus():
    tau = rankings.rank_tau(rankings.published_ranks())
    assert tau.loc["BiLSTM+Attention/AR", "BiLSTM+Attention/MTL"] == pytest.approx(.886, abs=1e-3)
    assert tau.loc["BiLSTM/MTL", "ERASER/sufficiency"] == pytest.approx(.761, abs=1e-3)
    assert tau.loc["BERT-base/AR", "BiLSTM+Attention/MTL"] == pytest.approx(.75, abs=.006)
    assert tau.loc["BERT-large/AR", "ERASER/sufficiency"] == pytest.approx(.057, abs=1e-3) and tau.loc["BERT-large/AR", "ERASER/comprehensiveness"] == pytest.approx(.343, abs=1e-3)
    pub = rankings.tau_against_published()
    assert (pub.agree.sum(), len(pub)) == (25, 36)
    wrong = pub[~pub.agree]; wrong = set(zip(wrong.row_setting, wrong.col_setting))
    assert all(s in wrong for s in itertools.product(["BERT-large/MTL"], ["BiLSTM/MTL", "ERASER/sufficiency"]) if s in set(zip(pub.row_setting, pub.col_setting)))


def test_published_ranks_follow_from_accuracies():
    for name, slack in (("05", 1.), ("06", .5)):
        t = rankings._published(f"table{name}").rename(columns=dict(learning_strategy="strategy", sim_accuracy_percent="accuracy"))
        ours = rankings.average_ranks(t).stack(); r = rankings._published(f"table{name}_ranks")
        for m, s, g, v in r.itertuples(index=False): assert abs(ours[m, f"{s}/{g}"]-float(v)) <= slack


def test_gains_and_headline():
    rng, rows = np.random.default_rng(0), []
    for s in range(3):
        base = (rng.random(300) < .6).astype(float)
        for m, flip in (("none", 0), ("good", .5), ("bad", -.5)):
            c = base.copy(); pick = rng.random(300) < abs(flip); c[pick & (base == (flip < 0))] = flip > 0
            rows.append(dict(method=m, student="s", strategy="t", n_train=1, seed=s, accuracy=c.mean(), correct=c))
    df = pd.DataFrame(rows)
    for test in ("bootstrap", "mcnemar"):
        t = rankings.gain_table(df, test, n_resamples=2000).set_index("method")
        assert t.gain["good"] > 0 > t.gain["bad"] and t.significant[["good", "bad"]].all() and not t.significant["none"]
    h = rankings.headline(df).set_index("method")
    assert h.low["good"] > 0 > h.high["bad"] and h.gain["good"] == pytest.approx(t.gain["good"])
    with pytest.raises(ValueError, match="allowed are bootstrap, mcnemar"): rankings.gain_table(df, "t-test")


def test_crossed_interval_covers():
    rng = np.random.default_rng(0); hit = 0
    for i in range(60):
        v = rng.normal(size=(8, 1))*.5 + rng.normal(size=(1, 40)) + rng.normal(size=(8, 40))
        lo, hi = crossed_interval(v, n=400, seed=i); hit += lo <= 0 <= hi
    assert hit >= 50


# training
def net(seed, d=5):
    with torch.random.fork_rng(): torch.manual_seed(seed); return nn.Sequential(nn.Linear(d, 6), nn.Tanh(), nn.Linear(6, 2))


def task(n, seed):
    x = np.random.default_rng(seed).normal(size=(n, 5)); return dict(x=torch.tensor(x, dtype=torch.float32), y=torch.tensor((x[:, 0]*x[:, 1] > 0).astype(int)))


LOSS = lambda call, b: nn.functional.cross_entropy(call(b["x"]), b["y"])
GUESS = lambda call, b: call(b["x"]).argmax(-1)
SCORE = lambda p, d: float((p == d["y"].numpy()).mean())


@pytest.mark.parametrize("select", ["best", "last"])
def test_together_equals_one_by_one(select):
    data, dev, r = [task(37, i//2) for i in range(4)], task(30, 9), Recipe(5, 8, lr=.02, select=select)
    all_, info = train_together([net(s) for s in range(4)], data, LOSS, range(4), r, [dev]*4, GUESS, SCORE)
    for s in range(4):
        one, i = train_together([net(s)], [data[s]], LOSS, [s], r, [dev], GUESS, SCORE, together=False)
        assert i[0] == info[s]
        for k in all_.params: torch.testing.assert_close(all_.params[k][s], one.params[k][0], atol=1e-5, rtol=1e-4)


def test_batches_of_similar_length_hold_every_example_once():
    from xfeval.simulate.train import _orders
    lengths = np.random.default_rng(0).integers(3, 40, 203)
    d = dict(mask=torch.arange(40) < torch.tensor(lengths)[:, None])
    both = _orders(0, d, Recipe(epochs=2, batch=8), ("mask",))
    batches, again = both[:26], both[26:]
    assert [len(b) for b in batches] == [len(b) for b in again] == [8]*25 + [3]
    assert sorted(np.concatenate(batches)) == sorted(np.concatenate(again)) == list(range(203))
    padded = sum(len(b)*lengths[b].max() for b in batches)
    plain = sum(len(b)*lengths[b].max() for b in np.split(np.arange(203), range(8, 203, 8)))
    assert padded < .85*plain
    assert {frozenset(b.tolist()) for b in batches}.isdisjoint(frozenset(b.tolist()) for b in again)


def test_one_by_one_equals_plain_torch():
    data, r = task(40, 0), Recipe(3, 8, lr=.02, select="last", clip=.5); stack, _ = train_together([net(0)], [data], LOSS, [7], r)
    m = net(0); opt = torch.optim.AdamW(m.parameters(), lr=r.lr, weight_decay=r.decay); rng = np.random.default_rng(seed_for(7, "order of examples")); step = 0
    for _ in range(3):
        o = torch.tensor(rng.permutation(40))
        for i in range(0, 40, 8):
            opt.param_groups[0]["lr"] = r.lr*r.rate(step, 15); opt.zero_grad()
            nn.functional.cross_entropy(m(data["x"][o[i:i+8]]), data["y"][o[i:i+8]]).backward(); nn.utils.clip_grad_norm_(m.parameters(), .5); opt.step(); step += 1
    for k, v in m.named_parameters(): torch.testing.assert_close(stack.params[k][0], v.detach(), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name, options", [
    ("bert", dict(width=8, heads=2, inner=8)), ("bilstm", dict(width=6, hidden=5)),
    ("bilstm_attention", dict(width=6, hidden=5)), ("bag", dict(width=6))])
@pytest.mark.parametrize("strategy", students.strategies)
def test_students_together(reviews, name, options, strategy):
    c = students.StudentConfig(name, options)
    if not c.attends and strategy != "multitask": return
    x = reviews[:6]; v = c.reader(x); b = dict(v.read(x), y=torch.tensor([0, 1]*3), **students.shown_tensors([set(i.gold.tokens) for i in x], x, v.read(x)))
    nets = [c.new(v, 2, s) for s in range(3)]; stack = Stack(nets); loss = students.student_loss(strategy)
    for p in stack.params.values(): p.requires_grad_()
    L = stack.call(loss, {k: torch.stack([t]*3) for k, t in b.items()}); L.sum().backward()
    for s, m in enumerate(nets):
        l = loss(m, b); l.backward(); assert l.item() == pytest.approx(L[s].item(), abs=1e-5)
        for k, p in m.named_parameters():
            g = stack.params[k].grad
            if p.grad is not None: torch.testing.assert_close(g[s], p.grad, atol=1e-5, rtol=1e-3)
            else: assert g is None or not g[s].any()


def test_padding_does_not_matter(reviews):
    long, short = max(reviews[:20], key=lambda x: x.n_words), min(reviews[:20], key=lambda x: x.n_words)
    for name in students.students:
        c = students.StudentConfig(name); v = c.reader([long]); m = c.new(v, 2, 0); t = v.read([short]); n = int(t["mask"].sum())
        a, b = (m(*(u[k] for k in ("ids", "part", "mask", "content")), tags=torch.zeros_like(u["ids"])) for u in (t, {k: w[:, :n] for k, w in t.items()}))
        torch.testing.assert_close(a[0], b[0], atol=1e-5, rtol=1e-4); torch.testing.assert_close(a[2], b[2], atol=1e-4, rtol=1e-4)


def test_killed_grid_resumes(tmp_path, reviews, monkeypatch):
    truth = {"truth": [set(x.gold.tokens) for x in reviews[:24]]}
    args = (truth, reviews[:24], reviews[24:36], reviews[36:56]); kw = dict(students=[("bert", dict(width=8, heads=2, inner=8))], strategies=["attention_regularization"], seeds=2, recipe=Recipe(epochs=1), shard=2)
    whole = students.run_students(*args, **kw)
    real, calls = students.teach, []
    def dies(jobs):
        calls.append(len(jobs))
        if len(calls) == 3: raise KeyboardInterrupt
        return real(jobs)
    monkeypatch.setattr(students, "teach", dies)
    with pytest.raises(KeyboardInterrupt): students.run_students(*args, cache=tmp_path, **kw)
    kept = {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("*.json")}
    assert len(kept) == 4
    monkeypatch.setattr(students, "teach", lambda jobs: calls.append(len(jobs)) or real(jobs)); calls.clear()
    again = students.run_students(*args, cache=tmp_path, **kw)
    assert sum(calls) == 4 and all((tmp_path/n).stat().st_mtime_ns == t for n, t in kept.items())
    assert again.accuracy.tolist() == whole.accuracy.tolist() and all(np.array_equal(a, b) for a, b in zip(again.correct, whole.correct))
    calls.clear(); students.run_students(*args, cache=tmp_path, **dict(kw, recipe=Recipe(epochs=1, lr=1e-4))); assert sum(calls) == 8


def test_broken_record_is_trained_again(tmp_path):
    jobs, train = [TrainJob("a", "s", dict(n=1))], lambda jobs: [dict(n=2)]
    run_jobs(jobs, train, tmp_path)
    record, = tmp_path.glob("*.json")
    record.write_text('{"n": ')
    assert run_jobs(jobs, train, tmp_path) == {"a": {"n": 2}} == {"a": json.loads(record.read_text())}


def test_threads_give_the_same(reviews):
    kw = dict(students=[("bilstm_attention", dict(width=6, hidden=5))], strategies=["multitask"], seeds=2, recipe=Recipe(epochs=1), shard=2)
    a, b = (students.run_students({}, reviews[:16], reviews[16:24], reviews[24:40], threads=t, **kw) for t in (1, 2))
    assert a.accuracy.tolist() == b.accuracy.tolist()


def test_students_complain(reviews):
    d = reviews[:4], reviews[4:8], reviews[8:12]
    with pytest.raises(ValueError, match="did you mean 'bilstm_attention'"): students.run_students({}, *d, students=["bilstm+attention"])
    with pytest.raises(ValueError, match="allowed are attention_regularization, multitask"): students.run_students({}, *d, strategies=["distillation"])
    with pytest.raises(ValueError, match="3 explanations for 4 training texts"): students.run_students({"a": [{0}]*3}, *d)
    with pytest.raises(ValueError, match="controls must contain 'none'"): students.run_students({}, *d, controls=["random"])
    with pytest.raises(ValueError, match="allowed are gold"): students.run_students({}, *d, teacher="golden")
    with pytest.raises(ValueError, match="the whole vector needs scores"): students.run_students({"a": [{0}]*4}, *d, whole=True)
    with pytest.raises(ValueError, match="sign"): students.student_loss("attention_regularization", sign="minus")


def test_printed_sign_pushes_away(reviews):
    x = reviews[:16]; c = students.StudentConfig("bilstm_attention", dict(width=8, hidden=8)); v = c.reader(x); t = v.read(x)
    b = dict(t, y=torch.zeros(16, dtype=torch.long), **students.shown_tensors([set(i.gold.tokens) for i in x], x, t))
    def on_rationale(net): return (net(b["ids"], b["part"], b["mask"], b["content"])[1]*b["tags"]).sum(-1).mean().item()
    def trained(sign):
        loss, net = students.student_loss("attention_regularization", sign=sign), c.new(v, 2, 0)
        recipe = Recipe(20, 8, lr=.02, select="last")
        stack, _ = train_together([net], [b], loss, [0], recipe, seq=students._seq)
        net.load_state_dict({k: p[0] for k, p in stack.params.items()})
        return net
    assert on_rationale(trained("plus")) > 3*on_rationale(c.new(v, 2, 0)) and on_rationale(c.new(v, 2, 0)) > 3*on_rationale(trained("printed"))


# question answering
def test_qa_grid_and_teacher(tmp_path):
    d = generate("controlled-qa", 40, split="train", distractors=0); kw = dict(seeds=2, recipe=Recipe(epochs=1), options=dict(width=8, heads=2, inner=8))
    a = qa.run_qa_students(d[:16], d[16:24], d[24:], cache=tmp_path, **kw); n = len(list(tmp_path.glob("*.json")))
    assert n == 8 == len(a) and qa.run_qa_students(d[:16], d[16:24], d[24:], cache=tmp_path, **kw).f1.tolist() == a.f1.tolist()
    b = qa.run_qa_students(d[:16], d[16:24], d[24:], together=False, **kw)
    assert b.f1.tolist() == a.f1.tolist() and (qa.qa_table(a).gain[0] == 0)
    t = load_qa_teacher()
    c = qa.run_qa_students(d[:16], d[16:24], d[24:], t, strategies=("none", "attention_alignment"), **dict(kw, seeds=1))
    assert set(c.strategy) == {"none", "attention_alignment"}


def test_qed_answers():
    x = Instance.from_words([["who", "?"], ["anna", "won", "it"]], meta=dict(answer_words=[2]))
    assert qa.answer_span(x) == (2, 2) and qa.equalities(x) == []
    none = x.replace(meta={}, id="no answer")
    assert qa.answerable([none, x]) == [x]
    with pytest.raises(ValueError, match="1 texts have no answer, 'no answer'"): qa.run_qa_students([x], [x], [none])
    with pytest.raises(ValueError, match="allowed are none, attention_regularization"): qa.qa_loss("alignment")


# people
def test_human_kit(tmp_path):
    xs = [Instance.from_words([f"review <b> {i} & so on".split()], "positive" if i % 2 else "negative", id=f'r{i}"<') for i in range(80)]
    said = ["positive" if (i % 2) != (i % 3 == 0) else "negative" for i in range(80)]
    plan = humans.study_plan(xs, said)
    assert plan["explained_errors"] in (18, 19, 20) and len(plan["explained"]) == 40 and len(plan["test"]) == 20 and not set(plan["explained"]) & set(plan["test"])
    key = humans.write_study(tmp_path, xs, said, dict(a=[{0}]*80, b=[{1}]*80, c=[{2}]*80), ["positive", "negative"], workers=4)
    pages = [p.read_text() for p in (tmp_path/"sheets").iterdir()]
    assert len(pages) == 12 and all(p.count("<article>") == 60 and p.count("<fieldset") == 20 and "<b>" not in p and p.count("<mark>") == 40 for p in pages)
    assert json.loads((tmp_path/"key.json").read_text())["truth"] == key["truth"]
    humans.simulate_workers(tmp_path/"answers", key, dict(a=.95, b=.5, c=.5), spread=0.)
    answers = humans.read_answers(tmp_path/"answers", key); t = study.cohort_table(answers).set_index("cohort")
    assert list(t.index) == ["a", "b", "c"] and t.accuracy["a"] > t.accuracy["b"] and t.simulated.all() and (t.workers == 4).all()
    for test in ("welch", "mannwhitney"): assert len(study.compare_cohorts(answers, test)) == 3
    one = next((tmp_path/"answers").iterdir()); d = json.loads(one.read_text()); d["answers"].popitem(); one.write_text(json.dumps(d))
    with pytest.raises(ValueError, match="lacks answers for 1 texts"): humans.read_answers(tmp_path/"answers", key)


def test_published_study(): assert study.published_study().set_index("claim").value["crowd simulation accuracy, random"] == 75


def small_nli(n=40):
    "Texts, a tiny untrained model, and the true spans as explanations"
    xs = generate("controlled-nli", n, split="train")
    labels = ["entailment", "neutral", "contradiction"]
    words = [t for x in xs for t in x.texts] + ["< > , ; 1 2 3"]
    clf = new_tiny("bert", words, labels, layers=2, width=16, heads=2, max_length=80)
    def spans(x): return sorted(x.gold.spans)
    ex = [Explanation(x, "span", spans(x), np.arange(len(spans(x)), 0, -1.), "truth", base="truth") for x in xs]
    return xs, clf, ex


def test_two_runs_with_one_seed_give_the_same_table(reviews):
    truth = {"truth": [set(x.gold.tokens) for x in reviews[:24]]}
    parts = reviews[:24], reviews[24:36], reviews[36:56]
    kw = dict(students=[("bert", dict(width=8, heads=2, inner=8)), ("bag", {})], seeds=2, recipe=Recipe(epochs=1))
    one, two = (rankings.gain_table(students.run_students(truth, *parts, **kw), n_resamples=200) for _ in range(2))
    assert one.to_csv() == two.to_csv()
    _, clf, ex = small_nli()
    how = dict(teacher="gold", seeds=2, trivial=False, recipe=Recipe(epochs=1), shares=(.5, .2, .3))
    one, two = (agents.agent_table(agents.run_agents(clf, ex, **how), n_resamples=100) for _ in range(2))
    assert one.to_csv() == two.to_csv()


def test_killed_agents_resume(tmp_path, monkeypatch):
    _, clf, ex = small_nli()
    how = dict(teacher="gold", seeds=2, trivial=False, recipe=Recipe(epochs=1), shares=(.5, .2, .3))
    whole, real, trained = agents.run_agents(clf, ex, **how), agents._train_agents, []
    def dies(jobs):
        if len(trained) == 3: raise KeyboardInterrupt
        trained.extend(jobs)
        return real(jobs)
    monkeypatch.setattr(agents, "_train_agents", dies)
    with pytest.raises(KeyboardInterrupt): agents.run_agents(clf, ex, cache=tmp_path, **how)
    kept = {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("*.json")}
    assert len(kept) == 3
    trained.clear()
    again = agents.run_agents(clf, ex, cache=tmp_path, **how)
    assert len(trained) == 1 and all((tmp_path/n).stat().st_mtime_ns == t for n, t in kept.items())
    assert again.sf.tolist() == whole.sf.tolist()


def test_frozen_parameters_stay(pair):
    _, clf, _ = small_nli()
    names = [k for k, _ in clf.model.base_model.named_parameters() if "layer.0" in k or "embeddings" in k]
    other = agents.new_agent(clf, 5).clf
    assert agents.same_weights(clf, clf) and len(agents.same_weights(other, clf)) < len(agents.same_weights(clf, clf))
    agent = agents.new_agent(clf, 0, start=clf, frozen=names)
    ids, types, _ = agents.read_augmented(clf, agents.plain_text(pair))
    data = dict(ids=torch.tensor([ids]*8), types=torch.tensor([types]*8), mask=torch.ones(8, len(ids), dtype=torch.bool),
                y=torch.tensor([0, 1]*4))
    recipe = Recipe(epochs=2, batch=4, select="last")
    stack, _ = train_together([agent], [data], agents._agent_loss, [0], recipe, seq=agents._agent_seq, together=False)
    before = dict(clf.model.base_model.named_parameters())
    after = agent.model.base_model_prefix
    moved = {k for k in before if not torch.equal(before[k], stack.params[f"model.{after}.{k}"][0])}
    assert moved and not moved & set(names)
    with pytest.raises(ValueError, match="parameter to freeze"): agents.new_agent(clf, frozen=["layer"])


def test_agents_without_explanations():
    xs, clf, ex = small_nli()
    how = dict(teacher="gold", seeds=1, recipe=Recipe(epochs=1), shares=(.5, .2, .3))
    alone = agents.run_agents(clf, [], texts=xs, **how)
    beside = agents.run_agents(clf, ex, trivial=False, **how)
    assert alone.kind.tolist() == ["none"] and alone.sf[0] == beside.sf[0]


def test_tables_4_and_7_learn_from_different_explanations():
    teacher = load_qa_teacher()
    texts = generate("controlled-qa", 30, seed=7, split="test", distractors=0)
    gold, predicted = qa._taught("gold", [texts])[0], qa._taught(teacher, [texts])[0]
    assert gold == ([qa.answer_span(x) for x in texts], [qa.equalities(x) for x in texts])
    assert predicted == teacher.teach(texts)
    assert judge_teacher(teacher, texts)["equalities_found"] > 90
    untaught = new_qa_teacher([t for x in texts for t in x.texts], layers=1, width=16, heads=2)
    assert qa._taught(untaught, [texts])[0] == untaught.teach(texts) and untaught.teach(texts)[1] != gold[1]
