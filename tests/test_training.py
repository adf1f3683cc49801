"Training: arrays, masking, schedule, records, differences to a base"
import json
import numpy as np
import pytest
import torch

from xfeval.core import Gold, Instance
from xfeval.models import load_model, new_tiny, value_of
from xfeval.training import accuracy, augment, fit, save_delta, shares, tabulate, _slice, _windows

torch.set_num_threads(1)
LABELS = ["same", "other"]

def toy(n, seed):
    rng = np.random.default_rng(seed); colours, things = ["red", "blue", "green"], ["car", "hat", "door", "boat"]; out = []
    for i in range(n):
        a = rng.choice(colours); b = a if rng.random() < .5 else rng.choice([c for c in colours if c != a]); t = rng.choice(things)
        out.append(Instance.from_words([["the", t, "is", a] + ["today"]*int(rng.integers(0, 4)), ["a", b, t]], label=LABELS[int(a != b)], id=f"{seed}-{i}"))
    return [x.replace(gold=Gold(tokens={3, x.sizes[0]+1})) for x in out]

TRAIN, DEV = toy(1500, 0), toy(150, 1)
def tiny(arch="bert", **kw): return new_tiny(arch, [t for x in TRAIN[:60] for t in x.texts] + ["today"], LABELS, **{**dict(init="matching", width=32), **kw})

def weights(c): return torch.cat([p.detach().flatten() for p in c.model.parameters()])

def test_table_is_what_the_classifier_reads():
    c = tiny(); xs = [*TRAIN[:5], TRAIN[5].replace(gold=None), TRAIN[6].replace(gold=Gold(tokens=()))]; t = tabulate(c, xs)
    for i, (x, e) in enumerate(zip(xs, c.encode_all(xs))):
        n = t.lengths[i]; assert t.ids[i, :n].tolist() == e.ids.tolist() and t.slot[i, :n].tolist() == e.slot.tolist() and (t.ids[i, n:] == c.pad_id).all()
        if i < 5: assert e.players[np.flatnonzero(t.gold[i])].tolist() == sorted(x.gold.tokens)
    assert t.known.tolist() == [True]*5 + [False]*2
    cut = tabulate(tiny(max_length=9), [Instance.from_words([["the", "car", "is", "red"]*3, ["a", "red", "car"]], label="same", gold=Gold(tokens={11, 13}))])
    assert not cut.known[0]
    with pytest.raises(ValueError, match="'0-0' has no label"): tabulate(c, [TRAIN[0].replace(label=None)])
    with pytest.raises(ValueError, match="unknown label.*'sama'.*did you mean 'same'"): tabulate(c, [TRAIN[0].replace(label="sama")])

@pytest.mark.parametrize("absent", ["mask", "pad", "delete", "zero_embedding"])
def test_a_slice_is_a_batch(absent):
    for arch in ("bert", "gpt2"):
        c = tiny(arch, init="lively"); t = tabulate(c, TRAIN[:8]); encs = c.encode_all(TRAIN[:8]); rng = np.random.default_rng(0); keep = rng.random(t.gold.shape) < .6; ix = np.array([3, 0, 7])
        with torch.no_grad(): z = c.forward(_slice(c, t, ix, keep[ix], absent)).numpy()
        assert np.allclose(z, c.logits([encs[i] for i in ix], [keep[i, :len(encs[i].players)] for i in ix], absent), atol=1e-5)

def test_masking_and_its_targets():
    rng = np.random.default_rng(0); gold = rng.random((400, 6)) < .4; gold[:, 0] = True; known = np.arange(400) % 4 > 0
    k, u = augment(rng, gold, known, shares({"keep_gold": 1.})); assert (k[known] == gold[known]).all() and k[~known].all() and not u.any()
    k, u = augment(rng, gold, known, shares({"mask_others": 1.})); assert (k | ~gold).all() and not k[known].all() and not u.any()
    k, u = augment(rng, gold, known, shares({"mask_gold": 1.})); assert (k[known] == ~gold[known]).all() and (u == known).all()
    k, u = augment(rng, gold, known, shares({"subset": 1.})); assert ((gold & ~k).any(1) == u).all() and 0 < u[known].mean() < 1 and not u[~known].any()
    k, u = augment(rng, gold, known, shares(.2)); assert .2 < (~k).any(1)[known].mean() < .5
    k, u = augment(rng, gold, known, shares(None)); assert k.all() and not u.any()

