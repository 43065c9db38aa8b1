"""Results as numbers, figures and one page."""

from dco.report.numbers import ReportNumbers, report_numbers
from dco.report.page import page_html, write_page
from dco.report.results import write_results_page

__all__ = ["ReportNumbers", "page_html", "report_numbers", "write_page", "write_results_page"]
