"""Ask a frozen language model, as the base generator of AgentFlow does."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from ..model import FrozenModel, ModelError
from ..tool import Tool, ToolError


class Generate(Tool):
    """Ask a language model that knows a lot and sees nothing but the query."""

    model: FrozenModel
    """The model, behind a server with OpenAI's API."""
    system: str | None = None
    """Its system message. Null: none."""

    code: ClassVar[str | None] = "1"

    async def call(
        self, query: Annotated[str, Field(description="a question or task, complete in itself")]
    ) -> str:
        if not query.strip():
            raise ValueError("the query is empty")
        system = () if self.system is None else (("system", self.system),)
        try:
            return await self.model.ask((*system, ("user", query)))
        except ModelError as error:
            raise ToolError(str(error)) from error

    def preflight(self) -> None:
        self.model.preflight()

    async def close(self) -> None:
        await self.model.close()
