"""Published beside ours, claims, the list of items, and the runner"""
import json, os, select, signal, subprocess, sys
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import psutil
import pytest
import yaml

from xfeval.papers.run import notebooks
from xfeval.papers import claims as cl
from xfeval.core.utils import bundled
from xfeval.data.datasets import datasets
from xfeval.papers.published import Results, list_published, published, read_table, table_text

KEYS = ["dataset", "model", "level", "explanation_type", "base"]
LIST = {"sun2025": (12, 4), "zhao2023": (6, 3), "zaman2022": (12, 5), "pruthi2022": (11, 1)}


def ours(name="sun2025_table03", **more): return published(name).assign(**more)


def test_reading_is_the_same_for_ours_and_published(tmp_path):
    t = published("pruthi2022_table05")
    (tmp_path/"t.csv").write_text(table_text(t))
    assert read_table(tmp_path/"t.csv").equals(t) and "None" in set(t.method)


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
    for text in (b.formats()[k] for k in ("md", "html", "tex")): assert "not available here: no gradients" in text


def test_best_is_bold_for_both_and_in_the_right_direction():
    t = published("sun2025_table11").assign(entropy_nats=lambda d: 10 - d.entropy_nats)
    b = cl.beside("sun2025_table11", t, ["dataset", "model", "explanation_type", "base"], "entropy_nats", best="min",
                  within=["dataset"])
    bold = b._bold()
    d = b.df
    for s in ("SNLI", "FEVER"):
        at = d.dataset == s
        assert set(d.published[at & bold["published"]]) == {d.published[at].min()}
        assert set(d.ours[at & bold["ours"]]) == {d.ours[at].min()}
    assert "<b>" not in cl.beside("sun2025_table11", t, ["dataset", "model", "explanation_type", "base"],
                                  "entropy_nats", best="none").formats()["html"]


def test_intervals_n_and_several_values():
    t = published("sun2025_table07").assign(rsf_points_low=-1., rsf_points_high=1., n=42)
    b = cl.beside("sun2025_table07", t, ["dataset", "model", "insertion", "explanation_type", "base"],
                  ["sf_f1_percent", "rsf_points"], across="base")
    assert set(b.df.measure) == {"sf_f1_percent", "rsf_points"}
    assert len(b.df) == 36
    assert "[-1.00, 1.00]" in b.formats()["md"]
    assert b.df.n.eq(42).all()
    assert b.df[b.df.measure == "sf_f1_percent"].low.isna().all()


def test_text_is_escaped():
    t = published("sun2025_table02").assign(f1_percent=1.)
    b = cl.beside("sun2025_table02", t, ["model", "dataset", "split"], "f1_percent",
                  notes="<script>alert(1)</script> & 5 %").titled("<b>caption</b>")
    assert "<script>" not in b.formats()["html"]
    assert "<b>caption" not in b.formats()["html"]
    assert r"5 \%" in b.formats()["tex"]


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
    flip = verdict(clear, variants={"AMB-17: incremental": wrong, "AMB-14: attention": clear})
    assert flip.verdict == "depends on AMB-17" and "0 of 12" in flip.why
    assert verdict(clear, variants={"AMB-14: attention": clear}).verdict == "yes"
    assert id_ not in set(cl.check_claims("sun2025", {}, dict(k_faithfulness=3)).id)
    assert cl.check_claims("sun2025", {}, dict(k_faithfulness=2)).verdict.tolist() == ["no"]


def test_a_tie_is_no_win():
    t = pd.DataFrame(dict(c=[0, 0], who=["a", "b"], v=[1., 1.]))
    assert cl.wins(t, "v", "who", "a", ["c"], total=1, at_least=1) == cl.Reading(False, "0 of 1")
    assert cl.beats(t, "v", "who", [["a", "b"]], ["c"], or_equal=True).holds


