"""``dco fit``: from a table to a calibrated model file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dco.commands.options import (
    FILE,
    SizeType,
    WholeType,
    chosen_alpha,
    chosen_delta,
    decimal_option,
    example,
    force_option,
    guarantee_options,
    level_options,
    work_options,
)
from dco.commands.printing import as_json, note, noted_warnings, print_json, print_table, progress, say
from dco.display import counted
from dco.extras import require

if TYPE_CHECKING:
    from dco.commands.layout import Layout

_FEWEST = 3  # rows: one each to train, tune and calibrate


@click.command("fit", epilog=example("dco fit patients.csv --target progression --alpha 0.1 --seed 0 --out model.dco"))
@click.argument("data", type=FILE)
@click.option("--target", required=True, metavar="COL", help="The column to predict.")
@level_options
@guarantee_options
@click.option("--task", type=click.Choice(["classification", "regression"]), help="Otherwise found out, and said.")
@click.option("--models", metavar="LIST", help="linear, forest, boosting; for numbers also quantiles, spread.")
@click.option("--scores", metavar="LIST", help="lac, aps, raps, saps, topk, margin; absolute, normalised, quantile.")
@click.option("--groups", metavar="COL", help="Rows with one value here stay in one role; the column is not a feature.")
@click.option("--condition-on", metavar="COL", help="A threshold for each value of this column; the target: for each class.")
@click.option("--by", metavar="COL", help="Evaluate by this column, on rows set aside (see --test-size).")
@click.option("--key", metavar="COL", help="A column that names the rows; it is not a feature.")
@click.option("--drop", multiple=True, metavar="COL", help="A column that is not a feature; may be given again.")
@decimal_option(default=".")
@click.option(
    "--tune-size",
    type=SizeType(auto=True, none=True),
    default="0.25",
    show_default=True,
    help="Rows that rank candidates; auto: until the choice has settled; 0: for one model and one score.",
)
@click.option("--calibrate-size", type=SizeType(), default="0.25", show_default=True, help="Rows that calibrate.")
@click.option("--tune-folds", type=WholeType(min=2), help="Rank candidates by folds; tuning then costs no rows.")
@click.option("--test-size", type=SizeType(none=True), help="Rows to evaluate on.  [default: 0, with --by 0.2]")
@click.option("--seed", type=WholeType(min=0), default=0, show_default=True, help="Fixes roles and models.")
@work_options
@click.option("--out", type=FILE, default=Path("model.dco"), show_default=True, help="The model file to write.")
@click.option("--report", type=FILE, help="Write an HTML page that explains the model.")
@click.option("--certificate", type=FILE, help="Write the certificate (JSON): keep it elsewhere, for `dco audit`.")
@force_option
@as_json
def command(data: Path, target: str, as_json: bool, **options: Any) -> None:
    """Fit models on DATA (CSV, Parquet or Feather), pick the smallest sets, calibrate once, write a model file.

    Rows are dealt to training, tuning and calibration at random. Models and scores compete on training and tuning rows; the
    calibration rows are opened once, for the winner. Missing values and categories are handled inside each model.
    """
    from dco.commands.outputs import check_page_name
    from dco.files import written_beside, written_together
    from dco.storage import save

    alpha = chosen_alpha(options.pop("alpha"), options.pop("confidence"))
    options["delta"] = chosen_delta(options["guarantee"], options["delta"])
    out, report, certificate = options["out"], options["report"], options["certificate"]
    _check_outputs({"--out": out, "--report": report, "--certificate": certificate}, data, force=options["force"])
    given = click.get_current_context().get_parameter_source("tune_size")
    if options["tune_folds"] is not None and given is ParameterSource.COMMANDLINE:
        raise click.UsageError("--tune-folds ranks candidates on the training rows: leave --tune-size out.")
    if options["by"] is not None and options["test_size"] == 0:
        raise click.UsageError("--by evaluates rows set aside, and --test-size 0 sets none aside: leave one of them out.")
    if report is not None:
        check_page_name(report)
        require("jinja2", extra="report")  # said before the work, not after it
    notes: list[str] = []
    with progress("Fitting", None, quiet=as_json), noted_warnings(notes):
        fitted = fit_table(data, target, alpha=alpha, **options)
    with written_together():
        save(fitted.model, out, overwrite=options["force"])
        if certificate is not None:
            with written_beside(certificate, overwrite=options["force"]) as beside:
                beside.write_text(fitted.model.certificate_.to_json() + "\n", encoding="utf-8")
        if report is not None:
            from dco.commands.report import named, source_words
            from dco.report import page

            page.write_page(
                fitted.model,
                report,
                X=fitted.X_test,
                y=fitted.y_test,
                by=named(fitted.by, fitted.by_name),
                title=f"{target} in {data.name}",
                source=source_words(out, data, fitted.X_test, fitted.y_test),
                names=fitted.names,
            )
    if as_json:
        print_json(fitted.to_dict() | {"notes": notes, "model": str(out), "report": None if report is None else str(report)})
        return  # the certificate itself is in the JSON
    _show(fitted)
    for sentence in notes:
        note(f"Note: {sentence}")
    say(" ".join(f"Wrote {path}." for path in (out, report, certificate) if path is not None))


def _check_outputs(named: dict[str, Path | None], data: Path, *, force: bool) -> None:
    """Say before any work is done that a file cannot be written, would replace something, or is named twice."""
    from dco.commands.outputs import check_output

    seen: dict[Path, str] = {}
    for option, path in named.items():
        if path is None:
            continue
        check_output(path, force=force, inputs=[data])
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise ValueError(f"{other} and {option} both name {path}; give them different names.")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model, the rows that were set aside, and what there is to say."""

    model: Any
    why: str
    columns: str
    X_test: Any
    y_test: Any
    by: Any
    by_name: str | None
    evaluation: Any
    names: list[str] | None = None

    def ranking(self) -> list[dict[str, Any]]:
        """The candidates, best first."""
        return [
            {
                "name": row.name,
                "mean_size": row.mean_size,
                "p95_size": row.p95_size,
                "miscoverage": row.miscoverage,
                "feasible": row.feasible,
            }
            for row in self.model.ranking_.table
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for --json."""
        import json

        from dco.commands.layout import Layout, columns_by_kind

        return {
            "task": self.model.table_["layout"]["task"],
            "why": self.why,
            "columns": columns_by_kind(Layout.from_plain(self.model.table_["layout"])),
            "candidate": self.model.best_candidate_,
            "ranking": self.ranking(),
            "failed": dict(self.model.certificate_.failed_candidates),
            "certificate": json.loads(self.model.certificate_.to_json()),
            "evaluation": None if self.evaluation is None else self.evaluation.to_dict(),
        }


def fit_table(
    data: Path, target: str, *, alpha: Any, by: str | None, test_size: Any, groups: str | None, **o: Any
) -> Fitted:
    """Read, set test rows aside, fit, evaluate."""
    import numpy as np

    from dco.commands.layout import features, labels, make_layout, need_column, targets, told_columns, with_categories
    from dco.commands.reading import read_table
    from dco.splits import assign_roles

    table = read_table(data)
    layout, why = make_layout(
        table,
        path=data,
        target=target,
        task=o["task"],
        condition=o["condition_on"],
        groups=groups,
        key=o["key"],
        drop=o["drop"],
        decimal=o["decimal"],
    )
    if by is not None:
        need_column(table.column_names, by, path=data, option="--by")
    model = _unfitted(layout, alpha=alpha, **o)
    X, y = features(table, layout, path=data), targets(table, layout, path=data)
    group_of = None if groups is None else labels(table, groups)
    share = (0.2 if by is not None else 0) if test_size is None else test_size
    own_seed = int(np.random.SeedSequence([o["seed"], 2]).generate_state(1)[0])  # not the seed that deals the other roles
    dealt = assign_roles(len(y), tune=0, calibrate=0, test=share, groups=group_of, seed=own_seed)
    kept, tested = np.sort(dealt.train), np.sort(dealt.test)
    if tested.size and kept.size < _FEWEST:
        raise ValueError(f"--test-size {test_size} of {counted(len(y), 'row')} leaves {kept.size} to fit on; ask for less.")
    model.fit(X.iloc[kept].reset_index(drop=True), y[kept], groups=None if group_of is None else group_of[kept])
    layout = with_categories(layout, X.iloc[kept])
    columns = told_columns(layout)
    model.table_ = {"layout": layout.to_plain(), "rows": len(y), "fitted_rows": kept, "source": data.name}
    if not tested.size:
        return Fitted(model, why, columns, None, None, None, None, None)
    X_test, y_test = X.iloc[tested].reset_index(drop=True), y[tested]
    by_name = None if by == layout.condition else by  # the model takes the groups that it calibrated
    by_test = None if by_name is None else labels(table, by_name)[tested]
    evaluation = model.evaluate(X_test, y_test, by=by_test)
    key = layout.key
    names = None if key is None else [f"{key} {value}" for value in labels(table, key)[tested]]
    return Fitted(model, why, columns, X_test, y_test, by_test, by_name, evaluation, names)


def _unfitted(layout: Layout, *, alpha: Any, **o: Any) -> Any:
    """The estimator that the options ask for."""
    from dco.commands.candidates import DEFAULT_MODELS, MODELS, SCORES, chosen_names, make_models, make_scores
    from dco.estimators import DecoupledClassifier, DecoupledRegressor

    models = chosen_names(o["models"], tuple(MODELS[layout.task]), option="--models", default=DEFAULT_MODELS[layout.task])
    scores = chosen_names(o["scores"], SCORES[layout.task], option="--scores", default=None)
    assert models is not None
    maker = DecoupledClassifier if layout.task == "classification" else DecoupledRegressor
    return maker(
        make_models(models, layout, alpha=alpha),
        make_scores(scores),
        alpha=alpha,
        guarantee=o["guarantee"],
        delta=o["delta"],
        tune_size=o["tune_size"],
        calibrate_size=o["calibrate_size"],
        tune_folds=o["tune_folds"],
        condition_on="label" if layout.condition == layout.target else layout.condition,
        n_jobs=o["jobs"],
        scheduler=o["scheduler"],
        random_state=o["seed"],
    )


def _show(fitted: Fitted) -> None:
    from dco.commands.evaluate import groups_title, show_evaluation

    say(fitted.why, fitted.columns)
    rows = fitted.ranking()
    if rows:  # none where the only candidate went through without tuning rows
        print_table(
            ["candidate", "mean size", "P95 size", "miscoverage", "feasible"],
            [[r["name"], r["mean_size"], r["p95_size"], r["miscoverage"], "yes" if r["feasible"] else "no"] for r in rows],
            title=f"{counted(len(rows), 'candidate')} on the tuning rows, best first",
            spare=["P95 size"] + (["feasible"] if all(r["feasible"] for r in rows) else []),
        )
    say(*str(fitted.model.certificate_).splitlines())
    if fitted.evaluation is not None:
        show_evaluation(
            fitted.evaluation, title="Rows set aside", groups=groups_title(fitted.model.certificate_, by=fitted.by_name)
        )
