"""What the commands do that is not running a model: one module per command. Knows no command line."""
