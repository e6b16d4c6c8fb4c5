"""What deploy/collect says fits together, fits `sordino collect serve`, and holds no secret."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("yaml")
import yaml
from sqlalchemy.engine import make_url

from sordino.cli import load_command
from sordino.collection.database import open_database
from sordino.collection.refusals import MOST_BYTES
from sordino.collection.study import DATABASE_VARIABLE, read_study

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy/collect"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
CADDYFILE = (DEPLOY / "Caddyfile").read_text("utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES = COMPOSE["services"]


def instruction(name):
    """Return the last instruction of a kind, its lines as one."""
    text = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} (.+)$", text, re.MULTILINE)[-1]


def serving():
    """Return the words after `sordino collect serve` with which the image starts."""
    shell, flag, line = json.loads(instruction("CMD"))
    assert (shell, flag) == ("sh", "-c")
    start = "exec sordino collect serve "
    assert line.startswith(start)
    assert line.endswith(" >/dev/null")  # it prints the admin token
    return shlex.split(line.removeprefix(start).removesuffix(" >/dev/null"))


def test_the_image_starts_what_serve_takes():
    words = serving()
    serve = load_command("collect").commands["serve"]
    context = serve.make_context("serve", [word.replace("$STUDY_HOST", "x.org") for word in words])
    given = context.params
    assert (str(given["path"]), given["url"]) == ("study.toml", "https://x.org")
    assert str(given["admin_token_file"]) == "admin.token"
    port = given["port"]
    assert instruction("EXPOSE") == str(port)
    assert f"http://127.0.0.1:{port}/api/health" in instruction("HEALTHCHECK")
    assert SERVICES["proxy"]["environment"]["STUDY_SERVICE"] == f"collect:{port}"
    assert f"{{$STUDY_SERVICE:127.0.0.1:{serve_default()}}}" in CADDYFILE


def serve_default():
    (port,) = (
        one for one in load_command("collect").commands["serve"].params if one.name == "port"
    )
    return port.default


def test_the_health_check_is_a_program():
    command = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "health", "exec")
    failed = subprocess.run([sys.executable, *command[1:]], capture_output=True, check=False)
    assert failed.returncode != 0  # nothing answers here


def test_everything_runs_with_as_little_as_it_needs():
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
    assert {name for name, one in SERVICES.items() if "ports" in one} == {"proxy"}
    assert {name for name, one in SERVICES.items() if "cap_add" in one} == {"proxy"}
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", instruction("USER"))
    assert SERVICES["database"]["user"] == "999:999"
    inner = {name for name, one in COMPOSE["networks"].items() if one.get("internal")}
    assert set(SERVICES["collect"]["networks"]) | set(SERVICES["database"]["networks"]) == inner


def test_every_image_has_a_tag():
    given = [one["image"] for name, one in SERVICES.items() if name != "collect"]
    given += [SERVICES["collect"]["build"]["args"]["PYTHON"]]
    named = [re.fullmatch(r"\$\{[A-Z]+:-(.+)\}", one).group(1) for one in given]
    assert all(re.fullmatch(r"[a-z]+:\d+(\.\d+)*(-[a-z]+)+", one) for one in named), named
    assert named[-1] == re.search("^ARG PYTHON=(.+)$", DOCKERFILE, re.MULTILINE).group(1)
    python = re.search(r"python:([\d.]+)-", named[-1]).group(1)
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {python}" in about["classifiers"]


def test_addresses_and_files_agree():
    environment = SERVICES["collect"]["environment"]
    proxy = SERVICES["proxy"]["networks"]["inside"]["ipv4_address"]
    assert environment["FORWARDED_ALLOW_IPS"] == proxy
    url = make_url(environment[DATABASE_VARIABLE])
    assert url.host in SERVICES
    assert url.username == SERVICES["database"]["environment"]["POSTGRES_USER"] == url.database
    assert url.query == {"passfile": f"/run/secrets/{SERVICES['collect']['secrets'][0]}"}
    assert SERVICES["collect"]["volumes"] == [f"./study:{instruction('WORKDIR')}"]
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            kept = source in COMPOSE["volumes"] or source in {"./Caddyfile", "./study"}
            assert kept, volume
        assert set(service["networks"]) <= COMPOSE["networks"].keys()
        assert set(service.get("secrets", ())) <= COMPOSE["secrets"].keys()
        assert set(service.get("depends_on", ())) <= SERVICES.keys()
    build = SERVICES["collect"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert ROOT / build["dockerfile"] == DEPLOY / "Dockerfile"
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for line in re.findall("^COPY ([^-].+) [^ ]+$", DOCKERFILE, re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists()
            assert f"!{name.removeprefix('./')}" in ignored


def test_the_database_is_found_as_its_url_says(make_study, monkeypatch, tmp_path):
    make_study()
    monkeypatch.setenv(DATABASE_VARIABLE, SERVICES["collect"]["environment"][DATABASE_VARIABLE])
    engine = open_database(read_study(tmp_path / "study.toml").database_url)
    arguments = engine.dialect.create_connect_args(engine.url)[1]
    assert arguments["passfile"] == "/run/secrets/passfile"
    assert "password" not in arguments


def test_no_secret_stands_in_a_file_of_the_repository():
    ignored = (DEPLOY / ".gitignore").read_text().split()
    assert {"secrets/", "study/", ".env"} <= set(ignored)
    for secret in COMPOSE["secrets"].values():
        assert secret["file"].startswith("./secrets/")
    names = [name for one in SERVICES.values() for name in one.get("environment", ())]
    assert not [name for name in names if "PASSWORD" in name and not name.endswith("_FILE")]
    for file in DEPLOY.iterdir():
        if file.is_file():
            text = file.read_text("utf-8")
            assert not re.search(
                r"[A-Za-z0-9_-]{43}|://[^/@\s]+:[^/@\s]+@|BEGIN [A-Z ]*KEY", text
            ), file


def test_the_proxy_has_limits_and_writes_nobody_down():
    words = " ".join(CADDYFILE.split())
    for part in (
        "read_header 10s", "read_body 20s", "idle 1m", f"max_size {MOST_BYTES // 1024}KiB",
        f"request_buffers {MOST_BYTES // 1024}KiB", "log { output discard }",
    ):  # fmt: skip
        assert part in words, part
    assert not re.search("header|encode|templates|rewrite", words.replace("read_header", ""))
    page = (ROOT / "docs/howto/deploy_collection.md").read_text("utf-8")
    assert "deploy/collect/Caddyfile" in page
    assert "reverse_proxy" not in page  # it stands once


@pytest.mark.parametrize(
    "command",
    [["hadolint", "Dockerfile"],
     ["caddy", "validate", "--adapter", "caddyfile", "--config", "Caddyfile"]],
    ids=lambda command: command[0],
)  # fmt: skip
def test_tools_that_know_the_format_find_nothing(command):
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
