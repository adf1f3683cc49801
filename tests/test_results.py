"""Published beside ours, claims, the list of items, and the runner"""
import json, os, select, signal, subprocess, sys
from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import psutil
import pytest
import yaml

from xfeval.core.utils import bundled
from xfeval.data.datasets import datasets
from xfeval.papers import claims as cl, items as it, run as runner
from xfeval.papers.plan import (check_parameters, left_out, list_profiles, load_plan, notebooks, profile_spec,
                                read_notebook, resources)
from xfeval.papers.published import (Results, csv_text, list_published, published, render, read_published)
from xfeval.papers.report import write_report

KEYS = ["dataset", "model", "level", "explanation_type", "base"]
LIST = {"sun2025": (12, 4), "zhao2023": (6, 3), "zaman2022": (12, 5), "pruthi2022": (11, 1)}


def ours(name="sun2025_table03", **more): return published(name).assign(**more)


def test_reading_is_the_same_for_ours_and_published(tmp_path):
    t = published("pruthi2022_table05")
    (tmp_path/"t.csv").write_text(csv_text(t))
    assert read_published(tmp_path/"t.csv").equals(t) and "None" in set(t.method)


def test_beside_keeps_every_published_row_in_order():
    t = ours()
    shuffled = t.sample(frac=1, random_state=0)
    b = cl.beside("sun2025_table03", shuffled, KEYS, "map_percent")
    assert b.df[KEYS].equals(t[KEYS].astype(str)) and np.allclose(b.df.ours.dropna(), t.map_percent.dropna())


def test_beside_refuses_silence():
    t = ours()
    with pytest.raises(ValueError, match="no reason for"):
        cl.beside("sun2025_table03", t[t.base != "IG"], KEYS, "map_percent")
    with pytest.raises(ValueError, match="was not published"):
        cl.beside("sun2025_table03", t.replace("IG", "LIME"), KEYS, "map_percent", missing="gone")
    with pytest.raises(ValueError, match="two rows"):
        cl.beside("sun2025_table03", pd.concat([t, t]), KEYS, "map_percent")
    with pytest.raises(ValueError, match="sun2025_table03"): cl.beside("sun2025_table30", t, KEYS, "map_percent")
    with pytest.raises(ValueError, match="map_percent"): cl.beside("sun2025_table03", t, KEYS, "map_percents")


def test_missing_cells_say_why_and_undefined_cells_stay_empty():
    b = cl.beside("sun2025_table03", None, KEYS, "map_percent", across="base",
                  missing=[(dict(base="IG"), "no gradients"), (dict(), "no model")])
    notes = b.df.set_index(KEYS).note
    assert set(notes[notes != ""]) == {"not available here: no gradients", "not available here: no model"}
    assert (b.df[b.df.published.isna()].note == "").all() and b.df.ours.isna().all()
    for format in ("markdown", "html", "latex"): assert "not available here: no gradients" in b.render(format)


def test_best_is_bold_for_both_and_in_the_right_direction():
    t = published("sun2025_table11").assign(entropy_nats=lambda d: 10 - d.entropy_nats)
    b = cl.beside("sun2025_table11", t, ["dataset", "model", "explanation_type", "base"], "entropy_nats", best="min",
                  within=["dataset"])
    bold = cl._bold(b)
    d = b.df
    for s in ("SNLI", "FEVER"):
        at = d.dataset == s
        assert set(d.published[at & bold["published"]]) == {d.published[at].min()}
        assert set(d.ours[at & bold["ours"]]) == {d.ours[at].min()}
    assert "<b>" not in cl.beside("sun2025_table11", t, ["dataset", "model", "explanation_type", "base"],
                                  "entropy_nats", best="none")._repr_html_()


def test_intervals_n_and_several_values():
    t = published("sun2025_table07").assign(rsf_points_low=-1., rsf_points_high=1., n=42)
    b = cl.beside("sun2025_table07", t, ["dataset", "model", "insertion", "explanation_type", "base"],
                  ["sf_f1_percent", "rsf_points"], across="base")
    assert set(b.df.measure) == {"sf_f1_percent", "rsf_points"}
    assert len(b.df) == 36
    assert "[-1.00, 1.00]" in repr(b)
    assert b.df.n.eq(42).all()
    assert b.df[b.df.measure == "sf_f1_percent"].low.isna().all()


