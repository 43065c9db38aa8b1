"""Templates, the content policy of a page, and JSON that is safe inside it."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from importlib import resources

from dco.foundations.extras import require
from dco.foundations.files import plain
from dco.report.formats import (
    fixed,
    label,
    level_percent,
    number,
    percent,
    shortened,
    threshold_in_words,
)

FILTERS = {
    "fixed": fixed,
    "label": label,
    "number": number,
    "percent": percent,
    "promise": level_percent,
    "short": shortened,
    "threshold": threshold_in_words,
}


def render_template(
    name: str, *, script: str | None = None, images: bool = False, **values: object
) -> str:
    """Fill an HTML template with values, and return the page.

    A browser that opens the page runs nothing that data smuggle into it: values are escaped, and a
    content security policy allows the style sheet, the script and images of the page alone.

    Parameters
    ----------
    name, script
        Files of this folder: the template, and a script for the page.
    images
        Whether the page contains images.
    values
        What the template inserts. A name that it needs and does not get is an error.
    """
    # 1. Prepare the templates.
    jinja = require("jinja2", extra="report")
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(source_of),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS

    # 2. Write the policy. It knows style and script by their digests.
    style = source_of("page.css")
    code = "" if script is None else source_of(script)
    policy = [
        "default-src 'none'",
        f"style-src '{digest_of(style)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    if code:
        policy.append(f"script-src '{digest_of(code)}'")
    if images:
        policy.append("img-src data:")

    # 3. Fill the template.
    template = environment.get_template(name)
    return str(template.render(values, policy="; ".join(policy), style=style, code=code))


def strict_json(value: object) -> str:
    """Write JSON for a script element, which no character in it can end.

    Infinity is the string "inf", NaN is null.
    """
    text = json.dumps(plain(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def data_address(media_type: str, content: bytes) -> str:
    """Return an address that holds a whole file: "data:image/png;base64,...".

    `media_type` is "image/png", for example.
    """
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def source_of(name: str) -> str:
    """Read a file of this folder."""
    return (resources.files("dco.report") / name).read_text(encoding="utf-8")


def digest_of(text: str) -> str:
    """Return the digest by which a content policy knows a style or a script."""
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()
