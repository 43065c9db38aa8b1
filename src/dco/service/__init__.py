"""A fit in service: watch it on new rows, and show what was seen."""

from dco.service.displays import MonitorDisplay
from dco.service.monitor import Monitor
from dco.service.monitor_report import (
    MonitorReport,
    ReportTable,
    WatchedCondition,
    WatchedSlice,
    report_sentences,
    report_tables,
)
from dco.service.state import settings_of

__all__ = [
    "Monitor",
    "MonitorDisplay",
    "MonitorReport",
    "ReportTable",
    "WatchedCondition",
    "WatchedSlice",
    "report_sentences",
    "report_tables",
    "settings_of",
]
