"""What the page shows at every level: texts, paths and attributes by name, for the template and its script to look up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dco.evaluation.evaluate import GroupEvaluation
from dco.foundations.extras import require
from dco.report import plots
from dco.report.numbers import ConditionNumbers, LevelNumbers, ReportNumbers, decimals_for, fixed, nice_step, number
from dco.report.rendering import strict_json
from dco.report.words import (
    expected_words,
    groups_words,
    infinite_words,
    law_words,
    level_percent,
    output_words,
    percent,
    pieces_words,
    place_words,
    range_words,
    rank_words,
    rest_words,
    share_words,
    shortened,
    size_decimals,
    size_words,
    threshold_words,
    verdict_words,
)

MOST_CANDIDATES = 30


@dataclass(frozen=True)
class Live:
    """Texts and attributes by name, one entry a level. The template shows the entry `start`, the script any other."""

    start: int
    text: dict[str, list[str]] = field(default_factory=dict)
    drawn: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    sets: dict[str, dict[str, Any]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)

    def say(self, name: str, texts: Iterable[str]) -> None:
        """A text for each level."""
        self.text[name] = list(texts)

    def draw(self, name: str, **attributes: Iterable[Any]) -> None:
        """Attributes for each level."""
        self.drawn[name] = {key: [str(value) for value in values] for key, values in attributes.items()}

    def now(self, name: str) -> str:
        """The text at the certified level."""
        return self.text[name][self.start]

    def attributes(self, name: str) -> dict[str, str]:
        """The attributes at the certified level."""
        return {key: values[self.start] for key, values in self.drawn[name].items()}

    def code(self, label: str) -> int:
        """The place of a label in the table of labels."""
        short = shortened(label)
        if short not in self.labels:
            self.labels.append(short)
        return self.labels.index(short)

    def embedded(self, numbers: ReportNumbers) -> Any:
        """All of it as JSON that is safe inside a script element, with the plain numbers of each level for machines."""
        words = {text: place for place, text in enumerate(dict.fromkeys(t for texts in self.text.values() for t in texts))}
        data = {
            "start": self.start,
            "words": list(words),
            "text": {name: [words[text] for text in texts] for name, texts in self.text.items()},
            "drawn": self.drawn,
            "sets": self.sets,
            "labels": self.labels,
            "numbers": [plain_numbers(level) for level in numbers.levels],
        }
        return require("markupsafe", extra="report").Markup(strict_json(data))


def plain_numbers(level: LevelNumbers) -> dict[str, Any]:
    """The main numbers of a level, to six digits."""
    found: dict[str, Any] = {"alpha": level.alpha, "picked_bound": _six(level.picked_bound)}
    if level.threshold is not None:
        entry = level.threshold
        found |= {
            "threshold": _six(entry.value),
            "rank": entry.rank,
            "n": entry.n,
            "expected": _six(entry.expected_coverage),
        }
    if level.evaluation is not None:
        seen = level.evaluation
        found |= {"coverage": _six(seen.coverage), "mean_size": _six(seen.mean_size), "p95_size": _six(seen.p95_size)}
    return found


def _six(value: float | None) -> float | None:
    return value if value is None or not math.isfinite(value) else float(f"{value:.6g}")


@dataclass(frozen=True)
class View:
    """What the template asks for: the live parts, and what stays as it is."""

    live: Live
    parts: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.parts[name]
        except KeyError:
            raise AttributeError(name) from None


def build_view(numbers: ReportNumbers, names: Sequence[str] | None = None) -> View:
    """Words and geometry for every level; `names` is what the rows are called."""
    live = Live(numbers.start)
    parts: dict[str, Any] = {"width": plots.WIDTH, "height": plots.HEIGHT, "box": plots}
    parts |= _level_words(live, numbers)
    parts |= _scores(live, numbers)
    parts |= _law(live, numbers)
    parts |= _conditions(live, numbers)
    parts |= _gaps(live, numbers)
    parts["candidates"] = numbers.ranking.table[:MOST_CANDIDATES]
    best = [row.mean_size for row in parts["candidates"][:1]]
    parts["candidate_decimals"] = 2 if numbers.classes is not None else decimals_for(best, 3)
    parts["failed"] = numbers.ranking.failed[:10]
    parts["table"] = [_table_row(level, numbers) for level in numbers.levels]
    if numbers.has_rows:
        parts |= _sizes(live, numbers)
        parts |= _curves(live, numbers)
        parts |= _examples(live, numbers, names)
        parts |= _groups(live, numbers)
    return View(live, parts)


def _level_words(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    levels, decimals = numbers.levels, size_decimals(numbers)
    live.say("alpha", (f"{level.alpha:g}" for level in levels))
    live.say("promise", (level_percent(level.alpha) for level in levels))
    live.say("spoken", (f"alpha {level.alpha:g}, promised coverage {level_percent(level.alpha)}" for level in levels))
    live.say("threshold", (threshold_words(level) for level in levels))
    live.say("rank", (rank_words(level) for level in levels))
    live.say("cut", (f"threshold {threshold_words(level)}" for level in levels))
    live.say("place", (place_words(level) for level in levels))
    live.say("bound", (percent(level.picked_bound) for level in levels))
    live.say("expected", (expected_words(level.threshold) for level in levels))
    live.say("range", (range_words(level.threshold) for level in levels))
    live.say("law", (law_words(level) for level in levels))
    live.say("output", (output_words(level, numbers) for level in levels))
    if numbers.has_rows:
        seen = [level.evaluation for level in levels if level.evaluation is not None]
        live.say("coverage", (percent(entry.coverage) for entry in seen))
        live.say("mean_size", (fixed(entry.mean_size, decimals) for entry in seen))
        live.say("median_size", (number(entry.median_size) for entry in seen))
        live.say("p95_size", (fixed(entry.p95_size, decimals) for entry in seen))
        live.say("p95_said", (number(entry.p95_size) for entry in seen))
        live.say("shares", (share_words(level, numbers) for level in levels))
        live.say("verdict", (verdict_words(level) for level in levels))
    own = levels[numbers.start]
    return {
        "own": own,
        "infinite": infinite_words(own),
        "has_bound": own.picked_bound is not None,
        "last": len(levels) - 1,
        "ends": [level_percent(levels[0].alpha), level_percent(levels[-1].alpha)],
        "mondrian": own.threshold is None,
        "has_law": own.threshold is None or own.threshold.rank is not None,
        "has_bar": own.evaluation is not None and own.evaluation.consistency is not None,
    }


def _table_row(level: LevelNumbers, numbers: ReportNumbers) -> dict[str, str]:
    """One line of the table behind the curves."""
    row = {"alpha": f"{level.alpha:g}", "promise": level_percent(level.alpha), "threshold": threshold_words(level)}
    row |= dict(zip(("coverage", "low", "high"), map(percent, _coverage_and_range(level)), strict=True))
    if level.evaluation is not None:
        seen = level.evaluation
        row |= {
            "mean": fixed(seen.mean_size, size_decimals(numbers)),
            "p95": fixed(seen.p95_size, size_decimals(numbers)),
        }
    return row


def _scores(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    scale, edges = plots.score_scale(numbers), numbers.score_edges
    found = numbers.score_histograms
    above = _name_room([str(histogram.group) for histogram in found])
    room = plots.BOTTOM - plots.TOP if len(found) == 1 else 34 + above
    rows = []
    for place, histogram in enumerate(found):
        top, base = plots.TOP + place * room, plots.TOP + (place + 1) * room
        values = [_value_of(level, histogram.group) for level in numbers.levels]
        at = [plots.pixels(plots.threshold_place(value, scale)) for value in values]
        live.draw(f"cut{place}", x1=at, x2=at)
        live.draw(f"cutname{place}", x=at, **{"text-anchor": ["end" if float(x) > plots.WIDTH / 2 else "start" for x in at]})
        rows.append(
            {
                "group": histogram.group,
                "n": histogram.n,
                "above": histogram.above,
                "d": plots.score_bars(
                    histogram.counts, scale, edges, top=top + (0 if len(found) == 1 else 8 + above), base=base
                ),
                "top": top,
                "base": base,
                "counts": histogram.counts.tolist(),
            }
        )
    most = max(int(found[0].counts.max()), 1) if found else 1
    upward = plots.upwards(0, most)
    left_out = len(numbers.certificate.thresholds) - len(found)
    return {
        "score_rows": rows,
        "score_ticks": scale.ticks(),
        "score_counts": upward.ticks(4),
        "score_bottom": plots.BOTTOM if len(found) == 1 else plots.TOP + len(found) * room,
        "score_edges": [f"{number(a)} to {number(b)}" for a, b in pairwise(edges)],
        "score_left_out": left_out,
    }


def _name_room(names: Sequence[str]) -> int:
    """Pixels above each group of a plot for its name, where it is too long to stand beside the axis."""
    return 14 if max(map(len, names), default=0) > plots.NAME_BESIDE else 0


def _value_of(level: LevelNumbers, group: str | None) -> float:
    return next((entry.value for entry in level.thresholds if entry.group == group), math.inf)


def _law(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """Coverage at the level of the control: the density of its law, the range for the rows given, and what was seen."""
    window = plots.coverage_window(numbers)
    scales = [window.scale(level.alpha) for level in numbers.levels]
    for place, ticks in enumerate(zip(*(window.ticks(level.alpha) for level in numbers.levels), strict=True)):
        live.say(f"tick{place}", (tick.label for tick in ticks))
        live.draw(
            f"tick{place}",
            transform=(f"translate({plots.pixels(tick.at)})" for tick in ticks),
            visibility=("visible" if tick.label else "hidden" for tick in ticks),
        )
    promised = [scale(1 - level.alpha) for level, scale in zip(numbers.levels, scales, strict=True)]
    live.draw("promise", x1=map(plots.pixels, promised), x2=map(plots.pixels, promised))
    before = [at > plots.RIGHT - 70 for at in promised]  # no room for the name after the line
    live.draw(
        "promisename",
        x=(plots.pixels(at - 6 if turned else at + 6) for at, turned in zip(promised, before, strict=True)),
        **{"text-anchor": ["end" if turned else "start" for turned in before]},
    )
    if numbers.levels[numbers.start].threshold is not None:
        entries = [level.thresholds[0] for level in numbers.levels]
        pairs = list(zip(entries, scales, strict=True))
        live.draw("law", d=(plots.law_path(entry, scale) for entry, scale in pairs))
        lows = [scale(entry.coverage_low or 0.0) for entry, scale in pairs]
        highs = [scale(1.0 if entry.coverage_high is None else entry.coverage_high) for entry, scale in pairs]
        live.draw("inner", x=map(plots.pixels, lows), width=(plots.pixels(b - a) for a, b in zip(lows, highs, strict=True)))
    if numbers.has_rows and numbers.levels[numbers.start].threshold is not None:
        evaluations = [level.evaluation for level in numbers.levels if level.evaluation is not None]
        at = [plots.pixels(scale(found.coverage)) for found, scale in zip(evaluations, scales, strict=True)]
        live.draw("seen", cx=at)
        ranges = [found.consistency for found in evaluations]
        live.draw(
            "expectation",
            d=(
                "" if found is None else plots.span(found.low, found.high, scale, plots.BOTTOM - 14)
                for found, scale in zip(ranges, scales, strict=True)
            ),
        )
    return {"law_ticks": len(window.offsets())}


def _conditions(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """The Mondrian groups: threshold, law and coverage of each, largest first."""
    window = plots.coverage_window(numbers)
    count = len(numbers.levels[numbers.start].conditions)
    decimals = decimals_for(entry.value for entry in numbers.certificate.thresholds)
    above = _name_room([str(entry.threshold.group) for entry in numbers.levels[numbers.start].conditions])
    rows = []
    for place in range(count):
        at_levels = [level.conditions[place] for level in numbers.levels]
        y = plots.TOP + 14 + above + (26 + above) * place
        scales = [window.scale(level.alpha) for level in numbers.levels]
        pairs = list(zip(at_levels, scales, strict=True))
        live.say(f"c{place}.threshold", (fixed(entry.threshold.value, decimals) for entry in at_levels))
        live.say(f"c{place}.rank", (str(entry.threshold.rank) for entry in at_levels))
        live.say(f"c{place}.expected", (expected_words(entry.threshold) for entry in at_levels))
        live.say(f"c{place}.range", (range_words(entry.threshold) for entry in at_levels))
        live.draw(f"c{place}.range", d=(_condition_span(entry, scale, y) for entry, scale in pairs))
        seen = [None if entry.evaluation is None else entry.evaluation.coverage for entry in at_levels]
        if seen[0] is not None:
            live.draw(
                f"c{place}.seen", cx=(plots.pixels(scale(value or 0.0)) for value, scale in zip(seen, scales, strict=True))
            )
            live.say(f"c{place}.coverage", (percent(value) for value in seen))
        entry = at_levels[0]
        rows.append({"group": entry.threshold.group, "n": entry.threshold.n, "y": y, "seen": seen[0] is not None,
                     "tested": 0 if entry.evaluation is None else entry.evaluation.n})  # fmt: skip
    return {
        "conditions": rows,
        "conditions_bottom": plots.TOP + (26 + above) * max(count, 1) + 6,
        "name_room": above,
        "longest_name": plots.NAME_ABOVE,
        "conditions_left_out": (len(numbers.certificate.thresholds) - count) if count else 0,
    }


def _condition_span(entry: ConditionNumbers, scale: plots.Scale, y: float) -> str:
    if entry.consistency is not None:
        return plots.span(entry.consistency.low, entry.consistency.high, scale, y)
    threshold = entry.threshold
    if threshold.coverage_low is None:
        return ""
    return plots.span(threshold.coverage_low, 1.0 if threshold.coverage_high is None else threshold.coverage_high, scale, y)


def _sizes(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    edges = numbers.size_edges
    assert edges is not None
    counts = [level.size_counts for level in numbers.levels if level.size_counts is not None]
    steps = [nice_step(int(entry.max()) / max(int(entry.sum()), 1), 4) for entry in counts]
    upward = [plots.upwards(0, 4 * step) for step in steps]  # four steps high at every level: marks stay, labels change
    live.draw("sizes", d=(plots.size_bars(entry, edges, scale) for entry, scale in zip(counts, upward, strict=True)))
    for place in range(5):
        live.say(f"share{place}", (f"{round(100 * place * step, 6):g}\u202f%" for step in steps))
    for place in range(len(edges)):
        live.say(f"s{place}", (str(int(entry[place])) for entry in counts))
    means = [level.evaluation.mean_size for level in numbers.levels if level.evaluation is not None]
    scale = plots.size_scale(edges)
    at = [plots.pixels(plots.RIGHT - 11 if mean > edges[-1] else scale(mean)) for mean in means]
    live.draw("mean", x1=at, x2=at)
    anchors = ["end" if float(x) > plots.WIDTH / 2 else "start" for x in at]
    live.draw("meanname", x=at, **{"text-anchor": anchors})
    live.say("meanname", (f"mean {fixed(mean, size_decimals(numbers))}" for mean in means))
    return {
        "size_ticks": plots.before_more(scale.ticks(6, whole=numbers.classes is not None)),
        "size_shares": [upward[0](place * steps[0]) for place in range(5)],
        "size_bins": _size_bins(numbers),
    }


def _size_bins(numbers: ReportNumbers) -> list[str]:
    edges = numbers.size_edges
    assert edges is not None
    if numbers.classes is None:
        inside = [f"{number(a)} to {number(b)}" for a, b in pairwise(edges)]
        return [*inside, f"{number(edges[-1])} and more"]
    lows = [math.ceil(edge) for edge in edges]
    named = [str(a) if b == a + 1 else f"{a} to {b - 1}" for a, b in pairwise(lows)]
    return [*named, f"{lows[-1]} and more"]


def _curves(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """Mean and P95 size against the level."""
    levels = numbers.levels
    seen = [level.evaluation for level in levels if level.evaluation is not None]
    across = plots.Scale(0.0, levels[-1].alpha)
    x = [across(level.alpha) for level in levels]
    largest = [entry.p95_size for entry in seen if math.isfinite(entry.p95_size)]
    largest += [entry.mean_size for entry in seen if math.isfinite(entry.mean_size)]
    size = plots.upwards(0, 1.05 * max(largest, default=0.0) or 1.0)

    def curve(read: Callable[[Any], float]) -> str:
        values = [read(entry) for entry in seen]
        return plots.line([(a, size(b) if math.isfinite(b) else b) for a, b in zip(x, values, strict=True)])

    live.draw(
        "atmean",
        cx=map(plots.pixels, x),
        cy=(plots.pixels(size(entry.mean_size)) for entry in seen),
        r=("5" if math.isfinite(entry.mean_size) else "0" for entry in seen),
    )
    return {
        "curve_mean": curve(lambda entry: entry.mean_size),
        "curve_p95": curve(lambda entry: entry.p95_size),
        "curve_ticks": size.ticks(5),
        "has_infinite_sizes": any(math.isinf(entry.p95_size) or math.isinf(entry.mean_size) for entry in seen),
    }


def _gaps(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """Coverage above the promise against the level, in percentage points: seen on the rows given, or else expected."""
    across = plots.Scale(0.0, numbers.levels[-1].alpha)
    x = [across(level.alpha) for level in numbers.levels]
    live.draw("at", x1=map(plots.pixels, x), x2=map(plots.pixels, x))
    triples = [_coverage_and_range(level) for level in numbers.levels]
    points = [[100 * (value - 1 + level.alpha) for value in triple if value is not None]
              for triple, level in zip(triples, numbers.levels, strict=True)]  # fmt: skip
    if not all(points):  # no law and no rows
        return {"gap_line": "", "gap_band": "", "gap_ticks": [], "gap_zero": 0.0, "alpha_ticks": across.ticks(6)}
    low, high = min(map(min, points)), max(map(max, points))
    low, high = min(low, -0.5), max(high, 0.5)
    gap = plots.upwards(low - 0.06 * (high - low), high + 0.06 * (high - low))
    band = ""
    if all(len(entry) == 3 for entry in points):
        band = plots.area(
            [(a, gap(entry[2])) for a, entry in zip(x, points, strict=True)],
            [(a, gap(entry[1])) for a, entry in zip(x, points, strict=True)],
        )
    live.draw("atgap", cx=map(plots.pixels, x), cy=(plots.pixels(gap(entry[0])) for entry in points))
    return {
        "gap_line": plots.line([(a, gap(entry[0])) for a, entry in zip(x, points, strict=True)]),
        "gap_band": band,
        "gap_ticks": gap.ticks(5),
        "gap_zero": gap(0.0),
        "alpha_ticks": across.ticks(6),
    }


def _coverage_and_range(level: LevelNumbers) -> tuple[float | None, float | None, float | None]:
    """Coverage seen on the rows given and the range of its law, or without rows expected coverage and its range."""
    if level.evaluation is not None:
        law = level.evaluation.consistency
        return level.evaluation.coverage, None if law is None else law.low, None if law is None else law.high
    entry = level.threshold
    if entry is None or entry.expected_coverage is None:
        return None, None, None
    return entry.expected_coverage, entry.coverage_low, 1.0 if entry.coverage_high is None else entry.coverage_high


def _examples(live: Live, numbers: ReportNumbers, names: Sequence[str] | None) -> dict[str, Any]:
    scale = plots.example_scale(numbers)
    sizes = {f"{example.sets[numbers.start].size:.9g}" for example in numbers.examples}
    shown = []
    for place, example in enumerate(numbers.examples):
        live.say(f"e{place}.size", (size_words(found.size, numbers.classes) for found in example.sets))
        live.say(f"e{place}.outcome", ("covered" if found.covered else "missed" for found in example.sets))
        truth_at = None
        if numbers.classes is not None:
            truth = live.code(example.truth)
            entries = [
                [[live.code(label) for label in found.labels], rest_words(found.size, found.more)] for found in example.sets
            ]
            live.sets[f"e{place}"] = {"truth": truth, "levels": entries}
        else:
            assert scale is not None
            assert example.truth_value is not None
            live.say(f"e{place}.set", (pieces_words(found.pieces, found.more) for found in example.sets))
            live.draw(f"e{place}", d=(plots.example_path(found, scale) for found in example.sets))
            truth_at = scale(example.truth_value)
        shown.append(
            {
                "kind": example.kind if len(sizes) > 1 else "same size",
                "name": f"row {example.row + 1}" if names is None else shortened(names[example.row]),
                "truth": shortened(example.truth),
                "prediction": shortened(example.prediction),
                "truth_at": truth_at,
            }
        )
    return {
        "examples": shown,
        "one_size": len(sizes) == 1,
        "example_width": plots.EXAMPLE_WIDTH,
        "example_height": plots.EXAMPLE_HEIGHT,
    }


def _groups(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """The table by group; its counts of rows stay as they are."""
    decimals, counts = size_decimals(numbers), []
    for place, group in enumerate(numbers.groups):
        rows = [_row_of(level, group) for level in numbers.levels]
        counts.append(rows[0].n)
        live.say(f"g{place}.coverage", (percent(row.coverage) for row in rows))
        live.say(f"g{place}.interval", (f"{percent(row.coverage_low)} – {percent(row.coverage_high)}" for row in rows))
        live.say(f"g{place}.mean", (fixed(row.mean_size, decimals) for row in rows))
        live.say(f"g{place}.p95", (fixed(row.p95_size, decimals) for row in rows))
    return {"group_counts": counts, "groups_said": groups_words(numbers)}


def _row_of(level: LevelNumbers, group: Any) -> GroupEvaluation:
    assert level.evaluation is not None
    return next(row for row in level.evaluation.by_group if row.group is group or row.group == group)
