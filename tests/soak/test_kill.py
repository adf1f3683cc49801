"A long run killed at random moments, again and again, ends in the same tables"
import os, random, signal, subprocess, sys, textwrap, time

import pytest

from xfeval.truth.tiny import new_tiny

WORDS = "a the man woman dog cat runs sleeps plays guitar music in park red two three not outside with old".split()
SCRIPT = textwrap.dedent("""
    import sys, numpy as np, torch
    from xfeval.core import Instance, write_whole
    from xfeval.board.scale import evaluate_shards, explain_shards
    from xfeval.engine import Engine
    from xfeval.models import load_model
    from xfeval.explainers.explain import explain
    torch.set_num_threads(1); model, home, out = sys.argv[1:4]
    rng = np.random.default_rng(0); words = %r.split()
    def some(a, b): return " ".join(rng.choice(words, rng.integers(a, b)))
    data = [Instance.from_text([some(6, 14), some(3, 7)], id=str(i)) for i in range(120)]
    print("ready", flush=True)
    shards = dict(shard=4, threads=1, store=home + "/shards")
    ex = explain_shards(model, data, ["shapley", "integrated_gradients"], ["token", "span"], budget=126, **shards)
    metrics = ["unified_comprehensiveness", "aopc_comprehensiveness", "deletion", "complexity"]
    df = evaluate_shards(model, ex, metrics, **shards)
    clf = load_model(model); e = Engine(clf, cache=home + "/rows", shard=4)
    more = explain(clf, data, "shapley_sampling", absent="mask", engine=e, samples=6)
    write_whole(out, df.to_csv(index=False) + "\\n".join(",".join(map(repr, x.scores.tolist())) for x in more))""") % " ".join(WORDS)


@pytest.mark.slow
def test_twenty_kills(tmp_path):
    model = str(new_tiny("bert", [" ".join(WORDS)], ["entailment", "neutral", "contradiction"], init="lively",
                         layers=2, width=64, seed=1).save(tmp_path/"model"))
    start = lambda home, out: subprocess.Popen([sys.executable, "-c", SCRIPT, model, str(tmp_path/home),
                                                str(tmp_path/out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                               text=True)
    t = time.monotonic()
    p = start("whole", "whole.csv")
    p.stdout.readline()
    began = time.monotonic()
    _, err = p.communicate()
    assert p.returncode == 0, err
    whole, rng, kills = time.monotonic()-began, random.Random(0), 0
    for k in range(200):
        p = start("torn", "torn.csv")
        p.stdout.readline()
        try: _, err = p.communicate(timeout=rng.uniform(.01, max(.5, whole/12)))
        except subprocess.TimeoutExpired:
            if kills < 20:
                p.kill()
                kills += 1
            _, err = p.communicate()
        if p.returncode == 0: break
        assert p.returncode == -signal.SIGKILL, err
        assert not (tmp_path/"torn.csv").exists()
    assert kills == 20 or p.returncode == 0
    assert (tmp_path/"torn.csv").read_bytes() == (tmp_path/"whole.csv").read_bytes()
    print(f"killed {kills} times, the tables are equal")


@pytest.mark.slow
def test_a_small_disk(tmp_path):
    if os.geteuid(): pytest.skip("mounting a small disk needs root")
    disk = tmp_path/"disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        model = str(new_tiny("bert", [" ".join(WORDS)], ["entailment", "neutral", "contradiction"], init="lively",
                             layers=1, width=32, seed=1).save(tmp_path/"model"))
        p = subprocess.run([sys.executable, "-W", "always", "-c", SCRIPT, model, str(disk), str(tmp_path/"out.csv")],
                           capture_output=True, text=True)
        assert p.returncode == 0 and "No space left" in p.stderr, p.stderr
        assert not [f for f in disk.rglob(".*") if f.is_file()], "a half-written file was left"
        q = subprocess.run([sys.executable, "-c", SCRIPT, model, str(tmp_path/"wide"), str(tmp_path/"wide.csv")],
                           capture_output=True, text=True)
        assert q.returncode == 0 and (tmp_path/"out.csv").read_bytes() == (tmp_path/"wide.csv").read_bytes()
    finally: subprocess.run(["umount", str(disk)])


def smoke(out, lines=None):
    "`make results PROFILE=smoke` into a folder, killed once `lines` more notebooks have ended; what it said"
    command = [sys.executable, "-m", "xfeval.papers.run", "--profile", "smoke", "--out", str(out)]
    p = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in p.stdout:
        said.append(line)
        if lines is not None and sum(s.startswith("[") and "already done" not in s for s in said) == lines:
            os.killpg(p.pid, signal.SIGKILL)
            break
    p.stdout.close()
    assert p.wait() == (0 if lines is None else -signal.SIGKILL), "".join(said)
    return said


def ended(said):
    "{notebook: how it ended}, from lines like `[3/10] name: 12 s | running: ...`"
    return dict(line.split("] ")[1].split(" | ")[0].split(": ", 1) for line in said if line.startswith("["))


@pytest.mark.slow
def test_killed_results_go_on_where_they_were(tmp_path):
    "Notebooks that had ended are not run again, and every CSV is the same byte for byte"
    whole, torn, done = tmp_path/"whole", tmp_path/"torn", set()
    smoke(whole)
    for k in (1, 3, 2): done |= set(ended(smoke(torn, k)))
    last = ended(smoke(torn))
    assert len(done) >= 6 and {last[n] for n in done} == {"already done"}, last
    made = sorted(f.relative_to(whole) for f in whole.rglob("*.csv"))
    assert made == sorted(f.relative_to(torn) for f in torn.rglob("*.csv"))
    assert [f for f in made if (whole/f).read_bytes() != (torn/f).read_bytes()] == []