def test_text_is_escaped():
    t = published("sun2025_table02").assign(f1_percent=1.)
    b = cl.beside("sun2025_table02", t, ["model", "dataset", "split"], "f1_percent",
                  notes="<script>alert(1)</script> & 5 %").titled("<b>caption</b>")
    assert "<script>" not in b._repr_html_()
    assert "<b>caption" not in b._repr_html_()
    assert r"5 \%" in b.render("latex")


def test_every_text_claim_has_a_predicate_and_a_unique_id():
    c = cl.load_claims()
    ids = [x["id"] for x in c]
    assert len(set(ids)) == len(ids)
    for x in c:
        assert x["predicate"] in cl.predicates and {"id", "item", "text",
                                                    "published"} <= set(x) and x["id"].startswith(x["paper"] + "-")
        if x["predicate"] not in ("setting", "people"): assert x.get("table") and "value" in x["args"]
    printed = {p: len(published(f"{p}_text_claims")) for p in ("sun2025", "zaman2022", "pruthi2022")}
    have = pd.Series([x["paper"] for x in c]).value_counts()
    assert have["sun2025"] >= printed["sun2025"]
    assert have["zaman2022"] >= printed["zaman2022"]
    assert have["zhao2023"] >= 3
    for p in ("sun2025", "zaman2022", "pruthi2022"):
        said = " ".join(str(x["published"]) + " " + x["text"].replace(",", "") for x in c if x["paper"] == p)
        lost = [v for v in published(f"{p}_text_claims").value if f"{v:g}" not in said
                and f"{v:.2f}".lstrip("0") not in said and {20: "20", 40: "40"}.get(v, "?") not in said
                and not (v == 4 and "Four" in said) and not (v == 10 and "Ten" in said)]
        assert not lost, f"{p}: claims with the values {lost} are not in claims.yaml"


def test_published_tables_contradict_the_texts_where_the_specification_says_so():
    tables = {n: published(n) for n in list_published()}
    v = pd.concat([cl.check_claims(p, tables) for p in ("sun2025", "zhao2023", "zaman2022",
                                                        "pruthi2022")]).set_index("id")
    assert v.recount["sun2025-simulatability-wins"] == "10 of 12"
    assert v.recount["sun2025-simulatability-wins-text"].startswith("8 of 12, contradicts")
    assert v.recount["sun2025-simulatability-insertion-bert"].startswith("11 of 18")
    assert v.recount["sun2025-simulatability-insertion-bart"].startswith("17 of 18")
    assert v.recount["sun2025-complexity-tokenintex"].startswith("9 of 12")
    assert v.recount["sun2025-agreement-interaction-shapley-worst"].startswith("5 of 8")
    assert v.recount["zhao2023-soft-better"] == "16 of 18" and v.verdict["pruthi2022-trivial-control"] == "no"


def wins_claim(values, low=None, high=None):
    t = pd.DataFrame([dict(dataset=d, model=m, base=b, explanation_type=k, metric="comprehensiveness", value=v)
                      for d in ("SNLI", "FEVER") for m in ("BERT", "BART") for b in ("Shapley", "Attention", "IG")
                      for k, v in values.items()])
    if low is not None: t = t.assign(low=t.value - low, high=t.value + high)
    return {"sun2025_figure03": t[t.model == "BERT"], "sun2025_figure04": t[t.model == "BART"]}


def test_verdicts():
    id_ = "sun2025-comprehensive-tokenex"
    verdict = lambda *a, **k: cl.check_claims("sun2025", *a, **k).set_index("id").loc[id_]
    clear, wrong, close = wins_claim(dict(TokenEx=.9, TokenIntEx=.1, SpanIntEx=.2), .01,
                                     .01), wins_claim(dict(TokenEx=.1, TokenIntEx=.9, SpanIntEx=.2), .01,
                                                      .01), wins_claim(dict(TokenEx=.51, TokenIntEx=.5, SpanIntEx=.2),
                                                                       .3, .3)
    assert verdict(clear).verdict == "yes"
    assert verdict(clear).ours == "12 of 12"
    assert verdict(wrong).verdict == "no"
    assert verdict(close).verdict == "cannot tell"
    flip = verdict(clear, variants={"Option 17: incremental": wrong, "Option 14: attention": clear})
    assert flip.verdict == "depends on Option 17" and "0 of 12" in flip.why
    assert verdict(clear, variants={"Option 14: attention": clear}).verdict == "yes"
    assert id_ not in set(cl.check_claims("sun2025", {}, dict(k_faithfulness=3)).id)
    assert cl.check_claims("sun2025", {}, dict(k_faithfulness=2)).verdict.tolist() == ["no"]


