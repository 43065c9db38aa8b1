"""Templates, the content policy, JSON that is safe inside a page, and files that are never half written."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from dco.foundations import files
from dco.foundations.extras import require
from dco.guarantees.words import stability_in_words
from dco.report.formats import fixed, label, percent, shortened


def write_text(path: Any, text: str) -> Path:
    """Write beside the target, then rename: a reader never sees half a file."""
    target = Path(path)
    if not target.parent.is_dir():
        raise ValueError(f"The folder {target.parent} does not exist; make it, or choose another place for {target.name}.")
    files.write_whole(target, text)
    return target


def render_template(name: str, *, script: str | None = None, images: bool = False, **values: Any) -> str:
    """A template with the one style and script of the page, and a content policy that allows those two and nothing else."""
    jinja = require("jinja2", extra="report")
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"fixed": fixed, "percent": percent, "label": label, "short": shortened}
    environment.filters["stability"] = stability_in_words
    style, code = _source("page.css"), "" if script is None else _source(script)
    policy = ["default-src 'none'", f"style-src '{_digest(style)}'", "base-uri 'none'", "form-action 'none'"]
    policy += [f"script-src '{_digest(code)}'"] if code else []
    policy += ["img-src data:"] if images else []
    return str(environment.get_template(name).render(values, policy="; ".join(policy), style=style, code=code))


def text_only(text: str) -> str:
    """Text as element content: only ``&``, ``<`` and ``>`` matter there, and JSON is full of quotes."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def strict_json(value: Any) -> str:
    """JSON for a script element: infinity is the string "inf", NaN is null, and no character can end the element."""
    text = json.dumps(files.plain(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _source(name: str) -> str:
    return (resources.files("dco.report") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()
