"""Sample sizes and coverage laws."""
