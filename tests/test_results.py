"""Published beside ours, claims, the list of items, and the runner"""
import json
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import yaml

from xfeval import claims as cl
from xfeval.core import bundled
from xfeval.data import datasets
from xfeval.report import Results, list_published, published, read_table, table_text

KEYS = ["dataset", "model", "level", "explanation_type", "base"]
LIST = {"sun2025": (12, 4), "zhao2023": (6, 3), "zaman2022": (12, 5), "pruthi2022": (11, 1)}


def ours(name="sun2025_table03", **more): return published(name).assign(**more)


def test_reading_is_the_same_for_ours_and_published(tmp_path):
    t = published("pruthi2022_table05")
    (tmp_path/"t.csv").write_text(table_text(t))
    assert read_table(tmp_path/"t.csv").equals(t) and "None" in set(t.method)


def test_beside_keeps_every_published_row_in_order():
    t = ours(); shuffled = t.sample(frac=1, random_state=0)
    b = cl.beside("sun2025_table03", shuffled, KEYS, "map_percent")
    assert b.df[KEYS].equals(t[KEYS].astype(str)) and np.allclose(b.df.ours.dropna(), t.map_percent.dropna())


def test_beside_refuses_silence():
    t = ours()
    with pytest.raises(ValueError, match="no reason for"): cl.beside("sun2025_table03", t[t.base != "IG"], KEYS, "map_percent")
    with pytest.raises(ValueError, match="was not published"): cl.beside("sun2025_table03", t.replace("IG", "LIME"), KEYS, "map_percent", missing="gone")
    with pytest.raises(ValueError, match="two rows"): cl.beside("sun2025_table03", pd.concat([t, t]), KEYS, "map_percent")
    with pytest.raises(ValueError, match="sun2025_table03"): cl.beside("sun2025_table30", t, KEYS, "map_percent")
    with pytest.raises(ValueError, match="map_percent"): cl.beside("sun2025_table03", t, KEYS, "map_percents")


def test_missing_cells_say_why_and_undefined_cells_stay_empty():
    b = cl.beside("sun2025_table03", None, KEYS, "map_percent", across="base", missing=[(dict(base="IG"), "no gradients"), (dict(), "no model")])
    notes = b.df.set_index(KEYS).note
    assert set(notes[notes != ""]) == {"not available here: no gradients", "not available here: no model"}
    assert (b.df[b.df.published.isna()].note == "").all() and b.df.ours.isna().all()
    for text in (b.formats()[k] for k in ("md", "html", "tex")): assert "not available here: no gradients" in text


def test_best_is_bold_for_both_and_in_the_right_direction():
    t = published("sun2025_table11").assign(entropy_nats=lambda d: 10 - d.entropy_nats)
    b = cl.beside("sun2025_table11", t, ["dataset", "model", "explanation_type", "base"], "entropy_nats", best="min", within=["dataset"])
    bold = b._bold(); d = b.df
    for s in ("SNLI", "FEVER"):
        at = d.dataset == s
        assert set(d.published[at & bold["published"]]) == {d.published[at].min()} and set(d.ours[at & bold["ours"]]) == {d.ours[at].min()}
    assert "<b>" not in cl.beside("sun2025_table11", t, ["dataset", "model", "explanation_type", "base"], "entropy_nats", best="none").formats()["html"]


def test_intervals_n_and_several_values():
    t = published("sun2025_table07").assign(rsf_points_low=-1., rsf_points_high=1., n=42)
    b = cl.beside("sun2025_table07", t, ["dataset", "model", "insertion", "explanation_type", "base"], ["sf_f1_percent", "rsf_points"], across="base")
    assert set(b.df.measure) == {"sf_f1_percent", "rsf_points"} and len(b.df) == 36 and "[-1.00, 1.00]" in b.formats()["md"] and b.df.n.eq(42).all()
    assert b.df[b.df.measure == "sf_f1_percent"].low.isna().all()


