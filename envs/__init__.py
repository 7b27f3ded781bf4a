"""Floor 4: Gymnasium environments, thin wrappers around the engine."""
