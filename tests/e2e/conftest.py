from e2e.shared_stack import stack, tenant

__all__ = ["stack", "tenant"]
