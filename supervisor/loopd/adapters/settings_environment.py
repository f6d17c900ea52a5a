"""Settings from environment variables. Imported where there are any: few shells have them, and every start waits."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, SettingsConfigDict

from loopd.adapters.settings_model import PREFIX, Settings
from loopd.domain.roles import Agent


def from_environment(given: Mapping[str, str]) -> dict[str, Any]:
    """The texts of the variables in the shape of `Settings`, not yet checked."""
    return _Source(given)()


class _Variables(Settings, BaseSettings):
    """The same settings, by the names of variables."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__")

    agent: Annotated[Agent | None, NoDecode] = Field(None)  # a name, and no JSON


class _Source(EnvSettingsSource):
    """The variables that are handed over instead of those of the process."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        super().__init__(_Variables)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): text for name, text in self._given.items()}
