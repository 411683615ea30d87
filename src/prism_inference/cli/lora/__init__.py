"""`prism lora`: adapters as files, one module per command."""
