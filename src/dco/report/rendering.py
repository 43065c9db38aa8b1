"""Templates, the content policy, and JSON that is safe inside a page."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from importlib import resources
from typing import Any

from dco.certificate.words import stability_in_words
from dco.foundations import files
from dco.foundations.extras import require
from dco.report.formats import fixed, label, percent, shortened


def render_template(
    name: str, *, script: str | None = None, images: bool = False, **values: Any
) -> str:
    """A template with the one style and script of the page, and a content policy that allows those
    two and nothing else.
    """
    jinja = require("jinja2", extra="report")
    loader, strict = jinja.FunctionLoader(_source), jinja.StrictUndefined
    environment = jinja.Environment(
        loader=loader, autoescape=True, undefined=strict, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"fixed": fixed, "percent": percent, "label": label, "short": shortened}
    environment.filters["stability"] = stability_in_words
    style, code = _source("page.css"), "" if script is None else _source(script)
    policy = [
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    policy += [f"script-src '{_digest(code)}'"] if code else []
    policy += ["img-src data:"] if images else []
    return str(
        environment.get_template(name).render(
            values, policy="; ".join(policy), style=style, code=code
        )
    )


def strict_json(value: Any) -> str:
    """JSON for a script element: infinity is the string "inf", NaN is null, and no character can
    end the element.
    """
    text = json.dumps(
        files.plain(value), allow_nan=False, ensure_ascii=False, separators=(",", ":")
    )
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _source(name: str) -> str:
    return (resources.files("dco.report") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()