def test_a_tie_is_no_win():
    t = pd.DataFrame(dict(c=[0, 0], who=["a", "b"], v=[1., 1.]))
    assert cl.win_count(t, "v", "who", "a", ["c"], total=1, at_least=1) == cl.ClaimResult(False, "0 of 1")
    assert cl.beats(t, "v", "who", [["a", "b"]], ["c"], or_equal=True).holds


def test_merged_claims_hold_every_claim_once_and_keep_depends_on(tmp_path):
    r = Results(tmp_path, "one")
    r.claims(cl.check_claims("sun2025", wins_claim(dict(TokenEx=.9, TokenIntEx=.1, SpanIntEx=.2), .01, .01)))
    r = Results(tmp_path, "two")
    r.claims(cl.check_claims("sun2025", wins_claim(dict(TokenEx=.9, TokenIntEx=.1, SpanIntEx=.2), .01, .01),
                             variants={"Option 17: x": wins_claim(dict(TokenEx=.1, TokenIntEx=.9, SpanIntEx=.2))}))
    m = cl.merge_claims(tmp_path)
    assert m.id.tolist() == [c["id"] for c in cl.load_claims()]
    assert m.set_index("id").verdict["sun2025-comprehensive-tokenex"] == "depends on Option 17"
    assert read_published(tmp_path/"claims.csv").id.tolist() == m.id.tolist()


def test_the_list_of_items_is_complete():
    for paper, (tables, figures) in LIST.items():
        ids = [i["id"] for i in it.load_items(paper)]
        assert {f"{paper}_table{k:02d}" for k in range(1, tables+1)} | {f"{paper}_figure{k:02d}"
                                                                        for k in range(1,
                                                                                       figures+1)} == set(ids), paper
    assert [i["id"] for i in it.load_items("ferret")] == ["ferret_benchmark"]
    named = {n for i in it.load_items() if isinstance(i["published"], list) for n in i["published"]}
    assert named <= set(list_published()) and {n for n in list_published() if "text_claims" not in n
                                               and "metric_cards" not in n} <= named
    for i in it.load_items(): assert isinstance(i["published"], list) or i["published"]["none"]


def test_items_name_data_sets_that_exist_and_notebooks_are_few():
    made = set(notebooks())
    assert len(made) <= 15
    for i in it.load_items():
        assert set(i["profiles"]) == {"demo", "laptop", "paper"}, i["id"]
        for p in ("demo", "laptop"):
            needs = it.item_needs(i, p)
            if not isinstance(needs, str): assert set(needs.get("data", [])) <= set(datasets), (i["id"], p)
    assert {"sun2025_faithfulness", "sun2025_simulatability"} <= made


def test_availability_follows_the_files(tmp_path, monkeypatch):
    t = it.availability(("demo", "laptop")).set_index("item")
    assert t.demo["sun2025_figure01"].startswith("runs: controlled-nli")
    assert t.laptop["sun2025_table05"].startswith("not available because no BART")
    monkeypatch.setattr(it, "list_models", lambda: [])
    assert "tiny-bert-nli is not among" in it.availability(("demo",)).set_index("item").demo["sun2025_table03"]


