"""The program as the shell sees it: exit codes, streams, pipes, signals, names."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli import samples

RUN = "import sys; from firsttoken_operator.cli import main; sys.argv[0] = {name!r}; main.run()"


def command(*arguments: object, name: str = "firsttoken") -> list[str]:
    return [sys.executable, "-c", RUN.format(name=f"somewhere/{name}"), *map(str, arguments)]


def run(*arguments: object, name: str = "firsttoken", **options: object) -> subprocess.CompletedProcess[str]:
    settings: dict[str, object] = {"capture_output": True, "text": True, "timeout": 60, "env": clean(), **options}
    return subprocess.run(command(*arguments, name=name), check=False, **settings)  # type: ignore[call-overload,no-any-return]


def clean(**more: str) -> dict[str, str]:
    left_out = ("COLUMNS", "KUBECONFIG", "NO_COLOR", "FORCE_COLOR")
    return {k: v for k, v in os.environ.items() if k not in left_out} | more


@pytest.fixture
def service(tmp_path: Path) -> Path:
    path = tmp_path / "service.yaml"
    path.write_text(samples.SERVICE, encoding="utf-8")
    return path


def test_both_names_say_their_own_in_help_and_errors() -> None:
    for name, said in (("firsttoken", "firsttoken"), ("kubectl-firsttoken", "kubectl firsttoken")):
        text = run("plan", "--help", name=name).stdout
        assert f"Usage: {said} plan" in text
        assert f"  {said} plan -f service.yaml\n" in text
        assert f"(see `{said} plan --help`)" in run("plan", name=name).stderr


@pytest.mark.parametrize("name", ["validate", "plan", "render", "status", "version"])
def test_every_help_has_exit_codes_and_examples(name: str) -> None:
    result = run(name, "-h")
    assert result.returncode == 0
    assert "Exit codes: " in result.stdout
    assert f"Examples:\n    firsttoken {name}" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_without_arguments_it_helps() -> None:
    result = run()
    assert result.returncode == 0
    assert "Commands:" in result.stdout


def test_misuse_is_one_line_and_exit_2() -> None:
    for arguments in (("nonsense",), ("plan",), ("plan", "-f", "x", "-o", "xml"), ("status", "a", "-A"), ("--no",)):
        result = run(*arguments)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        assert "Value error" not in result.stderr


def test_standard_input_is_a_file_too() -> None:
    assert "<stdin>:2: InferenceService/kb-assistant: ok" in run("validate", "-f", "-", input=samples.SERVICE).stdout
    assert run("validate", "-f", "-", "-f", "-", input=samples.SERVICE).returncode == 2


def test_closed_streams_are_no_traceback() -> None:
    for closed in ("<&-", ">&-", "2>&-", ">&- 2>&- <&-"):
        line = f'"$@" {closed}'
        for arguments in (("validate", "-f", "-"), ("nonsense",)):
            result = subprocess.run(
                ["sh", "-c", line, "sh", *command(*arguments)],
                check=False, capture_output=True, text=True, timeout=60, input=samples.SERVICE,
            )  # fmt: skip
            assert result.returncode in (0, 2)
            assert "Traceback" not in result.stderr


def test_a_closed_pipe_ends_it_quietly(service: Path) -> None:
    services = "---\n".join(samples.SERVICE.replace("kb-assistant", f"kb-{n}") for n in range(4))
    service.write_text(services, encoding="utf-8")
    for arguments in (("render", "-f", service), ("plan", "-f", service)):
        with subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean()
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdout.close()
            said = child.stderr.read()
            assert (child.wait(timeout=60), said) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_is_one_line(service: Path) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        result = run("plan", "-f", service, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 70
    assert "output can't be written: No space left on device" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("plan", "-f", "nope"), 2), (("nonsense",), 2), (("--debug", "plan", "-f", "nope"), 2), (("version",), 0)],
)
def test_a_complaint_that_can_not_be_written_leaves_the_exit_code(arguments: tuple[str, ...], code: int) -> None:
    """1 would say that the answer is no."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        assert run(*arguments, capture_output=False, stdout=subprocess.DEVNULL, stderr=full).returncode == code
        both = run(*arguments, capture_output=False, stdout=full, stderr=full).returncode
    assert both == (code or 70)


