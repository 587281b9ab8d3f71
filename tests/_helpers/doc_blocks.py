"""The fenced blocks of a page, and what the comment above one says about running it.

`<!-- not run: REASON -->` above a block keeps it from being run: it is parsed then, and no more. `<!-- run with:
WORDS -->`, on one line, adds words to its `milbench run`, such as fewer epochs. `<!-- needs: MODULES -->` names modules
that a block imports and milbench does not: where one is missing, the page's test is skipped there. A reader of the page
sees none of them.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

COMMENT = re.compile(r"<!-- (not run|run with|needs): (\S.*?) -->\s*$")


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
    return [_block(token, last) for last, token in zip(before, tokens, strict=False) if token.type == "fence"]


def _block(token: Any, before: Any) -> Block:
    said = COMMENT.match(before.content) if before is not None and before.type == "html_block" else None
    kind, rest = said.groups() if said else ("", "")
    return Block(
        line=token.map[0] + 1,
        language=token.info.strip(),
        text=token.content,
        not_run=rest if kind == "not run" else "",
        words=tuple(shlex.split(rest)) if kind == "run with" else (),
        needs=tuple(rest.split(", ")) if kind == "needs" else (),
    )
