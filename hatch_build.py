"""README for a package index, which shows it without the files beside it: links lead to the
project's address.

The address is `Source` under `[project.urls]`. While there is none, only the text of such links
stays.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def for_index(text: str, address: str | None) -> str:
    """The text with links and pictures at `address`, or without them."""

    def written(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if address is None:
            return "" if picture else words
        return f"{picture}[{words}]({address}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return LINK.sub(written, text)


class Readme(MetadataHookInterface):
    """Makes the long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme that the index shows."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": for_index(text, metadata.get("urls", {}).get("Source")),
        }
