"""Every command and every piece of code in the documents runs, or says in a comment why it is not run here.

`<!-- not run: REASON -->` above a fenced block keeps it from being run: it is parsed then, and no more. `<!-- run with:
WORDS -->`, on one line, adds words to its `milbench run`, such as fewer epochs. `<!-- needs: MODULES -->` names modules
that a block imports and milbench does not: where one is missing, the page's test is skipped there. A reader of the page
sees none of them.
"""

import contextlib
import io
import linecache
import random
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from markdown_it import MarkdownIt

from tests._helpers.command_line import REPOSITORY, Milbench

PAGES = sorted(
    [
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md")),
    ]
)
COMMENT = re.compile(r"<!-- (not run|run with|needs): (\S.*?) -->\s*$")
WRITES_BIRDS = "milbench data sample birds.csv"
NOT_RUN = 22  # blocks that say why they are not run; raise it only for what no test can run


@dataclass(frozen=True)
class Block:
    """A fenced block: its first line in the file, from 1, and what the comment above it says."""

    line: int
    language: str
    text: str
    not_run: str = ""
    words: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command; of a block that is not run, those of milbench alone.

        A backslash continues a line, && divides it, and a comment ends it.
        """
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.not_run:
            lines = [line for line in lines if line.startswith("milbench ")]
        parts = [part for line in lines for part in line.split(" && ")]
        return [words for part in parts if (words := shlex.split(part, comments=True))]


def blocks(page: Path) -> list[Block]:
    tokens = MarkdownIt("commonmark").parse(page.read_text("utf-8"))
    before = [None, *tokens]
    return [
        _block(token, last)
        for last, token in zip(before, tokens, strict=False)
        if token.type == "fence"
    ]


def _block(token: Any, before: Any) -> Block:
    said = (
        COMMENT.match(before.content)
        if before is not None and before.type == "html_block"
        else None
    )
    kind, rest = said.groups() if said else ("", "")
    return Block(
        line=token.map[0] + 1,
        language=token.info.strip(),
        text=token.content,
        not_run=rest if kind == "not run" else "",
        words=tuple(shlex.split(rest)) if kind == "run with" else (),
        needs=tuple(rest.split(", ")) if kind == "needs" else (),
    )


@pytest.fixture
def folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's folder, with an empty store."""
    root.mkdir()
    monkeypatch.chdir(root)
    return root


