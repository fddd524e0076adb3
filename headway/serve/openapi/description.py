"""Builds /openapi.json: FastAPI describes the responses, this module the bodies of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from headway.serve import schemas


def request_schema(schema: type[schemas.RequestBody], model: str, parts: dict[str, Any]) -> dict[str, Any]:
    """Describe a request body for /openapi.json: FastAPI cannot, because routes parse bodies in a thread.

    Definitions that the schema refers to are added to `parts`.
    """
    described = schema.model_json_schema(ref_template="#/components/schemas/{model}")
    parts |= described.pop("$defs", {})
    described["properties"]["model"]["enum"] = [model]
    ignored: dict[str, Any] = {name: {} for name in schema.ignored}
    refused = {name: {"enum": schemas.empty_values(name)} for name in schema.unsupported}
    described["properties"] = refused | ignored | described["properties"]
    described["additionalProperties"] = False
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": described}}}}


def openapi(app: FastAPI, parts: Mapping[str, Any]) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        made["components"]["schemas"] |= parts
        made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"key": []}]
        made["paths"]["/health"]["get"]["security"] = []
    return app.openapi_schema
