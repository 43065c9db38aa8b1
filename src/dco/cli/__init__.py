"""The command line: one module per command, each with its ``command``, loaded when it is called."""
