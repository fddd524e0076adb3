"""Routes of the page playground."""

from __future__ import annotations

from fastapi import APIRouter

from headway.studio.context import Studio


def router(studio: Studio) -> APIRouter:
    return APIRouter(prefix="/api/playground")
