"""dco fit refuses what it cannot do in one sentence, and writes all of its outputs or none."""

import errno
import os
import re

import pytest
from sklearn.pipeline import Pipeline

BAD_OPTIONS = {
    "--target outcom": "no column 'outcom'.*did you mean 'outcome'",
    "--target outcome --models linear,magic": "no default model 'magic' for regression",
    "--target outcome --scores lac": "names 'lac'",
    "--target outcome --groups nobody": "no column 'nobody'",
    "--target outcome --condition-on outcome": "'outcome' is a quantity here; name a feature",
    "--target grade --condition-on patient --drop patient": "must be the target or a column that "
    "the models may use",
    "--target grade --condition-on grade --condition-on site": "which stands alone",
    "--target outcome --tune-size 200 --calibrate-size 200": "more than there is",
    "--target outcome --alpha -0.5": r"strictly between 0 and 1\.$",
    "--target outcome --confidence 90": r"between 0 and 1\. Did you mean 90%\?$",
    "--target outcome --alpha 10": r"between 0 and 1\. Did you mean 10%\?$",
    "--target outcome --alpha 90": r"For 90 % coverage, use --alpha 0\.1 or --confidence 0\.9\.$",
    "--target outcome --out nowhere/m.dco": "no folder nowhere",
    "--target grade --task regression": "a regression needs numbers",
    "--target outcome --out x.html --report x.html": "both name x.html",
    "--target outcome --report report.pdf": "report.pdf must end in .html",
    "--target outcome --groups patient --condition-on site": "--groups cannot be combined with",
    "--target outcome --test-size 319": "--test-size 319 of 320 rows leaves 1 to fit on",
    "--target outcome --test-size 0 --by site": "--test-size 0 sets none aside",
    "--target outcome --models linear --scores quantile": "Quantiles come from --models quantiles",
    "--target outcome --tune-folds 3 --tune-size 50": "leave --tune-size out",
    "--target outcome --objective smallest": "mean_size",
    "--target outcome --range 5 1": "--range must be a pair, the lower number first, as in "
    "--range 0 inf",
    "--target grade --range 0 1": "--range is for numbers",
    "--target outcome --delta 0.1": "--delta belongs to --guarantee pac",
}


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_bad_input_is_one_sentence_and_writes_nothing(dco, home, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    message = dco.refuses("fit", home / "rows.csv", *options.split())
    assert re.search(BAD_OPTIONS[options], message)
    assert "Something unexpected" not in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("x,y\n" + "1,a\n" * 40, "one class only"),
        ("x,y\n1,0.5\n2,0.75\n", "n_samples=2|too few|leaves"),
        ("y\n" + "0.5\n0.25\n" * 20, "no column left"),
        ("x,y\n" + "1,0.5\n" * 20 + "1,\n", "is missing in 1 row "),
    ],
    ids=["one class", "two rows", "no feature", "a missing target"],
)
def test_tables_that_cannot_be_fitted_are_refused(dco, tmp_path, text, pattern):
    (tmp_path / "t.csv").write_text(text)
    model = tmp_path / "m.dco"
    message = dco.refuses("fit", tmp_path / "t.csv", "--target", "y", "--out", model)
    assert re.search(pattern, message)
    assert "Something unexpected" not in message
    assert not model.exists()


@pytest.fixture
def few_rows(rows, table, tmp_path):
    """A fit on twelve rows of which nine calibrate, as words of the command line."""
    data = table(rows[["dose", "outcome"]][:12])
    words = ("fit", data, "--target", "outcome", "--calibrate-size", 9)
    return (*words, "--out", tmp_path / "m.dco")


def test_what_few_rows_need_is_said_in_options(dco, few_rows):
    message = dco.refuses(*few_rows)
    assert (
        "no row is left for the role train, with --tune-size 0.25 and --calibrate-size 9" in message
    )


def test_those_options_help(dco, few_rows):
    options = ("--models", "linear", "--scores", "absolute", "--tune-size", 0)
    printed = dco.json(*few_rows, *options)
    assert printed["certificate"]["provenance"]["rows"]["calibrate"] == 9


# --- outputs --------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    return tmp_path / "m.dco"


@pytest.fixture
def fit(home, model):
    """A fit of the linear model, as words of the command line."""
    words = ("fit", home / "rows.csv", "--target", "outcome", "--drop", "grade")
    return (*words, "--models", "linear", "--out", model)


def test_of_two_fits_into_one_file_the_first_is_kept(dco, tmp_path, monkeypatch, model, fit):
    """Another run writes its model while this one fits."""
    predict = Pipeline.predict

    def predict_while_another_run_writes(*arguments, **options):
        model.write_text("the model of another run")
        return predict(*arguments, **options)

    certificate = tmp_path / "c.json"
    monkeypatch.setattr(Pipeline, "predict", predict_while_another_run_writes)
    message = dco.refuses(*fit, "--certificate", certificate)

    assert "meanwhile and is kept" in message
    assert model.read_text() == "the model of another run"
    assert not certificate.exists()


def test_a_model_is_replaced_on_request_alone(dco, model, fit):
    model.write_text("the model of another run")
    assert "--force" in dco.refuses(*fit)
    assert f"Wrote {model}." in dco(*fit, "--force").output


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["as it is", "force"])
def test_no_pipe_is_replaced(dco, model, fit, force):
    """Nor is the user told to say --force, which would not help."""
    os.mkfifo(model)
    message = dco.refuses(*fit, *force)
    assert "is a pipe, and only a regular file is replaced; choose another name." in message
    assert model.is_fifo()


@pytest.fixture
def full_disk(tmp_path, monkeypatch):
    """The disk has no space for the certificate."""
    flush = os.fsync

    def refuse(file):
        if os.readlink(f"/proc/self/fd/{file}").startswith(str(tmp_path / ".c.json.")):
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(file)

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", refuse)
        yield "no space left"


@pytest.fixture
def failing_disk(no_name_for):
    """The disk refuses the certificate at the last moment."""
    with no_name_for("c.json", OSError(errno.EIO, "Input/output error")):
        yield "Input/output error"


@pytest.fixture
def outputs(dco, tmp_path, model, fit):
    """The three outputs of a fit, and the words that write them again."""
    certificate = tmp_path / "c.json"
    page = tmp_path / "r.html"
    words = (*fit, "--certificate", certificate, "--report", page, "--force")
    dco(*words)
    return [model, certificate, page], words


def test_all_outputs_are_replaced(dco, outputs):
    paths, words = outputs
    before = [path.read_bytes() for path in paths]
    dco(*words, "--seed", 5)
    after = [path.read_bytes() for path in paths]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False] * 3
    dco("audit", paths[0], "--certificate", paths[1])


@pytest.mark.parametrize("disk", ["full_disk", "failing_disk"])
def test_no_output_is_replaced_if_one_cannot_be(request, dco, tmp_path, outputs, disk):
    paths, words = outputs
    before = [path.read_bytes() for path in paths]

    expected = request.getfixturevalue(disk)
    message = dco.refuses(*words, "--seed", 5)

    assert expected in message
    assert [path.read_bytes() for path in paths] == before
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    dco("audit", paths[0], "--certificate", paths[1])
