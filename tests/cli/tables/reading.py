"""Small tables on disk, and how the tests of this folder read them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dco.cli.option_records import AskedColumns
from dco.cli.tables.files import read_table
from dco.cli.tables.infer import InferredLayout, infer_layout
from dco.cli.tables.layout import Layout
from dco.cli.tables.rows import read_features, read_targets
from dco.cli.tables.table import Table


def write(path: Path, text: str | bytes) -> Path:
    """Write a file as it is, and return its path."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def write_columns(path: Path, **columns: Any) -> Path:
    """Write columns as a CSV or as Parquet."""
    frame = pd.DataFrame(columns)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


def infer(path: Path, target: str = "y", **asked: Any) -> InferredLayout:
    """Decide what the columns of a file are for."""
    columns = AskedColumns(target, **asked)
    return infer_layout(read_table(path, decimal=columns.decimal), columns)


def read(path: Path, **asked: Any) -> tuple[pd.DataFrame, np.ndarray]:
    """Read the features and targets of a file as `dco fit` does."""
    return read_with(infer(path, **asked).layout, path)


def read_with(layout: Layout, path: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Read the features and targets of a file by the layout of another one."""
    table = read_table(path, decimal=layout.decimal)
    return read_features(table, layout), read_targets(table, layout)


def features(layout: Layout, path: Path) -> pd.DataFrame:
    """Read the features of a later file, which needs no target."""
    return read_features(read_table(path, decimal=layout.decimal), layout)


def arrow_table(path: Path = Path("t.parquet"), **columns: Any) -> Table:
    """Make a table of typed columns without a file."""
    cells = pa.table(columns)
    return Table(cells, path, positions=np.arange(cells.num_rows))
