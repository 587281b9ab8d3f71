"""Every command and every piece of code in the documents runs, or a comment says why it does not.

A comment of one line above a fenced block, which readers of the page do not see, changes how the
block is tested:

- `<!-- not run: REASON -->`: the block is only parsed.
- `<!-- run with: WORDS -->`: its `milbench run` gets more words, such as fewer epochs.
- `<!-- needs: MODULES -->`: the block imports modules that milbench does not need. If a module is
  missing, the rest of the page is skipped.
"""

import contextlib
import io
import linecache
import random
import re
import shlex
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from markdown_it import MarkdownIt

from milbench.report.published_reports import read
from milbench.report.study import Study
from milbench.report.uses import USES, Use
from tests._helpers.command_line import REPOSITORY, Milbench

DOCS = REPOSITORY / "docs"
PAGES = sorted([*DOCS.glob("*.md"), REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"])
COMMENT = re.compile(r"<!-- (not run|run with|needs): (\S.*?) -->\s*$")
WRITES_BIRDS = "milbench data sample birds.csv"
"""The command that writes the table birds.csv, which some pages give themselves."""
NOT_RUN = 22
"""The number of blocks that are not run. Raise it only for a block that no test can run."""


@dataclass(frozen=True)
class Block:
    """A fenced block, and the meaning of the comment above it."""

    page: str
    line: int
    """The first line of the block in its page, counted from 1."""
    language: str
    text: str
    not_run: str = ""
    """Why the block is not run; "" if it is run."""
    words: tuple[str, ...] = ()
    """The words that are added to its `milbench run`."""
    needs: tuple[str, ...] = ()
    """Modules without which the block cannot run."""

    @property
    def place(self) -> str:
        """Where the block is, for messages."""
        return f"{self.page}, line {self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of the block.

        A backslash continues a line, && separates two commands, and a comment ends a line. If the
        block is not run, only commands of milbench are returned.
        """
        commands = []
        for line in self.text.replace("\\\n", " ").splitlines():
            if self.not_run and not line.startswith("milbench "):
                continue
            for command in line.split(" && "):
                words = shlex.split(command, comments=True)
                if words:
                    commands.append(words)
        return commands


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = []
    comment = None
    for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
        if token.type == "fence":
            found.append(_block(page.name, token, comment))
        # A comment only counts directly above a block.
        comment = COMMENT.match(token.content) if token.type == "html_block" else None
    return found


def _block(page: str, token: Any, comment: re.Match[str] | None) -> Block:
    block = Block(page, line=token.map[0] + 1, language=token.info.strip(), text=token.content)
    if comment is None:
        return block
    kind, text = comment.groups()
    if kind == "not run":
        return replace(block, not_run=text)
    if kind == "run with":
        return replace(block, words=tuple(shlex.split(text)))
    return replace(block, needs=tuple(text.split(", ")))


@pytest.fixture
def folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which a reader of the page would work."""
    root.mkdir()
    monkeypatch.chdir(root)
    return root


def write_birds(folder: Path) -> None:
    """Write the table birds.csv, which stands for a table of the reader's own.

    It has 40 bags of three instances. An instance of a bird has a mean of 3 in the feature of that
    bird; all other means are 0.
    """
    rng = random.Random(0)
    birds = ["wren", "nuthatch"]
    background = len(birds)
    rows = ["bag,labels,f0,f1"]
    for bag in range(40):
        kinds = [rng.randint(0, background) for _ in range(3)]
        labels = ";".join(name for kind, name in enumerate(birds) if kind in kinds)
        for kind in kinds:
            means = [3 if kind == bird else 0 for bird in range(len(birds))]
            features = [str(rng.gauss(mean, 1)) for mean in means]
            rows.append(",".join([f"rec-{bag}", labels, *features]))
    (folder / "birds.csv").write_text("\n".join(rows), "utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs(page: Path, folder: Path, milbench: Milbench) -> None:
    # The blocks of a page share their names, as the cells of a notebook do.
    names: dict[str, Any] = {"__name__": "a_page"}
    printed = ""
    # A page that writes this table itself needs a folder without it.
    if WRITES_BIRDS not in page.read_text("utf-8"):
        write_birds(folder)
    for block in blocks(page):
        for module in block.needs:
            pytest.importorskip(module, reason=f"{block.place} shows how to use a loss with it")
        if block.language == "python":
            printed = run_python(block, names)
        elif block.language == "toml":
            read_toml(block, folder, milbench)
        elif block.language == "text":
            assert_shown(block, printed)
        elif block.language == "":
            printed = run_commands(block, milbench)
        else:
            pytest.fail(f"{block.place}: nothing runs blocks of {block.language!r}")


def test_no_more_blocks_than_known_are_not_run() -> None:
    all_blocks = [block for page in PAGES for block in blocks(page)]
    reasons = [f"{block.place}: {block.not_run}" for block in all_blocks if block.not_run]
    assert len(reasons) == NOT_RUN, "\n".join(reasons)


def run_python(block: Block, names: dict[str, Any]) -> str:
    """Run the code of a block and return what it printed; only compile it if it is not run."""
    code = compile(block.text, block.place, "exec")
    if block.not_run:
        return ""
    # A notebook puts code into this cache as well: `inspect` finds the source of classes there.
    lines = block.text.splitlines(keepends=True)
    linecache.cache[block.place] = (len(block.text), None, lines, block.place)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def read_toml(block: Block, folder: Path, milbench: Milbench) -> None:
    """Parse a block; if it is a spec, make its plan."""
    content = tomllib.loads(block.text)
    is_spec = "losses" in content
    if block.not_run or not is_spec:
        return
    (folder / "my.toml").write_text(block.text, "utf-8")
    milbench("run", "my.toml", "--dry-run").done()


def run_commands(block: Block, milbench: Milbench) -> str:
    """Run the commands of a block, and return what the last one printed.

    If the block is not run, only let the parser of the command line read them.
    """
    printed = ""
    for program, *words in block.commands:
        if block.not_run:
            if program == "milbench":
                parse(words, block.place)
            continue
        assert program == "milbench", f"{block.place}: no test runs {program}"
        more = block.words if words[0] == "run" else ()
        ran = milbench(*words, *more)
        assert ran.code == 0, f"{block.place}: {' '.join(words)}: {ran.err}"
        printed = ran.out
    return printed


def parse(words: list[str], where: str) -> None:
    """Let the parser of the command line read words, without calling the command."""
    from milbench.cli.main import ParserError, app

    command: Any = typer.main.get_command(app)
    context: Any = None
    name = "milbench"
    try:
        # A group of commands takes its own options, and then the name of one of its commands.
        while hasattr(command, "resolve_command"):
            context = command.make_context(name, list(words[:1]), parent=context)
            name, command, _ = command.resolve_command(context, list(words))
            words = words[1:]
        command.make_context(name, list(words), parent=context)
    except ParserError as error:
        pytest.fail(f"{where}: {' '.join(words)}: {error.format_message()}")


def assert_shown(block: Block, printed: str) -> None:
    """Check that the last command has printed every line of a block, whatever the numbers."""
    # Tests add `--root` to commands, and readers do not.
    lines = {masked(line.partition(" --root ")[0]) for line in printed.splitlines()}
    for line in block.text.splitlines():
        is_omission = line.strip() == "..."
        if not is_omission:
            assert masked(line) in lines, (
                f"{block.place}: nothing printed is like {line!r}:\n{printed}"
            )


def masked(line: str) -> str:
    """Return a line with N for each number.

    Spaces, bars and rules, whose lengths depend on the widths of numbers, become one space.
    """
    without_numbers = re.sub(r"[-−+]?\d[\d.,e-]*", "N", line)
    return re.sub(r"[\s━─]+", " ", without_numbers).strip()


def test_the_tutorial_shows_the_file_that_milbench_new_writes(
    folder: Path, milbench: Milbench
) -> None:
    texts = [block.text for block in blocks(DOCS / "tutorial.md")]
    (shown,) = [text for text in texts if "class MeanPooling" in text]
    milbench("new", "loss", "mean-pooling").done()
    assert shown in (folder / "mean_pooling.py").read_text("utf-8")


RANKED_BY = ("set_error", "label_error", "average_precision", "auroc")
"""The metrics of the table of mean ranks on the results page."""


def test_the_results_page_has_the_mean_ranks_of_the_frame() -> None:
    ranks = mean_ranks_of_all_losses()
    page = (DOCS / "results.md").read_text("utf-8")
    losses = {
        "`one-vs-rest` with a set transformer": ("one-vs-rest", "set-transformer"),
        "`noisy-or (softmax)`": ("noisy-or head=softmax", ""),
        "`exact`": ("exact", ""),
    }
    for name, loss in losses.items():
        shown = "|".join(f"{ranks[metric][loss]:.1f}" for metric in RANKED_BY)
        assert f"|{name}|{shown}|" in page


def mean_ranks_of_all_losses() -> dict[str, "pd.Series[float]"]:
    """Return metric -> the mean rank of each loss and network over kinds of bags.

    The ranks are computed from the frame of a published report.
    """
    published = REPOSITORY / "reports" / "all-losses" / "results.csv.gz"
    frame = pd.read_csv(published, dtype=str, na_filter=False)
    frame = frame[frame["final"] == "True"]
    # On birds19 no loss is shown to beat no skill.
    frame = frame[frame["task"] != "birds19"]
    ranks_by_metric = {}
    for metric in RANKED_BY:
        rows = frame[frame["metric"] == f"test/{metric}"].astype({"value": float})
        means = rows.groupby(["loss", "network", "task"])["value"].mean().unstack("task")
        is_lower_better = metric.endswith("error")
        ranks = means.rank(ascending=is_lower_better)
        # Tasks that differ only in settings, as the two soundscapes do, are one kind of bags.
        ranks_of_kinds = ranks.T.groupby(lambda task: task.partition(",")[0]).mean()
        ranks_by_metric[metric] = ranks_of_kinds.mean()
    return ranks_by_metric


ROWS_OF_USES = (
    "handwritten-words",
    "spoken-digits",
    "soundscapes",
    "birds",
    "birds19",
    "synthetic-bags",
)
"""The tasks of the table of uses on the results page, in the order of its rows."""


def test_the_results_page_counts_the_losses_that_may_be_the_best() -> None:
    page = (DOCS / "results.md").read_text("utf-8")
    table = page.partition("counts them again -->\n")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|")[1:] for line in table.splitlines()[2:]]
    study = Study(read(REPOSITORY / "reports" / "all-losses"))
    for task, cells in zip(ROWS_OF_USES, rows, strict=True):
        for use, cell in zip(USES, cells, strict=True):
            assert cell.startswith(count_of_contenders(study, task, use)), f"{task}, {use.name}"


def count_of_contenders(study: Study, task: str, use: Use) -> str:
    """Return how many losses may be the best for a use, as the results page says it."""
    metric = study.metric_of_use(task, use)
    if metric is None:
        return "not asked"
    summary = study.summary(task, metric)
    contenders = int(summary["contender"].sum()) if study.contenders(task, metric) else 0
    if contenders == 0:
        return "none"
    if contenders > len(summary) / 2:
        return "not told apart"
    return f"{contenders}"
