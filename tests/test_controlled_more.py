"The controlled corpora beyond inference: truth, determinism, balance, refusal of bad input"
import json
from collections import Counter

import numpy as np
import pytest

from xfeval.core.text import Gold, Instance
from xfeval.truth.corpora import corpora, generate
from solvers.fever import check_corpus, solve_fever
from xfeval.truth.templates import hidden, seen, word_lists
from solvers.evinf import solve_evinf
from solvers.mrc import solve_mrc
from solvers.qa import solve_qa
from solvers.sentiment import solve_sentiment
from solvers.topic import solve_topic

solvers = {"controlled-fever": (solve_fever, 500, "not enough info"),
           "controlled-sentiment": (solve_sentiment, 500, None), "controlled-topic": (solve_topic, 500, None),
           "controlled-mrc": (solve_mrc, 200, None), "controlled-evinf": (solve_evinf, 200, None)}
labels = {"controlled-fever": {"supports", "refutes", "not enough info"},
          "controlled-sentiment": {"positive", "negative"},
          "controlled-topic": {"world", "sports", "business", "science"}, "controlled-mrc": {"true", "false"},
          "controlled-evinf": {"significantly increased", "significantly decreased", "no significant difference"}}
every = [*solvers, "controlled-qa"]

@pytest.fixture(scope="module")
def data(): return {name: generate(name, solvers.get(name, (0, 500))[1], seed=7, split="validation") for name in every}

@pytest.mark.parametrize("name", solvers)
def test_solver_agrees(data, name):
    solver, n, nothing = solvers[name]
    assert check_corpus(data[name], solver, nothing) == dict(n=n, label=0, rationale=0, insufficient=0, unnecessary=0)

@pytest.mark.parametrize("name", solvers)
def test_check_notices_wrong_truth(data, name):
    solver, _, nothing = solvers[name]
    x = next(x for x in data[name] if x.label != nothing)
    other = next(l for l in sorted(labels[name]) if l not in (x.label, nothing))
    assert check_corpus([x.replace(label=other)], solver, nothing)["label"] == 1
    poor = x.replace(gold=Gold(set(sorted(x.gold.tokens)[:-1])))
    found = check_corpus([poor], solver, nothing)
    assert found["rationale"] == 1
    empty = check_corpus([x.replace(gold=Gold(set()))], solver, nothing)
    assert empty["insufficient"] == 1 and empty["unnecessary"] == 1

def test_qa_solver_agrees(data):
    for x in data["controlled-qa"]:
        answer, used, equal = solve_qa(x.parts)
        assert list(answer) == x.meta["answer"] and used == x.gold.tokens and equal == x.gold.spans, x.texts
        assert list(solve_qa(seen(x, x.gold.tokens))[0]) == x.meta["answer"]
        assert solve_qa(hidden(x))[0] is None

def test_qa_truth_is_well_formed(data):
    for x in data["controlled-qa"]:
        m, (s, e) = x.sizes[0], x.meta["answer"]
        assert x.label is None and m <= s <= e < x.n_words and set(range(s, e+1)) <= x.gold.tokens
        assert x.meta["equalities"] and {(tuple(a), tuple(b)) for a, b in x.meta["equalities"]} == x.gold.spans
        for (a, b), (c, d) in x.meta["equalities"]: assert 0 <= a <= b < m <= c <= d < x.n_words and not (c <= s <= d)

@pytest.mark.parametrize("name", every)
def test_same_seed_same_text(name):
    a, b = generate(name, 12, seed=3), generate(name, 5, seed=3)
    assert [x.to_dict() for x in a[:5]] == [x.to_dict() for x in b]
    others = generate(name, 1, seed=4) + generate(name, 1, seed=3, split="train")
    assert a[0].texts not in [x.texts for x in others]

@pytest.mark.parametrize("name", every)
def test_words_and_json_round_trip(data, name):
    for x in data[name][:60]:
        assert x.parts == Instance.from_text(x.texts).parts
        assert Instance.from_dict(json.loads(json.dumps(x.to_dict()))).to_dict() == x.to_dict()

@pytest.mark.parametrize("name", solvers)
def test_labels_are_balanced(data, name):
    counts, n, k = Counter(x.label for x in data[name]), len(data[name]), len(labels[name])
    assert set(counts) == labels[name] == set(corpora.info(name)["labels"])
    assert all(abs(c/n - 1/k) < 4*np.sqrt((k-1)/k**2/n) for c in counts.values())

@pytest.mark.parametrize("name", every)
def test_reasons_and_vocabulary(data, name):
    counts = Counter(x.meta["reason"] for x in data[name])
    assert len(counts) >= 5 and min(counts.values()) >= 3
    assert 200 <= len({w.lower() for x in data[name] for w in x.words}) <= 1500

