"""What the page shows at every level: texts, paths and attributes by name, for the template and its
script to look up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from dco.foundations.display import counted
from dco.foundations.histograms import nice_step
from dco.report import plots, words
from dco.report.formats import decimals_for, fixed, label, level_percent, number, percent, shortened
from dco.report.numbers import GivenRows, LevelNumbers, ReportNumbers, coverage_range

MOST_CANDIDATES, FIRST_CANDIDATES = 30, 8  # in all, and before the rest is unfolded


@dataclass(frozen=True)
class Live:
    """Texts and attributes by name, one entry per level. The template shows the entry `start`, the
    script any other.
    """

    start: int
    text: dict[str, list[str]] = field(default_factory=dict)
    drawn: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    sets: dict[str, dict[str, Any]] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)

    def say(self, prefix: str = "", /, **texts: str) -> None:
        """Add texts of the next level, each under `prefix` and its name."""
        for name, text in texts.items():
            self.text.setdefault(prefix + name, []).append(text)

    def draw(self, name: str, **attributes: float | str) -> None:
        """Add the attributes of the next level; ``text_anchor`` is text-anchor."""
        entry = self.drawn.setdefault(name, {})
        for key, value in attributes.items():
            text = value if isinstance(value, str) else plots.pixels(value)
            entry.setdefault(key.replace("_", "-"), []).append(text)

    def mark(self, name: str, at: float) -> None:
        """Add a vertical line, and its name on the side where there is more room."""
        self.draw(name, x1=at, x2=at)
        self.draw(f"{name}name", x=at, text_anchor="end" if at > plots.WIDTH / 2 else "start")

    def now(self, name: str) -> str:
        """The text at the certified level."""
        return self.text[name][self.start]

    def attributes(self, name: str) -> dict[str, str]:
        """The attributes at the certified level."""
        return {key: values[self.start] for key, values in self.drawn[name].items()}

    def code(self, value: Any) -> int:
        """The place of a label in the table of labels."""
        return self.labels.setdefault(label(value), len(self.labels))

    def data(self, numbers: ReportNumbers) -> dict[str, Any]:
        """All that the script looks up, each text once, and the plain numbers of each level for
        machines.
        """
        place = {
            text: code
            for code, text in enumerate(dict.fromkeys(chain.from_iterable(self.text.values())))
        }
        return {
            "start": self.start,
            "words": list(place),
            "text": {name: [place[text] for text in texts] for name, texts in self.text.items()},
            "drawn": self.drawn,
            "sets": self.sets,
            "labels": list(self.labels),
            "numbers": [plain_numbers(level) for level in numbers.levels],
        }


def plain_numbers(level: LevelNumbers) -> dict[str, Any]:
    """The main numbers of a level, to six digits."""
    entry, seen = level.threshold, level.evaluation
    found: dict[str, Any] = {"alpha": level.alpha, "picked_bound": level.picked_bound}
    if entry is not None:
        found |= {
            "threshold": entry.value,
            "rank": entry.rank,
            "n": entry.n,
            "expected": entry.expected_coverage,
        }
    if seen is not None:
        found |= {
            "coverage": seen.coverage,
            "mean_size": seen.mean_size,
            "p95_size": seen.overall.sizes.p95,
        }
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in found.items()
    }


def build_view(
    numbers: ReportNumbers, names: Sequence[str] | None = None
) -> tuple[Live, dict[str, Any]]:
    """Words and geometry for every level, and what is the same at all; `names` is what the rows are
    called.
    """
    live = Live(numbers.start)
    parts: dict[str, Any] = {"box": plots, "candidates": numbers.ranking.table[:MOST_CANDIDATES]}
    parts |= {
        "first_candidates": FIRST_CANDIDATES,
        "size_name": words.size_name(numbers),
        "slicings": [],
    }
    for section in (_words, _scores, _law, _conditions, _gaps):
        parts |= section(live, numbers)
    if numbers.rows is not None:
        parts |= _sizes(live, numbers, numbers.rows)
        parts |= _curves(live, numbers)
        parts |= _examples(live, numbers, numbers.rows, names)
        parts |= _slices(live, numbers, numbers.rows)
    return live, parts


def _words(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    decimals, best = (
        words.size_decimals(numbers),
        [row.mean_size for row in numbers.ranking.table[:1]],
    )
    for level in numbers.levels:
        alpha, promise, threshold = (
            f"{level.alpha:g}",
            level_percent(level.alpha),
            words.threshold(level),
        )
        live.say(alpha=alpha, promise=promise, spoken=f"alpha {alpha}, promised coverage {promise}")
        live.say(output=words.announced(level, numbers), bound=percent(level.picked_bound))
        entry, seen = level.threshold, level.evaluation
        place = "–" if entry is None or entry.rank is None else f"{entry.rank} of {entry.n}"
        live.say(
            threshold=threshold,
            cut=f"threshold {threshold}",
            rank=words.rank(level, numbers),
            place=place,
        )
        live.say(
            law=words.law(level, numbers), expected=words.expected(entry), range=words.spread(entry)
        )
        if seen is not None:
            live.say(
                coverage=percent(seen.coverage),
                verdict=words.verdict(seen),
                shares=words.shares(seen),
            )
            live.say(
                mean_size=fixed(seen.mean_size, decimals),
                p95_size=fixed(seen.overall.sizes.p95, decimals),
            )
            live.say(against=words.against_targets(level, numbers))
            live.say(
                median_size=number(seen.overall.sizes.median),
                p95_said=number(seen.overall.sizes.p95),
            )
    own = numbers.own
    return {
        "infinite": sum(math.isinf(entry.value) for entry in own.thresholds),
        "by_condition": own.threshold is None,
        "has_law": own.threshold is None or own.threshold.rank is not None,
        "candidate_decimals": 2 if numbers.classes is not None else decimals_for(best, 3),
        "coverage_table": [
            [percent(share) for share in level.coverage_and_range()] for level in numbers.levels
        ],
    }


def _scores(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """Calibration scores and thresholds, one histogram per condition; the last 14 pixels are for
    what lies beyond.
    """
    edges, found = numbers.score_edges, numbers.score_histograms
    scale = plots.Scale(float(edges[0]), float(edges[-1]), plots.LEFT, plots.RIGHT - 14)
    alone, above = len(found) == 1, _name_room(numbers)
    room = plots.BOTTOM - plots.TOP if alone else 34 + above
    rows = []
    for place, histogram in enumerate(found):
        top = plots.TOP + place * room
        for level in numbers.levels:
            value = next(
                (entry.value for entry in level.thresholds if entry.group == histogram.condition),
                math.inf,
            )
            live.mark(
                f"cut{place}",
                plots.RIGHT - 3 if value > scale.high else scale(max(value, scale.low)),
            )
        shares = histogram.counts / max(int(histogram.counts.max()), 1)
        path = plots.bars(
            scale.bins(edges),
            shares.tolist(),
            top=top + (0 if alone else 8 + above),
            base=top + room,
        )
        rows.append(
            {
                "of": histogram,
                "counts": histogram.counts.tolist(),
                "d": path,
                "top": top,
                "base": top + room,
            }
        )
    return {
        "score_rows": rows,
        "score_ticks": scale.ticks(),
        "score_counts": plots.upwards(0, max(int(found[0].counts.max()), 1)).ticks(4),
        "score_bottom": plots.TOP + len(found) * room,
        "score_bins": [f"{number(a)} to {number(b)}" for a, b in pairwise(edges)],
    }


def _name_room(numbers: ReportNumbers) -> int:
    """Pixels above each condition of a plot for its name, where one is too long to stand beside the
    axis.
    """
    return (
        14
        if any(len(str(entry.condition)) > plots.NAME_BESIDE for entry in numbers.score_histograms)
        else 0
    )


def _law(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """Coverage at the level of the control: the density of its law, the range for the rows given,
    and what was seen.
    """
    window = plots.coverage_window(numbers)
    for level in numbers.levels:
        scale, entry, seen = window.scale(level.alpha), level.threshold, level.evaluation
        for place, tick in enumerate(window.ticks(level.alpha)):
            live.say("tick", **{str(place): tick.label})
            visibility = "visible" if tick.label else "hidden"
            live.draw(
                f"tick{place}",
                transform=f"translate({plots.pixels(tick.at)})",
                visibility=visibility,
            )
        at = scale(1 - level.alpha)
        live.draw("promise", x1=at, x2=at)
        turned = at > plots.RIGHT - 70  # no room for the name after the line
        live.draw(
            "promisename", x=at - 6 if turned else at + 6, text_anchor="end" if turned else "start"
        )
        if entry is None:
            continue
        low, high = map(scale, coverage_range(entry) or (0.0, 1.0))
        live.draw("law", d=plots.law_path(entry, scale))
        live.draw("inner", x=low, width=high - low)
        if seen is not None:
            law = seen.overall.consistency
            live.draw("seen", cx=scale(seen.coverage))
            live.draw(
                "expectation",
                d=plots.span(
                    None if law is None else (law.low, law.high), scale, plots.BOTTOM - 14
                ),
            )
    return {"law_ticks": len(window.ticks(0.5))}


def _conditions(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """The conditions: threshold, law and coverage of each, largest first."""
    window, own = plots.coverage_window(numbers), numbers.own.conditions
    decimals = decimals_for(entry.value for entry in numbers.certificate.thresholds)
    above, rows = _name_room(numbers), []
    for place, condition in enumerate(own):
        y = plots.TOP + 14 + above + (26 + above) * place
        for level in numbers.levels:
            scale, at = window.scale(level.alpha), level.conditions[place]
            live.say(
                f"c{place}.",
                threshold=fixed(at.threshold.value, decimals),
                rank=str(at.threshold.rank or "–"),
            )
            live.say(
                f"c{place}.",
                expected=words.expected(at.threshold),
                range=words.spread(at.threshold),
            )
            live.draw(f"c{place}.range", d=plots.span(at.range, scale, y))
            if at.evaluation is not None:
                live.draw(f"c{place}.seen", cx=scale(at.evaluation.coverage))
                live.say(f"c{place}.", coverage=percent(at.evaluation.coverage))
        rows.append((y, condition))
    return {
        "conditions": rows,
        "conditions_bottom": plots.TOP + (26 + above) * max(len(own), 1) + 6,
        "name_room": above,
    }


def _gaps(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """Coverage above the promise against the level, in percentage points: seen on the rows given,
    or else expected.
    """
    across, alphas = (
        plots.Scale(0.0, numbers.levels[-1].alpha),
        [level.alpha for level in numbers.levels],
    )
    gaps = [
        [
            100 * (share - 1 + level.alpha)
            for share in level.coverage_and_range()
            if share is not None
        ]
        for level in numbers.levels
    ]
    # where scores are tied the law has no upper end: the band leaves the picture there, and
    # everything else stays in view
    bounded = (
        gap
        for alpha, at in zip(alphas, gaps, strict=True)
        for gap in at
        if gap < 100 * alpha - 1e-9
    )
    every = [0.5, -0.5, *bounded]
    air = 0.06 * (max(every) - min(every))
    up = plots.upwards(min(every) - air, max(every) + air)
    for alpha, at in zip(alphas, gaps, strict=True):
        live.draw("at", x1=across(alpha), x2=across(alpha))
        if at:
            live.draw("atgap", cx=across(alpha), cy=up(at[0]))
    # none where there are neither rows nor a law
    lines = list(zip(*gaps, strict=True)) if all(gaps) else []
    band = (
        zip([*alphas, *reversed(alphas)], [*lines[2], *reversed(lines[1])], strict=True)
        if len(lines) == 3
        else None
    )
    return {
        "gap_line": plots.curve(zip(alphas, lines[0], strict=True), across, up) if lines else "",
        "gap_band": "" if band is None else plots.curve(band, across, up) + "Z",
        "gap_ticks": up.ticks(5),
        "gap_zero": up(0.0),
        "alpha_ticks": across.ticks(6),
    }


def _sizes(live: Live, numbers: ReportNumbers, rows: GivenRows) -> dict[str, Any]:
    """Sizes at the level of the control; the last 28 pixels are for larger sets."""
    edges, decimals = rows.size_edges, words.size_decimals(numbers)
    scale = plots.Scale(float(edges[0]), float(edges[-1]), plots.LEFT, plots.RIGHT - 28)
    places = [*scale.bins(edges), (plots.RIGHT - 22, plots.RIGHT)]
    for level in numbers.levels:
        assert level.evaluation is not None
        total, mean = level.evaluation.n, level.evaluation.mean_size
        # four steps high at every level: marks stay, labels change
        step = nice_step(max(level.size_counts) / total, 4)
        live.draw(
            "sizes",
            d=plots.bars(places, [count / total / (4 * step) for count in level.size_counts]),
        )
        live.mark("mean", plots.RIGHT - 11 if mean > edges[-1] else scale(mean))
        live.say(meanname=f"mean {fixed(mean, decimals)}")
        live.say(
            "share",
            **{str(place): f"{round(100 * place * step, 6):g}\u202f%" for place in range(5)},
        )
        live.say("s", **{str(place): str(count) for place, count in enumerate(level.size_counts)})
    lows = [math.ceil(edge) for edge in edges]
    bins = [str(a) if b == a + 1 else f"{a} to {b - 1}" for a, b in pairwise(lows)]
    if numbers.classes is None:
        bins = [f"{number(a)} to {number(b)}" for a, b in pairwise(edges)]
    ticks = scale.ticks(6, whole=numbers.classes is not None)
    return {
        # room for "more"
        "size_ticks": [tick for tick in ticks if tick.at + 4 * len(tick.label) < plots.RIGHT - 30],
        "size_shares": [plots.upwards(0, 4)(place) for place in range(5)],
        "size_bins": [
            *bins,
            f"{number(edges[-1]) if numbers.classes is None else lows[-1]} and more",
        ],
    }


def _curves(live: Live, numbers: ReportNumbers) -> dict[str, Any]:
    """Mean and P95 size against the level."""
    across = plots.Scale(0.0, numbers.levels[-1].alpha)
    seen = [
        (level.alpha, level.evaluation) for level in numbers.levels if level.evaluation is not None
    ]
    mean, p95 = (
        [(alpha, at.mean_size) for alpha, at in seen],
        [(alpha, at.overall.sizes.p95) for alpha, at in seen],
    )
    sizes = [size for _, size in mean + p95]
    up = plots.upwards(0, 1.05 * max(filter(math.isfinite, sizes), default=0.0) or 1.0)
    for alpha, size in mean:
        live.draw("atmean", cx=across(alpha), cy=up(size), r="5" if math.isfinite(size) else "0")
    return {
        "curve_mean": plots.curve(mean, across, up),
        "curve_p95": plots.curve(p95, across, up),
        "curve_ticks": up.ticks(5),
        "has_infinite_sizes": any(map(math.isinf, sizes)),
    }


def _examples(
    live: Live, numbers: ReportNumbers, rows: GivenRows, names: Sequence[str] | None
) -> dict[str, Any]:
    scale, shown = None, []
    # a common axis for the true values and the sets at the certified level
    if numbers.classes is None:
        ends = [
            end
            for found in numbers.own.examples
            for piece in found.pieces
            for end in piece
            if math.isfinite(end)
        ]
        ends += [float(example.truth) for example in rows.examples]
        air = 0.08 * (max(ends) - min(ends)) or 1.0
        scale = plots.Scale(min(ends) - air, max(ends) + air, 2, plots.EXAMPLE_WIDTH - 2)
    for place, example in enumerate(rows.examples):
        sets = [level.examples[place] for level in numbers.levels]
        for found in sets:
            outcome = "covered" if found.covered else "missed"
            size = (
                counted(round(found.size), "label")
                if scale is None
                else f"length {number(found.size)}"
            )
            live.say(f"e{place}.", size=size, outcome=outcome)
            if scale is not None:
                live.say(f"e{place}.", set=words.pieces(found))
                live.draw(
                    f"e{place}",
                    d="".join(
                        plots.span(piece, scale, plots.EXAMPLE_HEIGHT / 2) for piece in found.pieces
                    ),
                )
        if scale is None:
            truth = live.code(example.truth)
            more = [
                "no label: the set is empty"
                if not found.size
                else f"and {found.more} more" * (found.more > 0)
                for found in sets
            ]
            levels = [
                [[live.code(each) for each in found.labels], rest]
                for found, rest in zip(sets, more, strict=True)
            ]
            live.sets[f"e{place}"] = {"truth": truth, "levels": levels}
        name = f"row {example.row + 1}" if names is None else shortened(names[example.row])
        shown.append((example, name, None if scale is None else scale(float(example.truth))))
    ticks = [] if scale is None else scale.ticks(5)
    return {
        "examples": shown,
        # labels stay inside
        "example_ticks": [tick for tick in ticks if 12 < tick.at < plots.EXAMPLE_WIDTH - 12],
        "one_size": len({f"{found.size:.9g}" for found in numbers.own.examples}) == 1,
    }


def _slices(live: Live, numbers: ReportNumbers, rows: GivenRows) -> dict[str, Any]:
    """The tables by slice: their counts of rows are the same at every level."""
    decimals, tables = words.size_decimals(numbers), []
    for code, slicing in enumerate(rows.slicings):
        for level in numbers.levels:  # an axis of its own for each level, which ends at 1
            least = min([1 - level.alpha, *(row.coverage_low for row in level.slices[code])])
            scale = plots.Scale(least - 0.05 * (1 - least), 1.0, 4, plots.SLICE_WIDTH - 4)
            live.draw(f"g{code}.promise", x1=scale(1 - level.alpha), x2=scale(1 - level.alpha))
            for place, row in enumerate(level.slices[code]):
                key, is_low = f"g{code}.{place}.", row.coverage_high < 1 - level.alpha
                interval = f"{percent(row.coverage_low)} – {percent(row.coverage_high)}"
                live.say(
                    key,
                    coverage=percent(row.coverage),
                    interval=interval,
                    low="too low" if is_low else "",
                )
                live.say(
                    key, mean=fixed(row.mean_size, decimals), p95=fixed(row.sizes.p95, decimals)
                )
                live.draw(
                    f"{key}range",
                    d=plots.span(
                        (row.coverage_low, row.coverage_high), scale, plots.SLICE_HEIGHT / 2
                    ),
                )
                live.draw(f"{key}seen", cx=scale(row.coverage))
        own = numbers.own.slices[code]
        low = [str(row.group) for row in own if row.coverage_high < 1 - numbers.own.alpha]
        tables.append((slicing, own, low))
    return {"slicings": tables}