def test_shares_are_checked():
    assert shares(.4) == dict(keep_gold=.4, mask_others=.2, mask_gold=.1, subset=.2)
    with pytest.raises(ValueError, match="add up to at most 1"): shares(.5)
    with pytest.raises(ValueError, match="unknown way of masking 'keepgold'.*did you mean 'keep_gold'"): shares({"keepgold": .1})

def test_windows_cover_everything_once_and_are_similar_in_length():
    n = np.random.default_rng(0).integers(1, 100, 1000); b = _windows(np.random.default_rng(0), n, 16, 20)
    assert sorted(np.concatenate(b)) == list(range(1000)) and np.mean([np.ptp(n[i]) for i in b]) < 10

@pytest.mark.parametrize("arch", ["bert", "bart", "gpt2"])
def test_learns_and_answers_masked_text(arch):
    c = tiny(arch); assert accuracy(c, DEV) < .75
    r = fit(c, TRAIN, DEV, epochs=4, lr=2e-3, mask_augment=.3, absent=("mask", "delete"))
    assert r["history"][-1]["accuracy"] > .95 and c.rows == 0 and not c.model.training
    es = c.encode_all(DEV); y = [c.index(x.label) for x in DEV]; gold = [np.isin(e.players, list(x.gold.tokens)) for e, x in zip(es, DEV)]
    for absent in ("mask", "delete"):
        assert value_of(c.logits(es, gold, absent), "prob_top", y).mean() > .85
        assert abs(value_of(c.logits(es, [~g for g in gold], absent), "prob_top", y).mean() - .5) < .15

def test_seeds():
    def run(seed):
        c = tiny(); state = torch.random.get_rng_state(); fit(c, TRAIN[:150], seed=seed, mask_augment=.2); assert torch.equal(state, torch.random.get_rng_state())
        return weights(c)
    a, b, other = run(0), run(0), run(1); assert torch.equal(a, b) and not torch.allclose(a, other)

def test_frozen_parameters_stay():
    c = tiny(); old = {n: p.detach().clone() for n, p in c.model.named_parameters()}; fit(c, TRAIN[:100], freeze=["embeddings", r"layer\.0\."])
    for n, p in c.model.named_parameters(): assert torch.equal(p, old[n]) == ("embeddings" in n or "layer.0." in n or torch.equal(p*0, p)) and p.requires_grad
    with pytest.raises(ValueError, match="'layer.9' fits no parameter"): fit(c, TRAIN[:10], freeze=["layer.9"])

def test_early_stopping_returns_to_the_best(monkeypatch):
    import xfeval.training as tr
    c = tiny(); seen = []; given = iter([.5, .9, .8, .7, 1.])
    def fake(clf, data, batch=128): seen.append(weights(clf)); return next(given)
    monkeypatch.setattr(tr, "accuracy", fake); r = tr.fit(c, TRAIN[:320], DEV, batch=32, eval_every=2, early_stopping=2)
    assert len(seen) == 4 and r["best_step"] == 4 and r["steps"] == 8 and torch.equal(weights(c), seen[1]) and not torch.equal(seen[3], seen[1])
    with pytest.raises(ValueError, match="needs dev"): fit(c, TRAIN[:10], early_stopping=2)

def test_stages_follow_one_another():
    c = tiny(); r = fit(c, [TRAIN[:64], TRAIN[64:192]], epochs=2, batch=32); assert r["n_train"] == [64, 128] and r["steps"] == 12

def test_record_is_json_and_saved(tmp_path):
    c = tiny(); r = fit(c, TRAIN[:64], DEV[:20], seed=5); fit(c, TRAIN[:64], seed=6)
    assert json.loads(json.dumps(r)) == r and r["seed"] == 5 and r["n_dev"] == 20
    again = load_model(c.save(tmp_path/"m", card=dict(note="x"))); assert [t["seed"] for t in again.card["training"]] == [5, 6] and again.card["note"] == "x" and again.card["training"][1]["weights"] == again.fingerprint

