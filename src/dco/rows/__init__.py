"""Rows, their roles, clusters and fingerprints, and the seal."""