def test_merged_claims_hold_every_claim_once_and_keep_depends_on(tmp_path):
    r = Results(tmp_path, "one")
    r.claims(cl.check_claims("sun2025", wins_claim(dict(TokenEx=.9, TokenIntEx=.1, SpanIntEx=.2), .01, .01)))
    r = Results(tmp_path, "two")
    r.claims(cl.check_claims("sun2025", wins_claim(dict(TokenEx=.9, TokenIntEx=.1, SpanIntEx=.2), .01, .01),
                             variants={"AMB-17: x": wins_claim(dict(TokenEx=.1, TokenIntEx=.9, SpanIntEx=.2))}))
    m = cl.merge_claims(tmp_path)
    assert m.id.tolist() == [c["id"] for c in cl.load_claims()]
    assert m.set_index("id").verdict["sun2025-comprehensive-tokenex"] == "depends on AMB-17"
    assert read_table(tmp_path/"claims.csv").id.tolist() == m.id.tolist()


def test_the_list_of_items_is_complete():
    for paper, (tables, figures) in LIST.items():
        ids = [i["id"] for i in cl.load_items(paper)]
        assert {f"{paper}_table{k:02d}" for k in range(1, tables+1)} | {f"{paper}_figure{k:02d}"
                                                                        for k in range(1,
                                                                                       figures+1)} == set(ids), paper
    assert [i["id"] for i in cl.load_items("ferret")] == ["ferret_benchmark"]
    named = {n for i in cl.load_items() if isinstance(i["published"], list) for n in i["published"]}
    assert named <= set(list_published()) and {n for n in list_published() if "text_claims" not in n
                                               and "metric_cards" not in n} <= named
    for i in cl.load_items(): assert isinstance(i["published"], list) or i["published"]["none"]


def test_items_name_data_sets_that_exist_and_notebooks_are_few():
    made = set(notebooks())
    assert len(made) <= 15
    for i in cl.load_items():
        assert set(i["profiles"]) == {"demo", "laptop", "paper"}, i["id"]
        for p in ("demo", "laptop"):
            needs = cl.item_needs(i, p)
            if not isinstance(needs, str): assert set(needs.get("data", [])) <= set(datasets), (i["id"], p)
    assert {"sun2025_faithfulness", "sun2025_simulatability"} <= made


def test_availability_follows_the_files(tmp_path, monkeypatch):
    t = cl.availability(("demo", "laptop")).set_index("item")
    assert t.demo["sun2025_figure01"].startswith("runs: controlled-nli")
    assert t.laptop["sun2025_table05"].startswith("not available because no BART")
    monkeypatch.setattr(cl, "list_models", lambda: [])
    assert "tiny-bert-nli is not among" in cl.availability(("demo",)).set_index("item").demo["sun2025_table03"]


def test_check_outputs_fails_on_a_lost_item_and_on_a_lone_table(tmp_path):
    r = Results(tmp_path, "sun2025_faithfulness")
    only = ["sun2025_faithfulness"]
    before = cl.check_outputs(tmp_path, "smoke", only).set_index("item").problem
    assert before["sun2025_table03"] == "no output" and "sun2025_table07" not in before
    r.table(ours(), "sun2025_table03")
    assert "without its published counterpart" in cl.check_outputs(tmp_path, "smoke",
                                                                   only).set_index("item").problem["sun2025_table03"]
    b = cl.beside("sun2025_table03", ours(), KEYS, "map_percent")
    r.table(b, "sun2025_table03")
    assert "sun2025_table03" not in set(cl.check_outputs(tmp_path, "smoke", only).item)
    (tmp_path/"tables"/"sun2025_table03.csv").write_text(table_text(b.df.iloc[:5]))
    assert "lost published rows" in cl.check_outputs(tmp_path, "smoke",
                                                     only).set_index("item").problem["sun2025_table03"]
    (tmp_path/"tables"/"sun2025_table03.csv").write_text(table_text(b.df.assign(ours=np.nan, note="")))
    assert "without a reason" in cl.check_outputs(tmp_path, "smoke",
                                                  only).set_index("item").problem["sun2025_table03"]
    assert "sun2025_table05" not in set(cl.check_outputs(tmp_path, "laptop", only).item)


NOTEBOOK = """
profile = "smoke"
out = "."
note = ""
seed = 0
needs = {needs}
"""
BODY = """
from pathlib import Path
from xfeval.report import Results
import pandas as pd
res = Results(out, "{name}", note)
res.table(pd.DataFrame(dict(a=[seed], seen=[len(list((Path(out)/"tables").glob("*.csv")))])), "{name}_t")
res.close()
"""