def test_articles(data):
    for name in every:
        for x in data[name]:
            for a, b in zip(x.words, x.words[1:]):
                if a.lower() not in ("a", "an") or not b.isalpha(): continue
                assert (a.lower() == "an") == (b[0].lower() in "aeiou" or b == "honest"), f"{a} {b}"

@pytest.mark.parametrize("name", ["controlled-mrc", "controlled-evinf"])
def test_long_documents_with_a_fixed_query(data, name):
    for x in data[name]:
        assert 150 <= x.sizes[0] <= 300 and x.fixed == (1,) and x.gold.tokens and max(x.gold.tokens) < x.sizes[0]

def test_fever_interactions(data):
    for x in data["controlled-fever"]:
        m = x.sizes[0]
        inside = {i for p in x.gold.pairs for i in p}
        assert inside <= x.gold.tokens and all((a, c) in x.gold.pairs for (a, b), (c, d) in x.gold.spans)
        if x.meta["reason"] == "missing information": assert not x.gold.pairs and min(x.gold.tokens) >= m
        else: assert x.gold.pairs

def test_unseen_split_of_fever():
    assert all(x.meta["unseen"] for x in generate("controlled-fever", 60, split="test_unseen"))
    assert not any(x.meta["unseen"] for x in generate("controlled-fever", 300, split="train"))
    assert {x.label for x in generate("controlled-fever", 60, split="test_unseen")} == labels["controlled-fever"]

@pytest.mark.parametrize("name,part,limit", [("controlled-fever", 1, .45), ("controlled-mrc", 1, .62),
                                             ("controlled-evinf", 1, .45)])
def test_one_part_does_not_tell(name, part, limit):
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    train, test = generate(name, 600, split="train"), generate(name, 300)
    vec = CountVectorizer(token_pattern=r"\S+")
    clf = LogisticRegression(max_iter=500, C=.1)
    clf.fit(vec.fit_transform([x.texts[part] for x in train]), [x.label for x in train])
    guessed = clf.predict(vec.transform([x.texts[part] for x in test]))
    assert np.mean(guessed == [x.label for x in test]) < limit

@pytest.mark.parametrize("name", every)
def test_fewer_distractors(name):
    short, full = (np.mean([x.n_words for x in generate(name, 40, **o)]) for o in (dict(distractors=0), {}))
    assert short < full
    if name in solvers: assert check_corpus(generate(name, 40, distractors=0), *solvers[name][::2])["label"] == 0

@pytest.mark.parametrize("name", every)
def test_bad_input_is_refused(name):
    with pytest.raises(ValueError, match="language.*'de'"): generate(name, 1, lang="de")
    with pytest.raises(ValueError, match="did you mean 'distractors'"): generate(name, 1, distractor=1)
    with pytest.raises(ValueError, match="did you mean"): generate(name+"x", 1)

def test_times_of_a_life_are_possible(data):
    import re
    for x in data["controlled-qa"]:
        born, later = (re.findall(p, x.texts[1]) for p in (r"born in (\d+)", r"(?:Prize|moved to \w+) in (\d+)"))
        assert all(int(b)+20 <= int(y) for b in born for y in later)

def test_the_task_is_part_of_what_was_forgotten(data):
    some = [x for x in data["controlled-mrc"] if x.meta["question"] == "duty"]
    assert some
    for x in some:
        query = set(x.parts[1]) - {"the", "?", "."}
        assert len({x.words[i] for i in x.gold.tokens} & query) == 3


@pytest.mark.parametrize("about", ["date", "role"])
def test_claims_of_one_kind(about):
    xs = generate("controlled-fever", 60, about=about)
    assert {x.meta["about"] for x in xs} == {about}
    assert check_corpus(xs, *solvers["controlled-fever"][::2])["label"] == 0
    with pytest.raises(ValueError, match="unknown kind of claim 'rolle'.*did you mean 'role'"):
        generate("controlled-fever", 1, about="rolle")


def test_a_source_only_where_somebody_would_print_it(data):
    import re
    texts = " ".join(x.texts[0] for x in generate("controlled-fever", 1500, seed=5))
    assert "as the archives show" in texts
    assert not re.search(r"(Her|His|Its) \w+ is [\w ]+, (as|according)", texts)

def test_a_series_has_no_seats():
    xs = [x.texts[0] for x in generate("controlled-sentiment", 1500, seed=5)]
    assert any("two hours" in t for t in xs)
    assert not any("series" in t and any(w in t for w in ("two hours", "seat", "tickets", "Tuesday")) for t in xs)

