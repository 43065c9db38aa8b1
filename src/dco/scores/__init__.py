"""Scores: larger is stranger."""
