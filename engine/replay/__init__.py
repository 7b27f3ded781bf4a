"""The replay backend: what a live engine recorded, served again without a network."""
