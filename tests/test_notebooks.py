"""The page of a notebook shows its text, its code and what the code put out."""

from typing import Any

import pytest

notebooks = pytest.importorskip("website.notebooks", exc_type=ImportError)


def page_of(*cells: str, outputs: Any = ()) -> str:
    """Return the page of a notebook with a title and these cells. The last one has the outputs."""
    notebook = notebooks._read("\n\n".join(["# %% [markdown]\n# # A title\n# Text.", *cells]))
    if outputs:
        notebook.cells[-1].outputs = list(outputs)
    return str(notebooks.page_of("mine", notebook)["examples/mine.md"])


def test_a_page_begins_with_its_title_and_the_notebook_to_download() -> None:
    title, *rest = page_of().split("\n\n")
    assert title == "# A title"
    assert rest[0].startswith("[Download this notebook](mine.ipynb)")
    # A browser keeps the file instead of showing its text.
    assert 'download="mine.ipynb"' in rest[0]


def test_a_page_shows_code_and_what_it_printed() -> None:
    printed = {"output_type": "stream", "name": "stdout", "text": "2\n"}
    page = page_of("# %%\nprint(1 + 1)", outputs=[printed])
    assert "```python\nprint(1 + 1)\n```" in page
    assert "\n2\n```" in page


def test_warnings_of_the_machine_that_builds_are_left_out() -> None:
    warning = {"output_type": "stream", "name": "stderr", "text": "/home/me/x.py: a warning"}
    assert "a warning" not in page_of("# %%\nf()", outputs=[warning])


def test_a_solution_is_folded() -> None:
    page = page_of('# %% jupyter={"source_hidden": true}\nprint("the answer")')
    folded = page.partition("<summary>Solution</summary>")[2].partition("</details>")[0]
    assert 'print("the answer")' in folded


def test_the_notebook_to_download_has_no_outputs() -> None:
    notebook = notebooks._read(notebooks._source("own_training_loop"))
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
