"When things break: a clear message or recovery, nothing lost, nothing half-written, nothing run that was not asked for"
import errno, json, os, pickle, random, signal, socket, subprocess, sys, textwrap, warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from xfeval.core.explanation import Explanation
from xfeval.core.text import Instance
from xfeval.core.utils import write_whole
from xfeval.data.datasets import load_data
from xfeval.engine.run import Engine
from xfeval.engine.rows import Job, RowCache
from xfeval.explainers.explain import explain
from xfeval.explainers.gradients import conductance, frozen, integrated_gradients
from xfeval.metrics.evaluate import evaluate
from xfeval.models.classifier import Classifier
from xfeval.models.store import load_model
from xfeval.truth.tiny import new_tiny
from xfeval.papers.published import Results

LABELS = ["entailment", "neutral", "contradiction"]
WORDS = "a the man woman dog cat runs sleeps plays guitar music in park red two three not outside with old".split()


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    pick = lambda k: " ".join(rng.choice(WORDS, k))
    return [Instance.from_text([pick(rng.integers(3, 9)), pick(rng.integers(2, 6))], id=str(i)) for i in range(n)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(new_tiny("bert", [" ".join(WORDS)], LABELS, init="lively", layers=1, width=32,
                        seed=1).save(tmp_path_factory.mktemp("models")/"tiny"))


@pytest.fixture
def clf(folder): return load_model(folder)


def forked(fn):
    "A process of its own for `fn`, without importing everything again"
    pid = os.fork()
    if pid: return pid
    try:
        fn()
        os._exit(0)
    except BaseException: os._exit(1)


def ended(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def long_run(folder, cache, out, die=0):
    "Explain and evaluate with a row cache, write a table and how much was run; die at the `die`-th call of the model"
    clf = load_model(folder)
    plain, calls = clf.logits, [0]
    def logits(*a):
        calls[0] += 1
        if calls[0] == die: os.kill(os.getpid(), signal.SIGKILL)
        return plain(*a)
    clf.logits = logits
    e = Engine(clf, cache=cache, shard=3, token_budget=256)
    ex = explain(clf, texts(12), ["shapley", "occlusion"], absent="mask", engine=e, budget=20)
    df = evaluate(clf, ex, ["aopc_comprehensiveness", "deletion", "complexity"], engine=e)
    write_whole(f"{out}.stats", f"{calls[0]} {e.stats['run']}")
    write_whole(out, df.to_csv(index=False))


def stats(out): return [int(v) for v in Path(f"{out}.stats").read_text().split()]


def test_killed_run_resumes_to_the_same_table(folder, tmp_path):
    one, two = tmp_path/"one.csv", tmp_path/"two.csv"
    assert ended(forked(lambda: long_run(folder, tmp_path/"one", one))) == 0
    calls, rows = stats(one)
    for die in sorted(random.Random(0).sample(range(2, calls), 6)):
        code = ended(forked(lambda: long_run(folder, tmp_path/"two", two, die)))
        if code == 0: break
        assert code == -signal.SIGKILL and not two.exists() and not list(tmp_path.glob(".two.csv*"))
    two.unlink(missing_ok=True)
    assert ended(forked(lambda: long_run(folder, tmp_path/"two", two))) == 0
    assert stats(two)[1] < rows, "finished shards are not run again"
    assert two.read_bytes() == one.read_bytes()


def test_two_runs_at_once_share_a_cache(folder, tmp_path):
    outs = [tmp_path/f"{i}.csv" for i in range(3)]
    pids = [forked(lambda o=o: long_run(folder, tmp_path/"cache", o)) for o in outs[:2]]
    assert [ended(p) for p in pids] == [0, 0] and outs[0].read_bytes() == outs[1].read_bytes()
    assert ended(forked(lambda: long_run(folder, tmp_path/"cache", outs[2]))) == 0
    assert stats(outs[2])[1] == 0 and outs[2].read_bytes() == outs[0].read_bytes()


def test_full_disk_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    write_whole(tmp_path/"table.csv", "old")
    def full(fd): raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"): write_whole(tmp_path/"table.csv", "new"*1000)
    assert (tmp_path/"table.csv").read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["table.csv"]


def test_full_disk_in_the_middle_of_a_run(clf, tmp_path, monkeypatch):
    data, plain, count = texts(6), os.replace, [0]
    def replace(*a):
        count[0] += 1
        if count[0] > 1: raise OSError(errno.ENOSPC, "No space left on device")
        return plain(*a)
    monkeypatch.setattr(os, "replace", replace)
    with pytest.warns(UserWarning, match="No space left"):
        got = explain(clf, data, "occlusion", absent="mask", engine=Engine(clf, cache=tmp_path, shard=2))
    want = explain(clf, data, "occlusion", absent="mask", engine=Engine(clf, shard=2))
    assert [e.scores.tobytes() for e in got] == [e.scores.tobytes() for e in want]
    assert not [p for p in tmp_path.rglob(".*")], "no half-written file is left"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_is_a_clear_message(clf, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="ermission"): write_whole(tmp_path/"x.csv", "1")
    with pytest.warns(UserWarning, match="cannot be written"): Engine(clf, cache=tmp_path/"cache").predict(texts(1))


def test_read_only_cache_costs_a_warning(clf, tmp_path, monkeypatch):
    def refuse(*a, **k): raise PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.warns(UserWarning, match="Permission denied"): e = Engine(clf, cache=tmp_path/"cache")
    assert e.predict(texts(2)).shape == (2, 3)


def test_cache_files_of_the_wrong_kind_are_dropped(clf, tmp_path):
    data = texts(3)
    Engine(clf, cache=tmp_path).predict(data)
    d = next(p for p in tmp_path.iterdir() if p.is_dir())
    (d/"notes.safetensors").write_bytes(pickle.dumps([1, 2, 3]))
    with pytest.warns(UserWarning, match="damaged"): e = Engine(clf, cache=tmp_path)
    e.predict(data)
    assert e.stats["run"] == 0


def test_model_that_returns_nan(clf):
    with torch.no_grad(): clf.model.classifier.weight[0, 0] = float("nan")
    for call in (lambda: explain(clf, texts(2), "occlusion", absent="mask", engine=Engine(clf)),
                 lambda: explain(clf, texts(2), "saliency", target="neutral"), lambda: Engine(clf).predict(texts(1))):
        with pytest.raises(ValueError, match="nan|not a number"): call()
    e = Explanation.from_scores(texts(1)[0], np.arange(texts(1)[0].n_words))
    with pytest.raises(ValueError, match="nan"): evaluate(clf, e, "deletion", engine=Engine(clf))


def test_function_that_returns_nan_or_the_wrong_shape():
    for fn, say in ((lambda t: np.full((len(t), 2), np.nan), "no probabilities"),
                    (lambda t: np.ones((len(t), 3))/3, "shape"),
                    (lambda t: np.full((len(t), 2), .9), "no probabilities")):
        f = Classifier.from_function(fn, ["no", "yes"])
        with pytest.raises(ValueError, match=say): explain(f, Instance.from_text("a man runs"), "occlusion")


NO_MEMORY = [RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), MemoryError(),
             torch.OutOfMemoryError("CUDA out of memory")]


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda e: type(e).__name__)
def test_a_batch_that_does_not_fit_is_halved(clf, monkeypatch, error):
    data, plain, sizes = texts(8), clf.model.forward, []
    want = [explain(clf, data, m, engine=Engine(clf), **kw)
            for m, kw in (("occlusion", dict(absent="mask")), ("integrated_gradients", dict(steps=5)))]
    def forward(*a, **kw):
        x = kw.get("input_ids") if kw.get("input_ids") is not None else kw["inputs_embeds"]
        if len(x) > 4: raise error
        sizes.append(len(x))
        return plain(*a, **kw)
    monkeypatch.setattr(clf.model, "forward", forward)
    clf.__dict__.pop("_gradients", None)
    got = [explain(clf, data, m, engine=Engine(clf), **kw)
           for m, kw in (("occlusion", dict(absent="mask")), ("integrated_gradients", dict(steps=5)))]
    for a, b in zip(sum(want, []), sum(got, [])): np.testing.assert_allclose(a.vector(), b.vector(), atol=1e-5)
    assert 0 < max(sizes) <= 4


