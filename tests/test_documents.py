"""Every command and every piece of code in the documents runs, or says in a comment why not.

A comment of one line above a fenced block changes how the block is tested. Readers of the page do
not see the comment:

- `<!-- not run: REASON -->`: the block is only parsed.
- `<!-- run with: WORDS -->`: its `milbench run` gets more words, such as fewer epochs.
- `<!-- needs: MODULES -->`: the block imports modules that milbench does not need. Where one is
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

from tests._helpers.command_line import REPOSITORY, Milbench

DOCS = REPOSITORY / "docs"
PAGES = sorted([*DOCS.glob("*.md"), REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"])
COMMENT = re.compile(r"<!-- (not run|run with|needs): (\S.*?) -->\s*$")
WRITES_BIRDS = "milbench data sample birds.csv"
NOT_RUN = 22
"""How many blocks say why they are not run. Raise it only for what no test can run."""


@dataclass(frozen=True)
class Block:
    """A fenced block and what the comment above it says."""

    page: str
    line: int
    """The first line of the block in its page, counted from 1."""
    language: str
    text: str
    not_run: str = ""
    """Why the block is not run; "" for a block that is run."""
    words: tuple[str, ...] = ()
    """Words that are added to the block's `milbench run`."""
    needs: tuple[str, ...] = ()
    """Modules without which the block cannot run."""

    @property
    def page_and_line(self) -> str:
        """Where the block is, for messages."""
        return f"{self.page}, line {self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command; if the block is not run, of the commands of milbench only.

        A backslash continues a line, && separates two commands, and a comment ends a line.
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
        # A comment counts only directly above a block.
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
    """The reader's folder, with an empty store."""
    root.mkdir()
    monkeypatch.chdir(root)
    return root


def write_birds(folder: Path) -> None:
    """Write birds.csv, which the pages take for a table of the reader: 40 bags of 3 instances.

    An instance of a bird has a mean of 3 in the feature of that bird. All other means are 0.
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
    # A page that writes this table itself must not find it there.
    if WRITES_BIRDS not in page.read_text("utf-8"):
        write_birds(folder)
    for block in blocks(page):
        for module in block.needs:
            pytest.importorskip(
                module, reason=f"{block.page_and_line} shows how to use a loss with it"
            )
        if block.language == "python":
            printed = run_python(block, names)
        elif block.language == "toml":
            read_toml(block, folder, milbench)
        elif block.language == "text":
            assert_shown(block, printed)
        elif block.language == "":
            printed = run_commands(block, milbench)
        else:
            pytest.fail(f"{block.page_and_line}: nothing runs blocks of {block.language!r}")


def test_no_more_blocks_than_known_are_not_run() -> None:
    all_blocks = [block for page in PAGES for block in blocks(page)]
    reasons = [f"{block.page_and_line}: {block.not_run}" for block in all_blocks if block.not_run]
    assert len(reasons) == NOT_RUN, "\n".join(reasons)


def run_python(block: Block, names: dict[str, Any]) -> str:
    """Run the code of a block, or only compile it, and return what it printed."""
    code = compile(block.text, block.page_and_line, "exec")
    if block.not_run:
        return ""
    # Notebooks do this, too: `inspect` then finds the source of what a block defines.
    lines = block.text.splitlines(keepends=True)
    linecache.cache[block.page_and_line] = (len(block.text), None, lines, block.page_and_line)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def read_toml(block: Block, folder: Path, milbench: Milbench) -> None:
    """Parse a block, and make a plan if it is a spec."""
    content = tomllib.loads(block.text)
    is_spec = "losses" in content
    if block.not_run or not is_spec:
        return
    (folder / "my.toml").write_text(block.text, "utf-8")
    milbench("run", "my.toml", "--dry-run").done()


def run_commands(block: Block, milbench: Milbench) -> str:
    """Run the commands of a block, or only parse them; return what the last command printed."""
    printed = ""
    for program, *words in block.commands:
        if block.not_run:
            if program == "milbench":
                parse(words, block.page_and_line)
            continue
        assert program == "milbench", f"{block.page_and_line}: no test runs {program}"
        more = block.words if words[0] == "run" else ()
        ran = milbench(*words, *more)
        assert ran.code == 0, f"{block.page_and_line}: {' '.join(words)}: {ran.err}"
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
    """Check that the last command printed every line of the block, except for numbers."""
    # The tests add `--root` to commands, which readers do not.
    lines = {masked(line.partition(" --root ")[0]) for line in printed.splitlines()}
    for line in block.text.splitlines():
        is_omission = line.strip() == "..."
        if not is_omission:
            assert masked(line) in lines, (
                f"{block.page_and_line}: nothing printed is like {line!r}:\n{printed}"
            )


def masked(line: str) -> str:
    """Return a line with N for each number, and one space for each gap or rule between columns."""
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
    """Return by metric the mean rank of each loss and network, from the published results.

    The mean is over kinds of bags.
    """
    published = REPOSITORY / "reports" / "all-losses" / "results.csv.gz"
    frame = pd.read_csv(published, dtype=str, na_filter=False)
    frame = frame[frame["final"] == "True"]
    # The task birds19 is left out, since no loss is shown to beat no skill on it.
    frame = frame[frame["task"] != "birds19"]
    ranks_by_metric = {}
    for metric in RANKED_BY:
        rows = frame[frame["metric"] == f"test/{metric}"].astype({"value": float})
        means = rows.groupby(["loss", "network", "task"])["value"].mean().unstack("task")
        is_lower_better = metric.endswith("error")
        ranks = means.rank(ascending=is_lower_better)
        # Tasks that differ only in their settings, such as the two tasks of soundscapes, are one
        # kind of bags.
        ranks_of_kinds = ranks.T.groupby(lambda task: task.partition(",")[0]).mean()
        ranks_by_metric[metric] = ranks_of_kinds.mean()
    return ranks_by_metric
