"""Engines and services as child processes: started together, supervised, never left behind."""

from obsspec.processes.child import Child, Command
from obsspec.processes.stack import Event, Stack

__all__ = ["Child", "Command", "Event", "Stack"]
