"""A folder of results, what they were made with, and which files the command wrote there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dco.foundations.files import write_file

SETTINGS_FILE = "settings.json"
RECORDS_FILE = "records.jsonl"


@dataclass(frozen=True)
class ResultsFolder:
    """A folder of results, and the settings with which they are made this time.

    The file settings.json in it says with which settings the results that are there were made, and
    which files were written. Only these files are replaced or removed, and only by results with the
    same settings; for anything else the user has to say --force.
    """

    path: Path
    settings: Mapping[str, Any]

    def check_settings(self) -> None:
        """Raise a ValueError if the folder holds results that were made with other settings.

        Compared are the settings that are known of both. Results whose settings cannot be read are
        an error too.
        """
        earlier = self.earlier_settings()
        if not earlier:
            for name in (SETTINGS_FILE, RECORDS_FILE):
                if (self.path / name).exists():
                    raise unknown_file_error(self.path / name)

        for name, value in self.settings.items():
            if name in earlier and earlier[name] != value:
                raise ValueError(
                    f"{self.path} was made with {name} {earlier[name]} and not {value}, and "
                    "nothing is overwritten unasked; choose another --out, or say --force."
                )

    def check_files(self, names: Iterable[str]) -> None:
        """Raise a ValueError if a file with one of these names is there and we did not write it."""
        written = self.written_files()
        for name in names:
            if (self.path / name).exists() and name not in written:
                raise unknown_file_error(self.path / name)

    def claim(self) -> None:
        """Make the folder, and write into it the settings of the results, unless it has some."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.earlier_settings():
            write_file(self.path / SETTINGS_FILE, self.settings_text([]))

    def settings_text(self, files: Iterable[str]) -> str:
        """Write the content of settings.json, with the names of the files that lie beside it."""
        content = {"settings": dict(self.settings), "files": sorted(files)}
        return json.dumps(content, indent=1) + "\n"

    def earlier_settings(self) -> dict[str, Any]:
        """Return the settings of the results that are there; none where that is not known."""
        return dict(self._read().get("settings", {}))

    def written_files(self) -> set[str]:
        """Return the names of the files that the command wrote there."""
        return set(self._read().get("files", []))

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads((self.path / SETTINGS_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}


def unknown_file_error(path: Path) -> ValueError:
    """Make the error about a file that the command did not write."""
    return ValueError(
        f"{path} is not as this command wrote it, and nothing is overwritten unasked; choose "
        "another --out, or say --force."
    )
