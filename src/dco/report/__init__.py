"""Results as tables, figures and one page."""