def test_text_is_escaped():
    t = published("sun2025_table02").assign(f1_percent=1.)
    b = cl.beside("sun2025_table02", t, ["model", "dataset", "split"], "f1_percent", notes="<script>alert(1)</script> & 5 %").titled("<b>caption</b>")
    assert "<script>" not in b.formats()["html"] and "<b>caption" not in b.formats()["html"] and r"5 \%" in b.formats()["tex"]


def test_every_text_claim_has_a_predicate_and_a_unique_id():
    c = cl.load_claims(); ids = [x["id"] for x in c]
    assert len(set(ids)) == len(ids)
    for x in c:
        assert x["predicate"] in cl.predicates and {"id", "item", "text", "published"} <= set(x) and x["id"].startswith(x["paper"] + "-")
        if x["predicate"] not in ("setting", "people"): assert x.get("table") and "value" in x["args"]
    printed = {p: len(published(f"{p}_text_claims")) for p in ("sun2025", "zaman2022", "pruthi2022")}
    have = pd.Series([x["paper"] for x in c]).value_counts()
    assert have["sun2025"] >= printed["sun2025"] and have["zaman2022"] >= printed["zaman2022"] and have["zhao2023"] >= 3
    for p in ("sun2025", "zaman2022", "pruthi2022"):
        said = " ".join(str(x["published"]) + " " + x["text"].replace(",", "") for x in c if x["paper"] == p)
        lost = [v for v in published(f"{p}_text_claims").value if f"{v:g}" not in said and f"{v:.2f}".lstrip("0") not in said and {20: "20", 40: "40"}.get(v, "?") not in said and not (v == 4 and "Four" in said) and not (v == 10 and "Ten" in said)]
        assert not lost, f"{p}: claims with the values {lost} are not in claims.yaml"


def test_published_tables_contradict_the_texts_where_the_specification_says_so():
    tables = {n: published(n) for n in list_published()}
    v = pd.concat([cl.check_claims(p, tables) for p in ("sun2025", "zhao2023", "zaman2022", "pruthi2022")]).set_index("id")
    assert v.recount["sun2025-simulatability-wins"] == "10 of 12" and v.recount["sun2025-simulatability-wins-text"].startswith("8 of 12, contradicts")
    assert v.recount["sun2025-simulatability-insertion-bert"].startswith("11 of 18") and v.recount["sun2025-simulatability-insertion-bart"].startswith("17 of 18")
    assert v.recount["sun2025-complexity-tokenintex"].startswith("9 of 12") and v.recount["sun2025-agreement-interaction-shapley-worst"].startswith("5 of 8")
    assert v.recount["zhao2023-soft-better"] == "16 of 18" and v.verdict["pruthi2022-trivial-control"] == "no"


def wins_claim(values, low=None, high=None):
    t = pd.DataFrame([dict(dataset=d, model=m, base=b, explanation_type=k, metric="comprehensiveness", value=v) for d in ("SNLI", "FEVER") for m in ("BERT", "BART") for b in ("Shapley", "Attention", "IG") for k, v in values.items()])
    if low is not None: t = t.assign(low=t.value - low, high=t.value + high)
    return {"sun2025_figure03": t[t.model == "BERT"], "sun2025_figure04": t[t.model == "BART"]}


def test_verdicts():
    id_ = "sun2025-comprehensive-tokenex"; verdict = lambda *a, **k: cl.check_claims("sun2025", *a, **k).set_index("id").loc[id_]
    clear, wrong, close = wins_claim(dict(TokenEx=.9, TokenIntEx=.1, SpanIntEx=.2), .01, .01), wins_claim(dict(TokenEx=.1, TokenIntEx=.9, SpanIntEx=.2), .01, .01), wins_claim(dict(TokenEx=.51, TokenIntEx=.5, SpanIntEx=.2), .3, .3)
    assert verdict(clear).verdict == "yes" and verdict(clear).ours == "12 of 12" and verdict(wrong).verdict == "no" and verdict(close).verdict == "cannot tell"
    flip = verdict(clear, variants={"AMB-17: incremental": wrong, "AMB-14: attention": clear})
    assert flip.verdict == "depends on AMB-17" and "0 of 12" in flip.why
    assert verdict(clear, variants={"AMB-14: attention": clear}).verdict == "yes"
    assert id_ not in set(cl.check_claims("sun2025", {}, dict(k_faithfulness=3)).id)
    assert cl.check_claims("sun2025", {}, dict(k_faithfulness=2)).verdict.tolist() == ["no"]


