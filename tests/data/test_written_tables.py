"""Text files as people write them: separators, numbers and headers.

Options say how a file is written, and a message names the option that would read a file.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from milbench.data.bag_checks import check_bags
from milbench.data.findings import Finding
from milbench.data.load_bags import load_bags
from milbench.data.own_bags import OwnBags
from milbench.data.splits import split_bags
from milbench.data.table_options import FeatureOptions, ImageOptions, SequenceOptions
from milbench.errors import UsageError

SEMICOLONS: dict[str, Any] = {"field_separator": ";"}
"""The options of a file whose fields are separated by semicolons."""
DECIMAL_COMMA: dict[str, Any] = {"field_separator": ";", "decimal": ","}
"""The options of files from countries with a decimal comma, which separate fields by semicolons."""


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    """Write a table and return its path."""
    path = folder / name
    path.write_bytes(text.encode())
    return path


def load(path: Path, **options: Any) -> OwnBags:
    return load_bags(path, FeatureOptions(table=str(path), **options))


def features(path: Path, **options: Any) -> list[float]:
    """Return the features of all instances, row after row."""
    # If the table itself has the features, and names no files of features, they are one array.
    packed = load(path, **options).store.packed
    assert packed is not None
    return [float(value) for value in packed.ravel()]


def complaint(path: Path, **options: Any) -> str:
    """Return the message that refuses a table, and check that it is one line."""
    with pytest.raises(UsageError) as caught:
        load(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def options_in(text: str) -> dict[str, str]:
    """Return the options of the task that a message names, as a shell would read them."""
    options = {}
    for name, value in re.findall(r"task\.([a-z_]+)=('[^']*'|\S+)", text):
        # Messages quote a value with a space, or with a sign that means something to a shell.
        options[name] = "".join(shlex.split(value))
    return options


def findings_in(path: Path) -> list[Finding]:
    """Return what the checks find in a table that can be read without options."""
    options = FeatureOptions(table=str(path))
    return check_bags(load_bags(path, options), options)


def every_other(number: int) -> str:
    """Return the label of the bag of this number: "a" if the number is odd, else no label."""
    return "a" if number % 2 else ""


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        pytest.param("bag,labels,f\nr1,a,0.5\nr2,,1e1\n", {}, [0.5, 10], id="usual"),
        pytest.param("bag;labels;f\nr1;a;0,5\nr2;;1,5e1\n", DECIMAL_COMMA, [0.5, 15], id="europe"),
        pytest.param("bag|labels|f\nr1|a|0.5\nr2||2\n",
                     {"field_separator": "|"}, [0.5, 2], id="bars"),
        pytest.param("bag\tlabels\tf\nr1\ta\t1\nr2\t\t2\n",
                     {"field_separator": "tab"}, [1, 2], id="tabs"),
        pytest.param("bag labels f\nr1 a 1\nr2 b 2\n",
                     {"field_separator": "space"}, [1, 2], id="spaces"),
        pytest.param('bag,labels,f\nr1,a,"0,5"\nr2,,"1,5"\n',
                     {"decimal": ","}, [0.5, 1.5], id="quoted"),
        pytest.param('bag,labels,f\nr1,a,"5,050"\nr2,,553\n',
                     {"thousands": ","}, [5050, 553], id="thousands"),
        pytest.param('bag,labels,f\nr1,a,"1,234,567.5"\nr2,,1\n',
                     {"thousands": ","}, [1234567.5, 1], id="millions"),
        pytest.param("bag,labels,f\nr1,a,5.050\nr2,,553\n",
                     {"thousands": "."}, [5050, 553], id="dots"),
        pytest.param("bag;labels;f\nr1;a;1.234,5\nr2;;-2\n",
                     {**DECIMAL_COMMA, "thousands": "."}, [1234.5, -2], id="dots-and-comma"),
        pytest.param("bag,labels,f\nr1,a,1 234\nr2,,5\u202f530\n",
                     {"thousands": "space"}, [1234, 5530], id="gaps"),
    ],
)  # fmt: skip
def test_options_say_how_numbers_and_fields_are_written(
    tmp_path: Path, text: str, options: dict[str, str], expected: list[float]
) -> None:
    path = write(tmp_path, text)
    assert features(path, **options) == pytest.approx(expected)


def test_decimal_points_and_commas_in_one_column_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "bag;labels;f\nr1;a;0.5\nr2;;1,5\n")
    assert "expected a number" in complaint(path, **SEMICOLONS)


def test_a_separator_of_thousands_has_three_digits_behind_it(tmp_path: Path) -> None:
    path = write(tmp_path, 'bag,labels,f\nr1,a,"1,5"\nr2,,2\n')
    assert "expected a number" in complaint(path, thousands=",")


def test_a_file_of_tabs_needs_no_option(tmp_path: Path) -> None:
    path = write(tmp_path, "bag\tlabels\tf\nr1\ta\t1\nr2\t\t2\n", "t.tsv")
    assert features(path) == [1, 2]


@pytest.mark.parametrize(
    "separator", [";", "|", "\t", " "], ids=["semicolon", "bar", "tab", "space"]
)
def test_a_missing_column_names_the_separator_that_shows_it(tmp_path: Path, separator: str) -> None:
    rows = ["bag,labels,f", "r1,a,1", "r2,b,2"]
    path = write(tmp_path, "\n".join(rows).replace(",", separator))
    text = complaint(path)
    assert "has no column 'bag'" in text
    assert "reads bag, labels, f" in text
    assert features(path, **options_in(text)) == [1, 2]


def test_fields_that_do_not_fit_name_the_separator(tmp_path: Path) -> None:
    """Read by commas, which are the default, the header is one field, and other lines are two."""
    path = write(tmp_path, "id;labels;f\nr1;a;0,5\nr2;b;1,5\n")
    text = complaint(path, bag="id")
    assert features(path, bag="id", decimal=",", **options_in(text)) == [0.5, 1.5]


def test_no_separator_is_named_that_leaves_a_row_with_fewer_fields(tmp_path: Path) -> None:
    # By semicolons the header has three fields, and the last row only two.
    path = write(tmp_path, "bag;labels;f\nr1;a;1\nr2;b\n")
    assert "field_separator" not in complaint(path)


def test_a_line_above_the_header_is_to_be_removed(tmp_path: Path) -> None:
    path = write(tmp_path, "sep=;\nbag;labels;f\nr1;a;1\nr2;b;2\n")
    text = complaint(path)
    assert "the header is line 2: remove what is above it" in text
    below = write(tmp_path, path.read_text().partition("\n")[2])
    assert features(below, **options_in(text)) == [1, 2]


@pytest.mark.parametrize(
    "above",
    [
        pytest.param("# by R\n", id="a comment"),
        pytest.param("Birds, 2024\n\n", id="a title and an empty line"),
        pytest.param("a,b,c\n1,2,3\n", id="another table"),
    ],
)
def test_the_line_of_the_header_is_named(tmp_path: Path, above: str) -> None:
    path = write(tmp_path, f"{above}bag,labels,f\nr1,a,1\nr2,,2\n")
    line = above.count("\n") + 1
    assert complaint(path).endswith(f"the header is line {line}: remove what is above it")


def test_a_row_with_too_many_fields_does_not_move_the_header(tmp_path: Path) -> None:
    # The first row has four fields. The lines below it would be a table of three columns, but no
    # line of these is a header. So the message must not end with "the header is line ...".
    path = write(tmp_path, "bag,labels,f\nr1,a,1,5\nr2,,2\nr3,a,3\n")
    assert complaint(path).endswith("expected 3 as in the header, separated by commas")


@pytest.mark.parametrize("text", ["", "\n\n"], ids=["no byte", "empty lines"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, text: str) -> None:
    assert "is empty, expected a header" in complaint(write(tmp_path, text))


def test_the_option_that_reads_numbers_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, 'bag,labels,p,f\nr1,a,0.84,"5,050"\nr2,,1.5,553\n')
    text = complaint(path)
    assert options_in(text) == {"thousands": ","}, "a decimal comma would spoil the other column"
    assert features(path, **options_in(text)) == pytest.approx([0.84, 5050, 1.5, 553])


def test_both_options_are_named_where_both_read_a_column(tmp_path: Path) -> None:
    # The three digits after each comma may be decimals, or the last three of four digits.
    path = write(tmp_path, "bag;labels;f\nr1;a;6,096\nr2;;3,158\n")
    text = complaint(path, **SEMICOLONS)
    assert "-p task.decimal=, (it is then 6.096)" in text
    assert "-p task.thousands=, (it is then 6096)" in text


@pytest.mark.parametrize("other", ["two", "1.5", ""], ids=["a word", "a point", "nothing"])
def test_no_option_is_named_that_reads_a_part_of_a_column(tmp_path: Path, other: str) -> None:
    fields = ["1,5", "1,5", other]
    rows = [f'r{number},a,{number},"{field}"' for number, field in enumerate(fields)]
    # A decimal comma would read only the first two fields of f, and a mark between thousands none.
    text = complaint(write(tmp_path, "\n".join(["bag,labels,p,f", *rows])))
    assert "decimal" not in text
    assert "thousands" not in text


def test_points_that_may_separate_thousands_are_warned_of(tmp_path: Path) -> None:
    path = write(tmp_path, "bag,labels,f\nr1,a,5.050\nr2,,553\nr3,a,1.250\n")
    details = {finding.what: finding.detail for finding in findings_in(path)}
    named = options_in(details["numbers that may have marks between thousands"])
    assert features(path, **named) == [5050, 553, 1250]


@pytest.mark.parametrize(
    "fields",
    [
        # Somebody who writes thousands has numbers below 1000, too, which have no mark. A program
        # that writes three decimals writes them in every number, also in 3.000.
        pytest.param(["1.250", "2.500", "3.000"], id="three decimals each"),
        pytest.param(["1.25", "2", "3"], id="two decimals"),
        # Nobody writes 125 as 0.125.
        pytest.param(["0.125", "2", "3"], id="less than one"),
        pytest.param(["1250", "2", "3"], id="no point"),
    ],
)
def test_other_numbers_are_not_taken_for_thousands(tmp_path: Path, fields: list[str]) -> None:
    rows = [f"r{number},{every_other(number)},{field}" for number, field in enumerate(fields)]
    path = write(tmp_path, "\n".join(["bag,labels,f", *rows]))
    assert not [finding for finding in findings_in(path) if "thousands" in finding.what]


def test_tables_of_images_are_read_by_the_same_options(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.linear_gradient("L").save(tmp_path / name)
    path = write(tmp_path, "image;labels;size\na.png;wren;0,5\nb.png;;1,5\n")
    bags = load_bags(path, ImageOptions(table=str(path), **DECIMAL_COMMA))
    assert bags.bags == ["a.png", "b.png"]


def test_tables_of_sequences_are_read_by_the_same_options(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, rng.normal(size=(4, 2)))
    path = write(tmp_path, "file;labels;size\na.npy;wren;0,5\nb.npy;;1,5\n")
    bags = load_bags(path, SequenceOptions(table=str(path), **DECIMAL_COMMA))
    assert bags.bags == ["a.npy", "b.npy"]


def test_files_of_splits_are_read_by_the_same_options(tmp_path: Path) -> None:
    rows = [f"r{number};{every_other(number)};{number},5" for number in range(4)]
    path = write(tmp_path, "\n".join(["bag;labels;f", *rows]))
    # Each column lists the bags of a part: r0 and r3 to train on, r1 to validate and r2 to test on.
    write(tmp_path, "train;val;test\nr0;r1;r2\nr3;;\n", "split.csv")
    options = FeatureOptions(table=str(path), splits="split.csv", **DECIMAL_COMMA)
    parts = [part.tolist() for part in split_bags(load_bags(path, options), options, 0)]
    assert parts == [[0, 3], [1], [2]]


@pytest.fixture(params=[",", ";"], ids=["commas", "semicolons"])
def separator(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


# Python's csv module refuses fields of more than 131,072 characters by default. A header is a
# single field if it is read by a wrong separator.
GENES = [f"gene_{number}_of_a_long_name" for number in range(9_000)]


@pytest.fixture
def table_of_genes(tmp_path: Path, separator: str) -> Path:
    """A table of three bags, whose header has more than 200,000 characters."""
    header = separator.join(["bag", "labels", *GENES])
    assert len(header) > 200_000
    lines = [header]
    for number in range(3):
        values = [str(number)] * len(GENES)
        lines.append(separator.join([f"r{number}", every_other(number), *values]))
    return write(tmp_path, "\n".join(lines))


def test_a_header_of_many_characters_is_read(table_of_genes: Path, separator: str) -> None:
    assert load(table_of_genes, field_separator=separator).store.width == len(GENES)


def test_a_header_of_many_characters_is_cut_in_messages(
    table_of_genes: Path, separator: str
) -> None:
    text = complaint(table_of_genes, field_separator="|")
    assert len(text) < 1000
    assert options_in(text) == {"field_separator": separator}


def test_a_long_name_is_read_and_cut_in_messages(tmp_path: Path) -> None:
    path = write(tmp_path, f"bag,labels,{'x' * 200_000}\nr1,a,1\nr2,,2\n")
    assert features(path) == [1, 2]
    assert len(complaint(path, bag="slide")) < 500


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            {"field_separator": "ab"},
            "task.field_separator='ab': expected one character",
            id="a separator of two characters",
        ),
        pytest.param(
            {"decimal": ",", "thousands": ","},
            "',' is task.decimal and task.thousands",
            id="one sign for two purposes",
        ),
        pytest.param(
            {"nothing": "a", "classes": "a;b"},
            "'a' is in task.classes and in task.nothing",
            id="a class that means nothing",
        ),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        FeatureOptions(table="", **options)


THREE_FEATURES = "bag,labels,f,g,when\nr1,a,1,2,3\nr2,,4,5,6\n"


@pytest.mark.parametrize(
    ("chosen", "remaining"),
    [
        pytest.param("!when", ["f", "g"], id="one"),
        pytest.param("*;!when;!g", ["f"], id="two of all"),
    ],
)
def test_a_column_can_be_left_out_of_the_features(
    tmp_path: Path, chosen: str, remaining: list[str]
) -> None:
    assert load(write(tmp_path, THREE_FEATURES), features=chosen).feature_names == remaining


def test_a_column_that_does_not_exist_cannot_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, THREE_FEATURES)
    assert "has no column 'wen'" in complaint(path, features="!wen")


@pytest.mark.parametrize(
    "per_second",
    [
        pytest.param(1, id="seconds"),
        pytest.param(1_000, id="milliseconds"),
        pytest.param(10**6, id="microseconds"),
        pytest.param(10**9, id="nanoseconds"),
    ],
)
def test_time_stamps_among_features_are_warned_of(tmp_path: Path, per_second: int) -> None:
    rows = []
    for number in range(4):
        seconds = 1_600_000_000 + 60 * number
        rows.append(f"r{number},{every_other(number)},{number},{seconds * per_second}")
    path = write(tmp_path, "\n".join(["bag,labels,f,when", *rows]))
    (finding,) = [finding for finding in findings_in(path) if "time stamps" in finding.what]
    # The day that is 1,600,000,000 seconds after the beginning of 1970.
    assert "2020-09-13" in finding.detail
    assert load(path, **options_in(finding.what)).feature_names == ["f"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("t;u", id="the option would be read as two names"),
        pytest.param("*", id="the option would be read as a pattern of all columns"),
    ],
)
def test_no_option_is_named_that_would_leave_out_others(tmp_path: Path, name: str) -> None:
    # The second row has no number in the column of this name, so the table is refused. Columns with
    # plain names can be left out by `task.features`, and messages say so.
    text = complaint(write(tmp_path, f"bag,labels,f,{name}\nr1,a,1,2\nr2,,1,\n"))
    assert "task.features" not in text


def test_a_unit_in_brackets_is_no_list(tmp_path: Path) -> None:
    # A column of lists `speed` becomes the features `speed[0]`, `speed[1]` and so on. A name with
    # brackets may also be a column of the file, as here.
    path = write(tmp_path, 'bag,labels,f,speed [m/s]\nr1,a,0.5,"5,050"\nr2,,1.5,553\n')
    text = complaint(path)
    assert options_in(text) == {"thousands": ","}
    assert load(path, features="!speed [m/s]").feature_names == ["f"]


def test_no_feature_is_to_be_left_out_for_a_coordinate(tmp_path: Path) -> None:
    # A coordinate is no feature, so the message ends without an option that leaves features out.
    path = write(tmp_path, "bag,labels,f,x,y\nr1,a,1,2,3\nr2,,1,two,3\n")
    assert complaint(path, coords="x;y").endswith("column 'x' is 'two', expected a number")


def test_arrays_as_numpy_prints_them_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "bag,labels,e,f\na,u,[0.5 1.],1\nb,v,[2. 3.],2\n")
    text = complaint(path)
    assert "row 2: column 'e' is '[0.5 1.]', expected commas" in text
    assert "-p task.features='!e'" in text
    assert load(path, features="!e").feature_names == ["f"]


def test_a_column_of_lists_that_begins_with_an_empty_list_is_refused(tmp_path: Path) -> None:
    # A column of plain texts would be left out of the features, and the table read without it. This
    # column is one of lists, though the first row does not show it, so an empty list is a mistake.
    path = write(tmp_path, 'bag,labels,e,f\na,u,[],1\nb,v,"[2, 3]",2\n')
    assert "row 2: column 'e' is '[]', expected a list of numbers" in complaint(path)


def test_a_name_that_looks_like_a_pattern_is_a_column(tmp_path: Path) -> None:
    # As a pattern, [f] would stand for the column f.
    path = write(tmp_path, "bag,labels,[f],f\na,u,1,3\nb,v,2,4\n")
    assert features(path, features="[f]") == [1, 2]
