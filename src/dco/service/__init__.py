"""A fit in service: watch it on new rows, calibrate it again, show what was seen."""
