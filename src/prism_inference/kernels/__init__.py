"""Compiled kernels: Python functions that LLVM turns into machine code for the processor at hand.

Only this package knows numba; it knows neither models nor files. Importing the package itself imports no compiler.
"""
