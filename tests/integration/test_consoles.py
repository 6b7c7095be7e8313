"""Real programs and a real browser: a study from its author's file to its results, by consoles alone.

The author hands it in and starts it, three hospitals read it and agree, one of them by the signature of an approver.
Somebody watches it move through its steps, pauses it, lets it go on, and aborts another one.
"""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import ExitStack
from importlib.metadata import version

import pytest
import yaml

from deploy.local.federation import Federation
from deploy.local.parties import AUTHOR, Enrolment, write_yaml
from deploy.local.processes import script
from silo_agent.config import AgentConfig
from silo_agent.storage.approvals import approvals
from silo_agent.storage.folders import StateFolder
from support.browser import MOST_BYTES, Visitor, chromium, pictures
from support.small_cohort import SILOS, policy_document, study_document, write_sites
from support.small_cohort import write_yaml as write_document

pytestmark = pytest.mark.slow
OFFICERS = ("officer", "deputy")
SECONDS = 300_000
"""Milliseconds for what silos must compute, on a busy machine."""


def run(*arguments):
    return subprocess.run([script(arguments[0]), *map(str, arguments[1:])], check=True, capture_output=True, text=True)


class Undecided(Federation):
    """A federation in which nobody has approved a study. Two approvers have signed one hospital's policy."""

    def approve(self):
        """People do, at the console."""
        policy = self.place.party("north") / "policy.yaml"
        for name in OFFICERS:
            run("fedward-silo", "policy", "sign", policy, "--key", self.place.party(name) / "key.pem")


@pytest.fixture
def federation(tmp_path):
    signed = {**policy_document("north"), "approvers": [f"fedward://approver/{name}" for name in OFFICERS]}
    policies = {silo: yaml.safe_dump(policy_document(silo)) for silo in SILOS} | {"north": yaml.safe_dump(signed)}
    document = study_document(personal={"epochs": 1}, publish=["auc", "accuracy", "calibration", "patients"],
                              expected={"patients": [100], "prevalence": 0.5})  # fmt: skip
    study_file = write_document(tmp_path / "study.yaml", document)
    made = Undecided(tmp_path / "federation", study_file, write_sites(tmp_path / "data"), policies)
    made.prepare()
    people = Enrolment(made.place, made._passphrase)
    for role, name in [*(("approver", name) for name in OFFICERS), ("operator", "ops")]:
        people._enrol(role, name, [])
    hub = json.loads(made.place.coordinator_file.read_text())
    write_yaml(made.place.coordinator_file, {**hub, "console_port": 0})
    with made:
        hub = json.loads(made.place.author_file.read_text())
        write_yaml(made.place.party("ops") / "operator.yaml", hub)
        yield made


def link_of(config):
    return run("fedward-coordinator", "console", "link", "-o", config).stdout.strip()