def test_news_fit_together():
    xs = [x.texts[0] for x in generate("controlled-topic", 1500, seed=5)]
    assert not any(w in t for t in xs for w in ("without a break", "isitor", "a book about", "child of", "Long "))
    spoken = ("talked", "commented", "argued", "joked", "spoke", "asked")
    assert not any("available for comment" in t and any(f" {w} " in t for w in spoken) for t in xs)

def test_leads_add_to_headlines():
    words = word_lists("topic")
    manners, settings, written_settings = words.manners, words.settings, words.written_settings
    for x in generate("controlled-topic", 800, seed=5):
        headline, lead = x.texts[0].split(". ")[:2]
        hows = [h for h in (*manners, *settings, *written_settings) if h in lead]
        assert len(hows) == 1 and hows[0] not in headline, x.texts[0]

def test_manners_do_not_tell_the_topic():
    words = word_lists("topic")
    manners, topical_verbs = words.manners, words.topical_verbs
    for fits in manners.values():
        assert all({v[2] for v in verbs} & set(fits.split()) for verbs in topical_verbs.values())

def test_wool_is_no_cloth():
    words = word_lists("fever")
    products = words.products
    assert products["cloth"] == ["silk", "linen", "cotton"]

def test_nobody_is_introduced_twice(data):
    words = word_lists("mrc")
    arrivals, introductions, mishaps = words.arrivals, words.introductions, words.mishaps
    intros = [s.split("|s ")[1].removesuffix(" .") for s in arrivals + introductions + mishaps]
    seen = 0
    for x in data["controlled-mrc"]:
        met, sentences = set(), x.texts[0].split(". ")
        for s in sentences:
            who = s.split()[0]
            if any(i in s for i in intros):
                assert who not in met, x.texts[0]
                seen += 1
            met.add(who)
        assert all(x.texts[0].count(f" {i}.") <= 1 for i in intros), x.texts[0]
    assert seen

def test_doses_of_drugs_only():
    texts = [x.texts[0].lower() for x in generate("controlled-evinf", 150, seed=5)]
    dosed = [t for t in texts if "different doses" in t]
    assert dosed and not any(w in t for w in ("yoga", "massage", "acupuncture") for t in dosed)

def test_old_sources_only_of_dated_facts():
    import re
    xs = generate("controlled-fever", 1500, seed=5)
    told = [s for x in xs for s in re.split(r"(?<=\.) ", x.texts[0]) if "archives" in s or "old letter" in s]
    assert told and all(re.search(r"\b(19|20)\d\d\b", s) for s in told)
    assert not any(w in x.texts[1] for x in xs for w in ("at present", "at the moment", "these days"))
    assert min(len(x.parts[1]) for x in xs) >= 6

def test_idioms_stand_alone():
    words = word_lists("topic")
    figures = words.figures
    xs = [x for x in generate("controlled-topic", 600, seed=5) if x.meta["reason"] == "figure of speech"]
    idioms = [f.split() for fs in figures.values() for f in fs]
    for x in xs:
        found = [i for f in idioms for i in range(x.n_words) if [w.lower() for w in x.words[i:i+len(f)]] == f]
        assert len(found) == 1 and x.words[found[0]-1] == "."

def test_nobody_is_at_home_and_away(data):
    import re
    for x in data["controlled-mrc"]:
        owner, deeds = None, {}
        for s in x.texts[0].split(". "):
            first = s.split()[0]
            owner = owner if first in ("He", "She") else first
            deeds.setdefault(owner, []).append(s)
        for facts in deeds.values():
            if not any("stayed at home" in s for s in facts): continue
            assert not re.search(r" (walked|arrived|visited|bought|caught) ", " ".join(facts)), facts

def test_order_of_an_abstract(data):
    for x in data["controlled-evinf"]:
        text = x.texts[0]
        at = [text.index(w) for w in ("were recruited", "were randomly assigned", "The groups received")]
        results = max(text.rfind(w) for w in ("compared with", " than with ", "did not differ", "unchanged"))
        later = [text.find(w) for w in ("adverse events", "Adherence", "left the study early") if w in text]
        assert at == sorted(at) and all(results < i for i in later)

def test_what_refutes_a_kind_is_gold(data):
    some = [x for x in data["controlled-fever"] if x.meta["about"] == "kind" and x.label != "not enough info"]
    assert some
    for x in some:
        gold = {x.words[i] for i in x.gold.tokens}
        assert "only" in gold or {"all", "life"} <= gold
    bare = (("Ferrion", "makes", "chairs", "."), ("Ferrion", "makes", "coats", "."))
    assert solve_fever(bare)[0] == "not enough info"
    assert solve_fever((("Ferrion", "makes", "only", "chairs", "."), bare[1]))[0] == "refutes"

