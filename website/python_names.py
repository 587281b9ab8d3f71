"""The pages of the public names, which mkdocstrings fills from their docstrings."""

from collections.abc import Iterable

import milbench
from milbench import likelihood, testing

GROUPS = {
    "Comparisons": ("compare", "results", "Comparison", "UsageError"),
    "Losses": ("load_loss", "Loss", "Head", "LabelSets", "Reduction", "Supervision", "bag_sizes"),
    "Estimator": ("BagClassifier",),
    "Bags": ("Bags", "Origin", "Truth", "label_matrix", "pad_bags", "generator"),
    "Tasks": ("load_task", "Task", "Problem", "BagFormat", "Folds", "Recipe", "Published"),
    "Evaluation": ("EvalSplit", "evaluate_bags", "Evaluation", "Outcomes", "Scores",
                   "ScoreFunction", "Split"),
    "Families of tasks": ("FixedBags", "EvaluatedBags", "NestedDigits", "OneInstanceImages",
                          "StreetNumbers", "ImageSplits", "LabelledImages"),
    "Networks": ("load_network", "Network", "NetworkMaker", "AllConvolutional", "Layer",
                 "InstanceMLP", "SequenceNetwork", "BagNetwork"),
}  # fmt: skip
"""The public names of `milbench`, by page."""
MODULES = {"The exact likelihood": likelihood, "Contract tests": testing}
"""The other public modules, each with a page of its own."""


def titles() -> list[dict[str, str]]:
    """Return title and path of every page, in the order of the navigation."""
    return [{title: _path(title)} for title in (*GROUPS, *MODULES)]


def files() -> dict[str, str]:
    """Return the pages.

    Raises:
        ValueError: a public name is on no page, or on several.
    """
    # The version has no page.
    named = ["__version__"]
    for names in GROUPS.values():
        named += names
    # Lists, not sets: a name on two pages is a mistake too.
    if sorted(named) != sorted(milbench.__all__):
        difference = set(named) ^ set(milbench.__all__) or "a name is on two pages"
        raise ValueError(f"website.python_names.GROUPS and milbench.__all__ differ: {difference}")
    pages = {title: _page(title, "milbench", names) for title, names in GROUPS.items()}
    for title, module in MODULES.items():
        pages[title] = _page(title, module.__name__, module.__all__)
    return {_path(title): page for title, page in pages.items()}


def _page(title: str, module: str, names: Iterable[str]) -> str:
    entries = [f"::: {module}.{name}\n" for name in names]
    return "\n".join([f"# {title}\n", f"From `{module}`.\n", *entries])


def _path(title: str) -> str:
    return f"reference/python/{title.lower().replace(' ', '-')}.md"
