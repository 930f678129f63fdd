"""One short sentence of thought before each action, in a few wordings."""

from __future__ import annotations

from tasks.families.base import Step
from tasks.families.words import Names


def look(n: Names, what: str, command: str) -> Step:
    options = [f"I will look at {what} first.", f"Let me see {what}.", f"First I look at {what}."]
    return Step(n.wording(options, command), command)


def see(n: Names, what: str, command: str) -> Step:
    return Step(n.wording([f"I want to see {what}.", f"Let me see {what}."], command), command)


def act(n: Names, what: str, command: str) -> Step:
    return Step(n.wording([f"Now I will {what}.", f"Next I {what}."], command), command)


def check(n: Names, what: str, command: str) -> Step:
    return Step(n.wording([f"Let me check {what}.", f"I will check {what}."], command), command)


def done(n: Names) -> Step:
    return Step(n.wording(["The task is done.", "All is as asked."], "done"), None)