def write_birds(folder: Path) -> None:
    """Write the table of bags that a page takes to be the reader's own."""
    rng = random.Random(0)
    rows = ["bag,labels,f0,f1"]
    for bag in range(40):
        kinds = [rng.randrange(3) for _ in range(3)]
        labels = ";".join(
            name for number, name in enumerate(["wren", "nuthatch"]) if number in kinds
        )
        rows += [
            f"rec-{bag},{labels},{rng.gauss(3 * (k == 0), 1)},{rng.gauss(3 * (k == 1), 1)}"
            for k in kinds
        ]
    (folder / "birds.csv").write_text("\n".join(rows), "utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs(page: Path, folder: Path, milbench: Milbench) -> None:
    names: dict[str, Any] = {"__name__": "a_page"}
    said = ""
    # A page that makes this table itself would find it there.
    if WRITES_BIRDS not in page.read_text("utf-8"):
        write_birds(folder)
    for block in blocks(page):
        where = f"{page.name}, line {block.line}"
        for module in block.needs:
            pytest.importorskip(module, reason=f"{where} shows how to use a loss with it")
        if block.language == "python":
            said = run_python(block, names, where)
        elif block.language == "toml":
            read_toml(block, folder, milbench, where)
        elif block.language == "text":
            assert_shown(block, said, where)
        elif block.language == "":
            said = run_commands(block, milbench, where)
        else:
            pytest.fail(f"{where}: nothing runs blocks of {block.language!r}")


def test_no_more_blocks_than_known_are_not_run() -> None:
    reasons = [
        f"{page.name}, line {block.line}: {block.not_run}"
        for page in PAGES
        for block in blocks(page)
        if block.not_run
    ]
    assert len(reasons) == NOT_RUN, "\n".join(reasons)


def run_python(block: Block, names: dict[str, Any], where: str) -> str:
    code = compile(block.text, where, "exec")
    linecache.cache[where] = (
        len(block.text),
        None,
        block.text.splitlines(keepends=True),
        where,
    )  # as a notebook does
    printed = io.StringIO()
    if not block.not_run:
        with contextlib.redirect_stdout(printed):
            exec(code, names)
    return printed.getvalue()


def read_toml(block: Block, folder: Path, milbench: Milbench, where: str) -> None:
    found = tomllib.loads(block.text)
    if "losses" not in found or block.not_run:
        return
    (folder / "my.toml").write_text(block.text, "utf-8")
    milbench("run", "my.toml", "--dry-run").done()


def run_commands(block: Block, milbench: Milbench, where: str) -> str:
    """Run the commands of a block, or let the parser read them; return what the last one printed."""
    said = ""
    for words in block.commands:
        if words[0] != "milbench":
            assert block.not_run, f"{where}: no test runs {words[0]}"
        elif block.not_run:
            parse(words[1:], where)
        else:
            ran = milbench(*words[1:], *(block.words if words[1] == "run" else ()))
            assert ran.code == 0, f"{where}: {' '.join(words)}: {ran.err}"
            said = ran.out
    return said


def parse(words: list[str], where: str) -> None:
    """Let the parser of the command line read words, whose command is not called."""
    from milbench.cli.main import ParserError, app

    command: Any = typer.main.get_command(app)
    context: Any = None
    name = "milbench"
    try:
        while hasattr(command, "resolve_command"):
            context = command.make_context(name, list(words[:1]), parent=context)
            name, command, _ = command.resolve_command(context, list(words))
            words = words[1:]
        command.make_context(name, list(words), parent=context)
    except ParserError as error:
        pytest.fail(f"{where}: {' '.join(words)}: {error.format_message()}")


def assert_shown(block: Block, said: str, where: str) -> None:
    """Every line that a page shows is among those that the last command printed, whatever the numbers."""
    printed = {masked(line.partition(" --root ")[0]) for line in said.splitlines()}
    for line in block.text.splitlines():
        assert line.strip() == "..." or masked(line) in printed, (
            f"{where}: nothing printed is like {line!r}:\n{said}"
        )


def masked(line: str) -> str:
    """Return a line without its numbers, and without what their widths decide."""
    return re.sub(r"[\s━─]+", " ", re.sub(r"[-−+]?\d[\d.,e-]*", "N", line)).strip()


def test_the_tutorial_shows_the_file_that_milbench_new_writes(
    folder: Path, milbench: Milbench
) -> None:
    (shown,) = (
        b.text for b in blocks(REPOSITORY / "docs" / "tutorial.md") if "class MeanPooling" in b.text
    )
    assert milbench("new", "loss", "mean-pooling").code == 0
    assert shown in (folder / "mean_pooling.py").read_text("utf-8")


RANKED_BY = ("set_error", "label_error", "average_precision", "auroc")


def test_the_results_page_has_the_frame_s_mean_ranks() -> None:
    ranks = mean_ranks_of_all_losses()
    page = (REPOSITORY / "docs" / "results.md").read_text("utf-8")
    losses = {
        "`one-vs-rest` with a set transformer": ("one-vs-rest", "set-transformer"),
        "`noisy-or (softmax)`": ("noisy-or head=softmax", ""),
        "`exact`": ("exact", ""),
    }
    for name, loss in losses.items():
        shown = "|".join(f"{ranks[metric][loss]:.1f}" for metric in RANKED_BY)
        assert f"|{name}|{shown}|" in page


def mean_ranks_of_all_losses() -> dict[str, "pd.Series[float]"]:
    """Return by metric the mean rank of each loss and network over kinds of bags, from the published frame."""
    frame = pd.read_csv(
        REPOSITORY / "reports/all-losses/results.csv.gz", dtype=str, na_filter=False
    )
    # On birds19 no loss is shown to beat no skill; the two soundscapes are one data set.
    frame = frame[(frame["final"] == "True") & (frame["task"] != "birds19")]
    found = {}
    for metric in RANKED_BY:
        rows = frame[frame["metric"] == f"test/{metric}"].astype({"value": float})
        means = rows.groupby(["loss", "network", "task"])["value"].mean().unstack("task")
        ranks = means.rank(ascending=metric.endswith("error"))
        kinds = ranks.T.groupby(lambda task: task.partition(",")[0]).mean()
        found[metric] = kinds.mean()
    return found
