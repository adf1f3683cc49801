"The command line: pipes of JSON lines, and mistakes that end in one line and exit code 2"
import json, math, subprocess, sys

import pytest
import torch
from typer.testing import CliRunner

from xfeval.apps.cli import app, checks, examine, pairs_of, to_instance
from xfeval.view.tables import table
from xfeval.core.explanation import Explanation
from xfeval.truth.tiny import new_tiny

torch.set_num_threads(1)
LABELS = ["entailment", "neutral", "contradiction"]
PARTS = ["A man plays guitar.", "A person makes music."]
LINE = json.dumps(dict(parts=PARTS, id="music", label="entailment")) + "\n"

@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    f = tmp_path_factory.mktemp("model")/"tiny"
    new_tiny("bert", [*PARTS, "Two dogs run."], LABELS, init="lively", layers=1, width=32).save(f)
    return str(f)

def run(*args, given=None):
    return CliRunner().invoke(app, [str(a) for a in args], input=given, prog_name="xfeval")

def good(*args, given=None):
    r = run(*args, given=given)
    assert r.exit_code == 0, r.stderr + repr(r.exception)
    return r.stdout

def bad(*args, given=None, code=2):
    "The one line a mistake gives"
    r = run(*args, given=given)
    assert r.exit_code == code and r.stdout == "" and "Traceback" not in r.stderr
    lines = r.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("xfeval: "), r.stderr
    return lines[0]

# ---------------------------------------------------------------- explain, evaluate, and the pipe between them

def test_pipe(folder):
    made = good("explain", "--model", folder, "--method", "shapley", "--kind", "span", given=LINE)
    e = Explanation.from_dict(json.loads(made))
    assert e.kind == "span" and e.method == "shapley" and e.instance.id == "music"
    assert e.target in LABELS and e.options["model"] == folder
    table = good("evaluate", "--metric", "unified_comprehensiveness", given=made)
    assert table.splitlines()[0].split() == ["method", "kind", "metric", "mean", "n", "direction"]
    assert "unified_comprehensiveness" in table
    row, = json.loads(good("evaluate", "--metric", "unified_comprehensiveness", "--json", "--rows", given=made))
    assert row["instance"] == "music" and row["kind"] == "span" and math.isfinite(row["value"])

def test_explanations_equal_the_library(folder):
    from xfeval.explainers.explain import explain
    from xfeval.models.store import load_model
    lines = LINE + json.dumps(dict(parts=["Two dogs run.", "A man runs."], id="dogs")) + "\n\n"
    made = [Explanation.from_dict(json.loads(l))
            for l in good("explain", "--model", folder, "--method", "occlusion", "--method", "random", "--target",
                          "neutral", given=lines).splitlines()]
    ours = explain(load_model(folder), [to_instance(json.loads(l)) for l in lines.splitlines() if l],
                   ["occlusion", "random"], target="neutral")
    assert [(e.method, e.instance.id, e.items, e.target)
            for e in made] == [(e.method, e.instance.id, e.items, e.target) for e in ours]
    assert all(abs(a.scores - b.scores).max() < 1e-6 for a, b in zip(made, ours))

def test_scores_equal_the_library(folder):
    from xfeval.metrics.evaluate import evaluate
    from xfeval.models.store import load_model
    names = ["unified_comprehensiveness", "unified_sufficiency", "deletion", "complexity"]
    lines = LINE + json.dumps(dict(parts=["Two dogs run.", "A man makes guitar music."], id="dogs")) + "\n"
    made = good("explain", "--model", folder, "--method", "shapley", "--kind", "token", "--kind", "span", "-o",
                "budget=64", given=lines)
    rows = json.loads(good("evaluate", *(a for n in names for a in ("--metric", n)), "--json", "--rows", given=made))
    ours = evaluate(load_model(folder), [Explanation.from_dict(json.loads(l)) for l in made.splitlines()], names)
    key = lambda r: (r["instance"], r["kind"], r["metric"], r["part"])
    assert [key(r) for r in rows] == [key(r) for r in ours.to_dict("records")]
    assert all(abs(r["value"] - v) < 1e-6 for r, v in zip(rows, ours.value))
    assert len({round(r["value"], 4) for r in rows if r["metric"] == "deletion"}) > 1
    means = {(r["kind"], r["metric"], r["part"]): r["mean"]
             for r in json.loads(good("evaluate", "--metric", "deletion", "--json", given=made))}
    for k in ("token", "span"):
        assert abs(means[k, "deletion", ""] - ours[(ours.kind == k) & (ours.metric == "deletion")].value.mean()) < 1e-6

