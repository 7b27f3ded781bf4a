"""What steps cost on this machine: measured once, fitted, stored, asked by engine and controllers.

`python -m engine.profile` measures. Evaluating a stored profile needs NumPy only, so that a
controller can do it; this module imports nothing heavier.
"""

from engine.profile.hardware_profile import HardwareProfile

__all__ = ["HardwareProfile"]
