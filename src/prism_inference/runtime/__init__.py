"""Loaded models and their sessions: ids in, logits out; text in, text out. Knows no HTTP."""