@pytest.fixture
def folder(tmp_path):
    f = tmp_path/"nbs"
    (f/"profiles").mkdir(parents=True)
    (f/"profiles"/"demo.yaml").write_text("defaults: {seed: 1}\n")
    for name, needs in (("a_reader", ["z_writer"]), ("z_writer", [])):
        cells = [nbformat.v4.new_code_cell(NOTEBOOK.format(needs=needs), metadata=dict(tags=["parameters"])),
                 nbformat.v4.new_code_cell(BODY.format(name=name))]
        nbformat.write(nbformat.v4.new_notebook(cells=cells,
                                                metadata=dict(kernelspec=dict(name="python3", display_name="p",
                                                                              language="python"))), f/f"{name}.ipynb")
    return f


def test_runner_waits_for_what_a_notebook_needs_and_resumes(folder, tmp_path):
    from xfeval.papers.run import run
    out, said = tmp_path/"out", []
    r = run("demo", out=out, folder=folder, say=said.append)
    assert not any("error" in x for x in r) and read_table(out/"tables"/"a_reader_t.csv").seen.tolist() == [1]
    assert said[1].startswith("running: z_writer | left: 1 (a_reader)"), "before anything ends, the plan is said"
    assert said[2].startswith("[1/2] z_writer: ") and "running: a_reader" in said[2] and "left" not in said[2]
    assert said[3].startswith("[2/2] a_reader: ") and "running" not in said[3]
    bytes_ = {p: p.read_bytes() for p in (out/"tables").iterdir()}
    (out/"records"/"a_reader.stamp.json").unlink()
    again = {x["name"]: x for x in run("demo", out=out, folder=folder, say=said.append)}
    assert again["z_writer"].get("skipped") and not again["a_reader"].get("skipped")
    assert any(s.startswith("[1/2] z_writer: already done") for s in said)
    assert {p.name for p in (out/"tables").iterdir()} == {p.name for p in bytes_}
    assert (out/"tables"/"z_writer_t.csv").read_bytes() == bytes_[out/"tables"/"z_writer_t.csv"]
    page = (out/"index.html").read_text()
    manifest = json.loads((out/"manifest.json").read_text())
    assert "a_reader_t" in page
    assert (out/"claims.csv").exists()
    assert manifest["notebooks"]["z_writer"]["params"]["seed"] == 1


def test_report_shows_what_was_made_and_says_what_is_missing(tmp_path):
    from xfeval.papers.run import notebooks, write_report
    res = Results(tmp_path, "sun2025_faithfulness", "tiny")
    res.table(pd.DataFrame(dict(dataset=["SNLI"], train=[7])), "sun2025_table01", "Data <b>")
    res.table(pd.DataFrame(dict(row=range(99))), "sun2025_table03", "Long")
    res.close()
    done = dict(name="sun2025_faithfulness", params=dict(n=3, note="tiny"), files=res.files)
    text = write_report(tmp_path, "demo", [done], notebooks(), dict(zhao2023="no model")).read_text()
    assert text.startswith("# Results of the profile demo: tiny") and "- `sun2025_faithfulness`: n = 3" in text
    assert "### Table 1" in text and "| SNLI" in text and "`sun2025_table03` has 99 rows" in text
    gaps = text.split("## Not available here")[1]
    assert "zhao2023_table01" in gaps and "no model" in gaps and "sun2025_table01" not in gaps


@pytest.mark.parametrize("profile,shown", [("demo", True), ("laptop", False)])
def test_report_does_not_pass_on_texts_of_others(tmp_path, profile, shown):
    from xfeval.papers.run import notebooks, write_report
    res = Results(tmp_path, "pruthi2022_students", "")
    res.table(pd.DataFrame({"a sentence of somebody": ["LIME"]}), "pruthi2022_table02", "Examples")
    res.close()
    done = dict(name="pruthi2022_students", params=dict(n=3), files=res.files)
    text = write_report(tmp_path, profile, [done], notebooks()).read_text()
    assert ("a sentence of somebody" in text) == shown and ("not passed on" in text) != shown


