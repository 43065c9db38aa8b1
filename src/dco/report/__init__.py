"""Results as pages and figures."""

from dco.report.figures import save_figures
from dco.report.numbers import ReportNumbers, report_numbers
from dco.report.page import page_html, write_page
from dco.report.results import findings_of, read_results, results_html, write_results_page
from dco.report.timeline import timeline_figure, timeline_html

__all__ = [
    "ReportNumbers",
    "findings_of",
    "page_html",
    "read_results",
    "report_numbers",
    "results_html",
    "save_figures",
    "timeline_figure",
    "timeline_html",
    "write_page",
    "write_results_page",
]
