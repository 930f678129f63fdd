"""Environments: what a Dockerfile describes, built without Docker, layer by layer.

`Builder.build` gives the image of a `Recipe`. What cannot be built is a `BuildRefused` that names the line.
"""

from tasks.environments.builder import Builder
from tasks.environments.errors import BuildRefused
from tasks.environments.recipe import Built, Progress, Recipe

__all__ = ["BuildRefused", "Builder", "Built", "Progress", "Recipe"]
