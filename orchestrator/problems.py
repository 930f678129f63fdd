"""Every error answer has one shape, RFC 9457 problem details, and one clear sentence."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from orchestrator.manager import RequestError
from orchestrator.schema import Problem
from orchestrator.task_index import UnknownTask
from tasks.task import TaskError


def problem(status: int, detail: str) -> JSONResponse:
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)
    return JSONResponse(body.model_dump(), status, media_type="application/problem+json")


def sentence(errors: Sequence[Any]) -> str:
    """Pydantic's errors as one sentence: where, what."""
    parts = []
    for error in errors[:5]:
        if error["type"] == "json_invalid":
            return f"the body is not valid JSON: {error['ctx']['error']} at character {error['loc'][-1]}"
        where = ".".join(str(part) for part in error["loc"] if part != "body") or "request"
        parts.append(f"{where}: {error['msg'][0].lower()}{error['msg'][1:]}")
    more = f"; and {len(errors) - 5} more" if len(errors) > 5 else ""
    return "; ".join(parts) + more


def install(app: FastAPI) -> None:
    """Make every error that the routes raise a problem."""

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return problem(422, sentence(error.errors()))

    @app.exception_handler(UnknownTask)
    async def unknown(_: Request, error: UnknownTask) -> JSONResponse:
        return problem(404, str(error))

    @app.exception_handler(TaskError)
    @app.exception_handler(RequestError)
    async def refused(_: Request, error: Exception) -> JSONResponse:
        return problem(422, str(error))

    @app.exception_handler(Exception)
    async def defect(_: Request, error: Exception) -> JSONResponse:
        return problem(500, f"defect in the orchestrator, see its log ({type(error).__name__})")