def test_check_outputs_fails_on_a_lost_item_and_on_a_lone_table(tmp_path):
    r = Results(tmp_path, "sun2025_faithfulness")
    only = ["sun2025_faithfulness"]
    before = it.check_outputs(tmp_path, "smoke", only).set_index("item").problem
    assert before["sun2025_table03"] == "no output" and "sun2025_table07" not in before
    r.table(ours(), "sun2025_table03")
    assert "without its published counterpart" in it.check_outputs(tmp_path, "smoke",
                                                                   only).set_index("item").problem["sun2025_table03"]
    b = cl.beside("sun2025_table03", ours(), KEYS, "map_percent")
    r.table(b, "sun2025_table03")
    assert "sun2025_table03" not in set(it.check_outputs(tmp_path, "smoke", only).item)
    (tmp_path/"tables"/"sun2025_table03.csv").write_text(csv_text(b.df.iloc[:5]))
    assert "lost published rows" in it.check_outputs(tmp_path, "smoke",
                                                     only).set_index("item").problem["sun2025_table03"]
    (tmp_path/"tables"/"sun2025_table03.csv").write_text(csv_text(b.df.assign(ours=np.nan, note="")))
    assert "without a reason" in it.check_outputs(tmp_path, "smoke",
                                                  only).set_index("item").problem["sun2025_table03"]
    assert "sun2025_table05" not in set(it.check_outputs(tmp_path, "laptop", only).item)


NOTEBOOK = """
profile = "smoke"
out = "."
note = ""
seed = 0
needs = {needs}
"""
BODY = """
from pathlib import Path
from xfeval.papers.published import Results
import pandas as pd
res = Results(out, "{name}", note)
res.table(pd.DataFrame(dict(a=[seed], seen=[len(list((Path(out)/"tables").glob("*.csv")))])), "{name}_t")
res.close()
"""


@pytest.fixture
def folder(tmp_path):
    f = tmp_path/"nbs"
    for name in ("profiles", "a", "z"): (f/name).mkdir(parents=True)
    (f/"profiles"/"demo.yaml").write_text("defaults: {seed: 1}\n")
    meta = dict(kernelspec=dict(name="python3", display_name="p", language="python"))
    for name, needs in (("a_reader", ["z_writer"]), ("z_writer", [])):
        cells = [nbformat.v4.new_code_cell(NOTEBOOK.format(needs=needs), metadata=dict(tags=["parameters"])),
                 nbformat.v4.new_code_cell(BODY.format(name=name))]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=meta), f/f"{name.replace('_', '/')}.ipynb")
    return f


def progress(lines): return [s for s in lines if s.startswith(("running", "["))]


def test_runner_waits_for_what_a_notebook_needs_and_resumes(folder, tmp_path):
    out, lines = tmp_path/"out", []
    r = runner.run("demo", out=out, folder=folder, log=lines.append)
    said = progress(lines)
    assert not any("error" in x for x in r) and read_published(out/"tables"/"a_reader_t.csv").seen.tolist() == [1]
    assert said[0].startswith("running: z_writer | left: 1 (a_reader)"), "before anything ends, the plan is printed"
    assert said[1].startswith("[1/2] z_writer: ") and "running: a_reader" in said[1] and "left" not in said[1]
    assert said[2].startswith("[2/2] a_reader: ") and "running" not in said[2]
    bytes_ = {p: p.read_bytes() for p in (out/"tables").iterdir()}
    (out/"records"/"a_reader.stamp.json").unlink()
    again = {x["name"]: x for x in runner.run("demo", out=out, folder=folder, log=lines.append)}
    assert again["z_writer"].get("skipped") and not again["a_reader"].get("skipped")
    assert any(s.startswith("[1/2] z_writer: already done") for s in lines)
    assert {p.name for p in (out/"tables").iterdir()} == {p.name for p in bytes_}
    assert (out/"tables"/"z_writer_t.csv").read_bytes() == bytes_[out/"tables"/"z_writer_t.csv"]
    page = (out/"index.html").read_text()
    manifest = json.loads((out/"manifest.json").read_text())
    assert "a_reader_t" in page
    assert (out/"claims.csv").exists()
    assert manifest["notebooks"]["z_writer"]["params"]["seed"] == 1


