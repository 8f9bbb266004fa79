"""The command line `nexuskv`: one module a subcommand."""
