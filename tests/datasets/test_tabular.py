"""Loading tables: from a folder, from the environment, and what is said when a file is missing or
was changed.
"""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from dco.datasets import load_california_housing, load_concrete, load_diabetes

DATA = Path(os.environ.get("DCO_DATA_HOME") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(
    not (DATA / "concrete.csv").is_file(), reason="no data folder: set DCO_DATA_HOME"
)


def test_diabetes_ships_with_scikit_learn():
    table = load_diabetes()
    assert (table.name, table.X.shape, table.y.shape, len(table)) == (
        "diabetes",
        (442, 10),
        (442,),
        442,
    )
    assert table.feature_names[:2] == ("age", "sex")
    assert table.y[0] == 151.0


@needs_data
def test_california_housing_is_the_tested_copy():
    table = load_california_housing(DATA, verify=True)
    assert (table.X.shape, table.y[0], table.feature_names[0]) == ((20640, 8), 4.526, "MedInc")
    np.testing.assert_allclose(
        table.X[0], [8.3252, 41, 6.98412698, 1.02380952, 322, 2.55555556, 37.88, -122.23]
    )
    assert np.all(np.isfinite(table.X))


@needs_data
def test_concrete_is_the_tested_copy_with_its_repeats():
    table = load_concrete(DATA, verify=True)
    assert (table.X.shape, table.y[0]) == ((1030, 8), 79.99)
    np.testing.assert_array_equal(table.X[0], [540, 0, 0, 162, 2.5, 1040, 676, 28])
    assert len(table) - len(np.unique(np.c_[table.X, table.y], axis=0)) == 25


def test_the_folder_of_the_environment_is_used(tmp_path, monkeypatch):
    (tmp_path / "concrete.csv").write_text("a,b,strength\n1,2,3\n4,5,6\n")
    (tmp_path / "california_housing.csv.gz").write_bytes(gzip.compress(b"a,target\n1,2\n"))
    monkeypatch.setenv("DCO_DATA_HOME", str(tmp_path))
    table = load_concrete()
    assert (table.feature_names, table.X.tolist(), table.y.tolist()) == (
        ("a", "b"),
        [[1, 2], [4, 5]],
        [3, 6],
    )
    assert load_california_housing().y.tolist() == [2.0]
    with pytest.raises(ValueError, match="SHA-256"):
        load_concrete(verify=True)


def test_a_missing_file_and_a_broken_one_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no file concrete\.csv"):
        load_concrete(tmp_path)
    (tmp_path / "concrete.csv").write_text("a,strength\n1,2,3\n")
    with pytest.raises(ValueError, match="2 names in its header and 3 columns"):
        load_concrete(tmp_path)


def test_without_a_folder_the_usual_servers_are_asked(monkeypatch):
    """The downloads themselves need a network; what is done with their answer does not."""
    import sklearn.datasets
    from sklearn.utils import Bunch

    monkeypatch.delenv("DCO_DATA_HOME", raising=False)
    columns = np.arange(18.0).reshape(2, 9)
    names = [f"c{i}" for i in range(9)]
    monkeypatch.setattr(
        sklearn.datasets,
        "fetch_openml",
        lambda **_: Bunch(data=columns, feature_names=names, target=None),
    )
    table = load_concrete()
    assert (table.X.shape, table.y.tolist(), table.feature_names) == (
        (2, 8),
        [8.0, 17.0],
        tuple(names[:-1]),
    )
    monkeypatch.setattr(
        sklearn.datasets,
        "fetch_california_housing",
        lambda: Bunch(data=columns, target=[1, 2], feature_names=names),
    )
    assert load_california_housing().y.tolist() == [1.0, 2.0]
