"""What a hostile program tries with the kernel.

It runs as the agent of the built-in tasks, and as root of an image; all of it fails closed. Afterwards the
sandbox still works or is cleanly gone, and the host is as it was (the fixture `untouched`).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tasks.sandbox.namespace import NamespaceSandbox
from tests.tasks.escaping import has_begun, python, works

REPOSITORY = Path(__file__).parents[2]

OF_THE_HOST = [
    "cat /proc/1/environ",
    "cat /proc/1/maps",
    "cat /proc/1/auxv",
    "ls /proc/1/root/",
    "ls /proc/1/cwd/",
    "readlink /proc/1/fd/*",
    "ls /proc/1/map_files/",
    "readlink /proc/1/exe",
    "head -c 10 /proc/kcore",
    "head -c 10 /proc/kmsg",
    "cat /proc/keys /proc/timer_list",
    "dmesg",
    "head -c 1 /dev/mem",
    "head -c 1 /dev/kmsg",
    "cat /proc/1/mem",
    "cat /sys/kernel/notes",
    "ls -A /sys",
]


async def test_nothing_of_the_host_shows_in_proc(world: NamespaceSandbox) -> None:
    for command in OF_THE_HOST:
        result = await world.exec(f"{command} 2>/dev/null")
        assert result.stdout == b"", (command, result)
    await works(world)


SETTINGS = [
    "sys/kernel/core_pattern",
    "sys/kernel/hostname",
    "sys/kernel/ns_last_pid",
    "sys/kernel/pid_max",
    "sys/kernel/randomize_va_space",
    "sys/user/max_user_namespaces",
    "sys/vm/drop_caches",
    "sys/vm/overcommit_memory",
    "sys/fs/file-max",
    "sys/fs/suid_dumpable",
    "sysrq-trigger",
    "irq/default_smp_affinity",
    "1/mem",
    "1/comm",
    "self/uid_map",
    "self/setgroups",
    "self/timens_offsets",
]


async def test_settings_of_the_kernel_cannot_be_written(world: NamespaceSandbox) -> None:
    unsteady = ("sys/vm/drop_caches", "sys/kernel/ns_last_pid")
    hosts = {Path("/proc", path) for path in SETTINGS if path.startswith("sys/") and path not in unsteady}
    before = {path: path.read_bytes() for path in hosts if path.exists()}
    assert before
    for path in SETTINGS:
        result = await world.exec(f"echo 1 > /proc/{path}")
        assert result.exit_code != 0, (path, result)
    assert {path: path.read_bytes() for path in before} == before
    await works(world)


async def test_a_process_cannot_make_itself_the_last_to_be_killed(world: NamespaceSandbox) -> None:
    assert (await world.exec("echo -500 > /proc/self/oom_score_adj")).exit_code != 0


async def test_processes_of_the_host_get_no_signals(world: NamespaceSandbox) -> None:
    with subprocess.Popen(["sleep", "300"]) as victim:  # noqa: ASYNC220
        try:
            assert f"/proc/{victim.pid}" not in (await world.exec("echo /proc/*")).stdout.decode().split()
            code = f"""
for pid in [{victim.pid}, {os.getpid()}, *range(2, 40000)]:
    if pid != os.getpid():
        for action in (lambda: os.kill(pid, 9), lambda: os.killpg(pid, 9), lambda: os.pidfd_open(pid)):
            try: action()
            except OSError: pass
"""
            await python(world, code)
            await world.exec("kill -9 -1", 5)
            assert victim.poll() is None
        finally:
            victim.kill()
    await works(world)


MOUNTS = [
    "mount -t tmpfs x /tmp",
    "mount -t proc x /mnt",
    "mount -t cgroup2 x /mnt",
    "mount -t overlay x /mnt -o lowerdir=/",
    "mount --bind / /mnt",
    "mount -o remount,rw,suid,dev /",
    "mount -o remount,rw /dev",
    "mount --make-rshared /",
    "umount /proc",
    "umount -l /dev/shm",
    "umount /proc/keys",
    "pivot_root / /mnt",
    "unshare -m true",
    "unshare -U true",
    "unshare -Ur true",
    "unshare -p --fork true",
    "unshare -n true",
    "unshare -i true",
    "unshare -C true",
    "unshare -T true",
    "nsenter -t 1 -m true",
    "nsenter -t 1 -a true",
    "nsenter --net=/proc/1/ns/net true",
    "hostname x",
    "swapon /tmp/x",
    "ip link set lo down",
    "ip link add x type dummy",
    "date -s @0",
    "sysctl -w kernel.hostname=x",
    "modprobe loop",
    "fsfreeze -f /",
]


async def test_namespaces_and_mounts_cannot_be_changed(world: NamespaceSandbox) -> None:
    before = await world.read("/proc/1/mountinfo")
    for command in MOUNTS:
        result = await world.exec(command)
        assert result.exit_code != 0, (command, result)
        assert await world.read("/proc/1/mountinfo") == before, command
    await works(world)


async def test_changing_the_root_does_not_lead_out(world: NamespaceSandbox, inside: str) -> None:
    code = f"""
