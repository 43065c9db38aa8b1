"""Fitted models and what turns them into prediction records."""
