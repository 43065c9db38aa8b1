"""What any stage may use: arrays, exact ranks, thresholds, errors, files, processes."""
