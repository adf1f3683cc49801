"""`make size`: how large each room of the library is, and how large the export cells of its notebooks"""
import ast, json, re, statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ("core", "stats", "data", "models", "engine", "explainers", "metrics", "crosslingual", "simulate", "view", "board")
LIMITS = dict(all=20_450, library=12_900, cell=40, mean=20) # ceilings: they only go down. `library` counts the command line in


def code_lines(source):
    "Lines with code on them: no blank lines, comments or docstrings"
    docs = set()
    for n in ast.walk(ast.parse(source)):
        if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(n, clean=False) is not None:
            docs |= set(range(n.body[0].lineno, n.body[0].end_lineno + 1))
    return sum(bool(l.strip()) and not l.strip().startswith("#") and i not in docs for i, l in enumerate(source.splitlines(), 1))


def long_functions(source, limit=40):
    "Names of the functions of more than `limit` lines"
    return [n.name for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.end_lineno - n.lineno + 1 > limit]


def cells(folder):
    "Lines of every export cell of the notebooks of a folder"
    for p in sorted(folder.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in p.parts: continue
        for c in json.loads(p.read_text(encoding="utf8"))["cells"]:
            text = "".join(c["source"])
            if c["cell_type"] == "code" and re.match(r"#\|\s*export", text): yield len(text.splitlines())


def modules(room):
    "The files of a room: of `cli` one file, of `apps` all others"
    found = [p for p in sorted((ROOT/"xfeval"/("apps" if room == "cli" else room)).rglob("*.py"))]
    return [p for p in found if (p.name == "cli.py") == (room == "cli")] if room in ("apps", "cli") else found


def row(room):
    "One line of the table"
    sources = [p.read_text(encoding="utf8") for p in modules(room)]
    folder = ROOT/"nbs"/room
    sizes = sorted(cells(folder)) if room != "cli" else []
    return dict(room=room, modules=len(sources), lines=sum(len(s.splitlines()) for s in sources), code=sum(map(code_lines, sources)),
                over40=sum(len(long_functions(s)) for s in sources), cells=sizes)


def shown(name, r):
    "A row as text"
    s = sorted(r["cells"]) or [0]
    return (f"{name:14}{r['modules']:8}{r['lines']:8}{r['code']:8}{r['over40']:8}{len(r['cells']):8}{statistics.mean(s):8.1f}"
            f"{s[int(.9*(len(s)-1))]:6}{s[-1]:6}")


def total(rows):
    "The sum of some rows"
    return {k: sum((r[k] for r in rows), [] if k == "cells" else 0) for k in ("modules", "lines", "code", "over40", "cells")}


def measured():
    "{room: row} of all rooms, with the sums `library` and `all`"
    rows = {r: row(r) for r in (*LIBRARY, "cli", "truth", "papers", "apps")}
    rows["library"] = total([rows[r] for r in (*LIBRARY, "cli")])
    rows["all"] = total([rows[r] for r in (*LIBRARY, "cli", "truth", "papers", "apps")])
    return rows


if __name__ == "__main__":
    print(f"{'room':14}{'modules':>8}{'lines':>8}{'code':>8}{'>40':>8}{'cells':>8}{'mean':>8}{'p90':>6}{'most':>6}")
    for name, r in measured().items(): print(shown(name, r))
