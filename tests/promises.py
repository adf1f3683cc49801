"""The lines below `## Promises` of the notebooks, each a promise with its test, and the table made of them"""
import json, re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- promises -->", "<!-- /promises -->"
LINE = re.compile(r"- (.+): `(tests/test_\w+\.py)::(test_\w+)`")


def promises(folder=ROOT/"nbs"):
    "(package, promise, test file, test) of every line below a heading `## Promises`"
    for path in sorted(Path(folder).rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts: continue
        for cell in json.loads(path.read_text(encoding="utf8"))["cells"]:
            text = "".join(cell["source"])
            if cell["cell_type"] != "markdown" or not re.search(r"^## Promises$", text, re.M): continue
            section = re.split(r"^## ", text.split("## Promises\n", 1)[1], flags=re.M)[0]
            for line in filter(None, section.splitlines()):
                found = LINE.fullmatch(line)
                if found is None: raise ValueError(f"{path.name}: no promise with its test: {line}")
                yield path.parent.name, *found.groups()


def table(folder=ROOT/"nbs"):
    "The promises as a Markdown table"
    rows = [f"| `{package}` | {promise} | `{file}::{test}` |" for package, promise, file, test in promises(folder)]
    return "\n".join(["| package | promise | its test |", "|---|---|---|", *rows])


def with_table(text, folder=ROOT/"nbs"):
    "A text with the table between its two markers brought up to date"
    if BEGIN not in text or END not in text: raise ValueError(f"no place for the table between {BEGIN} and {END}")
    head, rest = text.split(BEGIN, 1)
    return f"{head}{BEGIN}\n{table(folder)}\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    file = ROOT/"CONTRIBUTING.md"
    file.write_text(with_table(file.read_text(encoding="utf8")), encoding="utf8")