class Consoles:
    """The consoles of hospitals, each a process of its own."""

    def __init__(self, stack):
        self._stack = stack

    def link(self, config):
        command = [script("fedward-silo"), "console", "-c", str(config)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._stack.callback(self._end, process)
        return process.stdout.readline().strip()

    @staticmethod
    def _end(process):
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        process.stdout.close()


def approved(federation, silo):
    found = approvals(StateFolder(AgentConfig.load(federation.config(silo)).state)).bound
    return found.get(federation.study.digest)


WATCHED = """
window.steps = [];
new MutationObserver(() => {
  const now = document.querySelector('.steps .now strong');
  if (now && window.steps.at(-1) !== now.textContent) window.steps.push(now.textContent);
}).observe(document.getElementById('live'), {childList: true, subtree: true});
"""


def shows(page, text, **limits):
    """Waits until a page shows a text, in one place or in several: a note and the live line may say the same."""
    page.get_by_text(text).first.wait_for(**limits)


class Story:
    """What happens at the consoles, and what was found wrong on the way."""

    def __init__(self, federation, folder, browser, consoles):
        self.federation, self.folder, self.study = federation, folder, federation.study
        self.here = f"/studies/{self.study.digest}"
        self.kept, self.faults, self.steps = pictures(folder / "pictures"), [], []
        self._browser, self._consoles = browser, consoles
        self.ada = self.visitor(link_of(federation.place.author_file), "coordinator")
        self.ops = self.visitor(link_of(federation.place.party("ops") / "operator.yaml"), "operator")
        self.hospitals = {}

    def visitor(self, link, name):
        return Visitor(self._browser, link, self.kept, name)

    def look(self, visitor, title):
        self.faults += visitor.look(title)

    def hand_in(self):
        """The author signs the study where the key is, hands both files in, and starts it."""
        file, page = self.federation.study_file, self.ada.page
        run("fedward-coordinator", "study", "sign", file, "-o", self.federation.place.author_file)
        self.look(self.ada, "studies-empty")
        page.get_by_role("link", name="Hand in a study").click()
        self.look(self.ada, "new")
        page.locator("input[name=study]").set_input_files(file)
        page.locator("input[name=signature]").set_input_files(file.with_name(f"{file.name}.{AUTHOR}.sig"))
        page.get_by_role("button", name="Ask silos first").click()
        shows(page, f"What silos answered about {self.study.name}")
        self.look(self.ada, "new-asked")
        with page.expect_navigation():
            page.get_by_role("button", name="Ask again").click()  # the page has kept both files
        shows(page, f"What silos answered about {self.study.name}")
        page.get_by_role("button", name=f"Create {self.study.name}").click()
        shows(page, "is created")
        assert page.url == self.ada.base + self.here
        self.look(self.ada, "study-created")
        page.get_by_role("button", name="Start").click()
        shows(page, "started")
        page.evaluate(WATCHED)

    def decide(self, silo):
        """A hospital sees that the study waits, reads it, and approves it by its digest."""
        visitor = self.hospitals[silo] = self.visitor(self._consoles.link(self.federation.config(silo)), silo)
        page, name = visitor.page, self.study.name
        self._until(visitor, page.get_by_role("heading", name="Waiting for your decision"))
        if silo == "north":
            self.look(visitor, "overview-waiting")
        page.get_by_role("listitem").get_by_role("link", name=name).click()
        assert page.url == visitor.base + self.here
        shows(page, "The policy would take it.")
        if silo == "north":
            self.look(visitor, "study-to-sign")
            page.get_by_label("Signed approval").set_input_files(self._signed(silo))
            page.get_by_role("button", name="Hand in the approval").click()
        else:
            page.get_by_label("Data").select_option(name)
            page.get_by_role("button", name=f"Approve {self.study.digest[:12]}").click()
        shows(page, f"may use {name}")
        assert page.locator(".head .badge").inner_text() != "refused", "what was said before is asked again"
        decided = approved(self.federation, silo)
        assert (decided.data, decided.signed is not None) == (name, silo == "north")

    def _signed(self, silo):
        """What an approver signs, with the command that the page prints."""
        home, out = self.federation.place.party(OFFICERS[0]), self.folder / f"{self.study.name}.approval"
        config = ("-c", self.federation.config(silo))
        data, key = ("--data", self.study.name), ("--key", home / "key.pem", "--out", out)
        run("fedward-silo", "study", "sign", self.study.digest, *data, *key, *config)
        return out

    @staticmethod
    def _until(visitor, wanted):
        for _ in range(600):
            if wanted.is_visible():
                return
            visitor.page.wait_for_timeout(200)
            visitor.page.reload()
        pytest.fail(f"{visitor.page.url} never shows {wanted}")

    def watch(self):
        """Somebody follows the study, pauses it, and lets it go on to its end."""
        page = self.ada.page
        for _ in range(SECONDS // 100):
            if "Train" in page.evaluate("window.steps"):  # the page's policy allows no `wait_for_function`
                break
            page.wait_for_timeout(100)
        before = page.evaluate("window.steps")
        page.get_by_role("button", name="Pause").click()
        shows(page, "paused by author author")
        self.look(self.ada, "study-paused")
        page.get_by_role("button", name="Resume").click()
        page.evaluate(WATCHED)
        page.locator(".badge.good", has_text="finished").wait_for(timeout=SECONDS)
        self.steps = before + page.evaluate("window.steps")
        self.ada.open(self.here)
        page.get_by_role("link", name="Results").click()
        shows(page, "hospitals signed what they read")
        self.look(self.ada, "results")

    def abort_another(self):
        """An operator starts somebody's study, and aborts it after a question."""
        other = write_document(self.folder / "other.yaml", study_document(name="other", personal=None))
        run("fedward-coordinator", "study", "create", other, "-o", self.federation.place.author_file)
        page = self.ops.open("/studies")
        page.get_by_role("link", name="other").click()
        page.get_by_label("Reason").fill("its author asked me")
        page.get_by_role("button", name="Start").click()
        page.get_by_role("link", name="Abort …").click()
        self.look(self.ops, "abort")
        page.get_by_label("Reason").fill("it was a <b>mistake</b>")
        page.get_by_label("I am sure").check()
        page.get_by_role("button", name="Abort for good").click()
        shows(page, "stopped by operator ops: it was a <b>mistake</b>")

    def look_at_the_rest(self):
        """Every other page of both consoles, and how large it is."""
        shown = {"/studies": "studies", self.here: "study"}
        hub = {f"{self.here}/text": "text", "/silos": "silos", "/prices": "prices", "/audit": "audit", "/none": "none"}
        ward = {"/": "overview", "/budget": "budget", "/left": "left", "/data": "data", "/models": "models"}
        north = self.hospitals["north"]
        for visitor, pages in ((self.ops, shown | hub), (north, shown | ward | {"/health": "health"})):
            for path, title in pages.items():
                assert visitor.size(path) <= MOST_BYTES, path
                self.look(visitor, title)
        assert version("fedward") in self.ops.open("/silos").text_content("main")

    def measure(self):
        """A hospital measures its models and checks its records."""
        self.federation.wait_for_silos()
        north = self.hospitals["north"]
        north.open(f"/models/{self.study.digest}").get_by_role("button", name="Measure now").click()
        shows(north.page, "Measured on held-out patients", timeout=SECONDS)
        self.look(north, "model")
        north.open("/data").get_by_role("button", name="Check").click()
        shows(north.page, "records fit")
        self.look(north, "data-checked")

    def leave(self):
        """Everybody signs out. The keyboard's first stop leads to the content."""
        self.hospitals["north"].page.keyboard.press("Tab")
        focused = self.hospitals["north"].page.evaluate("document.activeElement.textContent")
        assert focused == "To the content"
        for visitor in (self.ada, self.ops, *self.hospitals.values()):
            self.faults += visitor.said
            assert visitor.requests == {visitor.base}, "nothing is loaded from elsewhere"
            visitor.page.get_by_role("button", name="Sign out").click()
            shows(visitor.page, "You are signed out.")
            assert visitor.open("/").get_by_text("You are not signed in.").is_visible()


def test_a_study_goes_from_its_file_to_its_results_by_consoles_alone(federation, tmp_path):
    with ExitStack() as stack:
        story = Story(federation, tmp_path, stack.enter_context(chromium()), Consoles(stack))
        story.hand_in()
        for silo in SILOS:
            story.decide(silo)
        story.watch()
        seen = set(story.steps)  # a step may be shorter than the time between two looks
        assert {"Offer", "Train"} < seen <= {"Offer", "Train", "Sum", "Open", "Solve"}
        story.abort_another()
        story.look_at_the_rest()
        story.measure()
        story.leave()
    assert story.faults == []