def test_longest_chain_of_notebooks_starts_first(folder):
    from xfeval.papers.run import _chains, notebooks
    nbs, names = notebooks(), ["sun2025_faithfulness", "sun2025_simulatability", "ferret_benchmark"]
    wait = {n: ["sun2025_faithfulness"] if n == "sun2025_simulatability" else [] for n in names}
    chain = _chains(names, nbs, {n: {} for n in names}, wait)
    assert chain["sun2025_faithfulness"] > chain["sun2025_simulatability"] > 0
    circle = _chains(["a_reader", "z_writer"], notebooks(folder), dict(a_reader={}, z_writer={}),
                     dict(a_reader=["z_writer"], z_writer=["a_reader"]))
    assert set(circle) == {"a_reader", "z_writer"}, "a circle is left to the runner, which names it"


HANG = """
import os
gate = os.environ.get("TEST_GATE")
if gate:
    with open(gate, "w") as f: f.write(str(os.getpid()))
    open(gate + ".never").read()
"""


def test_a_run_with_other_parameters_that_was_cut_off_leaves_no_mixture(folder, tmp_path, monkeypatch):
    "It has changed files of the run before it, which therefore no longer counts as done"
    import importlib
    runner = importlib.import_module("xfeval.run")
    path, out = folder/"z_writer.ipynb", tmp_path/"out"
    runner.run_one("z_writer", path, dict(seed=1), out)
    table = out/"tables"/"z_writer_t.csv"
    def cut_off(*args):
        table.write_text("half")
        return subprocess.CompletedProcess([], 1, "", "killed")
    with monkeypatch.context() as m:
        m.setattr(runner, "_execute", cut_off)
        assert runner.run_one("z_writer", path, dict(seed=2), out)["error"] == "killed"
    assert not runner.run_one("z_writer", path, dict(seed=1), out).get("skipped")
    assert read_table(table).a.tolist() == [1]


def test_a_killed_run_goes_on_where_it_was(folder, tmp_path):
    "The second notebook waits at a gate; there the whole process group is killed"
    from xfeval.papers.run import run
    nb = nbformat.read(folder/"a_reader.ipynb", 4)
    nb.cells.insert(1, nbformat.v4.new_code_cell(HANG))
    nbformat.write(nb, folder/"a_reader.ipynb")
    gate, torn, whole = tmp_path/"gate", tmp_path/"torn", tmp_path/"whole"
    os.mkfifo(gate)
    os.mkfifo(f"{gate}.never")
    fd = os.open(gate, os.O_RDWR)
    code = f"from xfeval.run import run; run('demo', out={str(torn)!r}, folder={str(folder)!r})"
    p = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ, TEST_GATE=str(gate)),
                         start_new_session=True, stdout=subprocess.DEVNULL)
    reached, _, _ = select.select([fd], [], [], 600)
    assert reached, "the second notebook did not start"
    kernel = int(os.read(fd, 20))
    os.killpg(p.pid, signal.SIGKILL)
    os.kill(kernel, signal.SIGKILL)
    assert p.wait() == -signal.SIGKILL
    assert not (torn/"records"/"a_reader.stamp.json").exists() and not (torn/"tables"/"a_reader_t.csv").exists()
    before = (torn/"tables"/"z_writer_t.csv").stat().st_mtime_ns
    again = {r["name"]: r for r in run("demo", out=torn, folder=folder, say=lambda s: None)}
    assert again["z_writer"]["skipped"] and not again["a_reader"].get("skipped") and "error" not in again["a_reader"]
    assert (torn/"tables"/"z_writer_t.csv").stat().st_mtime_ns == before, "what was done is not written again"
    run("demo", out=whole, folder=folder, say=lambda s: None)
    made = sorted(f.relative_to(whole) for f in whole.rglob("*.csv"))
    assert made and made == sorted(f.relative_to(torn) for f in torn.rglob("*.csv"))
    assert [(torn/f).read_bytes() for f in made] == [(whole/f).read_bytes() for f in made]
    assert not list(torn.rglob("*.part.ipynb")) and not [f for f in torn.rglob(".*") if f.is_file()]


def test_an_incomplete_run_fails(tmp_path, monkeypatch, capsys):
    from xfeval.papers import run as r
    records, said = {"ferret_benchmark": dict(name="ferret_benchmark")}, []
    r._check_complete(tmp_path, "smoke", records, said.append)
    assert said == ["incomplete: ferret_benchmark (ferret_benchmark): no output"]
    assert records["ferret_benchmark"]["incomplete"]
    for record, code in ((dict(name="a"), 0), (dict(name="a", incomplete=True), 1),
                         (dict(name="a", error="x", log="long x"), 1)):
        monkeypatch.setattr(r, "run", lambda *a, **k: [record])
        assert r.main([]) == code
    assert "long x" in capsys.readouterr().err


