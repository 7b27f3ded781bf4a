"""Floor 5: paired comparison of controllers, metrics, statistics and reports."""