def test_report_shows_what_was_made_and_says_what_is_missing(tmp_path):
    res = Results(tmp_path, "sun2025_faithfulness", "tiny")
    res.table(pd.DataFrame(dict(dataset=["SNLI"], train=[7])), "sun2025_table01", "Data <b>")
    res.table(pd.DataFrame(dict(row=range(99))), "sun2025_table03", "Long")
    res.close()
    done = dict(name="sun2025_faithfulness", params=dict(n=3, note="tiny"), files=res.files)
    plan = replace(load_plan("demo"), skipped=dict(zhao2023="no model"))
    page = write_report(plan, tmp_path, [done]).read_text()
    assert "Data &lt;b&gt;" in page and "Data <b>" not in page and "no model" in page
    text = (tmp_path/"report.md").read_text()
    assert text.startswith("# Results of the profile demo: tiny") and "- `sun2025_faithfulness`: n = 3" in text
    assert "### Table 1" in text and "| SNLI" in text and "`sun2025_table03` has 99 rows" in text
    gaps = text.split("## Not available here")[1]
    assert "zhao2023_table01" in gaps and "no model" in gaps and "sun2025_table01" not in gaps


@pytest.mark.parametrize("profile,shown", [("demo", True), ("laptop", False)])
def test_report_does_not_pass_on_texts_of_others(tmp_path, profile, shown):
    res = Results(tmp_path, "pruthi2022_students", "")
    res.table(pd.DataFrame({"a sentence of somebody": ["LIME"]}), "pruthi2022_table02", "Examples")
    res.close()
    done = dict(name="pruthi2022_students", params=dict(n=3), files=res.files)
    write_report(load_plan(profile), tmp_path, [done])
    text = (tmp_path/"report.md").read_text()
    assert ("a sentence of somebody" in text) == shown and ("not passed on" in text) != shown


def test_longest_chain_of_notebooks_starts_first(folder):
    chain = runner.chains(load_plan("demo", only="sun2025"))
    assert chain["sun2025_faithfulness"] > chain["sun2025_simulatability"] > 0
    plan = load_plan("demo", folder=folder)
    plan.params["z_writer"]["needs"] = ["a_reader"]
    assert set(runner.chains(plan)) == {"a_reader", "z_writer"}, "a circle is left to the runner, which names it"
    with pytest.raises(ValueError, match="wait for each other"): runner._run_all(plan, folder, 2, 1, print)


def test_a_notebook_is_not_run_when_one_that_it_needs_failed(folder, tmp_path):
    path = folder/"z"/"writer.ipynb"
    nb = nbformat.read(path, 4)
    nb.cells.append(nbformat.v4.new_code_cell("raise SystemError('broken')"))
    nbformat.write(nb, path)
    r = {x["name"]: x for x in runner.run("demo", out=tmp_path/"out", folder=folder, log=lambda s: None)}
    assert "broken" in r["z_writer"]["error"] and r["a_reader"]["error"] == "it needs z_writer, which failed"
    assert "failed: it needs z_writer" in (tmp_path/"out"/"index.html").read_text()


HANG = """
import os
gate = os.environ.get("TEST_GATE")
if gate:
    with open(gate, "w") as f: f.write(str(os.getpid()))
    open(gate + ".never").read()
"""


def test_a_run_with_other_parameters_that_was_cut_off_leaves_no_mixture(folder, tmp_path, monkeypatch):
    "It has changed files of the run before it, which therefore no longer counts as done"
    plan, out = load_plan("demo", "z_writer", folder), tmp_path/"out"
    def once(seed):
        plan.params["z_writer"]["seed"] = seed
        return runner.run_one(plan, "z_writer", out)
    once(1)
    table = out/"tables"/"z_writer_t.csv"
    def cut_off(*args):
        table.write_text("half")
        return subprocess.CompletedProcess([], 1, "", "killed")
    with monkeypatch.context() as m:
        m.setattr(runner, "_execute", cut_off)
        assert once(2)["error"] == "killed"
    assert not once(1).get("skipped")
    assert read_published(table).a.tolist() == [1]


def test_done_is_decided_by_content_not_by_time(folder, tmp_path):
    "A touched file runs nothing; a damaged output, a changed input and a damaged record run their notebook again"
    out, plan = tmp_path/"out", load_plan("demo", "z_writer", folder)
    def again(): return not runner.run_one(load_plan("demo", "z_writer", folder), "z_writer", out).get("skipped")
    assert again() and not again()
    for f in (out/"tables"/"z_writer_t.csv", plan.notebooks["z_writer"].path, bundled("README.md")): os.utime(f)
    assert not again()
    for name, text in (("tables/z_writer_t.csv", "a"), ("notebooks/z_writer.html", ""),
                       ("records/z_writer.stamp.json", "[]")):
        (out/name).write_text(text)
        assert again() and not again(), name
    (folder/"z"/"claims.yaml").write_text("[]")
    assert again() and not again()


