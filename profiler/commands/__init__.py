"""One file a verb: parsing, printing, exit codes."""