os.makedirs("/tmp/jail/x", exist_ok=True)
above = os.open("/", os.O_RDONLY)
try:
    os.chroot("/tmp/jail")
except PermissionError:
    print("refused")
    sys.exit()
os.fchdir(above)
for _ in range(100):
    os.chdir("..")
os.chroot(".")
print(open("/etc/hostname").read().strip(), os.path.exists({str(REPOSITORY)!r}))
"""
    result = await python(world, code)
    assert result.stdout == (b"sandbox False\n" if inside == "root" else b"refused\n"), result


async def test_no_program_gains_privileges(world: NamespaceSandbox, inside: str) -> None:
    result = await world.exec(
        "cp /usr/bin/id /tmp/id; chmod 6755 /tmp/id; cp /usr/bin/python3 /tmp/p; chmod 755 /tmp/p"
    )
    capable = "0100000200002000000000000000000000000000"  # CAP_SYS_ADMIN, permitted and effective
    await python(world, f"os.setxattr('/tmp/p', 'security.capability', bytes.fromhex({capable!r}))")
    assert (await world.run(["/tmp/id", "-u"], 5, user="1234", cwd="/")).stdout in (b"1234\n", b"1000\n")
    mine = ["/tmp/p", "-c", "print(open('/proc/self/status').read())"]
    status = (await world.run(mine, 5, user="1234", cwd="/")).stdout
    # Root may give capabilities to a file, and nobody gets them.
    assert b"CapEff:\t0000000000000000" in status or (inside == "agent" and not status)
    for command in (
        "su root -c 'id -u'",
        "sudo -n id -u",
        "pkexec id -u",
        "newgrp root",
        "setpriv --reuid 0 id -u",
    ):
        result = await world.exec(f"{command} < /dev/null")
        assert inside == "root" or b"0\n" not in result.stdout, result
    own = (await world.exec("cat /proc/self/status")).stdout.decode()
    bounding = int(own.split("CapBnd:")[1].split()[0], 16)
    docker, setpcap = 0xA80425FB, 1 << 8
    assert bounding == (docker & ~setpcap if inside == "root" else 0)
    assert "NoNewPrivs:\t1" in own
    assert "Seccomp:\t2" in own


REFUSED = [
    ("unshare", "0x10000000"),
    ("unshare", "0x00020000"),
    ("unshare", "0x20000000"),
    ("bpf", "0, 0, 0"),
    ("perf_event_open", "ctypes.byref(ctypes.create_string_buffer(128)), 0, -1, -1, 0"),
    ("userfaultfd", "0"),
    ("userfaultfd", "1"),
    ("kexec_load", "0, 0, 0, 0"),
    ("init_module", "0, 0, b''"),
    ("finit_module", "0, b'', 0"),
    ("keyctl", "0, -3, 0"),
    ("io_uring_setup", "8, ctypes.byref(ctypes.create_string_buffer(128))"),
    ("open_tree", "-100, b'/', 1"),
    ("fsopen", "b'tmpfs', 0"),
    ("mount_setattr", "-100, b'/', 0, ctypes.byref(ctypes.create_string_buffer(32)), 32"),
    ("pivot_root", "b'/', b'/mnt'"),
    ("reboot", "0xfee1dead, 672274793, 0x1234567, 0"),
    ("swapon", "b'/tmp/x', 0"),
    ("settimeofday", "ctypes.byref(ctypes.create_string_buffer(16)), 0"),
    ("ptrace", "16, 1, 0, 0"),
    ("pidfd_getfd", "os.pidfd_open(1), 0, 0"),
]


async def test_dangerous_calls_are_refused(world: NamespaceSandbox) -> None:
    code = "".join(f"print({name!r}, call({name!r}, {arguments}))\n" for name, arguments in REFUSED)
    result = await python(world, code)
    answers = [line.split() for line in result.stdout.decode().splitlines()]
    assert [name for name, _ in answers] == [name for name, _ in REFUSED], result
    for name, answer in answers:
        # EPERM, ENOSYS, EACCES; ENOSPC: no more user namespaces are allowed.
        assert int(answer) in (-1, -38, -13, *([-28] if name == "unshare" else [])), name
    await works(world)


async def test_memory_of_the_first_process_is_out_of_reach(world: NamespaceSandbox) -> None:
    code = """
buffer = ctypes.create_string_buffer(64)
local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)
for address in (0x400000, 0x555555554000, 0x7ffff7dd0000):
    print(call("process_vm_readv", 1, local, 1, (ctypes.c_size_t * 2)(address, 64), 1, 0))
"""
    assert (await python(world, code)).stdout == b"-1\n" * 3


async def test_files_are_not_opened_by_handle(world: NamespaceSandbox) -> None:
    code = """
