"""One module a command of the command line; each holds ``command`` and imports what it needs when it is called."""