def test_one_opponent_in_a_final():
    for x in generate("controlled-fever", 300, seed=5, about="role"):
        if x.label != "not enough info": continue
        for w in ("in the final", "the shop", "as director", "in a quick deal"):
            assert not (w in x.texts[0] and w in x.texts[1]), x.texts

def test_praise_by_denial():
    words = word_lists("sentiment")
    deniable, gradable = words.deniable, words.gradable
    blamed = set(gradable["negative"]) - set(deniable)
    for x in generate("controlled-sentiment", 600, seed=5):
        gold = [x.words[i] for i in sorted(x.gold.tokens)]
        if x.meta["form"] == "negation" and x.label == "positive": assert not blamed & set(gold), x.texts

def test_no_day_twice():
    import re
    for x in generate("controlled-topic", 800, seed=5):
        found = re.findall(r"\b\w+day\b", x.texts[0].replace("yesterday", "").replace(" day ", " "))
        assert len(found) == len(set(found)), x.texts[0]

def test_no_mention_twice_running(data):
    from solvers.qa import mentions
    for x in data["controlled-qa"]:
        kinds = [m[2:] for m in mentions(x.parts[1]) if m[2] != "description"]
        assert all(a != b for a, b in zip(kinds, kinds[1:])), x.texts[1]

def test_no_full_name_straight_after_the_surname(data):
    from solvers.qa import mentions
    for x in data["controlled-qa"]:
        people = [m for m in mentions(x.parts[1]) if m[2] != "description"]
        assert not any((a[2], b[2]) == ("surname", "name") and b[3].endswith(a[3]) for a, b in zip(people, people[1:]))

def test_what_is_counted_is_gold(data):
    some = [x for x in data["controlled-qa"] if x.meta["question"] == "animals"]
    assert some
    for x in some: assert [x.words[i] for i in sorted(x.gold.tokens)].count("horses") == 2
    for x in data["controlled-qa"]:
        if x.meta["question"] == "teacher": assert "under" in {x.words[i] for i in x.gold.tokens}
    other = [["cats" if k and w == "horses" else w for w in part] for k, part in enumerate(some[0].parts)]
    assert solve_qa(other)[0] is None

def test_the_pronoun_of_a_fact_is_gold(data):
    some = [x for x in data["controlled-mrc"] if x.meta["reason"] == "two sentences"]
    assert some
    for x in some: assert {"He", "She"} & {x.words[i] for i in x.gold.tokens}, x.texts[0]

def test_nobody_repeats_what_another_did(data):
    import re
    for x in data["controlled-mrc"]:
        said = [re.sub(r"\b(his|her)\b", "", s.split(maxsplit=1)[1]) for s in re.split(r"(?<=\.) ", x.texts[0])]
        assert len(said) == len(set(said)), x.texts[0]

def test_endings_in_the_order_of_events():
    words = word_lists("topic")
    closings = words.closings
    found = set()
    for x in generate("controlled-topic", 1500, seed=5):
        ends = [next((i for i, c in enumerate(closings) if s.lower().startswith(c.split(" {")[0])), None)
                for s in x.texts[0].split(". ")[2:]]
        ends = [i for i in ends if i is not None]
        assert ends == sorted(set(ends)) and not {4, 5} <= set(ends), x.texts[0]
        assert not (" wrote " in x.texts[0].split(". ")[1] and 7 in ends), x.texts[0]
        found |= set(ends)
    assert found == set(range(len(closings)))

def test_what_was_painted_is_gold(data):
    some = [x for x in data["controlled-mrc"] if x.meta["question"] in ("colour", "number")]
    assert some
    for x in some:
        query = [w.lower() for w in x.parts[1]]
        thing = query[2] if query[1] == "many" else query[query.index("?")-1]
        assert thing in {x.words[i] for i in x.gold.tokens}

def test_every_corpus_is_known_without_a_further_import():
    import subprocess, sys
    code = "from xfeval.truth.corpora import generate; print(len(generate('controlled-qa', 2)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "2"

def test_no_noun_is_kept_from_training_whole():
    from xfeval.truth.fever import facts, held_out_facts
    words = word_lists("fever")
    scales = words.scales
    for f in facts.values():
        for noun, scale in f["antonym"]:
            assert not all(held_out_facts(noun, v) for side in scales[scale] for v in side), noun
    xs = generate("controlled-fever", 3000, split="train", about="antonym")
    assert {n for f in facts.values() for n, _ in f["antonym"]} <= {w for x in xs for w in x.parts[1]}
