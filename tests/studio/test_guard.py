"""Nobody but the page itself reaches the studio's data."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from headway.studio.token import read_token, sign
from tests.studio.conftest import TOKEN, RunningStudio


def test_without_the_token_nothing_under_api_answers(studio: RunningStudio) -> None:
    assert httpx.get(f"{studio.url}/api/runs").status_code == 401
    assert httpx.get(f"{studio.url}/api/runs", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert studio.client.get("/api/runs").status_code == 200


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"origin": "null"}])
def test_other_hosts_and_origins_are_refused(studio: RunningStudio, headers: dict[str, str]) -> None:
    assert studio.client.get("/api/runs", headers=headers).status_code == 403
    assert httpx.get(studio.url, headers=headers).status_code == 403


def test_a_signed_link_opens_its_own_path_alone(studio: RunningStudio) -> None:
    link = sign(TOKEN, "/api/runs")
    assert httpx.get(studio.url + link).status_code == 200
    assert httpx.get(studio.url + link.replace("/api/runs", "/api/jobs")).status_code == 401
    assert httpx.get(studio.url + link + "&x=1").status_code == 401
    assert httpx.post(studio.url + link).status_code == 401


@pytest.mark.parametrize(
    "path", ["/files/../app.py", "/files/%2e%2e/app.py", "/files//etc/passwd", "/files/pages/../../app.py"]
)
def test_a_path_never_leaves_the_folder_of_files(studio: RunningStudio, path: str) -> None:
    with closing(HTTPConnection(studio.url.removeprefix("http://"))) as raw:  # other clients would tidy the path up
        raw.request("GET", path)
        assert raw.getresponse().status == 404


def test_the_token_is_private_and_stays(tmp_path: Path) -> None:
    token = read_token(tmp_path / "state")
    assert read_token(tmp_path / "state") == token
    assert (tmp_path / "state" / "token").stat().st_mode & 0o777 == 0o600
    (tmp_path / "state" / "token").chmod(0o644)  # others have seen it
    assert read_token(tmp_path / "state") != token
