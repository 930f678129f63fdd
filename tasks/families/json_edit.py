"""Set a field of a JSON file, to a given number or to that of another field, and keep the file valid."""

from __future__ import annotations

import json

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import output_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names

FIELDS = ["size", "limit", "weight", "height", "price"]


class JsonEdit:
    name = "json_edit"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        path = f"{n.pair()}.json"
        first, last = n.rng.sample(FIELDS, 2)
        old = {"name": n.pair(), first: n.number(), last: n.number()}
        copied = n.chance(0.6)
        value = old[first] if copied else old[last]
        while value == old[last]:
            value = n.number()
        new = old | {last: value}
        wish = f"that of {first}" if copied and value == old[first] else str(value)
        instruction = n.choice(
            [f"Change {last} to {wish} in {path}.", f"In {path} set {last} to {wish}. Keep it valid JSON."]
        )
        reread, peek = n.chance(0.9), n.chance(0.4)

        def expert() -> Expert:
            yield look(n, "the file", f"cat {path}")
            if peek:
                yield see(n, "the field", f"grep {last} {path}")
            yield act(n, f"change {last}", f"sed -i 's/{last}\": .*/{last}\": {value}/' {path}")
            yield check(n, f"the {last}", f"grep {last} {path}")
            if reread:
                yield check(n, "the file", f"cat {path}")
            yield check(n, "that it is valid", f"python3 -m json.tool {path} > /dev/null && echo valid")
            yield done(n)

        load = f"import json; print(json.dumps(json.load(open('{path}'))))"
        return GeneratedTask(
            self.name,
            seed,
            instruction,
            {path: json.dumps(old, indent=2) + "\n"},
            output_is(f'python3 -I -c "{load}"', json.dumps(new)),
            expert,
        )
