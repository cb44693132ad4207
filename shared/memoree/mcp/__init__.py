"""The door for models: tools, resources and a prompt of the Model Context Protocol, over the operations of the store.

`doors.ToolServer` is free of the SDK and of any transport; `sdk`, `stdio` and `memoree.http.mcp` carry it.
"""
