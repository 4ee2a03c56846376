"""The page at /docs: Swagger UI from files of an installed package, so that it works without a network."""

from importlib.resources import files
from typing import Final

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

_FILES: Final = "/docs/files"


def install(app: FastAPI) -> None:
    """Serve the page and its files."""
    app.mount(_FILES, StaticFiles(directory=str(files("fastapi_offline") / "static")), name="docs")

    @app.get("/docs", include_in_schema=False)
    def docs_page(request: Request) -> HTMLResponse:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=app.title,
            swagger_js_url=f"{root}{_FILES}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{_FILES}/swagger-ui.css",
            swagger_favicon_url=f"{root}{_FILES}/favicon.png",
        )