def test_ctrl_c_is_130_and_quiet(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    with subprocess.Popen(command("validate", "-f", pipe), stderr=subprocess.PIPE, env=clean()) as child:
        writer = opened_for_writing(pipe)  # and nothing is written: the command waits
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        said = child.stderr.read()
        assert (child.wait(timeout=60), said) == (130, b"")
        os.close(writer)


def opened_for_writing(pipe: Path, timeout_s: float = 60.0) -> int:
    """A descriptor, as soon as somebody reads from the pipe."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def test_a_terminal_that_knows_ascii_only_gets_ascii(service: Path) -> None:
    result = run("plan", "-f", service, env=clean(PYTHONIOENCODING="ascii"))
    assert result.returncode == 0
    assert "TP?PP" in result.stdout


def test_pipes_get_no_colours(service: Path) -> None:
    for arguments in (("validate", "-f", service), ("plan", "-f", service)):
        assert "\x1b" not in run(*arguments).stdout
        assert "\x1b" not in run(*arguments, env=clean(FORCE_COLOR="1")).stdout


def test_terminals_get_colours_unless_they_ask_for_none(service: Path) -> None:
    assert b"\x1b[" in on_a_terminal("validate", "-f", service)
    assert b"\x1b[" in on_a_terminal("plan", "-f", service)
    assert b"\x1b[3" not in on_a_terminal("validate", "-f", service, NO_COLOR="1")
    assert b"\x1b[3" not in on_a_terminal("plan", "-f", service, NO_COLOR="1")


def on_a_terminal(*arguments: object, **more: str) -> bytes:
    master, slave = os.openpty()
    environment = clean(TERM="xterm-256color", **more)
    with subprocess.Popen(command(*arguments), stdout=slave, stdin=slave, stderr=slave, env=environment) as child:
        os.close(slave)
        said = b""
        try:
            while chunk := os.read(master, 65536):
                said += chunk
        except OSError:  # Linux: the other side is closed
            pass
        assert child.wait(timeout=60) == 0
    os.close(master)
    return said


def test_an_unexpected_error_is_one_line_and_70_and_debug_shows_where() -> None:
    broken = (
        "import sys; from firsttoken_operator.cli import main, offline\n"
        "def plan(*_, **__): raise RuntimeError('two\\nlines')\n"
        "offline.plan = plan; sys.exit(main.main(sys.argv[1:]))"
    )
    for flags, lines in (((), 1), (("--debug",), None)):
        result = subprocess.run(
            [sys.executable, "-c", broken, *flags, "plan", "-f", "-"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 70
        assert "unexpected RuntimeError: two lines" in result.stderr
        assert lines is None or len(result.stderr.splitlines()) == lines
        assert ("Traceback" in result.stderr) is (lines is None)


def test_completion_is_there_for_firsttoken() -> None:
    assert "--install-completion" in run("--help").stdout
    words = run(env=clean(_FIRSTTOKEN_COMPLETE="complete_bash", COMP_WORDS="firsttoken st", COMP_CWORD="1"))
    assert words.stdout.split() == ["status"]


def test_status_without_a_cluster_is_3_and_with_a_bad_kubeconfig_2(tmp_path: Path) -> None:
    result = run("status", env=clean(HOME=str(tmp_path)))
    assert result.returncode == 3
    assert result.stderr == "firsttoken: no cluster is configured: set KUBECONFIG, or give --kubeconfig FILE\n"
    result = run("status", env=clean(KUBECONFIG="/nix"))
    assert (result.returncode, result.stderr) == (2, "firsttoken: KUBECONFIG names /nix: no such file\n")
    assert run("status", "--kubeconfig", tmp_path / "none").returncode == 2
    broken = tmp_path / "broken"
    for text in ("a: [", "[]", "", "just text", "clusters: 7\ncontexts: x\n", "current-context: a\ncontexts: []\n"):
        broken.write_text(text, encoding="utf-8")
        result = run("status", "--kubeconfig", broken)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), text


def test_status_of_a_server_that_is_not_there_is_3(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: none}}]
contexts: [{name: here, context: {cluster: here, user: me, namespace: serving}}]
""",
        encoding="utf-8",
    )
    for arguments in ((), ("kb-assistant",), ("-A",), ("kb-assistant", "--watch")):
        result = run("status", *arguments, "--kubeconfig", kubeconfig)
        assert (result.returncode, result.stdout) == (3, "")
        assert "the API server can't be reached" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert run("status", "--kubeconfig", kubeconfig, "--context", "other").returncode == 2


def test_version_names_program_and_api() -> None:
    assert run("version").stdout.startswith("firsttoken 0.")
    assert "firsttoken.dev/v1alpha1" in run("version").stdout
    assert run("--version").stdout == run("version").stdout
