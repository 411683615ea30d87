"""Training of the models that the engine runs: datasets, optimizers, low-rank adapters, checkpoints. Knows no HTTP."""