def test_a_tie_is_no_win():
    t = pd.DataFrame(dict(c=[0, 0], who=["a", "b"], v=[1., 1.]))
    assert cl.wins(t, "v", "who", "a", ["c"], total=1, at_least=1) == cl.Reading(False, "0 of 1") and cl.beats(t, "v", "who", [["a", "b"]], ["c"], or_equal=True).holds


def test_merged_claims_hold_every_claim_once_and_keep_depends_on(tmp_path):
    r = Results(tmp_path, "one"); r.claims(cl.check_claims("sun2025", wins_claim(dict(TokenEx=.9, TokenIntEx=.1, SpanIntEx=.2), .01, .01)))
    r = Results(tmp_path, "two"); r.claims(cl.check_claims("sun2025", wins_claim(dict(TokenEx=.9, TokenIntEx=.1, SpanIntEx=.2), .01, .01), variants={"AMB-17: x": wins_claim(dict(TokenEx=.1, TokenIntEx=.9, SpanIntEx=.2))}))
    m = cl.merge_claims(tmp_path)
    assert m.id.tolist() == [c["id"] for c in cl.load_claims()] and m.set_index("id").verdict["sun2025-comprehensive-tokenex"] == "depends on AMB-17"
    assert read_table(tmp_path/"claims.csv").id.tolist() == m.id.tolist()


def test_the_list_of_items_is_complete():
    for paper, (tables, figures) in LIST.items():
        ids = [i["id"] for i in cl.load_items(paper)]
        assert {f"{paper}_table{k:02d}" for k in range(1, tables+1)} | {f"{paper}_figure{k:02d}" for k in range(1, figures+1)} == set(ids), paper
    assert [i["id"] for i in cl.load_items("ferret")] == ["ferret_benchmark"]
    named = {n for i in cl.load_items() if isinstance(i["published"], list) for n in i["published"]}
    assert named <= set(list_published()) and {n for n in list_published() if "text_claims" not in n and "metric_cards" not in n} <= named
    for i in cl.load_items(): assert isinstance(i["published"], list) or i["published"]["none"]


def test_items_name_data_sets_that_exist_and_notebooks_are_few():
    made = {p.stem for p in (bundled().parent/"nbs"/"results").glob("*.ipynb")}
    assert len(made) <= 15
    for i in cl.load_items():
        assert set(i["profiles"]) == {"demo", "laptop", "paper"}, i["id"]
        for p in ("demo", "laptop"):
            needs = cl.item_needs(i, p)
            if not isinstance(needs, str): assert set(needs.get("data", [])) <= set(datasets), (i["id"], p)
    assert {"sun2025_faithfulness", "sun2025_simulatability"} <= made


def test_availability_follows_the_files(tmp_path, monkeypatch):
    t = cl.availability(("demo", "laptop")).set_index("item")
    assert t.demo["sun2025_figure01"].startswith("runs: controlled-nli") and t.laptop["sun2025_table05"].startswith("not available because no BART")
    monkeypatch.setattr(cl, "list_models", lambda: [])
    assert "tiny-bert-nli is not among" in cl.availability(("demo",)).set_index("item").demo["sun2025_table03"]


