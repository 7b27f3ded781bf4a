"""Floor 3: controllers, one file each, and the features and actions that they share.

Imports nothing here, so that an exported controller runs on NumPy and safetensors alone.
`policies.registry.make` turns a name, `module:Class` or an exported folder into a controller.
"""
