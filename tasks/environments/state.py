"""A Dockerfile on its way to an image."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tasks.dockerfile import Instruction, Scope
from tasks.environments.context import Context
from tasks.environments.recipe import Built, Progress, Recipe
from tasks.sandbox.image import Image, ImageConfig


@dataclass(frozen=True)
class State:
    """Where a build stands after an instruction."""

    image: Image
    scope: Scope
    key: str
    """Digest of all that the image was made from."""
    base_image: str
    note: str
    triggers: tuple[Instruction, ...] = ()
    """ONBUILD, for stages that start from this one."""

    @property
    def built(self) -> Built:
        return Built(self.image, self.base_image, self.note)

    def having(self, config: ImageConfig) -> State:
        """The same files, run in another way."""
        return replace(self, image=replace(self.image, config=config))


@dataclass
class Build:
    """One Dockerfile on its way."""

    recipe: Recipe
    context: Context
    global_args: dict[str, str]
    deadline: float
    progress: Progress
    done: dict[str, State] = field(default_factory=dict)
    """Finished stages, by name and by number."""