def test_a_changed_module_runs_what_imports_it(tmp_path, monkeypatch):
    "Directly, through a package, through another module or by its name; nothing else"
    lib = tmp_path/"xfeval"
    files = {"__init__": "names = ('xfeval.a.late',)",
             "a/__init__": "", "a/one": "__all__ = ['f']\nfrom ..b import two",
             "a/late": "", "b/__init__": "", "b/two": "def g():\n    import xfeval.b.three", "b/three": "",
             "c/__init__": "", "c/four": "from xfeval.a import f",
             "c/five": "for k in ('three', 'other'): import_module(f'xfeval.b.{k}')"}
    for name, text in files.items():
        (lib/name).parent.mkdir(parents=True, exist_ok=True)
        (lib/f"{name}.py").write_text(text)
    monkeypatch.setattr(runner, "_library", lib)
    def names(code): return {p.stem for p in runner.import_closure(code) if p.stem != "__init__"}
    assert names("from xfeval.a import f") == {"one", "two", "three", "late"}
    assert names("import xfeval.b.two") == {"two", "three", "late"} and names("import numpy") == set()
    assert names("from xfeval.c import four") == {"four", "one", "two", "three", "late"}
    assert names("from xfeval.c import five") == {"five", "three", "late"}


def test_a_killed_run_goes_on_where_it_was(folder, tmp_path):
    "The second notebook waits at a gate; there the whole process group is killed"
    nb = nbformat.read(folder/"a"/"reader.ipynb", 4)
    nb.cells.insert(1, nbformat.v4.new_code_cell(HANG))
    nbformat.write(nb, folder/"a"/"reader.ipynb")
    gate, torn, whole = tmp_path/"gate", tmp_path/"torn", tmp_path/"whole"
    os.mkfifo(gate)
    os.mkfifo(f"{gate}.never")
    fd = os.open(gate, os.O_RDWR)
    code = f"from xfeval.papers.run import run; run('demo', out={str(torn)!r}, folder={str(folder)!r})"
    p = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ, TEST_GATE=str(gate)),
                         start_new_session=True, stdout=subprocess.DEVNULL)
    while not select.select([fd], [], [], 1)[0]: assert p.poll() is None, "the second notebook did not start"
    kernel = int(os.read(fd, 20))
    os.killpg(p.pid, signal.SIGKILL)
    os.kill(kernel, signal.SIGKILL)
    assert p.wait() == -signal.SIGKILL
    assert not (torn/"records"/"a_reader.stamp.json").exists() and not (torn/"tables"/"a_reader_t.csv").exists()
    before = (torn/"tables"/"z_writer_t.csv").stat().st_mtime_ns
    again = {r["name"]: r for r in runner.run("demo", out=torn, folder=folder, log=lambda s: None)}
    assert again["z_writer"]["skipped"] and not again["a_reader"].get("skipped") and "error" not in again["a_reader"]
    assert (torn/"tables"/"z_writer_t.csv").stat().st_mtime_ns == before, "what was done is not written again"
    runner.run("demo", out=whole, folder=folder, log=lambda s: None)
    made = sorted(f.relative_to(whole) for f in whole.rglob("*.csv"))
    assert made and made == sorted(f.relative_to(torn) for f in torn.rglob("*.csv"))
    assert [(torn/f).read_bytes() for f in made] == [(whole/f).read_bytes() for f in made]
    assert not list(torn.rglob("*.part.ipynb")) and not [f for f in torn.rglob(".*") if f.is_file()]


def test_an_incomplete_run_fails(tmp_path, monkeypatch, capsys):
    records, said = [dict(name="ferret_benchmark")], []
    runner._check_complete(load_plan("smoke"), tmp_path, records, said.append)
    assert said == ["incomplete: ferret_benchmark (ferret_benchmark): no output"]
    assert records[0]["incomplete"]
    for record, code in ((dict(name="a"), 0), (dict(name="a", incomplete=True), 1),
                         (dict(name="a", error="x", log="long x"), 1)):
        monkeypatch.setattr(runner, "run", lambda *a, **k: [record])
        assert runner._main([]) == code
    assert "long x" in capsys.readouterr().err


