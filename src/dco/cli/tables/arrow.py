"""pyarrow and its parts, for the modules that read and write tables.

Where pyarrow is not installed, importing this module says in a sentence which extra brings it.
"""

from __future__ import annotations

from typing import Any

from dco.foundations.extras import require

arrow: Any = require("pyarrow", extra="tables")
compute: Any = require("pyarrow.compute", extra="tables")
csv: Any = require("pyarrow.csv", extra="tables")
feather: Any = require("pyarrow.feather", extra="tables")
ipc: Any = require("pyarrow.ipc", extra="tables")
parquet: Any = require("pyarrow.parquet", extra="tables")
types: Any = require("pyarrow.types", extra="tables")
