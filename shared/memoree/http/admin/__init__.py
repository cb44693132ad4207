"""Administration over HTTP, below `/v1/admin/`: the scope `admin`, for one's own tenant; an operator token, for all."""