handle = ctypes.create_string_buffer(136)
handle[0:4] = (128).to_bytes(4, "little")
mount = ctypes.c_int()
for path in (b"/", b"/usr", b"/dev/shm", b"/proc/self/exe"):
    found = call("name_to_handle_at", -100, path, ctypes.byref(handle), ctypes.byref(mount), 0)
    fd = os.open(path, os.O_RDONLY)
    if found == 0:
        assert call("open_by_handle_at", fd, ctypes.byref(handle), 0) < 0
    # The root of an ext4 file system has inode 2.
    handle[0:16] = (8).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(8, "little")
    assert call("open_by_handle_at", fd, ctypes.byref(handle), 0) < 0
print("refused")
"""
    result = await python(world, code)
    assert result.stdout == b"refused\n", result


WATCH = """
# Looks into every process that appears, as fast as it can.
found = set()
def look(action):
    try: found.update(action())
    except OSError: pass
def steal(pid):
    handle = os.pidfd_open(pid)
    for number in range(30):
        stolen = call("pidfd_getfd", handle, number, 0)
        if stolen >= 0:  # of the program perhaps that it has become by now
            yield os.readlink(f"/proc/self/fd/{stolen}")
            os.close(stolen)
    os.close(handle)
def trace(pid):
    if call("ptrace", 16, pid, 0, 0) >= 0:
        os.waitpid(pid, 0x40000000)
        yield os.readlink(f"/proc/{pid}/exe")
        call("ptrace", 17, pid, 0, 0)
        os.kill(pid, signal.SIGCONT)
open("/tmp/watching", "w").close()
while not os.path.exists("/tmp/enough"):
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) in (1, os.getpid()):
            continue
        for name in ("exe", "cwd", "root"):
            look(lambda: [os.readlink(f"/proc/{pid}/{name}")])
        for name, separator in (("environ", "\\0"), ("maps", "\\n")):
            look(lambda: open(f"/proc/{pid}/{name}", errors="replace").read().split(separator))
        look(lambda: [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")])
        entering = False
        try: entering = b"launcher" in open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError: pass
        if entering:
            look(lambda: ["seen entering"])
            look(lambda: list(steal(int(pid))))
            look(lambda: list(trace(int(pid))))
open("/tmp/found", "w").write("\\n".join(found))
"""


async def test_nothing_looks_into_the_processes_that_enter(world: NamespaceSandbox, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    watching = asyncio.ensure_future(python(world, WATCH, 30))
    await has_begun(world, "/tmp/watching")
    for _ in range(8):
        await world.exec("exit 3")
        await world.run(["true"], 5)
        await world.write("/tmp/x", b"x")
        await world.read("/tmp/x")
        await world.upload(tmp_path, "/tmp/up")
    await world.exec("touch /tmp/enough")
    assert (await watching).exit_code == 0
    found = (await world.read("/tmp/found")).decode().splitlines()
    assert "seen entering" in found
    assert "/usr/bin/bash" in found
    found.remove("seen entering")
    for trace in (
        sys.executable,
        "launcher",
        "PYTHONPATH",
        "sandboxes",
        "cgroup.procs",
        "anon_inode:[pidfd]",
    ):
        assert not [line for line in found if trace in line]


async def test_programs_have_no_descriptors_but_their_own(world: NamespaceSandbox) -> None:
    code = """
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    try: print(fd, os.readlink(f"/proc/self/fd/{fd}").split(":")[0])
    except OSError: pass
"""
    result = await python(world, code)
    assert result.stdout == b"0 /dev/null\n1 pipe\n2 pipe\n"
    assert sorted(os.listdir(f"/proc/{world.first_pid}/fd")) == ["0", "1", "2"]


async def test_there_is_no_terminal_of_the_host(world: NamespaceSandbox) -> None:
    assert (await world.exec("echo x > /dev/tty")).exit_code != 0
    assert (await world.exec("ls /dev/pts")).stdout == b"ptmx\n"
    assert (await world.exec("ls /dev/console /dev/tty0 /dev/vcs /dev/ttyS0 2>/dev/null")).stdout == b""
    code = """
import fcntl, termios
for fd in range(3):
    try: fcntl.ioctl(fd, termios.TIOCSTI, b"x"); print("typed")
    except OSError: pass
    try: fcntl.ioctl(fd, termios.TIOCSCTTY, 0); print("taken")
    except OSError: pass
import pty
first, second = pty.openpty()  # its own are there
print(os.ttyname(second))
"""
    assert (await python(world, code)).stdout == b"/dev/pts/0\n"


async def test_control_groups_are_not_there(world: NamespaceSandbox) -> None:
    assert (await world.exec("ls -A /sys; ls /sys/fs/cgroup 2>/dev/null")).stdout == b""
    groups = (await world.exec("cat /proc/self/cgroup")).stdout.decode().splitlines()
    assert {line.split(":")[2] for line in groups} == {"/"}, groups
