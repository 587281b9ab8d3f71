"""The report as files: whole, safe, self-contained, whatever the results are."""

from __future__ import annotations

import hashlib
import html.parser
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from milbench.api.marks import Mark
from milbench.api.results import STATUSES, Results
from milbench.errors import UsageError
from milbench.report.figures.report_figure import ReportFigure
from milbench.report.render import render
from tests._helpers.command_line import REPOSITORY
from tests._helpers.report_data import LOSSES, ONE, TWO, constant, make_results


class Page(html.parser.HTMLParser):
    """Collects ids, links, sources, tags and visible text; complains where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.own_ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        ids = [value or "" for name, value in attrs if name == "id"]
        self.ids += ids
        # Inside a figure matplotlib repeats the definition of a marker, each time the same.
        self.own_ids += [] if "svg" in self.open else ids
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]
        if tag not in ("meta", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "br", "wbr"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "svg"} & set(self.open):
            self.text += data


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path], Results]:
    folder = tmp_path_factory.mktemp("report")
    statuses = {
        ("max-pooling", "extended-digits", 1): ("failed", "FloatingPointError: <b>not</b> finite | at\n`x` & $y$"),
        ("noisy-or", "synthetic-bags", 2): ("missing", ""),
    }
    results = make_results(folder, statuses=statuses, epochs=6)
    return folder / "out", render(results, folder / "out"), results


def test_everything_is_written_and_nothing_else(written: tuple[Path, list[Path], Results]) -> None:
    out, paths, _ = written
    assert set(paths) == {path for path in out.rglob("*") if path.is_file()}
    names = {path.relative_to(out).as_posix() for path in paths}
    assert {"index.html", "report.md", "results.csv", "table.tex", "manifest.json", "pairs.csv"} <= names
    for kind in ("seeds", "curves", "costs", "pareto", "gallery"):
        for task in ("extended-digits", "synthetic-bags"):
            assert {f"figures/{kind}-{task}.png", f"figures/{kind}-{task}.svg"} <= names
    assert paths[-1].name == "index.html", "the page is put in place last"


def test_the_page_stands_alone_and_is_well_formed(written: tuple[Path, list[Path], Results]) -> None:
    text = (written[0] / "index.html").read_text("utf-8")
    page = Page(text)
    assert not page.open
    assert 'src="' not in text.partition("<script")[0]
    assert len(re.findall(r"<script[^>]*>", text)) == 2, "the data, and one script with all that it needs"
    assert "Permission to use, copy, modify" in text, "the licence of the charts"
    assert len(page.own_ids) == len(set(page.own_ids))
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert page.tags.count("svg") == 10
    assert "prefers-color-scheme: dark" in text
    assert "#fdfdfe" not in text, "figures take the colours of the page"


def test_every_cell_and_its_run_are_in_every_format(written: tuple[Path, list[Path], Results]) -> None:
    out, _, results = written
    for name in ("index.html", "report.md", "results.csv"):
        text = (out / name).read_text("utf-8")
        for cell, run in results.cells["run_id"].items():
            assert str(cell) in text
            assert run in text
    text = Page((out / "index.html").read_text("utf-8")).text
    assert "22 done" in text
    assert (
        "max-pooling on extended-digits, seed 1: failed: FloatingPointError: <b>not</b> finite | at `x` & $y$" in text
    )
    assert "noisy-or on synthetic-bags, seed 2: missing" in text


def test_the_data_of_a_task_are_named_below_its_heading(written: tuple[Path, list[Path], Results]) -> None:
    out, _, results = written
    text = Page((out / "index.html").read_text("utf-8")).text
    document = (out / "report.md").read_text("utf-8")
    for task, digest in results.cells.groupby("task_label")["data_digest"].first().items():
        assert re.search(rf"^## {task}\n\nData: {task} \({digest}\)$", document, re.MULTILINE)
        assert re.search(rf"\n{task}\nData: {task} \({digest}\)\n", text)


def test_a_hostile_reason_is_shown_as_text_in_every_format(written: tuple[Path, list[Path], Results]) -> None:
    out = written[0]
    assert "&lt;b&gt;not&lt;/b&gt;" in (out / "index.html").read_text("utf-8")
    assert "<b>not</b>" not in (out / "index.html").read_text("utf-8")
    document = (out / "report.md").read_text("utf-8")
    assert r"&lt;b&gt;not&lt;/b&gt; finite \| at \`x\` &amp; \$y\$" in document
    lines = document.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("| ---"):
            columns = line.count("|")
            body = [lines[i - 1]]
            for row in lines[i + 1 :]:
                if not row.startswith("|"):
                    break
                body.append(row)
            assert {len(re.findall(r"(?<!\\)\|", row)) for row in body} == {columns}
    frame = pd.read_csv(out / "results.csv")
    assert "FloatingPointError: <b>not</b> finite | at `x` & $y$" in set(frame["reason"])


def test_markdown_links_lead_to_pictures(written: tuple[Path, list[Path], Results]) -> None:
    links = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", (written[0] / "report.md").read_text("utf-8"))
    assert len(links) == 10
    for link in links:
        image = matplotlib.image.imread(written[0] / link)
        assert min(image.shape[:2]) > 200
        assert image[..., :3].std() > 0.02, "not blank"


def test_the_manifest_names_what_made_the_report_and_pins_its_files(
    written: tuple[Path, list[Path], Results],
) -> None:
    out, paths, results = written
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    for path in paths:
        if path.name != "manifest.json":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert manifest["sha256"][path.relative_to(out).as_posix()] == digest
    assert {c["cell"]: (c["status"], c["run"]) for c in manifest["cells"]} == {
        str(cell): (row.status, row.run_id) for cell, row in results.cells.iterrows()
    }
    shared = manifest["shared"]
    assert shared["code"] == "3f2c9e7a" * 5
    assert shared["device"] == "cpu"
    assert any(name.startswith("library.") for name in shared)
    assert all(digest in str(manifest["data"]) for digest in set(results.cells["data_digest"]))


def test_results_csv_has_a_row_a_cell_with_values_of_every_rule(written: tuple[Path, list[Path], Results]) -> None:
    out, _, results = written
    frame = pd.read_csv(out / "results.csv", index_col="cell", dtype={"run_id": str})
    assert list(frame.index) == list(results.cells.index)
    history = results.history.pivot_table(index=["cell", "epoch"], columns="metric", values="value")
    cell = str(frame.index[0])
    errors = history.loc[cell]["test/instance_error"]
    assert frame.loc[cell, "last/test/instance_error"] == pytest.approx(errors.iloc[-1])
    assert frame.loc[cell, "best_on_test/test/instance_error"] == pytest.approx(errors.min())
    validation = history.loc[cell]["validation/set_error"].to_numpy()
    chosen = int(np.flatnonzero(validation == validation.min())[-1]) + 1
    assert frame.loc[cell, "chosen_on_validation/epoch"] == chosen
    assert frame.loc[cell, "chosen_on_validation/test/auroc"] == pytest.approx(
        history.loc[cell]["test/auroc"].iloc[chosen - 1]
    )
    assert frame.loc[cell, "param/recipe.lr"] == 5e-4
    assert frame.loc[cell, "tag/device"] == "cpu"
    assert frame["cost/loss_seconds"].iloc[0] > 0
    lost = frame[frame["status"] != "done"]
    assert lost.filter(regex="^(last|chosen|best)").isna().all(axis=None), "half a run is no result"


def test_the_same_results_give_the_same_files(tmp_path: Path) -> None:
    results = make_results(tmp_path, TWO, ONE, 2, 3)
    first = {path.name: path.read_bytes() for path in render(results, tmp_path / "a")}
    assert first == {path.name: path.read_bytes() for path in render(results, tmp_path / "b")}


def test_importing_and_rendering_needs_neither_torch_nor_mlflow(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "import milbench.report.render\n"
        "from tests._helpers import report_data\n"
        "results = report_data.make_results(None, {'exact': .1}, {'t': 'instance_error'}, 1, 2)\n"
        "milbench.report.render.render(results, pathlib.Path(sys.argv[2]))\n"
        "assert not {'torch', 'torchvision', 'mlflow'} & set(sys.modules)\n"
    )
    arguments = [sys.executable, "-c", code, str(REPOSITORY), str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/index.html").exists()


def test_rendering_again_without_gallery_removes_its_pictures_and_nothing_of_others(tmp_path: Path) -> None:
    results = make_results(tmp_path, {"exact": 0.1}, ONE, 1, 2)
    out = tmp_path / "out"
    render(results, out)
    assert (out / "figures/gallery-extended-digits.png").exists()
    assert "image/png" in (out / "index.html").read_text("utf-8")
    (out / "notes.txt").write_text("mine")
    (out / "figures/mine.png").write_text("mine")
    render(results, out, gallery="none")
    assert not list(out.glob("figures/gallery*"))
    assert (out / "notes.txt").exists()
    assert (out / "figures/mine.png").exists()
    assert "left out on request" in (out / "index.html").read_text("utf-8")
    assert "image/png" not in (out / "index.html").read_text("utf-8")


def test_a_page_that_would_be_too_large_names_the_files_of_some_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = make_results(None, TWO, ONE, 3, 3)

    def page(most: int, name: str) -> tuple[str, set[str]]:
        monkeypatch.setattr("milbench.report.pages.MOST_BYTES", most)
        render(results, tmp_path / name)
        text = (tmp_path / name / "index.html").read_text("utf-8")
        links = {link for link in Page(text).links if link.startswith("figures/")}
        assert all((tmp_path / name / link).is_file() for link in links)
        return text, {link for link in links if link.endswith(".svg")}

    whole, linked = page(10**9, "whole")
    assert linked == set()
    lighter, linked = page(len(whole.encode()) - 1, "lighter")
    assert linked == {"figures/costs-extended-digits.svg"}
    assert len(lighter) < len(whole)
    least, linked = page(1, "least")
    assert linked == {f"figures/{kind}-extended-digits.svg" for kind in ("costs", "curves", "pareto")}
    assert least.count("<figure>") == whole.count("<figure>") - len(linked)
    assert 'aria-label="Every seed' in least


@pytest.mark.usefixtures("blank_figures")
def test_where_one_page_would_be_too_large_every_task_has_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = {("noisy-or", "synthetic-bags", 2): ("failed", "FloatingPointError: not finite")}
    results = make_results(None, epochs=6, statuses=statuses)
    out = tmp_path / "out"
    whole = {path.relative_to(out).as_posix() for path in render(results, out)}
    assert not [name for name in whole if name.startswith("task-")]
    drawn = (out / "report.md").read_text("utf-8").count("![")
    monkeypatch.setattr("milbench.report.pages.MOST_BYTES", len((out / "index.html").read_bytes()) // 2)
    names = {path.relative_to(out).as_posix() for path in render(results, out)}
    added = {f"task-{task}.{kind}" for task in ("extended-digits", "synthetic-bags") for kind in ("html", "md")}
    assert names - whole == added
    pages = {name: Page((out / name).read_text("utf-8")) for name in names if name.endswith(".html")}
    for page in pages.values():
        assert not page.open
        for link in page.links:
            file, _, place = link.partition("#")
            if not link.startswith("data:"):
                assert not file or file in names, link
                assert not place or place in pages[file].ids if file in pages else place in page.ids or not place, link
    overview, *tasks = (pages[name] for name in sorted(pages))
    assert overview.links.count("task-synthetic-bags.html#runs-1-3") >= 1, "a mean leads to its runs"
    for cell, row in results.cells.iterrows():
        mine = [page for page in tasks if str(cell) in page.text]
        assert len(mine) == 1, "every cell is on the page of its task alone"
        assert str(row["task"]) in mine[0].text
        markdown = (out / f"task-{row['task']}.md").read_text("utf-8")
        assert str(cell) in markdown
        assert str(cell) not in (out / "report.md").read_text("utf-8")
    assert "FloatingPointError" in overview.text, "what failed is told by the overview as well"
    assert sum((out / name).read_text("utf-8").count("![") for name in names if name.endswith(".md")) == drawn
    assert set(json.loads((out / "manifest.json").read_text("utf-8"))["sha256"]) >= added
    monkeypatch.setattr("milbench.report.pages.MOST_BYTES", 10**9)
    assert {path.relative_to(out).as_posix() for path in render(results, out)} == whole
    assert not list(out.glob("task-*")), "pages of an earlier report do not stay"


@pytest.mark.usefixtures("blank_figures")
def test_an_overview_that_is_still_too_large_leaves_differences_to_the_pages_of_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = make_results(None, epochs=6)
    monkeypatch.setattr("milbench.report.pages.MOST_BYTES", 1)
    render(results, tmp_path)
    pages = {path.name: path.read_text("utf-8") for path in tmp_path.glob("*.html")}
    assert '"apart":true' in pages["index.html"]
    assert '"pairs":{}' in pages["index.html"]
    assert all('"apart":false' in text for name, text in pages.items() if name.startswith("task-"))


@pytest.mark.usefixtures("blank_figures")
def test_the_page_of_a_task_names_its_test_and_how_each_loss_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = make_results(None, epochs=6)
    mark = Mark("crowded bags", "synthetic-bags", {}, "set_error", 0.5, why="Many instances.")
    monkeypatch.setattr("milbench.report.pages.MOST_BYTES", 1)
    render(replace(results, marks={"synthetic-bags": [mark]}), tmp_path)
    for kind in ("html", "md"):
        own = (tmp_path / f"task-synthetic-bags.{kind}").read_text("utf-8")
        other = (tmp_path / f"task-extended-digits.{kind}").read_text("utf-8")
        assert "Test: crowded bags" in own
        assert "Many instances." in own
        assert "✗ fail" in own or "✓ pass" in own or "? unresolved" in own
        assert "Test: crowded bags" not in other
        if kind == "html":
            assert "crowded bags" in other, "the way to the page of the next task"


@pytest.mark.usefixtures("blank_figures")
def test_few_figures_are_those_of_all_tasks_and_every_seed(tmp_path: Path) -> None:
    results = make_results(None, epochs=6)
    every = {path.name for path in render(results, tmp_path / "all")}
    few = {path.name for path in render(results, tmp_path / "few", figures="few")}
    left = {name.split("-")[0] for name in every - few}
    assert left == {"curves", "costs", "pareto"}
    assert {name for name in every if name.startswith("seeds-")} <= few
    for name in ("index.html", "report.md"):
        assert "(figures few)" in (tmp_path / "few" / name).read_text("utf-8")
        assert "(figures few)" not in (tmp_path / "all" / name).read_text("utf-8")


@pytest.mark.usefixtures("blank_figures")
def test_a_failure_while_drawing_leaves_the_earlier_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = make_results(None, {"exact": 0.1}, ONE, 1, 2)
    out = tmp_path / "out"
    render(results, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReportFigure, "write", fail)
    with pytest.raises(KeyboardInterrupt):
        render(replace(results, name="other"), out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.usefixtures("blank_figures")
def test_a_report_that_was_killed_while_it_was_put_in_place_leaves_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = make_results(None, {"exact": 0.1}, ONE, 3, 2)
    out = tmp_path / "out"
    render(results, out)
    assert [*out.glob("figures/curves-*")]
    replaced, put = Path.replace, []

    def killed(path: Path, target: Path) -> Path:
        if target.name == "index.html":
            raise KeyboardInterrupt
        put.append(target)
        return replaced(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            render(results, out, figures="few")
    assert put, "some files are in place"
    render(results, out, figures="few")
    assert not [*out.glob("figures/curves-*")]


@pytest.mark.usefixtures("blank_figures")
def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot write the report into .*file"):
        render(make_results(None, {"exact": 0.1}, ONE, 1, 2), tmp_path / "file" / "out")


@pytest.mark.filterwarnings("error")
def test_metrics_that_are_not_finite_do_not_stop_the_figures(tmp_path: Path) -> None:
    values = {("exact", seed): [(0.1, 0.0), (math.nan, math.inf), (0.2, math.nan)] for seed in range(2)}
    values |= {("noisy-or", seed): [(math.inf, math.nan)] * 3 for seed in range(2)}
    render(constant(values), tmp_path / "out")


@pytest.mark.usefixtures("blank_figures")
def test_nothing_done_still_renders_and_says_so(tmp_path: Path) -> None:
    statuses = {(loss, "extended-digits", 0): (status, "") for loss, status in zip(LOSSES, STATUSES[1:], strict=True)}
    results = make_results(tmp_path, LOSSES, ONE, 1, 4, statuses=statuses)
    out = tmp_path / "out"
    render(results, out)
    text = Page((out / "index.html").read_text("utf-8")).text
    assert "no cell is done, so there is nothing to compare" in text
    for loss, status in zip(LOSSES, STATUSES[1:], strict=True):
        assert f"{loss} on extended-digits, seed 0: {status}" in text
    nothing = replace(results, cells=results.cells.assign(status="missing", run_id=""), provenance={}, galleries={},
                      history=results.history.iloc[:0], costs=results.costs.iloc[:0])  # fmt: skip
    render(nothing, out)
    assert "4 missing" in Page((out / "index.html").read_text("utf-8")).text
    render(replace(nothing, cells=results.cells.iloc[:0]), out)
    assert "Nothing was planned" in (out / "index.html").read_text("utf-8")


def test_long_unicode_and_formula_like_names(tmp_path: Path) -> None:
    names = {f"max-pooling normalization={'very-' * 20}long {i}": 0.1 for i in range(11)}
    names |= {"损失 ω_é $x^2$ 100% \\frac{a}": 0.1}
    results = make_results(None, names, {"bags & <sets> | #1": "instance_error"}, 1, 2, name="Ünïcode <x> | y")
    out = tmp_path / "out"
    render(results, out)
    page = Page((out / "index.html").read_text("utf-8"))
    assert "损失 ω_é $x^2$ 100% \\frac{a}" in page.text
    assert "Ünïcode <x> | y" in page.text
    assert (out / "figures/seeds-bags-sets-1.png").exists()
    assert r"\$x\textasciicircum{}2\$ 100\% \textbackslash{}frac\{a\}" in (out / "table.tex").read_text("utf-8")


def test_one_seed_and_no_validation_can_be_drawn(tmp_path: Path) -> None:
    render(make_results(None, TWO, ONE, 1, 1, validation=False), tmp_path / "out")
    text = Page((tmp_path / "out/index.html").read_text("utf-8")).text
    assert "One seed (n=1): no interval over seeds and no verdict" in text


@pytest.mark.usefixtures("blank_figures")
def test_tasks_whose_names_make_one_file_name_do_not_share_it(tmp_path: Path) -> None:
    results = make_results(None, {"exact": 0.1}, dict.fromkeys(("bags 1", "bags-1", "bags=1"), "instance_error"), 1, 2)
    render(results, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out/figures").iterdir()}
    assert {"seeds-bags-1.png", "seeds-bags-1-2.png", "seeds-bags-1-3.png"} <= names
