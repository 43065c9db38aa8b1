"""What is certified. A `Certificate` is plain data: it goes to strict JSON and back without loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from html import escape
from typing import Any

from dco.foundations.display import ShownAsPrinted
from dco.foundations.ranks import Level, as_rational
from dco.guarantees.facts import FORMAT, CertifiedThreshold, Facts
from dco.guarantees.theory import simultaneous_slack
from dco.guarantees.verification import VerificationReport, verify
from dco.guarantees.words import as_plain, lines, words


@dataclass(frozen=True)
class Certificate(Facts, ShownAsPrinted):
    """The statement, its assumption, its numbers, and fingerprints of the rows and the structure behind it.

    Statement and assumption are made from the facts (`words`). Those that a file holds are kept in `written`, so that
    `verify` sees an edited sentence.
    """

    @property
    def statement(self) -> str:
        """The guarantee in one plain sentence."""
        return self.written.get("statement") or words(self)["statement"]

    @property
    def assumption(self) -> str:
        """What must be true of the rows for the statement to hold."""
        return self.written.get("assumption") or words(self)["assumption"]

    @property
    def training_rows(self) -> str:
        """Whether the rows of each model are known not to be calibration rows, in words."""
        return "checked" if self.training_rows_checked else "not checked: a frozen model's training rows are unknown"

    def to_json(self, *, indent: int | None = 2) -> str:
        """Strict JSON: no NaN, infinity written as the string "inf"."""
        return json.dumps(as_plain(self), indent=indent, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read a certificate written by `to_json`; anything else is a ValueError that says what is wrong."""
        try:
            data = json.loads(text, parse_constant=_no_constant)
        except (json.JSONDecodeError, ValueError, RecursionError) as error:
            raise ValueError(f"This is not a certificate: it is not strict JSON ({error}).") from None
        if not isinstance(data, dict):
            raise ValueError("This is not a certificate: the JSON is not an object.")
        if data.get("format") != FORMAT:
            raise ValueError(
                f"This certificate has format {data.get('format')!r}; this version reads format {FORMAT}: use the one that "
                "wrote it, or fit again."
            )
        data.setdefault("groups", [])  # not in certificates of earlier versions
        wanted = {"statement", "assumption", *(entry.name for entry in fields(Facts))} - {"written"}
        data.setdefault("support", None)  # certificates were written before it was
        data.setdefault("stability", None)  # certificates were written before this was stated
        data.setdefault("joint", False)
        if set(data) != wanted:
            missing, spare = sorted(wanted - set(data)), sorted(set(data) - wanted)
            raise ValueError(f"This is not a certificate: missing fields {missing}, unknown fields {spare}.")
        try:
            thresholds = tuple(_threshold_from_plain(entry) for entry in data["thresholds"])
            groups = tuple((str(group), int(rows)) for group, rows in data["groups"])
            values = {**data, "thresholds": thresholds, "groups": groups}
            for name in ("seal_log", "voided_by"):
                values[name] = tuple(str(entry) for entry in data[name])
            for name in ("failed_candidates", "rows", "row_fingerprints", "repeats_shared", "versions"):
                values[name] = dict(data[name])
            for name in ("alpha", "delta", "tuning_threshold"):
                values[name] = _from_plain(data[name])
            if data["support"] is not None:
                low, high = map(_from_plain, data["support"])
                if low is None or high is None or not low < high:
                    raise ValueError(f"support is {data['support']!r}")
                values["support"] = low, high
            values["stability"] = _stability_from_plain(data["stability"])
            _check_types(values)
            written = {name: values.pop(name) for name in ("statement", "assumption")}
            made = cls(**values)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"This is not a certificate: {error}.") from None
        with suppress(ValueError, KeyError):  # of facts that no words can be made from, such as a level above 1
            if words(made) == written:
                return made
        return replace(made, written=written)

    def simultaneous_slack(self, delta: Level = 0.05) -> float:
        """With probability 1 - delta, coverage >= 1 - alpha - slack for every alpha at once: the price of a picked level.

        `theory.simultaneous_slack` (i.i.d. rows, delta <= 1/2): sqrt(log(1/delta) / 2n), and more for a PAC statement whose
        own delta is above 1/2, in each group by itself (for all G groups at once: delta / G). Without calibration rows the
        slack is 1. Where nothing is guaranteed, or rows belong together and the threshold is no order statistic of
        independent scores, no slack is known: a ValueError.
        """
        if self.guarantee == "none" or any(threshold.rank is None for threshold in self.thresholds):
            why = "groups overlap" if self.groups else "rows belong together in groups"
            why = "the calibration rows choose among candidates" if self.joint else why
            why = "nothing is guaranteed" if self.guarantee == "none" else why
            raise ValueError(f"no bound is known for a level that is picked by its result: {why} (see the certificate).")
        own = None if self.delta is None else as_rational(self.delta, name="delta")
        if own is not None and self.simultaneous:
            own /= len(self.thresholds)
        sizes = {threshold.n for threshold in self.thresholds}
        slack = max(simultaneous_slack(max(n, 1), delta=delta, pac_delta=own) for n in sizes)
        return slack if min(sizes) else 1.0

    def verify(self, X_cal: Any = None, y_cal: Any = None, *, predictor: Any = None) -> VerificationReport:
        """Recompute what can be recomputed, say what differs, and name what could not be checked.

        Alone: words, ranks and coverage laws must follow from the numbers. With the predictor (or the estimator): what it
        deploys, its fingerprints, and every other field against its own certificate. With the calibration rows, in any
        order: their fingerprint, and with both every score and threshold, to rounding.
        """
        return verify(self, X_cal, y_cal, predictor=predictor)

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        first, *rest = lines(self)
        return f"<p><b>{escape(first)}</b></p>" + "".join(f"<p>{escape(line)}</p>" for line in rest)