def test_files_in_and_out(folder, tmp_path):
    (tmp_path/"in.jsonl").write_text(LINE*1 + LINE.replace("music\"", "music2\""), encoding="utf8")
    assert good("explain", tmp_path/"in.jsonl", "--model", folder, "--method", "occlusion", "--kind", "token",
                "--out", tmp_path/"a"/"ex.jsonl", "--html", tmp_path/"page.html", "-n", 2) == ""
    assert len((tmp_path/"a"/"ex.jsonl").read_text().splitlines()) == 2
    assert (tmp_path/"page.html").read_text().startswith("<!doctype html>")
    rows = json.loads(good("evaluate", tmp_path/"a"/"ex.jsonl", "--metric", "complexity", "--metric", "deletion",
                           "--json", "--out", tmp_path/"rows.csv"))
    assert {r["metric"]: r["n"] for r in rows} == {"complexity": 2, "deletion": 2}
    assert len((tmp_path/"rows.csv").read_text().splitlines()) == 5

def test_options_reach_methods_and_metrics(folder):
    made = good("explain", "--model", folder, "-o", "budget=64", "--absent", "delete", "--seed", 3, given=LINE)
    e = json.loads(made)
    assert e["options"]["budget"] == 64 and e["options"]["absent"] == "delete" and e["options"]["seed"] == 3
    row, = json.loads(good("evaluate", "--metric", "deletion", "-o", "deletion.steps=4", "--json", "--rows",
                           given=made))
    assert json.loads(row["options"]) == {"steps": 4}

def test_missing_scores_are_null_with_a_reason(folder):
    made = good("explain", "--model", folder, "--method", "random", given=LINE)
    row, = json.loads(good("evaluate", "--metric", "auprc", "--json", "--rows", given=made))
    assert row["value"] is None and row["note"]
    assert "reasons" in good("evaluate", "--metric", "auprc", given=made)

def test_progress_goes_to_standard_error(folder):
    r = run("explain", "--model", folder, "--method", "random", given=LINE)
    assert "1 explanation of 1 instance" in r.stderr and len(r.stdout.splitlines()) == 1
    assert run("explain", "--model", folder, "--method", "random", "--quiet", given=LINE).stderr == ""

def test_model_given_for_foreign_explanations(folder):
    x = to_instance(dict(parts=PARTS, id="music"))
    line = json.dumps(Explanation.from_scores(x, range(x.n_words), target="neutral").to_dict())
    assert "pass --model" in bad("evaluate", "--metric", "deletion", given=line)
    assert "deletion" in good("evaluate", "--metric", "deletion", "--model", folder, given=line)

def test_dataset_as_input(folder):
    made = good("explain", "--data", "demo-nli", "--n", 2, "--model", folder, "--method", "random")
    assert len(made.splitlines()) == 2 and json.loads(made.splitlines()[0])["instance"]["gold"]

# ---------------------------------------------------------------- mistakes

def test_bad_options():
    assert "--modle" in bad("explain", "--modle", "x", given=LINE)
    assert "xfeval explain --help" in bad("explain", "--modle", "x", given=LINE)
    assert "exlpain" in bad("exlpain")
    assert "got 0" in bad("explain", "-n", "0", given=LINE) and "got -1" in bad("results", "--jobs", "-1")
    assert "'-n'" in bad("explain", "-n", "x", given=LINE)
    assert "name=value" in bad("explain", "-o", "budget", given=LINE)