def test_check_outputs_fails_on_a_lost_item_and_on_a_lone_table(tmp_path):
    r = Results(tmp_path, "sun2025_faithfulness"); only = ["sun2025_faithfulness"]
    before = cl.check_outputs(tmp_path, "smoke", only).set_index("item").problem
    assert before["sun2025_table03"] == "no output" and "sun2025_table07" not in before
    r.table(ours(), "sun2025_table03")
    assert "without its published counterpart" in cl.check_outputs(tmp_path, "smoke", only).set_index("item").problem["sun2025_table03"]
    b = cl.beside("sun2025_table03", ours(), KEYS, "map_percent"); r.table(b, "sun2025_table03")
    assert "sun2025_table03" not in set(cl.check_outputs(tmp_path, "smoke", only).item)
    (tmp_path/"tables"/"sun2025_table03.csv").write_text(table_text(b.df.iloc[:5]))
    assert "lost published rows" in cl.check_outputs(tmp_path, "smoke", only).set_index("item").problem["sun2025_table03"]
    (tmp_path/"tables"/"sun2025_table03.csv").write_text(table_text(b.df.assign(ours=np.nan, note="")))
    assert "without a reason" in cl.check_outputs(tmp_path, "smoke", only).set_index("item").problem["sun2025_table03"]
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
    f = tmp_path/"nbs"; (f/"profiles").mkdir(parents=True); (f/"profiles"/"demo.yaml").write_text("defaults: {seed: 1}\n")
    for name, needs in (("a_reader", ["z_writer"]), ("z_writer", [])):
        cells = [nbformat.v4.new_code_cell(NOTEBOOK.format(needs=needs), metadata=dict(tags=["parameters"])), nbformat.v4.new_code_cell(BODY.format(name=name))]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=dict(kernelspec=dict(name="python3", display_name="p", language="python"))), f/f"{name}.ipynb")
    return f


def test_runner_waits_for_what_a_notebook_needs_and_resumes(folder, tmp_path):
    from xfeval.run import run
    out, said = tmp_path/"out", []
    r = run("demo", out=out, folder=folder, say=said.append)
    assert not any("error" in x for x in r) and read_table(out/"tables"/"a_reader_t.csv").seen.tolist() == [1]
    lines = [s for s in said if s.startswith("[")]
    assert lines[0].startswith("[1/2] z_writer") and "left: 1" in lines[0] and lines[1].startswith("[2/2] a_reader")
    bytes_ = {p: p.read_bytes() for p in (out/"tables").iterdir()}
    (out/"records"/"a_reader.stamp.json").unlink()
    again = {x["name"]: x for x in run("demo", out=out, folder=folder, say=lambda s: None)}
    assert again["z_writer"].get("skipped") and not again["a_reader"].get("skipped")
    assert {p: p.read_bytes() for p in bytes_} .keys() == bytes_.keys() and (out/"tables"/"z_writer_t.csv").read_bytes() == bytes_[out/"tables"/"z_writer_t.csv"]
    page = (out/"index.html").read_text()
    assert "a_reader_t" in page and (out/"claims.csv").exists() and json.loads((out/"manifest.json").read_text())["notebooks"]["z_writer"]["params"]["seed"] == 1


def test_profiles_are_checked_before_anything_runs(folder):
    from xfeval.run import load_profile
    write = lambda t: (folder/"profiles"/"demo.yaml").write_text(t)
    for text, what in (("defaults: {sed: 1}", "seed"), ("defaults: {seed: one}", "must be int"), ("notebooks: {z_writter: {}}", "z_writer"), ("skip: {nobody: because}", "notebook in profile"), ("skips: {}", "skip")):
        write(text)
        with pytest.raises(ValueError, match=what): load_profile("demo", folder)
    write("skip: {a_reader: no data}")
    assert list(load_profile("demo", folder)) == ["z_writer"]


def test_profiles_that_ship_resolve_and_print_their_plan():
    from xfeval.run import load_profile, profiles, resources
    assert {"smoke", "demo", "laptop", "paper"} <= set(profiles())
    for p in profiles(): assert load_profile(p)
    r = resources("paper", only="sun2025")
    assert r["hours"] > 1 and r["disk"] > 0 and {"spanex-snli", "models/bart-base-fever"} <= set(r["missing"].name) and r["plan"].rows.gt(0).all()
    demo, smoke = resources("demo", only="sun2025")["plan"].rows.sum(), resources("smoke", only="sun2025")["plan"].rows.sum()
    assert demo > 10*smoke > 0
