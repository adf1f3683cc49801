"The embedded models do what their cards say: accuracy on held-out text, and labels that follow the truth"
import json

import numpy as np
import pytest

from xfeval.truth.corpora import generate
from xfeval.core.utils import bundled
from xfeval.truth import recipes as embedded
from xfeval.truth.recipes import only_gold, recipes, stage_data, train_embedded, truth_check
from xfeval.models.store import load_model
from xfeval.truth.fit import fit

SHIPPED = [m for m in recipes if bundled("models", m, "config.json").exists()]

@pytest.fixture(scope="module")
def tested():
    done = {}
    def get(name, lang="en", split="test"):
        if (name, lang, split) not in done:
            clf = load_model(name); data = generate(recipes[name]["corpus"], 400, seed=7, lang=lang, split=split)
            done[name, lang, split] = clf, data, clf.predict(data).argmax(1) == [clf.index(x.label) for x in data]
        return done[name, lang, split]
    return get

def test_the_models_that_tables_need_are_shipped():
    assert set(SHIPPED) == set(recipes)

@pytest.mark.parametrize("name,lang", [(m, l) for m in SHIPPED for l in recipes[m].get("langs", ("en",))])
def test_accuracy_on_held_out_text(tested, name, lang):
    assert tested(name, lang)[2].mean() >= (.93 if "mbert" in name else .97)

@pytest.mark.parametrize("folder", sorted(p.name for p in bundled("models").glob("*-seed*")))
def test_further_seeds_are_whole_trainings(folder):
    name, seed = folder.rsplit("-seed", 1)
    clf, data = load_model(folder), generate(recipes[name]["corpus"], 200, seed=7, split="test")
    assert clf.card["seed"] == int(seed) and len(clf.card["training"]) == len(recipes[name]["stages"])
    assert (clf.predict(data).argmax(1) == [clf.index(x.label) for x in data]).mean() >= .97

INFERENCE = [m for m in SHIPPED if recipes[m]["corpus"] in ("controlled-nli", "controlled-fever")]

@pytest.mark.parametrize("name", INFERENCE)
def test_concept_pairs_never_seen_in_training(tested, name):
    _, data, hit = tested(name, split="test_unseen")
    assert all(x.meta["unseen"] for x in data) and hit.mean() >= .95

@pytest.mark.parametrize("name", SHIPPED)
def test_the_label_follows_the_truth(tested, name):
    clf, data, _ = tested(name); check = truth_check(clf, data[:200]).set_index("question")
    kept, gone, rand, others = check.share
    assert kept >= .9
    assert check.low.iloc[1] > check.high.iloc[3] + .1
    assert check.low.iloc[1] > check.high.iloc[2] # random words, which may be true ones

@pytest.mark.parametrize("name", SHIPPED)
def test_small_enough_and_documented(name):
    folder = bundled("models", name)
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 2*2**20
    card = json.loads((folder/"card.json").read_text())
    assert card["name"] == name and card["made_by"] == f"python -m xfeval.truth.recipes {name}" and card["training"]

@pytest.mark.parametrize("name", SHIPPED)
def test_the_card_tells_the_recipe_that_the_command_follows(name):
    card = json.loads(bundled("models", name, "card.json").read_text())
    assert card["recipe"] == json.loads(json.dumps(recipes[name])) and card["size"] == 1
    assert len(card["training"]) == len(recipes[name]["stages"])

def test_all_weights_together_under_40_megabytes():
    assert sum(p.stat().st_size for p in bundled("models").rglob("*.safetensors")) < 40e6

def test_only_gold_keeps_the_deciding_words_and_fixed_parts():
    for corpus in ("controlled-nli", "controlled-mrc"):
        for x in generate(corpus, 20, split="train"):
            g = only_gold(x)
            if g is None: continue
            assert g.label == x.label and g.fixed == x.fixed and set(g.words) <= set(x.words)
            assert [w for i, w in enumerate(x.words) if i in x.gold.tokens or x.part_of[i] in x.fixed] == list(g.words)

def test_only_training_text_repeats_rare_reasons():
    r = dict(recipes["tiny-bert-nli"], stages=(dict(n=200, repeat=dict(role=4)),))
    train, dev = stage_data(r, 0, 1), stage_data(r, 0, 1, "validation")
    assert len(dev) == 200 < len(train) and len({x.id for x in train}) == 200

def same_words(x):
    words = [sorted(x.words[i] for i in x.gold.tokens if x.part_of[i] == k) for k in (0, 1)]
    return words[0] == words[1]

def test_direct_reasons_come_only_in_the_same_words():
    stage = dict(n=300, direct={"role swap": (1, 0)}, repeat={"role swap": 3})
    r = dict(recipes["tiny-bert-fever"], stages=(stage,))
    train, dev = stage_data(r, 0, 1), stage_data(r, 0, 1, "validation")
    swaps = [x for x in train if x.meta["reason"] == "role swap"]
    assert len(dev) == 300 and len(swaps) == 3*len({x.id for x in swaps}) > 0 and all(map(same_words, swaps))
    others = [x for x in train if x.meta["reason"] != "role swap"]
    assert len(others) == len({x.id for x in others})

def test_direct_reasons_can_outnumber_the_others():
    r = dict(recipes["tiny-bert-fever"], stages=(dict(n=300, direct={"role swap": (4, 1)}),))
    swaps = [x for x in stage_data(r, 0, 1) if x.meta["reason"] == "role swap"]
    for same, times in ((True, 4), (False, 1)):
        part = [x.id for x in swaps if same_words(x) is same]
        assert len(part) == times*len(set(part)) > 0

def test_a_killed_training_goes_on_with_the_same_result(tmp_path, monkeypatch):
    stages = (dict(n=200, only_gold=True), dict(n=200))
    monkeypatch.setitem(recipes, "tiny-bert-topic", dict(recipes["tiny-bert-topic"], stages=stages))
    data = generate("controlled-topic", 20, split="test")
    whole = train_embedded("tiny-bert-topic", say=str)
    calls = []
    def killed(*args, **options):
        calls.append(1)
        if len(calls) == 2: raise KeyboardInterrupt
        return fit(*args, **options)
    monkeypatch.setattr(embedded, "fit", killed)
    with pytest.raises(KeyboardInterrupt): train_embedded("tiny-bert-topic", out=tmp_path, say=str)
    resumed = train_embedded("tiny-bert-topic", out=tmp_path, say=str)
    assert len(calls) == 3 and [r["steps"] for r in resumed.card["training"]] == [r["steps"] for r in whole.card["training"]]
    assert np.array_equal(whole.predict(data), resumed.predict(data))
    assert np.array_equal(load_model(tmp_path).predict(data), resumed.predict(data))
