"""Routes of the page new."""

from __future__ import annotations

from fastapi import APIRouter

from headway.studio.context import Studio


def router(studio: Studio) -> APIRouter:
    return APIRouter(prefix="/api/new")
