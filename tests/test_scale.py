"Shards here and on a cluster: the same bytes, also when a worker dies, also when resumed"
from xfeval.models.store import load_model
import json, os, signal, warnings

import numpy as np
import pandas as pd
import pytest
import torch

from xfeval.core.explanation import Explanation
from xfeval.core.text import Gold, Instance
from xfeval.engine.run import Engine
from xfeval.explainers.explain import explain
from xfeval.metrics.evaluate import evaluate
from xfeval.models.store import load_model
from xfeval.truth.tiny import new_tiny
from xfeval.board.scale import Store, cluster, evaluate_shards, explain_shards, run_shards, run_task

LABELS = ["entailment", "neutral", "contradiction"]
WORDS = "a the man woman dog cat runs sleeps plays guitar music in park red two three not outside with old".split()
METRICS = ["unified_comprehensiveness", "unified_sufficiency", "aopc_comprehensiveness", "token_f1", "complexity"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(new_tiny("bert", [" ".join(WORDS)], LABELS, init="lively", layers=1, width=32,
                        seed=1).save(tmp_path_factory.mktemp("models")/"tiny"))


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    pick = lambda k: " ".join(rng.choice(WORDS, k))
    return [Instance.from_text([pick(rng.integers(3, 9)), pick(rng.integers(2, 6))], id=str(i),
                               gold=Gold(tokens=range(1+i % 2))) for i in range(n)]


def same(a, b):
    assert [e.to_dict() for e in a] == [e.to_dict() for e in b]


CALL = dict(method=["shapley", "integrated_gradients", "random"], kind=["token", "pair", "span"], shard=3, threads=1,
            budget=30)


def test_shards_equal_the_plain_calls(folder):
    torch.set_num_threads(1)
    data, clf = texts(7), load_model(folder)
    found = explain_shards(folder, data, **CALL)
    plain = explain(clf, data, CALL["method"], CALL["kind"], budget=30, engine=Engine(clf, shard=3))
    same([e.replace(seconds=0.) for e in found], [e.replace(seconds=0.) for e in plain])
    scores = evaluate_shards(folder, found, METRICS, shard=3, threads=1, seed=5)
    want = evaluate(clf, plain, METRICS, engine=Engine(clf, shard=3), seed=5)
    pd.testing.assert_frame_equal(scores, want, check_exact=True)
    assert scores.attrs["forwards"] == want.attrs["forwards"] > 0


def test_averages_of_the_whole_set_reach_every_shard(folder):
    data = texts(6, 3)
    found = explain_shards(folder, data, **CALL)
    whole = evaluate_shards(folder, found, METRICS, shard=len(data), threads=1)
    parts = evaluate_shards(folder, found, METRICS, shard=1, threads=1)
    np.testing.assert_allclose(whole.value, parts.value, atol=1e-5)
    assert whole.note.tolist() == parts.note.tolist() and "random" in set(whole.base)


def test_parallel_instances_may_share_an_id(folder):
    data = [Instance.from_text(["a man runs", "the dog"], id="same", lang="en"),
            Instance.from_text(["two cat sleeps in park", "a woman"], id="same", lang="de")]
    found = explain_shards(folder, data, "occlusion", absent="mask", shard=2, threads=1)
    assert [e.instance for e in found] == data
    df = evaluate_shards(folder, found[::-1], "aopc_comprehensiveness", shard=2, threads=1)
    assert df.lang.tolist() == ["de", "en"] and df.value.notna().all()


def test_targets_travel_with_their_instance(folder):
    data = texts(5)
    names = [LABELS[i % 3] for i in range(5)]
    found = explain_shards(folder, data, "occlusion", absent="mask", target=names, shard=2, threads=1)
    assert [e.target for e in found] == names
    with pytest.raises(ValueError, match="2 targets for 5 instances"):
        explain_shards(folder, data, "occlusion", target=LABELS[:2])


def test_finished_shards_are_not_run_again_and_damaged_ones_are(folder, tmp_path):
    data, seen = texts(6), []
    first = explain_shards(folder, data, store=tmp_path/"kept", say=lambda *a: seen.append(a), **CALL)
    assert seen == [(1, 2), (2, 2)]
    again = explain_shards(folder, data, store=tmp_path/"kept", say=lambda *a: seen.append(a), **CALL)
    assert len(seen) == 2
    same(first, again)
    f = sorted((tmp_path/"kept").glob("*.json"))[0]
    f.write_bytes(f.read_bytes()[:-20])
    with pytest.warns(UserWarning, match="damaged"):
        third = explain_shards(folder, data, store=tmp_path/"kept", say=lambda *a: seen.append(a), **CALL)
    assert len(seen) == 3
    same(first, third)
    explain_shards(folder, data, store=tmp_path/"kept", say=lambda *a: seen.append(a), **dict(CALL, budget=28))
    assert len(seen) == 5, "another budget is another task"


def test_a_changed_model_is_another_model(folder, tmp_path):
    task = json.dumps(dict(x=1))
    a = Store(tmp_path/"kept", folder)
    a.put(task, "{}")
    other = new_tiny("bert", [" ".join(WORDS)], LABELS, layers=1, width=32, seed=2).save(tmp_path/"other")
    assert Store(tmp_path/"kept", folder).get(task) == "{}" and Store(tmp_path/"kept", str(other)).get(task) is None


def test_store_that_cannot_be_written_costs_a_warning(folder, tmp_path, monkeypatch):
    def full(*a): raise OSError(28, "No space left on device")
    monkeypatch.setattr("xfeval.board.scale.write_whole", full)
    with pytest.warns(UserWarning, match="No space left"):
        found = explain_shards(folder, texts(4), "occlusion", absent="mask", shard=2, threads=1,
                               store=tmp_path/"kept")
    assert len(found) == 4
    (tmp_path/"file").write_text("x")
    with pytest.raises(ValueError, match="not a folder"): explain_shards(folder, texts(1), store=tmp_path/"file")


def test_mistakes_are_value_errors(folder):
    with pytest.raises(ValueError, match="did you mean 'shapley'"): explain_shards(folder, texts(1), "shaply")
    with pytest.raises(ValueError, match="unknown Dask address 'there'"):
        explain_shards(folder, texts(1), dask="there")
    with pytest.raises(ValueError, match="number of processes"): explain_shards(folder, texts(1), dask="local:many")
    with pytest.raises(ValueError, match="at least 1"): explain_shards(folder, texts(1), shard=0)
    with pytest.raises(ValueError, match="unknown metric"):
        evaluate_shards(folder, [Explanation.from_scores(texts(1)[0], np.ones(texts(1)[0].n_words))], "complexty")
    assert explain_shards(folder, []) == []


def test_a_killed_worker_changes_nothing(folder, tmp_path):
    data = texts(12, 1)
    want = explain_shards(folder, data, **CALL)
    with cluster("local:2") as client:
        workers = client.run(os.getpid)
        address, pid = sorted(workers.items())[0]
        order = []
        def say(done, every):
            if not order: os.kill(pid, signal.SIGKILL)
            order.append(done)
        got = explain_shards(folder, data, dask=client.scheduler.address, store=tmp_path/"kept", say=say, **CALL)
        scores = evaluate_shards(folder, got, METRICS, dask=client.scheduler.address, shard=3, threads=1)
    same(got, want)
    assert order == [1, 2, 3, 4] and len(list((tmp_path/"kept").glob("*.json"))) == 4
    pd.testing.assert_frame_equal(scores, evaluate_shards(folder, want, METRICS, shard=3, threads=1),
                                  check_exact=True)


def test_a_worker_loads_a_model_once(folder, monkeypatch):
    from xfeval.board import scale
    monkeypatch.setattr(scale, "_models", {})
    loaded, plain = [], load_model
    monkeypatch.setattr("xfeval.models.store.load_model", lambda *a, **k: loaded.append(a) or plain(*a, **k))
    explain_shards(folder, texts(6), "occlusion", absent="mask", shard=2, threads=1)
    assert len(loaded) == 1


class Answer:
    "A future that has ended, or never ends"
    def __init__(self, status, answer="{}"): self.status, self.answer, self.cancelled = status, answer, False
    def result(self): return self.answer
    def exception(self): return OSError("lost")
    def add_done_callback(self, fn):
        if self.status != "pending": fn(self)
    def cancel(self): self.cancelled = True


class Client:
    "A cluster of two workers that answers as it is told: {task: how its copies end, one after the other}"
    def __init__(self, **story): self.story, self.sent = story, []
    def scheduler_info(self): return dict(workers=dict(a=1, b=2))
    def submit(self, fn, task, **options):
        self.sent.append(task)
        f = Answer(self.story[task].pop(0), json.dumps(dict(task=task, seconds=.1)))
        self.futures = [*getattr(self, "futures", []), f]
        return f


def on_cluster(client, tasks, slow=1e9):
    from xfeval.board.scale import _Sent
    answers = [None]*len(tasks)
    def arrive(i, a): answers[i] = json.loads(a)["task"]
    _Sent(client, tasks, answers, retries=2, slow=slow).run(range(len(tasks)), arrive)
    return answers


def test_a_late_shard_is_sent_twice_and_the_first_answer_counts():
    client = Client(a=["finished"], b=["pending", "finished"])
    assert on_cluster(client, ["a", "b"], slow=0.) == ["a", "b"] and client.sent == ["a", "b", "b"]
    assert client.futures[1].cancelled, "the late copy is given up"


def test_a_failed_shard_is_sent_again_and_not_for_ever():
    client = Client(a=["error", "error", "finished"], b=["finished"])
    assert on_cluster(client, ["a", "b"]) == ["a", "b"] and client.sent.count("a") == 3
    with pytest.raises(RuntimeError, match="shard 0 failed 3 times.*lost"): on_cluster(Client(a=["error"]*3), ["a"])


def test_a_scheduler_that_does_not_answer_or_has_no_workers(monkeypatch):
    import distributed
    def nobody(*a, **k): raise OSError("refused")
    monkeypatch.setattr(distributed, "Client", nobody)
    with pytest.raises(ValueError, match="no Dask scheduler answers at 'tcp://nowhere:1': OSError"):
        cluster("tcp://nowhere:1").__enter__()
    class Idle:
        closed = False
        def wait_for_workers(self, n, timeout): raise TimeoutError
        def close(self): Idle.closed = True
    monkeypatch.setattr(distributed, "Client", lambda *a, **k: Idle())
    with pytest.raises(ValueError, match="has no workers"): cluster("tcp://idle:1").__enter__()
    assert Idle.closed