MISTAKES = {"defaults: {sed: 1}": "did you mean 'seed'", "defaults: {seed: one}": "must be int",
            "defaults: {seed: 1.5}": "must be int", "defaults: {seed: -1}": "must not be negative",
            "defaults: {needs: z_writer}": "must be list", "skips: {}": "section of profile demo"}
MISTAKES_IN_SIZES = {"notebooks: {a_reader: {needs: [1]}}": "must be list of str",
                     "notebooks: {z_writter: {}}": "z_writer",
                     "skip: {nobody: because}": "notebook in profile", "models: {nobody: [m]}": "notebook in profile",
                     "leaves: {}": "section of a/sizes.yaml", "notebooks: {a_reader: {sead: 1}}": "did you mean 'seed'"}


def sizes(folder, text): (folder/"a"/"sizes.yaml").write_text(f"demo:\n  {text}\n")


@pytest.mark.parametrize("text", [*MISTAKES, *MISTAKES_IN_SIZES])
def test_mistakes_in_a_profile_stop_the_run_before_anything_runs(folder, tmp_path, text):
    if text in MISTAKES: (folder/"profiles"/"demo.yaml").write_text(text)
    if text in MISTAKES_IN_SIZES: sizes(folder, text)
    with pytest.raises(ValueError, match={**MISTAKES_IN_SIZES, **MISTAKES}[text]):
        runner.run("demo", out=tmp_path/"out", folder=folder)
    assert not (tmp_path/"out").exists()


def test_values_inside_lists_are_checked():
    have = dict(cells=[["SNLI", "controlled-nli", "tiny-bert-nli"]], data="controlled-nli", sizes=[1, 2])
    check_parameters(dict(cells=[["FEVER", "controlled-fever", "any"]], data="xnli", sizes=[1, 2, 3]), have, "here")
    for bad, what in ((dict(cells=[["FEVER", "controlled-fevr", "m"]]), "controlled-fever"),
                      (dict(data="xnly"), "xnli"),
                      (dict(sizes=[1, "2"]), "list of int"), (dict(sizes=[1, -2]), "negative")):
        with pytest.raises(ValueError, match=what): check_parameters(bad, have, "here")


def test_a_profile_may_leave_notebooks_out(folder):
    sizes(folder, "skip: {a_reader: no data}")
    plan = load_plan("demo", folder=folder)
    assert list(plan.params) == ["z_writer"] and plan.skipped == {"a_reader": "no data"}
    sizes(folder, "models: {a_reader: [tiny-bert-nli, nobody], z_writer: [nobody]}")
    assert list(load_plan("demo", folder=folder).params) == ["a_reader"]
    assert left_out(profile_spec("demo", folder)) == {"z_writer": "the model nobody is not shipped"}
    with pytest.raises(ValueError, match=r"'z_writer': there are a_reader \(profile demo leaves out z_writer\)"):
        load_plan("demo", "z_writer", folder)


def test_the_cost_is_counted_by_the_notebook(folder):
    path = folder/"z"/"writer.ipynb"
    nb = nbformat.read(path, 4)
    nb.cells.insert(1, nbformat.v4.new_code_cell("rows = 10*seed\ntrainings = 2", metadata=dict(tags=["cost"])))
    nbformat.write(nb, path)
    sizes(folder, "notebooks: {z_writer: {seed: 7}}")
    costs = load_plan("demo", folder=folder).costs
    assert costs["z_writer"] == dict(rows=70, trainings=2, pace=None) and costs["a_reader"]["rows"] is None


def test_a_plan_opens_every_notebook_once(monkeypatch):
    from xfeval.papers import plan as p
    opened = []
    monkeypatch.setattr(p, "read_notebook", lambda path: (opened.append(path), read_notebook(path))[1])
    runner.run("smoke", dry=True, log=lambda s: None)
    assert len(opened) == len(set(opened)) and len(opened) < 20


