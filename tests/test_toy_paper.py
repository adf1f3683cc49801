"""A new paper is one folder: planned, run, compared and reported without a line changed elsewhere"""
import json

import nbformat
import pytest

from xfeval.papers.items import availability, check_outputs, load_items
from xfeval.papers.plan import list_profiles, load_plan, plan_table
from xfeval.papers.published import list_published, published, read_published
from xfeval.papers.run import inputs_of, run

STUDY = "def lengths(data): return [x.n_words for x in data]"
PARAMETERS = "profile = 'smoke'\nout = '.'\nnote = ''\nseed = 0\nn = 2\ndata = 'controlled-nli'"
COST = "rows = 3*n\ntrainings = 1\npace = 1."
BODY = """
import nbformat, pandas as pd
from pathlib import Path
from xfeval import load_data
from xfeval.papers.claims import beside, check_claims
from xfeval.papers.published import Results
for c in nbformat.read("study.ipynb", 4).cells: exec(c.source)
res = Results(out, "toy2030", note)
texts = load_data(data, n=n, seed=seed)
ours = pd.DataFrame(dict(part=["words", "letters"], value=[sum(lengths(texts))/n, 1.]))
res.table(beside("toy2030_table01", ours[:1], ["part"], missing="letters are not counted"), "toy2030_table01", "Sizes")
res.claims(check_claims("toy2030", {"toy2030_table01": ours}))
res.close()
"""
FILES = {"about.yaml": "title: A toy paper of 2030\norder: 1\n",
         "items.yaml": """
- {id: toy2030_table01, title: Sizes, notebook: toy2030, published: [toy2030_table01],
   profiles: {tiny: {data: [controlled-nli], models: []}, huge: nobody has the data}}
""",
         "claims.yaml": """
- {id: toy2030-words, item: Table 1, text: texts have words, published: "9", table: toy2030_table01,
   where: {part: words}, predicate: average, args: {value: value, at_least: 1}}
""",
         "sizes.yaml": "tiny:\n  notebooks: {toy2030: {n: 5}}\nhuge:\n  skip: {toy2030: nobody has the data}\n",
         "published/toy2030_table01.csv": "part,value\nwords,9\nletters,40\n"}


@pytest.fixture
def papers(tmp_path):
    "A folder of papers with one paper in it"
    code, folder = nbformat.v4.new_code_cell, tmp_path/"papers"
    (folder/"profiles").mkdir(parents=True)
    (folder/"profiles"/"tiny.yaml").write_text("order: 1\nnote: toys\ndefaults: {seed: 3}\n")
    (folder/"profiles"/"huge.yaml").write_text("order: 2\n")
    for name, text in FILES.items():
        (folder/"toy2030"/name).parent.mkdir(parents=True, exist_ok=True)
        (folder/"toy2030"/name).write_text(text)
    tagged = {"parameters": PARAMETERS, "cost": COST}
    cells = [nbformat.v4.new_markdown_cell("# Toys"),
             *(code(t, metadata=dict(tags=[k])) for k, t in tagged.items()), code(BODY)]
    meta = dict(kernelspec=dict(name="python3", display_name="python3", language="python"))
    for name, found in (("study", [code(STUDY)]), ("toy2030", cells)):
        nbformat.write(nbformat.v4.new_notebook(cells=found, metadata=meta), folder/"toy2030"/f"{name}.ipynb")
    return folder


def test_a_paper_is_planned(papers):
    plan = load_plan("tiny", folder=papers)
    assert list_profiles(papers) == ["tiny", "huge"]
    assert list(plan.notebooks) == ["toy2030"], "a study is no result notebook"
    assert plan.params["toy2030"] == dict(n=5, seed=3, profile="tiny", note="toys")
    assert plan_table(plan).to_dict("records") == [dict(notebook="toy2030", rows=15, trainings=1, needs="")]
    with pytest.raises(ValueError, match="leaves out toy2030"): load_plan("huge", folder=papers)
    assert [i["id"] for i in load_items(folder=papers)] == ["toy2030_table01"]
    assert published("toy2030_table01", papers).value.tolist() == [9, 40]
    assert "sun2025_table01" not in list_published(papers)
    t = availability(folder=papers).iloc[0]
    assert t.tiny == "runs: controlled-nli" and t.huge == "not available because nobody has the data"
    inputs = inputs_of(plan, "toy2030", papers)
    assert any(k.endswith("published/toy2030_table01.csv") for k in inputs) and "xfeval/papers/claims.py" in inputs
    assert not [k for k in inputs if "sun2025" in k or k.startswith(("xfeval/apps", "xfeval/papers/run"))]


def test_a_paper_is_run_compared_and_reported(papers, tmp_path):
    out = tmp_path/"out"
    lines = []
    records = run("tiny", out=out, folder=papers, log=lines.append)
    assert not any("error" in r or r.get("incomplete") for r in records), records
    t = read_published(out/"tables"/"toy2030_table01.csv")
    assert t.published.tolist() == [9, 40] and t.ours[0] > 1
    assert t.note[1] == "not available here: letters are not counted"
    assert read_published(out/"claims.csv").verdict.tolist() == ["yes"]
    assert not len(check_outputs(out, "tiny", folder=papers))
    page, text = (out/"index.html").read_text(), (out/"report.md").read_text()
    for shown in (page, text):
        assert "A toy paper of 2030" in shown and "Table 1: Sizes" in shown and "Sun et al." not in shown
    assert "toys" in text and "texts have words" in text and 'class="yes"' in page
    assert json.loads((out/"manifest.json").read_text())["notebooks"]["toy2030"]["files"]
    assert any(line.startswith("[1/1] toy2030: ") for line in lines)
    assert run("tiny", out=out, folder=papers, log=lines.append)[0]["skipped"]
