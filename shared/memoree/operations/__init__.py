"""The operations of the machine protocol, one module per family.

A family module declares its operations with `memoree.operations.registry.read` and `.mutation`; the registry
finds it by being in this package. Nothing else needs to be touched to add an operation.
"""
