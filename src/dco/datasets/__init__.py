"""Data: generators with known truth, tables, image features."""
