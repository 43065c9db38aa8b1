"""Candidates and the exact search for the smallest sets on tuning rows."""
