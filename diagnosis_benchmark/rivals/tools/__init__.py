"""One file a tool: `TOOL` says how it is run, how what it left is read, and what its words mean."""