def test_one_row_that_does_not_fit_says_so(clf, monkeypatch):
    def forward(*a, **kw): raise RuntimeError("CUDA out of memory")
    monkeypatch.setattr(clf.model, "forward", forward)
    with pytest.raises(RuntimeError, match="out of memory"): Engine(clf).predict(texts(1))


def test_gradients_leave_the_model_as_it_was(clf):
    x = texts(2)
    encs = clf.encode_all(x)
    t = clf.predict(x).argmax(1)
    def broken(*a, **kw): raise RuntimeError("no")
    with pytest.raises(RuntimeError): 
        with frozen(clf.model): broken()
    conductance(clf, encs, t, "logit_top", steps=3)
    integrated_gradients(clf, encs, t, "prob_top", None, steps=3)
    assert all(p.requires_grad for p in clf.model.parameters()) and not clf.model.base_model._forward_hooks


def test_shared_gradients_follow_the_weights(clf):
    x = texts(1)
    a = explain(clf, x, "saliency", target="neutral")[0].vector()
    rows = clf.rows
    assert (explain(clf, x, "saliency", target="neutral")[0].vector() == a).all() and clf.rows == rows
    with torch.no_grad(): clf.model.classifier.weight.mul_(2)
    np.testing.assert_allclose(explain(clf, x, "saliency", target="neutral")[0].vector(), 2*a, rtol=1e-4)


