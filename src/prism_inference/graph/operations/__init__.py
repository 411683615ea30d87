"""What a tensor can do: each method checks types and shapes and makes the node. Shape rules live here; nothing is
computed.

Extents are in ggml's order throughout: `ne[0]` is the contiguous one.
"""
