"Question answering: how questions are read, what a teacher learns, and what the one that ships can do"
from xfeval.truth.teacher import QATeacher, judge_teacher
from xfeval.truth.questions import (_main, fit_qa, load_qa_teacher, new_qa_teacher, qa_recipe, qa_truth_check,
                                    train_qa_teacher)
import json

import numpy as np
import pytest
import torch

from xfeval.truth.corpora import generate
from xfeval.core.text import Instance
from xfeval.core.utils import bundled
from xfeval.models.store import load_model

@pytest.fixture(scope="module")
def boss(): return load_qa_teacher("tiny-bert-qa")

@pytest.fixture(scope="module")
def passages(): return generate("controlled-qa", 200, seed=11, split="test")

def tiny(texts, **kw):
    size = dict(layers=1, width=16, heads=2, max_length=64)
    return new_qa_teacher([t for x in texts for t in x.texts], **{**size, **kw})

def test_every_sub_word_knows_its_word_and_part():
    x = Instance.from_words([["Who", "wrote", "Zyzzyvas", "?"], ["Anna", "wrote", "Zyzzyvas", "."]])
    teacher = tiny(generate("controlled-qa", 20, split="train"))
    t = teacher.encode([x, Instance.from_words([["Who", "?"], ["Anna", "."]])])
    pieces = teacher.tokenizer.convert_ids_to_tokens(t.ids[0])
    assert t.part[0, 0] == -1 == t.word[0, 0] and set(t.part[0]) == {-1, 0, 1}
    for p, w, part in zip(pieces, t.word[0], t.part[0]):
        if w < 0: continue
        assert x.part_of[w] == part and (p == "[UNK]" or p.lstrip("#") in x.words[w].lower())
    assert list(dict.fromkeys(w for w in t.word[0] if w >= 0)) == list(range(8))
    n = t.lengths[1]
    assert n < t.lengths[0] and (t.part[1, n:] == -1).all() and (t.word[1, n:] == -1).all()
    keep = np.array([True]*2 + [False] + [True]*5)
    assert (t.rows(np.array([0])).shown(keep[None])[0] == [w != 2 for w in t.word[0]]).all()

def test_a_batch_answers_as_each_text_alone(boss, passages):
    xs = passages[:12]
    assert boss.read(xs) == [boss.read([x])[0] for x in xs] == boss.read(xs, batch=5)
    assert boss.read(xs, keep=[np.ones(x.n_words, bool) for x in xs]) == boss.read(xs)
    order = np.random.default_rng(0).permutation(len(xs))
    assert [boss.read(xs)[i] for i in order] == boss.read([xs[i] for i in order])

def test_training_is_seeded_and_learns():
    xs = generate("controlled-qa", 160, split="train", distractors=0)
    def train(seed):
        t = tiny(xs, layers=2, width=32, max_length=48)
        return t, fit_qa(t, xs[:120], xs[120:], epochs=8, batch=16, seed=seed)
    (a, first), (b, again), (c, other) = train(0), train(0), train(1)
    same = lambda s, t: all(torch.equal(p, q) for p, q in zip(s.model.parameters(), t.model.parameters()))
    assert same(a, b) and not same(a, c)
    assert first["loss"] == again["loss"] and a.card["training"] == [first] and first["steps"] == 64
    untrained = judge_teacher(tiny(xs, layers=2, width=32, max_length=48), xs[120:])
    assert first["dev"]["answer_f1"] > untrained["answer_f1"] + 10

def test_a_pretrained_encoder_can_be_the_start(tmp_path):
    xs = generate("controlled-qa", 24, split="train", distractors=0)
    tiny(xs).save(tmp_path/"encoder")
    t = QATeacher.start(str(tmp_path/"encoder"), max_length=64)
    assert t.max_length == 64 and t.card == dict(base=str(tmp_path/"encoder"))
    fit_qa(t, xs, epochs=1, lr=1e-3, batch=8, optimiser="adamw")
    assert len(t.teach(xs[:3])[0]) == 3

@pytest.mark.parametrize("call,words", [
    (lambda t, x: t.encode([Instance.from_text(["Who?"])]), "a question and a passage are needed"),
    (lambda t, x: fit_qa(t, []), "nothing to train on"),
    (lambda t, x: fit_qa(t, [x.replace(meta={})]), "has no answer"),
    (lambda t, x: fit_qa(QATeacher(t.model, t.tokenizer, max_length=20), [x]), "was cut off"),
    (lambda t, x: QATeacher(t.model, t.tokenizer, max_length=6).encode([x]), "a question alone does not fit the 6"),
    (lambda t, x: QATeacher.load("/nowhere"), "there is no teacher.json"),
    (lambda t, x: load_qa_teacher("tiny-bert-q"), "did you mean 'tiny-bert-qa'"),
    (lambda t, x: load_model("tiny-bert-qa"), "load_qa_teacher"),
])
def test_bad_input_is_named(call, words):
    x = generate("controlled-qa", 1, split="train")[0]
    with pytest.raises(ValueError, match=words): call(tiny([x]), x)

# the teacher that ships
def test_it_is_a_real_architecture_with_its_own_vocabulary():
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer
    folder = bundled("models", "tiny-bert-qa")
    model, info = AutoModelForQuestionAnswering.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == "BertForQuestionAnswering"
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert AutoTokenizer.from_pretrained(folder).vocab_size == model.config.vocab_size
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 2*2**20

@pytest.mark.parametrize("options", [{}, dict(distractors=0)])
def test_answers_and_equalities_of_held_out_texts(boss, options):
    got = judge_teacher(boss, generate("controlled-qa", 300, seed=13, split="test", **options))
    assert got["exact_answers"] >= 97 and got["equalities_found"] >= 90 and got["equalities_right"] >= 90

def test_the_answer_follows_the_truth(boss, passages):
    t = qa_truth_check(boss, passages)
    assert t["n"] >= 190 and t["kept with only the true words"] >= .9
    assert t["changed without the true words"] > t["changed without as many random words"] + .2
    assert t["changed without as many other words"] < .1

def test_the_card_tells_the_recipe_that_the_command_follows(boss):
    assert boss.card["recipe"] == json.loads(json.dumps(qa_recipe)) and boss.card["size"] == 1
    assert boss.card["made_by"] == "python -m xfeval.truth.questions"
    assert len(boss.card["training"]) == len(qa_recipe["stages"]) and boss.card["held_out"]["n"] >= 300

def test_saved_and_loaded(boss, passages, tmp_path):
    again = load_qa_teacher(boss.save(tmp_path/"copy"))
    assert again.read(passages[:30]) == boss.read(passages[:30]) and again.card == boss.card
    half = load_qa_teacher(boss.save(tmp_path/"half", half=True)) # it ships in half precision
    assert half.read(passages[:30]) == boss.read(passages[:30])

def test_the_command_trains_and_stores(tmp_path, monkeypatch, capsys):
    small = dict(qa_recipe, layers=1, width=16, heads=2, stages=(dict(n=64, options=dict(distractors=0)), dict(n=64)))
    monkeypatch.setattr(train_qa_teacher, "__defaults__", (small, *train_qa_teacher.__defaults__[1:]))
    assert _main(["--out", str(tmp_path/"made"), "--size", ".01"]) == 0
    assert "exact_answers" in capsys.readouterr().out
    assert len(load_qa_teacher(tmp_path/"made").card["training"]) == 2
