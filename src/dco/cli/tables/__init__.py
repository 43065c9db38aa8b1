"""Tables of people: from files to columns, and from columns to what models take.

``files`` reads CSV, Parquet and Feather into a `Table`, ``infer`` decides what each column is for,
``layout`` keeps the answer, ``rows`` reads features and targets by it, and ``fitted`` does so for a
fitted model.
"""
