"""Which loss for which bags: questions, their answers, and what to try first.

The words are in advice.toml beside this file. README, site and `milbench list losses` show them.
"""

import tomllib
from functools import cache
from importlib import resources

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from milbench.contracts.spec_tables import TABLE


@dataclass(frozen=True, config=TABLE)
class Variant:
    """A loss with its head and its network, where these are not the default."""

    loss: str
    head: str = ""
    network: str = ""

    @property
    def name(self) -> str:
        """The variant as reports name it.

        Examples:
            >>> Variant("noisy-or", head="softmax").name
            'noisy-or (softmax)'
            >>> Variant("one-vs-rest", network="set-transformer").name
            'one-vs-rest with set-transformer'
        """
        name = self.loss
        if self.head:
            name += f" ({self.head})"
        if self.network:
            name += f" with {self.network}"
        return name

    @property
    def call(self) -> str:
        """The call in Python that returns the loss of this variant.

        Examples:
            >>> Variant("noisy-or", head="softmax").call
            'milbench.load_loss("noisy-or", head="softmax")'
        """
        head = f', head="{self.head}"' if self.head else ""
        return f'milbench.load_loss("{self.loss}"{head})'

    @property
    def options(self) -> str:
        """The options of `milbench run` that choose this variant alone.

        Examples:
            >>> Variant("noisy-or", head="softmax").options
            '--loss noisy-or -p loss.noisy-or.head=softmax'
        """
        words = f"--loss {self.loss}"
        if self.head:
            words += f" -p loss.{self.loss}.head={self.head}"
        if self.network:
            words += f" --network {self.network}"
        return words


@dataclass(frozen=True, config=TABLE)
class Answer:
    """An answer to a question."""

    says: str
    example: str
    to: str
    """The name of the question or the leaf that follows."""


@dataclass(frozen=True, config=TABLE)
class Question:
    """A question about bags, or about the use of a trained network."""

    asks: str
    explains: str
    """What a reader has to know to answer it."""
    answers: tuple[Answer, ...]


@dataclass(frozen=True, config=TABLE)
class Entry:
    """What to try first, why, and what is not known.

    Texts are Markdown. Their links begin at the root of the repository.
    """

    title: str
    bags: str
    """For which bags and which use."""
    why: str
    evidence: tuple[str, ...]
    not_known: str


@dataclass(frozen=True, config=TABLE)
class Leaf(Entry):
    """An entry that is reached once all questions on the way are answered."""

    try_first: tuple[Variant, ...]


@dataclass(frozen=True, config=TABLE)
class Besides(Entry):
    """An entry that holds whatever the answers are."""

    try_first: str


@dataclass(frozen=True, config=TABLE)
class Advice:
    """All advice, as a tree of questions with leaves."""

    short: str
    """The answer in a few sentences."""
    first: str
    """The name of the first question."""
    questions: dict[str, Question]
    leaves: dict[str, Leaf]
    besides: tuple[Besides, ...]

    @property
    def entries(self) -> list[Leaf | Besides]:
        """All that says what to try first."""
        return [*self.leaves.values(), *self.besides]


@cache
def advice() -> Advice:
    """Return the advice that advice.toml holds."""
    text = resources.files("milbench").joinpath("advice.toml").read_text("utf-8")
    return TypeAdapter(Advice).validate_python(tomllib.loads(text))


def tried_first(entry: Leaf | Besides) -> str:
    """Return what to try first, in Markdown: "`noisy-or (softmax)` or `exact`"."""
    if isinstance(entry, Besides):
        return entry.try_first
    return " or ".join(f"`{variant.name}`" for variant in entry.try_first)
