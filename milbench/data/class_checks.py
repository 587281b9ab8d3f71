"""Checks of the names of classes.

A name may stand for several classes, or for no class. It may also be the name of a bag, or
a measured number.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from shlex import quote

import pandas as pd

from milbench.data.findings import Finding
from milbench.data.label_cells import LIST, class_name, classes_in
from milbench.data.name_lists import abbreviate
from milbench.data.own_bags import OwnBags
from milbench.data.table_options import LIST_MARK, TableOptions, listed

_NOTHING = {
    "nan", "na", "n/a", "n.a.", "#n/a", "<na>", "nat", "none", "null", "nil", "-", "--", "?", "...",
    "#value!", "unknown", "undefined", "missing", "unlabeled", "unlabelled", "empty", "no label",
    "not available", "background", "noise", "silence", "nothing", "no finding", "no findings",
    "no event", "no events", "no class", "no call", "nocall", "no bird",
}  # fmt: skip
"""Labels that mean "no class" in the files of many programs, as `_in_words` returns them."""
_RARE_MARKS = ",;|"
"""Punctuation marks that are rare in names, and so probably stand between classes."""
_USUAL_MARKS = (",", "|", ";", "/", "+", "&")
"""Punctuation marks that often stand between classes: first those that are rare in names."""
_FEWEST_NUMBERS = 10
"""Up to this many classes that are numbers are judged like other names: they may be grades."""
_MOST_CLASSES = 4
"""Up to this many classes are never taken for ids."""
_LIST = re.compile(r"\[.*\]|\{.*\}|\(.*['\"].*\)|(['\"]).*\1", re.DOTALL)
"""A text that reads like a list."""


def check_classes(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield findings on the names of classes, and in how many bags each class is."""
    yield from _twin_classes(bags)
    yield from _binary_classes(bags, options)
    yield from _classes_like_nothing(bags, options)
    yield from _classes_like_several(bags, options)
    for name, count in zip(bags.class_names, bags.labels.sum(axis=0).tolist(), strict=True):
        yield Finding("fact", f"class {name}", f"in {count:,} of {len(bags):,} bags")
        if count == len(bags):
            detail = "is in every bag: label sets say nothing of where it is"
            yield Finding("warning", f"class {name}", detail)


def _in_words(name: str) -> str:
    """Return the name of a class in lower case, with one space between its words."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", folded)


def _twin_classes(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding for classes that are probably one, written in two ways."""
    variants = defaultdict[str, list[str]](list)
    for name in bags.class_names:
        variants[_in_words(name).rstrip(".")].append(name)
    twins = [" and ".join(names) for names in variants.values() if len(names) > 1]
    if twins:
        yield Finding("warning", "classes that differ in case or spaces alone", abbreviate(twins))