def test_missing_file():
    for c in ("explain", "evaluate"): assert "no such file: nowhere.jsonl" in bad(c, "nowhere.jsonl")

def test_unknown_method_kind_and_metric():
    assert "did you mean 'shapley'" in bad("explain", "--method", "shaply", given=LINE)
    assert "did you mean 'span'" in bad("explain", "--kind", "spam", given=LINE)
    assert "did you mean 'complexity'" in bad("evaluate", "--metric", "complexiti", given=LINE)

def test_unknown_model(tmp_path):
    assert "no-such-model" in bad("explain", "--model", "no-such-model", given=LINE)
    assert "--hub" in bad("explain", "--model", "no-such-model", given=LINE)
    (tmp_path/"config.json").write_text("{}")
    assert bad("explain", "--model", tmp_path, given=LINE)

@pytest.mark.parametrize("line, says",
                         [('{"parts": oops}', "line 2: not JSON"), ("[1]", "line 2: expected an object"),
                          ('{"parts": 5}', "line 2: \"parts\" must be"),
                          ('{"part": ["a"]}', "line 2: unknown field 'part'"),
                          ('{"parts": ["a", "b", "c"]}', "line 2: an instance has one or two parts"),
                          ('{"parts": ["a", 1]}', "line 2: a part must be a string"), ("{}", "line 2: give either"),
                          ('{"parts": ["a"], "lang": []}', "line 2: \"lang\""), ("[" * 100000, "line 2")])
def test_bad_lines_are_named(line, says): assert says in bad("explain", given=LINE + line + "\n")

def test_bad_explanations_are_named(folder):
    made = json.loads(good("explain", "--model", folder, "--method", "random", given=LINE))
    lost = {k: v for k, v in made.items() if k != "instance"}
    for change in (lost, dict(made, scores=[1.]), dict(made, kind="world"), dict(made, colour=1),
                   dict(made, items=[99], scores=[1.])):
        assert "line 2: " in bad("evaluate", given=json.dumps(made) + "\n" + json.dumps(change))
    assert "label" in bad("evaluate", "--metric", "deletion", given=json.dumps(dict(made, target="nonsense")))

def test_other_mistakes(folder, tmp_path):
    assert "empty" in bad("explain", given="\n") and "not UTF-8" in bad("explain", given=b"\xff\xfe")
    assert "unknown option 'budgt'" in bad("explain", "--model", folder, "-o", "budgt=1", given=LINE)
    assert "label" in bad("explain", "--model", folder, "--target", "maybe", given=LINE)
    assert "two parts" in bad("explain", "--model", folder, "--kind", "span", given='{"parts": "one text"}')
    assert "wrong type" in bad("explain", "--model", folder, "-o", "budget=many", given=LINE)
    assert "'gpu'" in bad("explain", "--model", folder, "--device", "gpu", given=LINE)
    assert "not both" in bad("explain", "x.jsonl", "--data", "demo-nli")
    assert "demo-nlx" in bad("explain", "--data", "demo-nlx")
    assert "folder" in bad("explain", "--out", tmp_path, given=LINE)
    assert "use --seed" in bad("explain", "--model", folder, "-o", "seed=1", given=LINE)
    assert "metric.name=value" in bad("evaluate", "-o", "steps=3", given=LINE)
    assert "did you mean 'steps'" in bad("evaluate", "--metric", "deletion", "-o", "deletion.step=3", given=LINE)