def test_no_pickle_is_loaded_and_no_connection_is_made(folder, tmp_path):
    script = textwrap.dedent("""
        import sys
        seen = []
        sys.addaudithook(lambda e, a: seen.append((e, a)) if e.startswith(("pickle.", "socket.connect", "socket.getaddrinfo")) else None)
        from xfeval import load_data, load_model, explain, evaluate
        from xfeval.engine import Engine
        clf = load_model(sys.argv[1]); data = load_data("demo-nli", n=3)
        ex = explain(clf, data, ["occlusion", "saliency"], absent="mask", engine=Engine(clf, cache=sys.argv[2]))
        evaluate(clf, ex, ["complexity", "deletion"], engine=Engine(clf, cache=sys.argv[2]))
        Engine(clf, cache=sys.argv[2]).predict(data)
        bad = [(e, str(a)[:200]) for e, a in seen]
        print(len(bad)); print(bad[:5])""")
    r = subprocess.run([sys.executable, "-c", script, folder, str(tmp_path)], capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout.splitlines()[0] == "0", r.stdout + r.stderr


def test_pickled_weights_are_refused(tmp_path, folder):
    class Bomb:
        def __reduce__(self): return (os.system, (f"touch {tmp_path/'boom'}",))
    d = tmp_path/"model"
    d.mkdir()
    for f in Path(folder).iterdir():
        if f.suffix == ".json": (d/f.name).write_bytes(f.read_bytes())
    with open(d/"pytorch_model.bin", "wb") as f: pickle.dump({"classifier.weight": Bomb()}, f)
    with pytest.raises(Exception) as e: load_model(str(d))
    assert not (tmp_path/"boom").exists() and "safetensors" in str(e.value)


def test_the_hub_is_only_asked_on_request(monkeypatch, tmp_path):
    def refuse(*a, **k): raise AssertionError("a connection was tried")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(ValueError, match="hub=True"): load_model("someone/some-model")
    with pytest.raises(ValueError, match="hub=True"): load_data("xnli", path=tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b", "..", "", "a\\b", "a\0b"])
def test_outputs_cannot_leave_their_folder(tmp_path, name):
    import matplotlib.pyplot as plt
    out = tmp_path/"out"
    r = Results(out, "nb")
    with pytest.raises(ValueError): r.table(pd.DataFrame(dict(a=[1])), name)
    fig = plt.figure()
    with pytest.raises(ValueError): r.figure(fig, name)
    plt.close(fig)
    with pytest.raises(ValueError, match="notebook name"): Results(out, name)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


@pytest.mark.parametrize("model", ["../../x", "/etc", "a/b"])
def test_cache_names_are_hashes(tmp_path, model, clf):
    e = Engine(clf.__class__.from_function(lambda t: np.full((len(t), 2), .5), ["a", "b"], name=model),
               cache=tmp_path/"cache")
    e.predict([Instance.from_text("x y", id="../../../evil")])
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert files and all((tmp_path/"cache") in p.parents and p.suffix == ".safetensors" for p in files)


def test_results_that_cannot_be_written_are_one_line(tmp_path, capsys):
    from xfeval.papers.run import _main
    (tmp_path/"file").write_text("not a folder")
    assert _main(["--profile", "smoke", "--only", "ferret", "--out", str(tmp_path/"file"/"out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("xfeval: ") and "file" in said and len(said.splitlines()) == 1


def test_damaged_records_of_a_run_count_as_none(tmp_path):
    from xfeval.papers.run import _record
    (tmp_path/"records").mkdir()
    for text in ("{", "", "\x00", "[]", "{}", '{"files": ["a.csv"]}'):
        (tmp_path/"records"/"a.stamp.json").write_text(text)
        assert _record(tmp_path, "a") == {}
    (tmp_path/"records"/"a.stamp.json").write_text(json.dumps(dict(stamp="s", files={"lost.csv": "0"})))
    assert _record(tmp_path, "a") == {}, "an output that was deleted is made again"


def test_damaged_scores_of_a_study_are_made_again(folder, tmp_path):
    from xfeval.papers.sun2025.study import block_scores
    clf, data = load_model(folder), texts(2)
    def scores(): return block_scores(clf, Engine(clf), data, 0, dict(budget=16, steps=2), tmp_path)
    first = scores()
    f = next(tmp_path.glob("sun2025-*.safetensors"))
    f.write_bytes(f.read_bytes()[:100])
    with pytest.warns(UserWarning, match="damaged"): again = scores()
    assert [a["shapley", "pair"].values.tobytes() for a in first] == [a["shapley", "pair"].values.tobytes() for a in again]
    rows = clf.rows
    assert len(scores()) == 2 and clf.rows == rows, "the mended file is read"
