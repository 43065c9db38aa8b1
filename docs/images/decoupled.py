"""Draw the picture of README, `decoupled.svg`: run this file after a change. A test compares the
two.
"""

from pathlib import Path

BLUE, GREY, RED, INK = "#dbe8f6", "#eef0f2", "#f9e3d8", "#1b1d22"


def box(x: int, y: int, width: int, height: int, fill: str, *lines: str) -> str:
    """A rectangle with lines of text in its middle; the first is bold."""
    frame = (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" '
        f'stroke="#8a8f98"/>'
    )
    top = y + height / 2 - 9 * (len(lines) - 1) + 5
    weights = ("bold", *["normal"] * (len(lines) - 1))
    texts = (
        f'<text x="{x + width / 2:g}" y="{top + 18 * i:g}" font-weight="{weight}">{line}</text>'
        for i, (line, weight) in enumerate(zip(lines, weights, strict=True))
    )
    return "\n".join((frame, *texts))


def arrow(*points: tuple[int, int]) -> str:
    """A line through the points with a head at its end."""
    path = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.5" '
        f'marker-end="url(#head)"/>'
    )


def picture() -> str:
    """The whole SVG."""
    parts = (
        box(10, 20, 120, 50, BLUE, "train", "fit models"),
        box(10, 85, 120, 50, BLUE, "tune", "rank candidates"),
        box(10, 165, 120, 50, RED, "calibrate", "sealed"),
        arrow((130, 45), (160, 45), (160, 72), (188, 72)),
        arrow((130, 110), (160, 110), (160, 84), (188, 84)),
        box(190, 48, 150, 60, GREY, "search freely", "models × scores"),
        arrow((340, 78), (378, 78)),
        box(380, 48, 130, 60, GREY, "freeze", "one structure"),
        arrow((445, 108), (445, 163)),
        arrow((130, 190), (378, 190)),
        '<text x="254" y="182">opened once, for that structure</text>',
        box(380, 165, 130, 50, RED, "one threshold", "rank k of n"),
        arrow((510, 190), (548, 190)),
        box(550, 160, 160, 60, GREY, "sets, certificate", "“3 or 9”, at least 90 %"),
    )
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/></marker>'
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 235" width="720" height="235" '
        'role="img" '
        f'font-family="sans-serif" font-size="13" fill="{INK}" text-anchor="middle">\n'
        "<title>Search uses training and tuning rows; calibration rows are opened once, for one "
        "structure</title>\n"
        f'<defs>{head}</defs>\n<rect width="720" height="235" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
