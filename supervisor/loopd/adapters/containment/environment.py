"""What children are told: two cleaned environments, as pure functions.

Agents keep the user's own environment, PATH and HOME included, less the variables listed here. Verifiers get
a short list and nothing else.
"""

from collections.abc import Mapping
from pathlib import Path

# Left by an agent session, or an editor's, that started loopd: an agent that sees one refuses to start,
# reports to the wrong session, or takes itself for sandboxed. Keys and settings (ANTHROPIC_API_KEY,
# CODEX_HOME, …) are kept.
AGENT_MARKERS = frozenset(
    {
        "AI_AGENT",
        "CLAUDECODE",
        "CLAUDE_CODE_CHILD_SESSION",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_SESSION_ID",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_EFFORT",
        "CLAUDE_PROJECT_DIR",
        "CODEX_CI",
        "CODEX_THREAD_ID",
        "CURSOR_AGENT",
        "CURSOR_TRACE_ID",
        "GEMINI_CLI",
        "GEMINI_CLI_NO_RELAUNCH",
        "OPENCODE",
        "OPENCODE_PID",
        "OPENCODE_RUN_ID",
        "OPENCODE_CALLER",
        "PI_CODING_AGENT",
        "QWEN_CODE",
        "QWEN_CODE_NO_RELAUNCH",
    }
)
AGENT_MARKER_PREFIXES = ("CODEX_SANDBOX", "LOOPD_")

# Would turn a tool of the agent's to another repository, another interpreter or loopd's own packages. PATH is
# kept as the user set it, so an activated virtual environment still comes first there.
MISLEADING = frozenset({"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT"})
# Of GIT_*, those that say who commits and how to reach a server are kept.
GIT_KEPT = (
    "GIT_AUTHOR_",
    "GIT_COMMITTER_",
    "GIT_SSH",
    "GIT_ASKPASS",
    "GIT_TERMINAL_PROMPT",
    "GIT_SSL_",
    "GIT_PROXY_",
)

# Where compilers and package managers are installed: roots of toolchains, not places an agent has written for
# us.
TOOLCHAIN_ROOTS = frozenset(
    {
        "ANDROID_HOME",
        "CARGO_HOME",
        "CONDA_PREFIX",
        "CUDA_HOME",
        "CUDA_PATH",
        "DOTNET_ROOT",
        "GEM_HOME",
        "GEM_PATH",
        "GOPATH",
        "GOROOT",
        "JAVA_HOME",
        "LD_LIBRARY_PATH",
        "M2_HOME",
        "NIX_SSL_CERT_FILE",
        "NVM_DIR",
        "PYENV_ROOT",
        "RBENV_ROOT",
        "RUSTUP_HOME",
        "SDKMAN_DIR",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "VOLTA_HOME",
    }
)


def agent_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without agent markers, `LOOPD_*`, `GIT_*` that redirect, and loopd's own Python
    settings.
    """
    return {name: value for name, value in base.items() if not _removed(name)}


def verifier_environment(base: Mapping[str, str], home: Path, tmp: Path, search_path: str) -> dict[str, str]:
    """Only what a build needs: a private HOME and TMPDIR, the fixed PATH, locale, zone, toolchain roots,
    `CI=true`.

    No token can come along. Toolchains that live below the user's own HOME by default (cargo, rustup, go,
    nvm) are named, since HOME is another one now.
    """
    env = {name: base[name] for name in sorted(TOOLCHAIN_ROOTS) if base.get(name)}
    for name, folder in (
        ("CARGO_HOME", ".cargo"),
        ("RUSTUP_HOME", ".rustup"),
        ("GOPATH", "go"),
        ("NVM_DIR", ".nvm"),
    ):
        if base.get("HOME"):
            env.setdefault(name, str(Path(base["HOME"]) / folder))
    user = base.get("USER") or base.get("LOGNAME") or "user"
    language = base.get("LC_ALL") or base.get("LANG") or "C.UTF-8"
    env |= {"HOME": str(home), "TMPDIR": str(tmp), "PATH": search_path, "USER": user, "LOGNAME": user}
    env |= {"LANG": language, "TZ": base.get("TZ") or "UTC", "CI": "true"}
    return env


def _removed(name: str) -> bool:
    if name.startswith("GIT_"):
        return not name.startswith(GIT_KEPT)
    return name in AGENT_MARKERS or name in MISLEADING or name.startswith(AGENT_MARKER_PREFIXES)
