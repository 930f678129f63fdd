"""Families whose tools are slow because they work: a compiler, a test suite, a service, an installer.

What a slow tool prints is short, has no time, address or process id in it, and for the most part follows
from what the agent has seen before, so that a world model has a chance; what a fast tool prints afterwards (a
computed number) does not. Nothing sleeps. Sizes are constants, chosen so that a slow call takes 0.5 to 5 s on
two shared cores.
"""
