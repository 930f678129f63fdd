"""Start a service that builds an index before it answers, wait until it is ready, and ask it."""

from __future__ import annotations

import hashlib

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import file_is
from tasks.families.thoughts import act, check, done, look, see
from tasks.families.words import Names

SPACE = 3_000_000
"""Numbers that the service hashes to find those of its table: about 2 s of Python."""

SERVICE = '''\
"""Answers GET /ready and GET /NAME on port 8000.

The table {table} holds the digests of secret numbers. The service tries all numbers to find them, and
answers with the last two digits of each.
"""
import hashlib
import http.server
import os
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path[1:]
        known = name == "ready" or name in index
        text = f"{{name}} {{index.get(name, 'is unknown')}}"
        if name == "ready":
            text = f"ready, {{len(index)}} names"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(text.encode() + b"\\n")

    def log_message(self, *arguments):
        pass


def build():
    with open("{table}") as file:
        wanted = {{bytes.fromhex(digest): name for name, digest in map(str.split, file)}}
    start = hashlib.sha256(b"{salt}")
    found = {{}}
    for number in range({space}):
        state = start.copy()
        state.update(b"%d" % number)
        if state.digest()[:6] in wanted:
            found[wanted[state.digest()[:6]]] = number % 100
    return found


try:
    server = http.server.HTTPServer(("127.0.0.1", 8000), Handler)
except OSError:
    sys.exit("the service runs already")
# Whoever connects from now on waits for the answer until the index is there.
print("started", flush=True)
if os.fork() == 0:
    os.setsid()
    for fd in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), fd)
    index = build()
    server.serve_forever()
'''
START = """\
#!/bin/bash
# Starts the service of {table} in the background.
exec python3 -B -S service.py
"""
ASK = """\
#!/bin/bash
# Asks the service of {table} for a name.
exec 2> /dev/null
{{
  printf 'GET /%s HTTP/1.0\\r\\n\\r\\n' "$1" >&3
  answer=$(timeout 9 cat <&3) || {{ echo the service is not ready; exit 1; }}
}} 3<> /dev/tcp/127.0.0.1/8000 || {{ echo the service does not run; exit 1; }}
echo "${{answer##*$'\\n'}}"
[[ $answer == *' 200 '* ]]
"""
POLL = """\
#!/bin/bash
# Waits until the service of {table} is ready.
exec ./ask.sh ready
"""


class Service:
    name = "service"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        table, answer, salt = f"{n.pair()}.tsv", f"{n.word()}.txt", n.pair()
        names = n.words(3)
        codes, rank, place = n.ranked(len(names))
        rows = [
            (name, n.number(0, SPACE // 100 - 1) * 100 + code)
            for name, code in zip(names, codes, strict=True)
        ]
        ranked = n.chance(0.6)
        of = f"the name with the {rank} number" if ranked else names[place]
        instruction = n.choice(
            [
                f"Start the service with ./start.sh and write what ./ask.sh says of {of} to {answer}.",
                f"Write what ./ask.sh says of {of} to {answer}. Start the service first, with ./start.sh.",
            ]
        )
        scripts = {"service.py": SERVICE, "start.sh": START, "ask.sh": ASK, "poll.sh": POLL}
        files = {path: text.format(table=table, salt=salt, space=SPACE) for path, text in scripts.items()}
        files[table] = "".join(f"{name} {_digest(salt, number)}\n" for name, number in rows)
        show, reread = n.chance(0.5) or ranked, n.chance(0.7)

        def expert() -> Expert:
            if show:
                yield look(n, "the table", f"cat {table}")
            yield act(n, "start the service", "./start.sh")
            yield check(n, "that it is ready", "./poll.sh")
            for name in names if ranked else names[place : place + 1]:
                yield see(n, f"the answer for {name}", f"./ask.sh {name}")
            yield act(n, "write the answer", f"./ask.sh {names[place]} > {answer}")
            if reread:
                yield check(n, "the file", f"cat {answer}")
            yield done(n)

        return GeneratedTask(
            self.name,
            seed,
            instruction,
            files,
            file_is(answer, f"{names[place]} {codes[place]}"),
            expert,
            executable=frozenset({"start.sh", "ask.sh", "poll.sh"}),
        )


def _digest(salt: str, number: int) -> str:
    return hashlib.sha256(f"{salt}{number}".encode()).digest()[:6].hex()