MISTAKES = {"defaults: {sed: 1}": "did you mean 'seed'", "defaults: {seed: one}": "must be int", "defaults: {seed: 1.5}": "must be int",
            "defaults: {seed: -1}": "must not be negative", "defaults: {needs: z_writer}": "must be list",
            "notebooks: {a_reader: {needs: [1]}}": "must be list of str", "notebooks: {z_writter: {}}": "z_writer",
            "skip: {nobody: because}": "notebook in profile", "models: {nobody: [m]}": "notebook in profile", "skips: {}": "skip"}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_in_a_profile_stop_the_run_before_anything_runs(folder, tmp_path, text):
    from xfeval.papers.run import run
    (folder/"profiles"/"demo.yaml").write_text(text)
    with pytest.raises(ValueError, match=MISTAKES[text]): run("demo", out=tmp_path/"out", folder=folder)
    assert not (tmp_path/"out").exists()


def test_values_inside_lists_are_checked():
    from xfeval.papers.run import _check_given
    have = dict(cells=[["SNLI", "controlled-nli", "tiny-bert-nli"]], data="controlled-nli", sizes=[1, 2])
    _check_given(dict(cells=[["FEVER", "controlled-fever", "any"]], data="xnli", sizes=[1, 2, 3]), have, "here")
    for bad, what in ((dict(cells=[["FEVER", "controlled-fevr", "m"]]), "controlled-fever"), (dict(data="xnly"), "xnli"),
                      (dict(sizes=[1, "2"]), "list of int"), (dict(sizes=[1, -2]), "negative")):
        with pytest.raises(ValueError, match=what): _check_given(bad, have, "here")


def test_a_profile_may_leave_notebooks_out(folder):
    from xfeval.papers.run import left_out, load_profile
    write = (folder/"profiles"/"demo.yaml").write_text
    write("skip: {a_reader: no data}")
    assert list(load_profile("demo", folder)) == ["z_writer"] and left_out("demo", folder) == {"a_reader": "no data"}
    write("models: {a_reader: [tiny-bert-nli, nobody], z_writer: [nobody]}")
    assert list(load_profile("demo", folder)) == ["a_reader"]
    assert left_out("demo", folder) == {"z_writer": "the model nobody is not shipped"}


def test_profiles_that_ship_resolve_and_print_their_plan():
    from xfeval.papers.run import load_profile, profiles, resources
    assert {"smoke", "demo", "laptop", "paper"} <= set(profiles())
    for p in profiles(): assert load_profile(p)
    r = resources("paper", only="sun2025")
    gone = set(r["missing"].name)
    assert {"spanex-snli", "models/bart-base-fever",
            "facebook/bart-base"} <= gone, "also what a model is trained from"
    assert r["hours"] > 1 and r["disk"] > 0 and r["plan"].rows.gt(0).all()
    demo, smoke = resources("demo", only="sun2025")["plan"].rows.sum(), resources("smoke",
                                                                                  only="sun2025")["plan"].rows.sum()
    assert demo > 10*smoke > 0


def test_every_model_of_the_paper_profile_has_a_source_and_a_size():
    from xfeval.papers.run import resources, run
    r = resources("paper")
    models = r["missing"][r["missing"].kind == "model"]
    assert len(models) > 25 and models.gb.notna().all(), models[models.gb.isna()].name.tolist()
    trained = models[models.name.str.startswith("models/")]
    assert trained.source.str.startswith("to be trained from ").all()
    assert len(trained[trained.name.str.contains("-seed")]) == 20
    said = []
    assert run("paper", dry=True, say=said.append) == [] and max(map(len, said)) <= 160
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
    from xfeval.papers.run import _papermill, _watch
    assert _papermill.startswith(_watch)
    child = _watch + "print(os.getpid(), flush=True); threading.Event().wait()"
    runner = subprocess.Popen([sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"],
                              stdout=subprocess.PIPE, text=True)
    notebook = psutil.Process(int(runner.stdout.readline()))
    runner.kill()
    runner.wait()
    assert psutil.wait_procs([notebook], timeout=60)[1] == []
