"""The kinds of calibration: from scores of sealed rows to thresholds, and what these guarantee."""
