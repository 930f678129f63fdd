"""Pack a folder into an archive, or unpack one."""

from __future__ import annotations

from tasks.families.base import Expert, GeneratedTask
from tasks.families.checks import output_is
from tasks.families.thoughts import act, check, done, look
from tasks.families.words import Names


class Archive:
    name = "archive"

    def generate(self, seed: int) -> GeneratedTask:
        n = Names(self.name, seed)
        folder, tar = n.word(), f"{n.pair()}.tar"
        names = sorted(f"{n.word()}.txt" for _ in range(n.choice([2, 3])))
        files = {f"{folder}/{name}": f"{n.pair(' ')}\n" for name in names}
        listing = "\n".join([f"{folder}/"] + [f"{folder}/{name}" for name in names])
        again = n.chance(0.7)
        if n.chance(0.5):
            instruction = f"Pack the folder {folder} into the archive {tar}."

            def expert() -> Expert:
                yield look(n, "the folder", f"ls {folder}")
                yield act(n, "pack the folder", f"tar -cf {tar} {folder}")
                yield check(n, "the archive", f"tar -tf {tar} | sort")
                if again:
                    yield check(n, "the folder", f"ls {folder} | sort")
                yield done(n)

            return GeneratedTask(
                self.name, seed, instruction, files, output_is(f"tar -tf {tar} | sort", listing), expert
            )

        instruction = f"Unpack the archive {tar}."
        setup = f"tar --sort=name -cf {tar} {folder} && rm -r {folder}\n"

        def unpack() -> Expert:
            yield look(n, "the archive", f"tar -tf {tar}")
            yield act(n, "unpack it", f"tar -xf {tar}")
            yield check(n, "the folder", f"ls {folder}")
            if again:
                yield check(n, "the archive", f"tar -tf {tar} | sort")
            yield done(n)

        expected = "\n".join(text.rstrip() for text in files.values())
        return GeneratedTask(
            self.name,
            seed,
            instruction,
            files,
            output_is(f"cat {folder}/*", expected),
            unpack,
            setup_sh=setup,
        )
