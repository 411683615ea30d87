"""Vectors and memory for kernels: the only intrinsics of the package, each with a NumPy twin that says what it does.

Vectors are LLVM vectors of fixed width; LLVM splits them for narrower machines, so one source serves every target.
"""

from .bits import *  # noqa: F403
from .byte_tiles import Codes as Codes
from .byte_tiles import byte_tile as byte_tile
from .byte_tiles import panel_bytes as panel_bytes
from .core import OPERATIONS as OPERATIONS
from .floats import *  # noqa: F403
from .groups import *  # noqa: F403
from .half import *  # noqa: F403
from .integers import *  # noqa: F403
from .lanes import *  # noqa: F403
from .scalars import *  # noqa: F403
from .ternary import *  # noqa: F403
from .threads import *  # noqa: F403
from .tiles import *  # noqa: F403
from .words import *  # noqa: F403
