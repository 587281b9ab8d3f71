"""Tell from the name of a column whether it holds ids, or groups such as patients."""

import re

_GROUPS = {
    "case", "cases", "patient", "patients", "subject", "subjects", "participant", "person", "donor",
    "individual", "animal", "mouse", "family", "group", "groups", "specimen", "sample", "slide",
    "speaker", "user", "scan", "session", "recording", "video", "pid", "mrn",
}  # fmt: skip
"""Words for what several bags may share."""
_IDS = {"id", "ids", "uid", "idx"}
"""Words for ids."""
_BESIDE_GROUPS = {"number", "no", "nr", "code", "name", "barcode"}
"""Words that may stand beside a word of `_GROUPS`, as in patient_no."""


def words_of(name: str) -> list[str]:
    """Return the words in the name of a column or array, in lower case.

    Examples:
        >>> words_of("slide/patientID_2")
        ['slide', 'patient', 'id']
    """
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_group_name(name: str) -> bool:
    """Return whether a column is named like something that bags share: case_id, or patient."""
    words = set(words_of(name))
    return bool(words & _GROUPS) and words <= _GROUPS | _IDS | _BESIDE_GROUPS


def is_id_name(name: str) -> bool:
    """Return whether the name of a column says that it holds ids: lesion_id."""
    return not _IDS.isdisjoint(words_of(name))
