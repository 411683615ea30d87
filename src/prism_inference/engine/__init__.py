"""Runs plans: links kernels, owns the threads, keeps the arena. Knows no text and no HTTP, and imports no compiler
unless a kernel has never been compiled for this machine."""
