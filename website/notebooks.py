"""The pages of the notebooks in examples/: they are executed, and each can be downloaded.

A notebook is a Python file with cells that begin with `# %%`. Its page shows text, code and what
the code printed, returned or drew. A solution, whose code Jupyter hides, is folded.

To execute the notebooks takes a while, so what they put out is kept in .cache/site. A notebook is
executed again if it has changed, or the code of milbench, or a library that draws or trains.
"""

import base64
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import jupytext
from joblib import Memory, Parallel, delayed
from nbclient import NotebookClient

from milbench._utils.console import write_line
from website import REPOSITORY, reports

EXAMPLES = REPOSITORY / "examples"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
SECONDS = 300
"""After this time a cell, or the start of Python, is given up."""
DOWNLOAD = """

[Download this notebook]({name}.ipynb){{ .md-button download="{name}.ipynb" }}

"""
STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
TABLE = re.compile(r"<table[^>]*>")
LIBRARIES = ("ipykernel", "nbclient", "torch")
"""The libraries that decide what a notebook puts out, beside those that draw."""


def files() -> dict[str, str | bytes]:
    """Return the page of each notebook, its pictures, and the notebook as Jupyter reads it."""
    made: dict[str, str | bytes] = {}
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    for name, notebook in _executed(names).items():
        made |= page_of(name, notebook)
        made[f"examples/{name}.ipynb"] = jupytext.writes(_read(_source(name)), fmt="ipynb")
    return made


def page_of(name: str, notebook: Any) -> dict[str, str | bytes]:
    """Return the page of an executed notebook, and its pictures."""
    pictures: dict[str, bytes] = {}
    parts = [
        cell.source if cell.cell_type == "markdown" else _code(cell, name, pictures)
        for cell in notebook.cells
    ]
    title, text = parts[0].split("\n", 1)
    parts[0] = title + DOWNLOAD.format(name=name) + text
    return {f"examples/{name}.md": "\n\n".join(parts) + "\n", **pictures}


def _code(cell: Any, name: str, pictures: dict[str, bytes]) -> str:
    """Return a cell of code in Markdown, with what it put out. Its pictures are added to others."""
    shown = [f"```python\n{cell.source}\n```"]
    # Warnings, on stderr, are about the machine on which the site is built.
    outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    for output in outputs:
        content = output.get("data", {})
        if "image/png" in content:
            picture = f"{name}-{len(pictures) + 1}.png"
            pictures[f"examples/{picture}"] = base64.b64decode(content["image/png"])
            shown.append(f"![{cell.metadata['alt']}]({picture})")
        else:
            shown.append(_as_text(output, content))
    text = "\n\n".join(shown)
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        return f"<details markdown>\n<summary>Solution</summary>\n\n{text}\n\n</details>"
    return text


def _as_text(output: Mapping[str, Any], content: Mapping[str, str]) -> str:
    """Return what a cell printed or returned, in Markdown."""
    if "text/html" in content:
        # The site has a style of its own for tables. The corner of a table heads nothing.
        table = TABLE.sub("<table>", STYLE.sub("", content["text/html"]))
        table = table.replace("<th></th>", "<td></td>")
        return f'<div class="output">{table}</div>'
    text = output.get("text") or content["text/plain"]
    return f"```{{ .text .no-copy }}\n{text.rstrip()}\n```"


def _executed(names: list[str]) -> dict[str, Any]:
    """Return notebooks with what they put out. Those that are not kept are executed."""
    remembered = Memory(reports.CACHE, verbose=0).cache(_execute)
    libraries = [f"{library} {version(library)}" for library in LIBRARIES]
    depends_on = " ".join([reports.digest_of_code(), *libraries])
    calls = {name: (_source(name), depends_on) for name in names}
    to_run = [name for name in names if not remembered.check_call_in_cache(*calls[name])]
    if to_run:
        said = ", ".join(to_run)
        write_line(sys.stderr, f"running {len(to_run)} of {len(names)} notebooks: {said}")
    Parallel(n_jobs=os.cpu_count())(delayed(remembered)(*calls[name]) for name in to_run)
    return {name: remembered(*call) for name, call in calls.items()}


def _execute(text: str, depends_on: str) -> Any:  # noqa: ARG001
    """Return a notebook with what its cells put out.

    What the output depends on is an argument only so that a notebook is executed again if it has
    changed: what is kept is found by the arguments.

    Raises CellExecutionError if a cell fails.
    """
    notebook = _read(text)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        limits = {"startup_timeout": SECONDS, "timeout": SECONDS}
        NotebookClient(notebook, resources=resources, **limits).execute()
    return notebook


def _source(name: str) -> str:
    return (EXAMPLES / f"{name}.py").read_text("utf-8")


def _read(text: str) -> Any:
    """Return a notebook without outputs. Its cells have numbers as ids, the same at each build."""
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata["kernelspec"] = KERNEL
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return notebook
