"""The two cleaned environments."""

from pathlib import Path

import pytest

from loopd.adapters.containment.environment import agent_environment, verifier_environment

USER = {
    "PATH": "/home/u/venv/bin:/usr/bin",
    "HOME": "/home/u",
    "USER": "u",
    "LANG": "de_DE.UTF-8",
    "ANTHROPIC_API_KEY": "sk-1",
    "CODEX_HOME": "/home/u/.codex",
    "CLAUDE_CONFIG_DIR": "/home/u/.claude",
    "GIT_AUTHOR_NAME": "U",
    "GIT_SSH_COMMAND": "ssh -i key",
    "SSH_AUTH_SOCK": "/run/ssh",
    "JAVA_HOME": "/opt/java",
    "HTTPS_PROXY": "http://proxy",
}


@pytest.mark.parametrize(
    "name",
    [
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SSE_PORT",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "GEMINI_CLI",
        "OPENCODE",
        "CURSOR_AGENT",
        "LOOPD_MARKER",
        "LOOPD_ANYTHING",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_KEY_0",
        "GIT_OBJECT_DIRECTORY",
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
    ],
)
def test_conf_7_an_agent_does_not_see_the_session_that_started_loopd(name: str) -> None:
    """Markers of agents, what redirects git, what is loopd's own: gone. All else is the user's: kept."""
    assert agent_environment({**USER, name: "1"}) == USER


def test_a_verifier_gets_a_short_list_and_no_token() -> None:
    """Private HOME and TMPDIR, the PATH fixed at the start, locale, zone, toolchains by name."""
    env = verifier_environment(USER, Path("/run/home"), Path("/run/tmp"), "/usr/bin")
    assert env == {
        "HOME": "/run/home",
        "TMPDIR": "/run/tmp",
        "PATH": "/usr/bin",
        "USER": "u",
        "LOGNAME": "u",
        "LANG": "de_DE.UTF-8",
        "TZ": "UTC",
        "CI": "true",
        "JAVA_HOME": "/opt/java",
        "CARGO_HOME": "/home/u/.cargo",
        "RUSTUP_HOME": "/home/u/.rustup",
        "GOPATH": "/home/u/go",
        "NVM_DIR": "/home/u/.nvm",
    }


def test_what_the_user_has_set_for_a_toolchain_wins() -> None:
    """Also without a HOME."""
    env = verifier_environment({"CARGO_HOME": "/opt/cargo", "TZ": "Europe/Vienna"}, Path("/h"), Path("/t"), "")
    assert (env["CARGO_HOME"], env["TZ"], env["LANG"]) == ("/opt/cargo", "Europe/Vienna", "C.UTF-8")
    assert "RUSTUP_HOME" not in env