def _binary_classes(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield a finding where the classes are 0 and 1, or false and true.

    Such a column says whether a bag has one class, but it is read as a column of two classes.
    """
    names = {name.casefold() for name in bags.class_names}
    if names not in ({"0", "1"}, {"0.0", "1.0"}, {"false", "true"}):
        return
    absent = min(bags.class_names)
    detail = f"a bag with {absent} has the class {absent}, and none has no class"
    remedy = _nothing_flag(bags, options, [absent])
    if remedy:
        detail += f"; {remedy} makes no class of {absent}"
    if bags.label_texts and set(bags.label_texts) <= {"0", "1", "0.0", "1.0"}:
        flag = quote(f"{options.labels}{LIST_MARK}")
        detail += (
            f"; -p task.labels={flag} reads a column of 0 and 1 for the class {options.labels}"
        )
    yield Finding("warning", f"the classes are {' and '.join(bags.class_names)}", detail)


def _classes_like_nothing(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield a finding for names that mean "no class", with the option that reads them so."""
    names = []
    for name in bags.class_names:
        # Na is a class where chemical elements are: sodium.
        means_nothing = _in_words(name) in _NOTHING and name != "Na"
        # Beside a class wren, the label -wren says that there is no wren.
        is_negation = re.match(r"-[^\W\d]", name) and name[1:] in bags.class_names
        if means_nothing or is_negation:
            names.append(name)
    if not names:
        return
    detail = f"{abbreviate(names)}: does it mean no class?"
    remedy = _nothing_flag(bags, options, names)
    if remedy:
        left = [number for number, name in enumerate(bags.class_names) if name not in names]
        empty = int((~bags.labels[:, left].any(axis=1)).sum())
        detail += f" {remedy} reads it so, and {empty:,} of {len(bags):,} bags have no class then"
    yield Finding("warning", "classes that read like nothing", detail)


def _nothing_flag(bags: OwnBags, options: TableOptions, names: Sequence[str]) -> str:
    """Return the option by which these labels mean no class.

    The result is "" where the option cannot be given, or where no class would be left.
    """
    is_possible = not any(LIST_MARK in name or name in listed(options.classes) for name in names)
    if not is_possible or len(names) == len(bags.class_names):
        return ""
    labels = [*listed(options.nothing), *names]
    return f"-p task.nothing={quote(LIST_MARK.join(labels))}"


def _classes_like_several(bags: OwnBags, options: TableOptions) -> Iterator[Finding]:
    """Yield findings for labels that seem to be lists, or several classes with a separator."""
    lists = [text for text in bags.label_texts if _LIST.fullmatch(text)]
    if lists and options.separator != LIST:
        yield _several_in_one(bags, options, LIST, lists)
        return
    for separator, names in _unseparated_classes(bags.class_names).items():
        yield _several_in_one(bags, options, separator.strip(), names)


def _several_in_one(
    bags: OwnBags, options: TableOptions, separator: str, texts: Sequence[str]
) -> Finding:
    """Return the finding that some texts may be several classes.

    It offers another separator where that reads all labels of the table.
    """
    detail = f"{abbreviate([*map(repr, texts)], 3)} may be several classes"
    setting = ""
    if _takes_apart(bags, options, separator):
        setting = f"task.separator={separator}"
        detail += f"; -p task.separator={quote(separator)} takes them apart"
    else:
        detail += f"; task.separator={quote(separator)} does not read all labels of the table"
    return Finding("warning", "classes that read like several", detail, setting)


def _takes_apart(bags: OwnBags, options: TableOptions, separator: str) -> bool:
    """Return whether all labels of the table can be read with another separator.

    They cannot if a class would then have the present separator in its name.
    """
    classes = set[str]()
    for text in bags.label_texts:
        try:
            classes |= classes_in(text, separator)
        except ValueError:
            return False
    allowed = set(map(class_name, listed(options.classes)))
    if not classes or (allowed and not classes <= allowed):
        return False
    present = options.separator
    if present in ("", LIST) or separator == LIST:
        return True
    return not any(present in name for name in classes)


def _unseparated_classes(names: Sequence[str]) -> dict[str, list[str]]:
    """Return separator -> the names that seem to be several classes with it between them."""
    found: dict[str, list[str]] = {}
    left = list(names)
    others = set(re.findall(r"\W|_", "".join(names))) - set(_USUAL_MARKS) - {" "}
    for separator in [*_USUAL_MARKS, *sorted(others), " "]:
        joined = _joined_by(separator, left)
        if joined:
            found[separator] = joined
            left = [name for name in left if name not in joined]
    return found


def _joined_by(separator: str, names: Sequence[str]) -> list[str]:
    """Return the names that seem to be several classes with this separator between them."""
    parts: dict[str, list[str]] = {}
    for name in names:
        if separator in name:
            stripped = [part.strip() for part in name.split(separator)]
            parts[name] = [part for part in stripped if part]
    # A mark that is not rare in names, such as a slash, separates classes only if every part is
    # a class by itself.
    if separator not in _RARE_MARKS:
        return [name for name, several in parts.items() if _are_several(several, set(names))]
    # A rare mark, such as a comma, separates classes if one part is a class by itself, or if every
    # part is a class or occurs in several names.
    counts = Counter(part for several in parts.values() for part in set(several))
    repeated = {part for part, count in counts.items() if count > 1}
    classes = repeated.union(names)
    joined = []
    for name, several in parts.items():
        has_class = not set(names).isdisjoint(several)
        if has_class or _are_several(several, classes):
            joined.append(name)
    return joined


def _are_several(parts: Sequence[str], classes: set[str]) -> bool:
    """Return whether there are at least two parts, and all of them are classes."""
    return len(parts) > 1 and classes.issuperset(parts)


def id_like_classes(bags: OwnBags) -> Iterator[Finding]:
    """Yield a finding where classes seem to be names of bags, or measured numbers."""
    names = bags.class_names
    labelled = int(bags.labels.any(axis=1).sum())
    most_classes_of_a_bag = bags.labels.sum(axis=1).max()
    # A column of ids or measured numbers has one for each bag, and many different ones.
    if most_classes_of_a_bag > 1 or len(names) <= _MOST_CLASSES:
        return
    numbers = pd.to_numeric(pd.Series(names), errors="coerce")
    are_numbers = numbers.notna().all() and len(names) > _FEWEST_NUMBERS
    # How many bags a class has on average, at least, if it is no id. Numbers may be grades, but
    # then each grade has more bags.
    fewest_bags = 4 if are_numbers else 2
    has_fractions = bool((numbers % 1 > 0).any())
    if has_fractions or fewest_bags * len(names) > labelled:
        what = f"{len(names)} classes in {labelled} bags with a class: {abbreviate(names, 3)}"
        yield Finding(
            "warning",
            "classes that read like ids or measured numbers",
            f"{what}; a class is in many bags",
        )
