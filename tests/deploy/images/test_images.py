"""Images, compose file and chart: by a linter and by schemas; the images' commands run outside a container.

No container engine and no Helm runs here. So templates of the chart use three constructs of Go's templates alone, which
this file renders, and any other one fails it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
IMAGES = sorted((DEPLOY / "images").glob("*/Containerfile"))
TEMPLATES = sorted((DEPLOY / "chart" / "templates").glob("*.yaml"))
VALUES = yaml.safe_load((DEPLOY / "chart" / "values.yaml").read_text())
COORDINATOR = {
    "role": "coordinator",
    "image": "registry.example.org/fedward-coordinator:0.7.0",
    "config": "coordinator.yaml",
    "homeClaim": "hub-home",
    "stateClaim": "hub-state",
    "metricsPort": 9443,
}
CONSOLE = {"consolePort": 8444}
HADOLINT = Path(sys.executable).parent / "hadolint"


def names(paths):
    return [path.parent.name for path in paths]


@pytest.mark.skipif(not HADOLINT.exists(), reason="no hadolint: the images are not linted")
@pytest.mark.parametrize("image", IMAGES, ids=names(IMAGES))
def test_the_linter_has_nothing_to_say(image):
    done = subprocess.run([HADOLINT, image], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("image", IMAGES, ids=names(IMAGES))
def test_an_image_runs_without_rights_and_holds_no_secret(image):
    whole = image.read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in whole.splitlines() if line and line[0].isupper()]
    last = [words for words in lines if words[0] != "ARG"]
    stages = [number for number, words in enumerate(last) if words[0] == "FROM"]
    final = last[stages[-1] :]
    assert ["USER", "10001:10001"] in final
    assert [words[1] for words in final if words[0] == "COPY"] == ["--from=install /opt/fedward /opt/fedward"]
    assert not [words for words in final if words[0] == "RUN"]


def commands(image):
    """The commands that are run while an image is built."""
    return re.findall(r"^RUN (.+)$", image.read_text().replace("\\\n", " "), re.MULTILINE)


def test_both_images_are_built_by_the_same_commands():
    assert len({tuple(line.replace(image.parent.name, "ROLE") for line in commands(image)) for image in IMAGES}) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
def test_the_commands_of_an_image_install_the_coordinator(release, tmp_path):
    """A silo's differ by the file of requirements alone, which test_install_page installs."""
    image = DEPLOY / "images" / "coordinator" / "Containerfile"
    context, target = shutil.copytree(release, tmp_path / "release"), tmp_path / "opt" / "fedward"
    (command,) = commands(image)
    here = command.replace("/opt/fedward", str(target)).replace('--extra-index-url "${INDEX}"', "")
    subprocess.run(["bash", "-euc", here.replace("python3.11", sys.executable)], cwd=context, check=True)
    entry, words = (
        json.loads(re.search(rf"^{key} (.+)$", image.read_text(), re.MULTILINE)[1]) for key in ("ENTRYPOINT", "CMD")
    )
    done = subprocess.run([target / "bin" / entry[0], *words], capture_output=True, text=True, check=False)
    assert "/etc/fedward/coordinator.yaml: there is no such file" in done.stderr


def test_the_compose_file_fits_its_schema_and_takes_no_rights():
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
    document = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    jsonschema.validate(document, schema)
    assert set(document["services"]) == {"coordinator", "silo", "console"}
    console, silo = (document["services"][name] for name in ("console", "silo"))
    assert (console["image"], console["volumes"]) == (silo["image"], silo["volumes"])
    assert console["network_mode"] == "host"
    assert (console["command"][0], console["restart"]) == ("console", "no")
    for service in document["services"].values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["user"] == "10001:10001"
        assert all(port.startswith(("127.0.0.1:", "7443:")) for port in service.get("ports", ()))


def rendered(template, values):
    """What Helm makes of a template, if it uses values, the release's name, and `if` with one value or `eq` alone."""
    text = re.sub(r"^\s*#.*\n", "", template.read_text(), flags=re.MULTILINE)
    block = re.compile(
        r"\n?[ ]*\{\{- if (?:eq )?\.Values\.(\w+)(?: \"(\w+)\")? \}\}((?:(?!\{\{- if).)*?)\n[ ]*\{\{- end \}\}",
        re.DOTALL,
    )
    while block.search(text):
        text = block.sub(lambda m: m[3] if (values[m[1]] == m[2] if m[2] else values[m[1]]) else "", text)
    text = re.sub(r"\{\{ \.Values\.(\w+) \}\}", lambda m: str(values[m[1]]), text).replace(
        "{{ .Release.Name }}", "ward"
    )
    assert "{{" not in text, "another construct of Go's templates"
    return yaml.safe_load(text)


@pytest.mark.parametrize(
    "values",
    [VALUES, {**VALUES, "recordsClaim": "records"}, {**VALUES, **COORDINATOR}, {**VALUES, **COORDINATOR, **CONSOLE}],
    ids=["silo", "silo with records", "coordinator", "coordinator with a console"],
)
def test_the_chart_fits_kubernetes_and_takes_no_rights(values):
    jsonschema.validate(values, json.loads((DEPLOY / "chart" / "values.schema.json").read_text()))
    documents = [document for template in TEMPLATES if (document := rendered(template, values))]
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)
    kinds = [document["kind"] for document in documents]
    assert kinds == ["NetworkPolicy", *(["Service"] if values["role"] == "coordinator" else []), "StatefulSet"]
    pod = documents[-1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert documents[-1]["spec"]["replicas"] == 1
    to_all = [rule["ports"] for rule in documents[0]["spec"]["ingress"] if "from" not in rule]
    open_to_all = [port["port"] for ports in to_all for port in ports]
    wanted = [values["port"], *([8444] if values["consolePort"] else [])] if values["role"] == "coordinator" else []
    assert open_to_all == wanted
    if wanted:
        served = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert [served[port["targetPort"]] for port in documents[1]["spec"]["ports"]] == wanted
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_values_that_cannot_be_meant_are_refused():
    schema = json.loads((DEPLOY / "chart" / "values.schema.json").read_text())
    for wrong in ({"role": "both"}, {"port": 0}, {"memory": "much"}, {"replicas": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**VALUES, **wrong}, schema)