MISTAKES = {"bad option": dict(list=["--colour", "x"], explain=["--colour", "x"], evaluate=["--colour", "x"],
                               results=["--colour", "x"], **{"export-exnli": ["--colour", "x"]},
                               explore=["--colour", "x"], doctor=["--colour", "x"]),
            "bad value": dict(explain=["--seed", "many"], evaluate=["--seed", "many"], results=["--jobs", "many"],
                              **{"export-exnli": ["--n", "0", "--out", "x"]}, explore=["--port", "70000"]),
            "missing file": dict(explain=["nowhere.jsonl"], evaluate=["nowhere.jsonl"],
                                 **{"export-exnli": ["--data", "xnli", "--path", "nowhere", "--out", "x"]},
                                 explore=["--model", "nowhere/folder"]),
            "unknown method": dict(explain=["--method", "shaply"], evaluate=["--metric", "delition"],
                                   **{"export-exnli": ["--method", "shaply", "--out", "x"]},
                                   explore=["--method", "shaply"]),
            "unknown model": dict(explain=["--model", "tiny-bert-nly"], evaluate=["--model", "tiny-bert-nly"],
                                  **{"export-exnli": ["--model", "tiny-bert-nly", "--out", "x"]},
                                  explore=["--model", "tiny-bert-nly"]),
            "unknown name": dict(list=["metods"], explain=["--data", "demo-nly"], results=["--profile", "demmo"],
                                 **{"export-exnli": ["--aligner", "statistic", "--out", "x"]},
                                 explore=["--data", "demo-nly"]),
            "surplus": dict(list=["methods", "metrics"], explain=["a", "b"], evaluate=["a", "b"], results=["a"],
                            **{"export-exnli": ["a"]}, explore=["a"], doctor=["a"])}

