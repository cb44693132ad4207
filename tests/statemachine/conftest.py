from e2e.shared_stack import stack

__all__ = ["stack"]
