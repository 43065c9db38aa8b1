"""Diabetes, California Housing and Concrete: from a folder if the file is there, otherwise from
their usual servers.

The folder is the argument `data_home` or the environment variable ``DCO_DATA_HOME``; it may hold
``california_housing.csv.gz`` and ``concrete.csv``: a header, the features, the target last.
Diabetes ships with scikit-learn.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dco.foundations.arrays import Floats

SHA256 = {
    "california_housing.csv.gz": "c049d4e36bfdab5924b210e729976c622b13e40982802716f25211bb0449d0b4",
    "concrete.csv": "0be478b39df1ab820d96c98919f093d19568b04160912e2ef8bcd77a37738964",
}


@dataclass(frozen=True, eq=False)
class Table:
    """A regression table: features (n, d), responses (n,), and the names of features and table."""

    X: Floats
    y: Floats
    feature_names: tuple[str, ...]
    name: str

    def __len__(self) -> int:
        return len(self.y)


def load_diabetes() -> Table:
    """Load the disease progression of 442 patients, 10 features (Efron et al. 2004).

    The table ships with scikit-learn.
    """
    from sklearn.datasets import load_diabetes as load

    bunch = load()
    return _make_table(bunch.data, bunch.target, bunch.feature_names, "diabetes")


def load_california_housing(
    data_home: str | os.PathLike[str] | None = None, *, verify: bool = False
) -> Table:
    """Load the median house values of 20,640 districts, 8 features (Pace and Barry 1997).

    Values are in 100,000 dollars. `verify` checks the SHA-256 of the file against the copy that was
    tested.
    """
    path = find_file("california_housing.csv.gz", data_home)
    if path is not None:
        return _read_table(path, "california_housing", verify=verify)
    from sklearn.datasets import fetch_california_housing

    bunch = fetch_california_housing()
    return _make_table(bunch.data, bunch.target, bunch.feature_names, "california_housing")


def load_concrete(
    data_home: str | os.PathLike[str] | None = None, *, verify: bool = False
) -> Table:
    """Load the compressive strength of 1,030 concretes in MPa, 8 features (Yeh 1998).

    25 rows are repeats of others. The file concrete.csv is looked for in the folder `data_home` or
    ``DCO_DATA_HOME``; without it the table is downloaded from OpenML. `verify` checks the SHA-256
    of the file against the copy that was tested.
    """
    path = find_file("concrete.csv", data_home)
    if path is not None:
        return _read_table(path, "concrete", verify=verify)
    from sklearn.datasets import fetch_openml

    # OpenML's table Concrete_Data names no target: all nine columns count as features there.
    bunch = fetch_openml(data_id=4353, as_frame=False, parser="liac-arff")
    columns = np.asarray(bunch.data, dtype=np.float64)
    return _make_table(columns[:, :-1], columns[:, -1], bunch.feature_names[:-1], "concrete")


def find_file(name: str, data_home: str | os.PathLike[str] | None = None) -> Path | None:
    """Find a data file by its name: in the folder `data_home`, or else in ``DCO_DATA_HOME``.

    A `data_home` that does not hold the file is an error. Without `data_home`, None is returned if
    the environment variable ``DCO_DATA_HOME`` is not set or its folder does not hold the file.
    """
    if data_home is not None:
        path = Path(data_home) / name
        if not path.is_file():
            raise FileNotFoundError(
                f"{Path(data_home)} holds no file {name}. Put it there, or leave out data_home to "
                f"download."
            )
        return path

    folder = os.environ.get("DCO_DATA_HOME")
    if folder and (Path(folder) / name).is_file():
        return Path(folder) / name
    return None


def _read_table(path: Path, name: str, *, verify: bool) -> Table:
    """Read a table from a file, .csv or .csv.gz, with a header and the target in the last column.

    `name` is what the table is called. With `verify`, a file with another SHA-256 than the copy
    that was tested is an error.
    """
    content = path.read_bytes()
    if verify:
        digest = hashlib.sha256(content).hexdigest()
        if digest != SHA256[path.name]:
            raise ValueError(
                f"{path} has SHA-256 {digest}, but the tested copy has {SHA256[path.name]}."
            )

    if path.suffix == ".gz":
        content = gzip.decompress(content)
    first_line, *lines = content.decode("utf-8").splitlines()
    column_names = [column.strip().strip('"') for column in first_line.split(",")]
    values = np.loadtxt(lines, delimiter=",", ndmin=2)
    if values.shape[1] != len(column_names):
        raise ValueError(
            f"{path} has {len(column_names)} names in its header and {values.shape[1]} columns of "
            f"numbers."
        )

    features = values[:, :-1]
    target = values[:, -1]
    return _make_table(features, target, column_names[:-1], name)


def _make_table(X: ArrayLike, y: ArrayLike, feature_names: Iterable[str], name: str) -> Table:
    return Table(
        X=np.ascontiguousarray(X, dtype=np.float64),
        y=np.ascontiguousarray(y, dtype=np.float64),
        feature_names=tuple(str(feature) for feature in feature_names),
        name=name,
    )