@pytest.mark.parametrize("mistake, command", [(m, c) for m, commands in MISTAKES.items() for c in commands])
def test_every_mistake_of_every_command_is_one_line(mistake, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = to_instance(dict(parts=PARTS))
    line = json.dumps(Explanation.from_scores(x, range(x.n_words)).to_dict()) if command == "evaluate" else LINE
    said = bad(command, *MISTAKES[mistake][command], given=None if "--data" in MISTAKES[mistake][command] else line)
    known = [a for a in MISTAKES[mistake][command] if not a.startswith("--") and a not in ("x", "0", "xnli")]
    assert any(a in said for a in known) or mistake in ("bad option", "bad value"), said
    if mistake in ("unknown method", "unknown model", "unknown name"): assert "did you mean" in said
    assert list(tmp_path.iterdir()) == []

def test_export_does_not_overwrite(tmp_path):
    (tmp_path/"there").mkdir()
    (tmp_path/"there"/"notes.txt").write_text("mine")
    assert "--overwrite" in bad("export-exnli", "--out", tmp_path/"there")
    assert "xx" in bad("export-exnli", "--langs", "de,xx", "--out", tmp_path/"new")
    assert (tmp_path/"there"/"notes.txt").read_text() == "mine"

def test_export_writes_a_dataset(tmp_path):
    said = good("export-exnli", "--data", "demo-xnli", "--model", "minilm-nli", "--method", "input_x_gradient",
                "--langs", "de", "--n", 4, "--out", tmp_path/"mine", "--quiet")
    assert said.strip() == str(tmp_path/"mine") and (tmp_path/"mine"/"README.md").is_file()
    assert list((tmp_path/"mine").rglob("de.*"))

def test_explore_is_served_by_voila_on_this_machine_only(monkeypatch):
    monkeypatch.delenv("XFEVAL_EXPLORER", raising=False)
    command = good("explore", "--dry", "--port", 0, "--no-browser")
    assert "-m voila" in command and "explorer.ipynb" in command and "--no-browser" in command
    assert "127.0.0.1" in command and "0.0.0.0" not in command

def test_explore_ends_with_the_server(monkeypatch):
    import subprocess as sp
    asked = []
    monkeypatch.setattr(sp, "call", lambda command, env: asked.append((command, json.loads(env["XFEVAL_EXPLORER"])))
                        or 0)
    assert run("explore", "--port", 0, "--kind", "span", "--method", "attention", "--no-browser").exit_code == 0
    assert asked[0][1] == dict(model="tiny-bert-nli", method="attention", kind="span")

def test_the_pipe_of_the_readme_prints_a_score():
    made = good("explain", "--model", "minilm-nli", "--method", "shapley", "--kind", "span",
                given=json.dumps(dict(parts=PARTS)))
    table = good("evaluate", "--metric", "unified_comprehensiveness", given=made).splitlines()
    row = dict(zip(table[0].split(), table[1].split()))
    assert row["metric"] == "unified_comprehensiveness" and 0 <= float(row["mean"]) <= 1

# ---------------------------------------------------------------- list, results, doctor, help

@pytest.mark.parametrize("what", ["datasets", "methods", "metrics", "models", "profiles"])
def test_list(what):
    rows = json.loads(good("list", what, "--json"))
    table = good("list", what)
    assert isinstance(rows, list) and len(table.splitlines()) == len(rows) + 1
    if what in ("datasets", "methods", "metrics"): assert len(rows) > 10

def test_datasets_with_size_languages_licence_and_where_they_were_looked_for():
    head, first = good("list", "datasets").splitlines()[:2]
    assert head.split() == ["name", "task", "size", "languages", "licence", "found", "looked_in", "looked_for"]
    assert "train 549367" in first and "snli/snli_1.0_train*.jsonl" in first

def test_list_all_and_unknown():
    assert [r["list"] for r in json.loads(good("list", "--json"))] == ["datasets", "methods", "metrics", "models",
                                                                       "profiles"]
    assert "did you mean 'metrics'" in bad("list", "metric")

def test_results_refuses_unknown_profiles():
    assert "did you mean 'smoke'" in bad("results", "--profile", "smok")

def test_doctor_says_how_to_mend(monkeypatch, tmp_path):
    found = {r["check"]: r for r in json.loads(run("doctor", "--json").stdout)}
    assert set(found) == set(checks) and found["python"]["state"] == "ok" and found["data"]["state"] == "ok"
    assert all(r["fix"] for r in found.values() if r["state"] != "ok")
    monkeypatch.setenv("XFEVAL_HOME", str(tmp_path))
    monkeypatch.delenv("XFEVAL_DATA", raising=False)
    r = run("doctor")
    assert r.exit_code == 1 and "fail  data" in r.stdout and "fix: restore" in r.stdout
    assert {r["check"]: r["state"] for r in examine()}["datasets"] == "warn"

def test_a_check_that_breaks_has_failed(monkeypatch):
    monkeypatch.setitem(checks, "devices", lambda: 1/0)
    assert next(r for r in examine() if r["check"] == "devices")["state"] == "fail"

@pytest.mark.parametrize("command", ["list", "explain", "evaluate", "results", "export-exnli", "explore", "doctor"])
def test_help_has_examples(command):
    text = good(command, "--help")
    assert "Examples:" in text and f"xfeval {command}" in text

def test_version_and_no_arguments():
    from xfeval import __version__
    assert good("--version").strip() == f"xfeval {__version__}" and "Commands:" in good()

def test_help_imports_nothing_heavy():
    code = "import sys, xfeval.apps.cli; sys.exit(', '.join(m for m in ('torch', 'transformers', 'pandas', 'numpy', 'matplotlib') if m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""

def test_small_things():
    import pandas as pd
    assert pairs_of(["a=1", "b=x=y", "c=null"]) == dict(a=1, b="x=y", c=None)
    assert table(pd.DataFrame([dict(a="x", b=1.5), dict(a="long", b=math.nan)]), "text", digits=4).splitlines() == ["a          b",
                                                                                                       "x     1.5000",
                                                                                                       "long"]
    assert all(len(l) <= 10 for l in table(pd.DataFrame([dict(a="x"*50)]), "text", width=10).splitlines())

def test_ctrl_c_is_one_line(monkeypatch):
    def interrupted(what): raise KeyboardInterrupt
    monkeypatch.setattr("xfeval.apps.cli._shelf", interrupted)
    assert bad("list", "methods", code=130) == "xfeval: stopped"