def test_profiles_that_ship_resolve_and_print_their_plan():
    assert list_profiles() == ["smoke", "demo", "laptop", "paper"]
    for p in list_profiles(): assert load_plan(p).params
    r = resources(load_plan("paper", only="sun2025"))
    gone = set(r["missing"].name)
    assert {"spanex-snli", "models/bart-base-fever",
            "facebook/bart-base"} <= gone, "also what a model is trained from"
    assert r["hours"] > 1 and r["disk"] > 0 and r["plan"].rows.gt(0).all()
    demo, smoke = (resources(load_plan(p, only="sun2025"))["plan"].rows.sum() for p in ("demo", "smoke"))
    assert demo > 10*smoke > 0


def test_every_model_of_the_paper_profile_has_a_source_and_a_size():
    r = resources(load_plan("paper"))
    models = r["missing"][r["missing"].kind == "model"]
    assert len(models) > 25 and models.gb.notna().all(), models[models.gb.isna()].name.tolist()
    trained = models[models.name.str.startswith("models/")]
    assert trained.source.str.startswith("to be trained from ").all()
    assert len(trained[trained.name.str.contains("-seed")]) == 20
    said = []
    assert runner.run("paper", dry=True, log=said.append) == [] and max(map(len, said)) <= 160
    text = "\n".join(said)
    assert "models/roberta-base-multirc, 5 seeds (to be trained from roberta-base on MultiRC, 2.50 GB)" in text
    assert "about 0 " not in text and "GPU hours, if one runs 1,500 rows a second" in text


def test_stand_ins_are_never_called_by_the_papers_names():
    from xfeval.papers.sun2025 import study as sun
    cells = [["SNLI", "BERT", "controlled-nli", "tiny-bert-nli"],
             ["FEVER", "BERT", "spanex-fever", "models/bert-base-uncased-fever"]]
    t = pd.DataFrame(dict(dataset=["SNLI", "FEVER"], model="BERT"))
    n = sun.named(t, cells)
    assert n.dataset.tolist() == ["controlled-nli (for SNLI)",
                                  "FEVER"] and n.model.tolist() == ["tiny-bert-nli (for BERT)", "BERT"]
    assert sun.unnamed(n).equals(t)
    assert sun.stand_ins(cells) == ". Ours: tiny-bert-nli on controlled-nli for BERT on SNLI"
    assert sun.stand_ins(cells[1:]) == ""


def test_cells_without_data_or_model_say_why(monkeypatch):
    from xfeval.papers.sun2025 import study as sun
    made, missing = sun.study_cells([["SNLI", "BERT", "snli", "no-such-model"],
                                     ["FEVER", "BERT", "spanex-fever", "tiny-bert-fever"]])
    why = {(w["dataset"], w["model"]): text for w, text in missing}
    assert made == [] and why["SNLI", "BERT"] == "no model 'no-such-model' ships" and len(why) == 4
    assert why["FEVER", "BERT"] == "data set spanex-fever is not in the data folder"


def test_f1_is_not_counted_on_what_a_model_has_learned_from(monkeypatch, tmp_path):
    from xfeval.papers.sun2025 import study as sun
    (tmp_path/"card.json").write_text(json.dumps(dict(recipe=dict(train=[["fever-symmetric", "validation", None]]))))
    monkeypatch.setattr(sun, "bundled", lambda *parts: tmp_path/"card.json")
    assert sun._trained_on("m", "fever-symmetric", "validation") and not sun._trained_on("m", "fever-symmetric",
                                                                                         "test")


def test_a_claim_on_spread_survives_redraws():
    "A truth value of numpy is not `True`: such a claim could never be *yes*"
    t = pd.DataFrame(dict(m=list("aaabbb"), v=[1., 1.1, 1.2, 1., 5., 9.]))
    assert cl.narrower(t, "v", "m", [["a", "b"]]).holds is True
    claim = dict(predicate="narrower", args=dict(value="v", of="m", pairs=[["a", "b"]]))
    r, verdict, why = cl._judge(claim, t.assign(low=t.v - .01, high=t.v + .01), 50, np.random.default_rng(0))
    assert verdict == "yes" and why.startswith("holds in 100%")


def test_a_killed_runner_takes_its_notebooks_along():
    "Nothing goes on computing after the runner is gone"
    assert runner._papermill.startswith(runner._watch)
    child = runner._watch + "print(os.getpid(), flush=True); threading.Event().wait()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    notebook = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    assert psutil.wait_procs([notebook], timeout=60)[1] == []
