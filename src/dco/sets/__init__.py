"""Prediction sets: `LabelSets`, `Intervals`, `IntervalUnions`."""

from dco.sets.intervals import Intervals, IntervalUnions
from dco.sets.labels import LabelSets
from dco.sets.prediction_sets import PredictionSets

__all__ = ["IntervalUnions", "Intervals", "LabelSets", "PredictionSets"]