def _from_plain(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, str) and value not in ("inf", "-inf"):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _stability_from_plain(entry: Any) -> dict[str, float | None] | None:
    if entry is None:
        return None
    if set(entry) != {"won", "of", "others_cost"} or not all(type(entry[name]) is int for name in ("won", "of")):
        raise ValueError("stability has the wrong fields")
    return {**entry, "others_cost": _from_plain(entry["others_cost"])}


def _threshold_from_plain(entry: Any) -> CertifiedThreshold:
    wanted = {entry.name for entry in fields(CertifiedThreshold)}
    if not isinstance(entry, dict) or set(entry) != wanted:
        raise ValueError("a threshold entry has the wrong fields")
    numbers = {name: _from_plain(entry[name]) for name in ("expected_coverage", "coverage_low", "coverage_high")}
    value = _from_plain(entry["value"])
    counts = [entry["n"], *([] if entry["rank"] is None else [entry["rank"]])]
    if value is None or not all(type(count) is int and 0 <= count < 2**53 for count in counts):
        raise ValueError("a threshold entry lacks its numbers")
    if entry["rank"] == 0 or type(entry["expected_is_exact"]) is not bool or not isinstance(entry["group"], str | None):
        raise ValueError("a threshold entry has values of the wrong kind")
    return CertifiedThreshold(**{**entry, **numbers, "value": value})


_TYPES: dict[type | tuple[type, ...], str] = {
    str: "statement assumption rule guarantee candidate model score selection structure_fingerprint scores_fingerprint",
    (str, type(None)): "reason condition_on model_fingerprint",
    float: "alpha",
    (int, type(None)): "seed labels",
    int: "candidates seal_opened",
    bool: "simultaneous grouped distinct refit training_rows_checked joint",
}


def _check_types(values: Mapping[str, Any]) -> None:
    for kind, names in _TYPES.items():
        for name in names.split():
            if not isinstance(values[name], kind) or (isinstance(values[name], bool) and kind is not bool):
                raise ValueError(f"{name} is {values[name]!r}")
    for role, count in values["rows"].items():
        if type(count) is not int:
            raise ValueError(f"rows has {count!r} for {role}")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
