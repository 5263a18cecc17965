"""How a run is reported: metrics, progress, curves."""