def test_refusals():
    c = tiny()
    with pytest.raises(ValueError, match="nothing to train on"): fit(c, [])
    with pytest.raises(ValueError, match="no training instance has any"): fit(c, [x.replace(gold=None) for x in TRAIN[:5]], mask_augment=.2)
    with pytest.raises(ValueError, match="unknown absence 'masked'"): fit(c, TRAIN[:5], absent="masked")
    with torch.no_grad(): c.model.classifier.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="loss became nan"): fit(c, TRAIN[:5])
    assert not c.model.training

@pytest.mark.parametrize("arch", ["bert", "bart", "gpt2"])
def test_matching_start_compares_words_and_neighbours(arch):
    c = tiny(arch, width=128); x = Instance.from_words([["the", "car", "is", "red", "today"], ["a", "red", "hat"]]); e = c.encode(x); A = c.attentions([e])[0][0]
    red1, red2 = (int(np.flatnonzero(e.word == w)[0]) for w in (3, 6)); others = [j for j in range(red2) if j != red1]
    words, places = A[:2].mean(0), A[2:].mean(0)
    assert words[red2, red1] > 3*words[red2, others].max()
    assert places[red2, red2-1] > places[red2, red2-2] > places[red2, red2-4]
    plain = new_tiny(arch, [t for x in TRAIN[:60] for t in x.texts], LABELS, width=128); B = plain.attentions([plain.encode(x)])[0][0].mean(0); assert B[red2, red1] < 2*B[red2, others].max()

def test_difference_round_trip(tmp_path, monkeypatch):
    import xfeval.models
    base = tiny(); base.save(tmp_path/"base"/"model"); monkeypatch.setenv("XFEVAL_HOME", str(tmp_path)); monkeypatch.setattr(xfeval.models, "_package_folder", lambda name: tmp_path/"base"/"model")
    c = load_model(tmp_path/"base"/"model"); fit(c, TRAIN[:200], freeze=["embeddings"], mask_augment=.2); save_delta(c, tmp_path/"models"/"toy", "base-package", dict(note="y"))
    again = load_model("toy"); assert again.card["note"] == "y" and again.labels == LABELS and np.allclose(again.predict(DEV[:20]), c.predict(DEV[:20]), atol=5e-3)
    from safetensors import safe_open
    with safe_open(tmp_path/"models"/"toy"/"delta.safetensors", "pt") as f: names = set(f.keys())
    assert names and not any("embeddings" in n for n in names) and "classifier.weight" in names

def test_difference_of_low_rank_and_on_top_of_another(tmp_path, monkeypatch):
    import xfeval.models
    tiny(width=64).save(tmp_path/"base"/"model"); monkeypatch.setenv("XFEVAL_HOME", str(tmp_path)); monkeypatch.setattr(xfeval.models, "_package_folder", lambda name: tmp_path/"base"/"model")
    c = load_model(tmp_path/"base"/"model"); fit(c, TRAIN[:200], freeze=["embeddings"]); whole, thin, exact = (save_delta(c, tmp_path/"models"/n, "base-package", rank=r) for n, r in (("whole", None), ("thin", 4), ("exact", 31)))
    size = lambda f: (f/"delta.safetensors").stat().st_size
    assert size(thin) < size(whole)/2
    truth = {n: c.model.state_dict()[n] for n in c.model.state_dict() if n.endswith("query.weight")}; gap = lambda f: max(float((load_model(f).model.state_dict()[n] - v).abs().max()) for n, v in truth.items())
    assert gap(exact) < gap(thin) and gap(whole) < 1e-3
    fit(c, TRAIN[200:300], freeze=["embeddings"]); save_delta(c, tmp_path/"models"/"second", "whole", rank=31)
    assert np.allclose(load_model("second").predict(DEV[:10]), c.predict(DEV[:10]), atol=.05)
    (tmp_path/"models"/"whole"/"delta.safetensors").write_bytes((tmp_path/"models"/"thin"/"delta.safetensors").read_bytes())
    with pytest.raises(ValueError, match="are not those that second was made from"): load_model("second")
